//! The entries to archive: files, directories and links, found and named before any is read.

use super::attributes::{self, Attributes};
use super::exclude::Pattern;
use super::extents::{self, Span};
use outlive_run::input::{open_regular, version_of};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, FileType, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Files, directories and links, in the order of an archive: every directory comes before its
/// contents, which are sorted by name.
#[derive(Debug, Default)]
pub struct Tree {
    entries: Vec<Source>,
    left_out: Vec<TreeError>,
    excluded: u64,
}

/// An entry to archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The path.
    pub path: PathBuf,
    /// The name in the archive: parts with `/` between them.
    pub name: Vec<u8>,
    /// The mode and time, and the optional attributes.
    pub attributes: Attributes,
    /// The contents of the entry.
    pub content: Content,
}

impl Source {
    /// Returns the ranges of a file that are not holes; empty for other entries.
    pub(super) fn extents(&self) -> &[Span] {
        match &self.content {
            Content::File(file) => &file.data,
            _ => &[],
        }
    }
}

/// The content of an entry, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A directory.
    Directory,
    /// A file.
    File(FileContent),
    /// A symbolic link, and its target.
    Link(Vec<u8>),
    /// A hard link to the file with this entry number.
    HardLink(usize),
}

/// The properties of a file that are known before its content is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContent {
    /// The length in bytes.
    pub len: u64,
    /// The ranges that are not holes, in their order.
    pub data: Vec<Span>,
    /// A value that changes when the file changes: see
    /// [`InputFile::version`](outlive_run::input::InputFile::version).
    pub version: u64,
}

/// Options that select the entries and attributes to archive.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Archive the owners of all entries.
    pub owners: bool,
    /// Archive extended attributes.
    pub xattrs: bool,
    /// Exclude the entries that match one of these patterns, and the contents of such directories.
    pub exclude: Vec<Pattern>,
    /// Fail at the first entry that cannot be archived, instead of [leaving it
    /// out](Tree::left_out).
    pub strict: bool,
}

/// The reason why an entry cannot be archived.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The operating system reported an error.
    #[error("{} cannot be read: {source}", .path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The entry is neither a file nor a directory nor a link.
    #[error(
        "{} is neither a file, a directory nor a link, but {kind}, which cannot be archived",
        .path.display()
    )]
    Special {
        /// The path.
        path: PathBuf,
        /// The kind.
        kind: &'static str,
    },
    /// Its length is 0, but it has content, as files of /proc have.
    #[error(
        "{} has the length 0 and is not empty; copy it to an ordinary file first",
        .path.display()
    )]
    NoLength {
        /// The path.
        path: PathBuf,
    },
    /// An extended attribute cannot be read. The entry is archived without it.
    #[error("{} is archived without its extended attribute {name}, which cannot be read: {source}", .path.display())]
    Xattr {
        /// The entry.
        path: PathBuf,
        /// The name of the attribute.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// Two paths would have the same name in the archive.
    #[error(
        "{} would be called \u{201c}{name}\u{201d} in the archive, like another entry; archive \
         them separately",
        .path.display()
    )]
    Twice {
        /// The second of them.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// The path has no name of its own.
    #[error(
        "{} has no name that can be stored in the archive; name its entries instead",
        .path.display()
    )]
    NoName {
        /// The path.
        path: PathBuf,
    },
}

impl TreeError {
    /// Returns the path of the entry that cannot be archived.
    pub fn path(&self) -> &Path {
        match self {
            Self::Unreadable { path, .. }
            | Self::Special { path, .. }
            | Self::NoLength { path }
            | Self::Xattr { path, .. }
            | Self::Twice { path, .. }
            | Self::NoName { path } => path,
        }
    }

    /// Returns whether the entry is a socket, a FIFO or a device, which have no content to archive.
    pub fn is_special(&self) -> bool {
        matches!(self, Self::Special { .. })
    }
}

impl Tree {
    /// Finds the entries that `paths` name, and everything in the directories among them. In the
    /// archive, each path has only its last name. A link in `paths` is followed; other links are
    /// archived as links.
    ///
    /// # Errors
    /// Returns the errors of [`find_with`](Self::find_with).
    pub fn find(paths: &[impl AsRef<Path>]) -> Result<Self, TreeError> {
        Self::find_with(paths, &Selection::default())
    }

    /// Finds entries like [`find`](Self::find), with the options of `selection`.
    ///
    /// # Errors
    /// If one of `paths` cannot be archived. An entry inside one of them that cannot be archived is
    /// [left out](Self::left_out), or is an error if the selection is strict.
    pub fn find_with(paths: &[impl AsRef<Path>], selection: &Selection) -> Result<Self, TreeError> {
        let mut search = Search {
            tree: Self::default(),
            selection,
            inodes: HashMap::new(),
        };
        let mut names = HashSet::new();
        for path in paths {
            let path = path.as_ref();
            let found = fs::metadata(path).map_err(unreadable(path))?;
            // The name of `.` is that of the current directory.
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
            if !search.excludes(&name, found.is_dir()) {
                search.add(path.to_owned(), name, found)?;
            }
        }
        Ok(search.tree)
    }

    /// Returns the entries to archive.
    pub fn entries(&self) -> &[Source] {
        &self.entries
    }

    /// Returns a file with holes that was changed after it was found.
    pub(super) fn changed_sparse(&self) -> Option<PathBuf> {
        let is_changed = |source: &&Source| match &source.content {
            Content::File(file) if !extents::holes(&file.data, file.len).is_empty() => {
                // The holes of a removed file were not filled.
                let now = fs::metadata(&source.path);
                now.is_ok_and(|now| version_of(&now) != file.version)
            }
            _ => false,
        };
        let changed = self.entries.iter().find(is_changed);
        changed.map(|source| source.path.clone())
    }

    /// Returns the entries that are not archived, or not completely, with the reasons.
    pub fn left_out(&self) -> &[TreeError] {
        &self.left_out
    }

    /// Returns the number of entries that a pattern excludes. The contents of excluded directories
    /// are not counted.
    pub fn excluded(&self) -> u64 {
        self.excluded
    }
}

/// The state of a search.
struct Search<'s> {
    tree: Tree,
    selection: &'s Selection,
    /// The entry numbers of files with several names, by device and inode.
    inodes: HashMap<(u64, u64), usize>,
}

impl Search<'_> {
    /// Returns whether `name` is excluded, and counts it if so.
    fn excludes(&mut self, name: &[u8], is_directory: bool) -> bool {
        let mut patterns = self.selection.exclude.iter();
        let is_excluded = patterns.any(|pattern| pattern.matches(name, is_directory));
        self.tree.excluded += u64::from(is_excluded);
        is_excluded
    }

    fn leave_out(&mut self, error: TreeError) -> Result<(), TreeError> {
        if self.selection.strict {
            return Err(error);
        }
        self.tree.left_out.push(error);
        Ok(())
    }

    fn add(&mut self, path: PathBuf, name: Vec<u8>, mut found: Metadata) -> Result<(), TreeError> {
        let kind = found.file_type();
        let mut inside = Vec::new();
        let content = if kind.is_dir() {
            inside = names_in(&path)?;
            Content::Directory
        } else if kind.is_file() {
            let first = self.inodes.get(&(found.dev(), found.ino()));
            match first.filter(|_| found.nlink() > 1) {
                Some(first) => Content::HardLink(*first),
                None => Content::File(look(&path, &mut found)?),
            }
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(unreadable(&path))?;
            Content::Link(target.as_os_str().as_bytes().to_vec())
        } else {
            let kind = name_of(kind);
            return Err(TreeError::Special { path, kind });
        };
        let attributes = self.attributes(&path, &found, &content)?;
        if let Content::File(_) = content
            && found.nlink() > 1
        {
            let inode = (found.dev(), found.ino());
            self.inodes.insert(inode, self.tree.entries.len());
        }
        self.tree.entries.push(Source {
            path: path.clone(),
            name: name.clone(),
            attributes,
            content,
        });
        for last in inside {
            let path = path.join(&last);
            let name = [&name, &b"/"[..], OsStr::as_bytes(&last)].concat();
            let added = match fs::symlink_metadata(&path) {
                Ok(found) if self.excludes(&name, found.is_dir()) => Ok(()),
                Ok(found) => self.add(path, name, found),
                // An excluded entry need not be readable.
                Err(_) if self.excludes(&name, false) => Ok(()),
                Err(error) => Err(unreadable(&path)(error)),
            };
            added.or_else(|error| self.leave_out(error))?;
        }
        Ok(())
    }

    fn attributes(
        &mut self,
        path: &Path,
        found: &Metadata,
        content: &Content,
    ) -> Result<Attributes, TreeError> {
        if let Content::HardLink(first) = content {
            return Ok(self.tree.entries[*first].attributes.clone());
        }
        let mut attributes = Attributes::of(found, self.selection.owners);
        if self.selection.xattrs {
            let is_link = matches!(content, Content::Link(_));
            let mut failures = Vec::new();
            let xattrs = attributes::xattrs(path, is_link, |name, error| {
                failures.push(TreeError::Xattr {
                    path: path.into(),
                    name: String::from_utf8_lossy(name).into_owned(),
                    source: error.into(),
                });
            });
            attributes.xattrs = xattrs.map_err(|error| unreadable(path)(error.into()))?;
            failures
                .into_iter()
                .try_for_each(|failure| self.leave_out(failure))?;
        }
        Ok(attributes)
    }
}

/// Returns the names in the directory `path`, in their order.
fn names_in(path: &Path) -> Result<Vec<std::ffi::OsString>, TreeError> {
    let entries = fs::read_dir(path).map_err(unreadable(path))?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names: Vec<_> = names.collect::<Result<_, _>>().map_err(unreadable(path))?;
    names.sort_unstable();
    Ok(names)
}

/// Opens the file `path` to check that it can be read, and updates `found`. The opened file must
/// have the inode of `found`, so a link that has replaced the file is not followed.
fn look(path: &Path, found: &mut Metadata) -> Result<FileContent, TreeError> {
    let mut file = open_regular(path).map_err(unreadable(path))?;
    let opened = file.metadata().map_err(unreadable(path))?;
    if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) {
        let replaced = io::Error::other("it was replaced during the search for files");
        return Err(unreadable(path)(replaced));
    }
    *found = opened;
    let len = found.len();
    if len == 0 && file.read(&mut [0]).map_err(unreadable(path))? != 0 {
        return Err(TreeError::NoLength { path: path.into() });
    }
    Ok(FileContent {
        len,
        data: extents::data(&file, len).map_err(unreadable(path))?,
        version: version_of(found),
    })
}

fn name_of(kind: FileType) -> &'static str {
    if kind.is_socket() {
        "a socket"
    } else if kind.is_fifo() {
        "a FIFO"
    } else {
        "a device"
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
        // A named link stands for its target.
        std::os::unix::fs::symlink("b/two", at("d")).unwrap();
        assert!(matches!(
            Tree::find(&[at("d")]).unwrap().entries()[0].content,
            Content::File(_)
        ));

        let said = |paths: &[PathBuf]| Tree::find(paths).unwrap_err().to_string();
        assert!(said(&[at("c"), at("b/../c")]).contains("called “c” in the archive"));
        assert!(said(&[at("none")]).contains("No such file"));
        assert!(said(&["/".into()]).contains("no name"));
        let null = said(&["/dev/null".into()]);
        assert!(
            null.contains("neither a file") && null.contains("a device"),
            "{null}"
        );
    }

    fn fifo(path: &Path) {
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, path, fifo, mode, 0).unwrap();
    }

    #[test]
    fn special_files_are_left_out_or_end_a_strict_search() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("t")).unwrap();
        fs::write(at("t/file"), "1").unwrap();
        std::os::unix::fs::symlink("nowhere", at("t/link")).unwrap();
        fifo(&at("t/pipe"));
        let _socket = std::os::unix::net::UnixListener::bind(at("t/socket")).unwrap();
        let tree = Tree::find(&[at("t")]).unwrap();
        assert_eq!(tree.entries().len(), 3);
        let kinds: Vec<_> = { tree.left_out().iter() }
            .map(|error| {
                assert!(error.is_special());
                let said = error.to_string();
                (
                    error.path().to_owned(),
                    said.contains("a FIFO"),
                    said.contains("a socket"),
                )
            })
            .collect();
        assert_eq!(
            kinds,
            [(at("t/pipe"), true, false), (at("t/socket"), false, true)]
        );
        let mut selection = Selection {
            strict: true,
            ..Selection::default()
        };
        let said = Tree::find_with(&[at("t")], &selection).unwrap_err();
        assert!(
            said.to_string().contains("pipe is neither a file"),
            "{said}"
        );
        // Excluded entries need not be archivable.
        selection.exclude = ["pipe", "t/soc*"]
            .map(|pattern| pattern.parse().unwrap())
            .to_vec();
        let tree = Tree::find_with(&[at("t")], &selection).unwrap();
        assert_eq!((tree.entries().len(), tree.excluded()), (3, 2));
        selection.exclude = vec!["t/".parse().unwrap()];
        let tree = Tree::find_with(&[at("t")], &selection).unwrap();
        assert_eq!((tree.entries().len(), tree.excluded()), (0, 1));
    }

    #[test]
    fn names_of_one_inode_are_hard_links() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("t/d")).unwrap();
        fs::write(at("t/d/a"), "1").unwrap();
        fs::hard_link(at("t/d/a"), at("t/b")).unwrap();
        fs::hard_link(at("t/d/a"), at("outside")).unwrap();
        fs::write(at("t/c"), "1").unwrap();
        let tree = Tree::find(&[at("t")]).unwrap();
        let contents: Vec<_> = tree.entries().iter().map(|entry| &entry.content).collect();
        // `t`, `t/b`, `t/c`, `t/d` and `t/d/a`.
        assert!(matches!(contents[1], Content::File(_)));
        assert!(matches!(contents[2], Content::File(_)));
        assert_eq!(contents[4], &Content::HardLink(1));
        // Also across several named paths: the first name is entry 0.
        let tree = Tree::find(&[at("outside"), at("t")]).unwrap();
        let contents = tree.entries().iter().map(|entry| &entry.content);
        assert_eq!(
            contents.filter(|it| **it == Content::HardLink(0)).count(),
            2
        );
    }
}
