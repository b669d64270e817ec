//! What is to be archived: files, directories and links, found and named before anything is read.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Files, directories and links, in the order of an archive: every directory before what is in it, and what is in
/// one in the order of its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    entries: Vec<Source>,
}

/// Something to be archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// What the archive calls it: names with `/` between them.
    pub name: Vec<u8>,
    /// Its permissions: the lower nine bits of its mode.
    pub mode: u32,
    /// What it is.
    pub content: Content,
}

/// What something is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A directory.
    Directory,
    /// A file.
    File,
    /// A symbolic link, and where it leads.
    Link(Vec<u8>),
}

/// Why something cannot be archived.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The operating system said no.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// What was to be read.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is neither a file nor a directory nor a link.
    #[error("{} is neither a file nor a directory nor a link and cannot be archived; leave it out", .path.display())]
    Special {
        /// What it is called.
        path: PathBuf,
    },
    /// Two paths would have one name in the archive.
    #[error("{} would be called \u{201c}{name}\u{201d} in the archive, as something else is; archive them apart", .path.display())]
    Twice {
        /// The second of them.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// It has no name of its own.
    #[error("{} has no name that an archive could call it by; name what is in it", .path.display())]
    NoName {
        /// What was named.
        path: PathBuf,
    },
}

impl Tree {
    /// Finds what `paths` name, and everything in the directories among them. In the archive each path has its last name only. A
    /// link that `paths` name is followed, others are archived as links.
    ///
    /// # Errors
    /// At the first that cannot be archived.
    pub fn find(paths: &[impl AsRef<Path>]) -> Result<Self, TreeError> {
        let mut tree = Self::default();
        let mut names = HashSet::new();
        for path in paths {
            let path = path.as_ref();
            let found = fs::metadata(path).map_err(unreadable(path))?;
            // The name of `.` is that of the directory that one is in.
            let whole = match path.file_name() {
                Some(_) => path.to_owned(),
                None => fs::canonicalize(path).map_err(unreadable(path))?,
            };
            let name = whole
                .file_name()
                .ok_or_else(|| TreeError::NoName { path: path.into() })?;
            let name = name.as_bytes().to_vec();
            if !names.insert(name.clone()) {
                return Err(TreeError::Twice {
                    path: path.into(),
                    name: String::from_utf8_lossy(&name).into_owned(),
                });
            }
            tree.add(path.to_owned(), name, &found)?;
        }
        Ok(tree)
    }

    /// What is to be archived.
    pub fn entries(&self) -> &[Source] {
        &self.entries
    }

    fn add(&mut self, path: PathBuf, name: Vec<u8>, found: &Metadata) -> Result<(), TreeError> {
        let kind = found.file_type();
        let content = if kind.is_dir() {
            Content::Directory
        } else if kind.is_file() {
            Content::File
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(unreadable(&path))?;
            Content::Link(target.as_os_str().as_bytes().to_vec())
        } else {
            return Err(TreeError::Special { path });
        };
        let mut inside = Vec::new();
        if content == Content::Directory {
            for entry in fs::read_dir(&path).map_err(unreadable(&path))? {
                inside.push(entry.map_err(unreadable(&path))?.file_name());
            }
            inside.sort_unstable();
        }
        self.entries.push(Source {
            path: path.clone(),
            name: name.clone(),
            mode: found.permissions().mode() & 0o777,
            content,
        });
        for last in inside {
            let path = path.join(&last);
            let found = fs::symlink_metadata(&path).map_err(unreadable(&path))?;
            let name = [&name, &b"/"[..], OsStr::as_bytes(&last)].concat();
            self.add(path, name, &found)?;
        }
        Ok(())
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> TreeError {
    let path = path.to_owned();
    move |source| TreeError::Unreadable { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_there_is_found_in_order() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("b/deep")).unwrap();
        fs::create_dir(at("c")).unwrap();
        fs::write(at("b/two"), "22").unwrap();
        fs::write(at("b/deep.txt"), "333").unwrap();
        fs::write(at("b/deep/one"), "1").unwrap();
        std::os::unix::fs::symlink("../c/nowhere", at("b/link")).unwrap();
        let tree = Tree::find(&[at("c"), at("b")]).unwrap();
        let names: Vec<_> = tree
            .entries()
            .iter()
            .map(|entry| str::from_utf8(&entry.name).unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "c",
                "b",
                "b/deep",
                "b/deep/one",
                "b/deep.txt",
                "b/link",
                "b/two"
            ]
        );
        assert_eq!(
            tree.entries()[5].content,
            Content::Link(b"../c/nowhere".to_vec())
        );
        // A link that is named is what it leads to.
        std::os::unix::fs::symlink("b/two", at("d")).unwrap();
        assert_eq!(
            Tree::find(&[at("d")]).unwrap().entries()[0].content,
            Content::File
        );

        let said = |paths: &[PathBuf]| Tree::find(paths).unwrap_err().to_string();
        assert!(said(&[at("c"), at("b/../c")]).contains("called “c” in the archive"));
        assert!(said(&[at("none")]).contains("No such file"));
        assert!(said(&["/".into()]).contains("no name"));
        assert!(said(&["/dev/null".into()]).contains("neither a file"));
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("c/pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(said(&[at("c")]).contains("pipe is neither a file"));
    }
}
