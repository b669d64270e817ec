//! Patterns that exclude entries from an archive.

use globset::{Glob, GlobBuilder, GlobMatcher};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

/// A pattern of names, similar to a line of a `.gitignore` file (without negation).
///
/// A pattern without a `/` is compared with the last part of a name, at any depth. A pattern with a
/// `/` is compared with the whole name in the archive. A `/` at the end restricts the pattern to
/// directories. `*` and `?` do not match a `/`. `**` matches any number of directories, `[…]` one
/// of several characters, and `{a,b}` one of several texts.
///
/// ```
/// use outlive_programs::dedup::exclude::Pattern;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let objects: Pattern = "*.o".parse()?;
/// assert!(objects.matches(b"src/deep/main.o", false));
/// let target: Pattern = "src/target/".parse()?;
/// assert!(target.matches(b"src/target", true));
/// assert!(!target.matches(b"src/deep/target", true) && !target.matches(b"src/target", false));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pattern {
    matcher: GlobMatcher,
    directories_only: bool,
}

/// The errors of parsing a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    /// The text has no characters other than `/`.
    #[error("the pattern is empty and would not match any name")]
    Empty,
    /// The syntax is wrong.
    #[error("{0}; put [ ] around a character that is meant literally, such as [*]")]
    Syntax(#[from] globset::Error),
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let pattern = text.strip_suffix('/').unwrap_or(text);
        let glob = match pattern.strip_prefix('/') {
            Some(rooted) => rooted.to_owned(),
            None if pattern.contains('/') => pattern.to_owned(),
            None => format!("**/{pattern}"),
        };
        if pattern.trim_matches('/').is_empty() {
            return Err(PatternError::Empty);
        }
        let glob: Glob = GlobBuilder::new(&glob).literal_separator(true).build()?;
        Ok(Self {
            matcher: glob.compile_matcher(),
            directories_only: text.ends_with('/'),
        })
    }
}

impl Pattern {
    /// Returns whether the pattern matches the archive name `name`.
    pub fn matches(&self, name: &[u8], is_directory: bool) -> bool {
        (is_directory || !self.directories_only) && self.matcher.is_match(OsStr::from_bytes(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_gitignore_files() {
        for (pattern, matched, others) in [
            (
                "*.o",
                &["a.o", "t/a.o", "t/.o"][..],
                &["t/a.ox", "a.o/b"][..],
            ),
            (
                "target",
                &["target", "t/target"],
                &["t/target/a", "targets"],
            ),
            ("/t/*.o", &["t/a.o"], &["t/d/a.o", "x/t/a.o"]),
            ("t/**/a", &["t/a", "t/d/e/a"], &["a", "x/t/a"]),
            ("**/d/a", &["d/a", "t/d/a"], &["t/a"]),
            ("[*]", &["t/*"], &["t/a"]),
            ("{a,b}?", &["ac", "t/bc"], &["a", "cc"]),
        ] {
            let parsed: Pattern = pattern.parse().unwrap();
            for (names, expected) in [(matched, true), (others, false)] {
                for name in names {
                    assert_eq!(
                        parsed.matches(name.as_bytes(), false),
                        expected,
                        "{pattern} {name}"
                    );
                }
            }
        }
        let not_text: Pattern = "*.o".parse().unwrap();
        assert!(not_text.matches(b"t/\xff\xfe.o", false));
        let directories: Pattern = "d/".parse().unwrap();
        assert!(directories.matches(b"t/d", true) && !directories.matches(b"t/d", false));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for empty in ["", "/", "//"] {
            assert_eq!(empty.parse::<Pattern>().unwrap_err(), PatternError::Empty);
        }
        let said = "[a".parse::<Pattern>().unwrap_err().to_string();
        assert!(said.contains("[a") && said.contains("[*]"), "{said}");
    }
}
