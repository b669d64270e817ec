//! The uses between the modules of a crate.

use crate::{Source, files};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A use of one top module of a crate by another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    /// The file with the use.
    pub file: PathBuf,
    /// The top module that the file belongs to.
    pub from: String,
    /// The top module that is used.
    pub to: String,
}

/// Returns the arrows between the top modules of the crate whose sources are in `src`. A use of an
/// item that the crate's root re-exports counts as a use of the item's module. Tests and the root
/// itself are left out.
pub fn arrows(src: &Path) -> BTreeSet<Arrow> {
    let read = |path: &Path| {
        let text = fs::read_to_string(path).expect("a readable source");
        Source::read(&text).code_without_tests()
    };
    let exported = exports(&read(&src.join("lib.rs")));
    let mut found = BTreeSet::new();
    for file in files(src, "rs") {
        let module = module_of(file.strip_prefix(src).expect("a file of the crate"));
        let Some(from) = module.first() else {
            continue;
        };
        if module
            .last()
            .is_some_and(|it| it == "tests" || it.ends_with("_tests"))
        {
            continue;
        }
        for to in used(&read(&file), module.len()) {
            let to = exported.get(&to).cloned().unwrap_or(to);
            if to != *from {
                found.insert(Arrow {
                    file: file.clone(),
                    from: from.clone(),
                    to,
                });
            }
        }
    }
    found
}

/// Returns the path of the module in the file at `path`, from the crate's root, which has none.
fn module_of(path: &Path) -> Vec<String> {
    let path = path.with_extension("");
    let mut module: Vec<String> = { path.components() }
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if module
        .last()
        .is_some_and(|it| it == "mod" || it == "lib" || it == "main")
    {
        module.pop();
    }
    module
}

/// Returns the module of each name that `root`, the code of a crate's root, re-exports.
fn exports(root: &str) -> BTreeMap<String, String> {
    let mut exported = BTreeMap::new();
    for piece in root.split("pub use ").skip(1) {
        let Some((path, _)) = piece.split_once(';') else {
            continue;
        };
        let path = path.trim().trim_start_matches("crate::");
        let Some((module, names)) = path.split_once("::") else {
            continue;
        };
        for name in names.split([',', '{', '}', ':']) {
            let name = name.rsplit(" as ").next().unwrap_or(name).trim();
            if !name.is_empty() {
                exported.insert(name.to_owned(), module.to_owned());
            }
        }
    }
    exported
}

/// Returns the first names of the paths from the crate's root in `code`, whose module is `depth`
/// below it.
fn used(code: &str, depth: usize) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let up = "super::".repeat(depth);
    for root in ["crate::", &up] {
        if root.is_empty() {
            continue;
        }
        for (at, _) in code.match_indices(root) {
            let before = code[..at].chars().next_back();
            // `$crate::` in a macro, and a path that goes further up than the root.
            if before.is_some_and(|it| it == '$' || it == ':' || it.is_alphanumeric() || it == '_')
            {
                continue;
            }
            let rest = &code[at + root.len()..];
            match rest.strip_prefix('{') {
                Some(group) => found.extend(names_of_group(group)),
                None => found.extend(name(rest)),
            }
        }
    }
    found.remove("super");
    found.remove("self");
    found
}

/// Returns the first name of each path in a group, after its `{`.
fn names_of_group(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut names = Vec::new();
    let mut expected = true;
    for (at, it) in group.char_indices() {
        match it {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expected = true,
            it if expected && !it.is_whitespace() => {
                names.extend(name(&group[at..]));
                expected = false;
            }
            _ => {}
        }
    }
    names
}

fn name(path: &str) -> Option<String> {
    let name: String = { path.chars() }
        .take_while(|it| it.is_alphanumeric() || *it == '_')
        .collect();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_paths_groups_and_parents_are_found() {
        let code = "use crate::a::{b, c}; use crate::{d::e, f}; use super::super::g; fn x() { crate::h::i() } $crate::no";
        let found: Vec<_> = used(code, 2).into_iter().collect();
        assert_eq!(found, ["a", "d", "f", "g", "h"]);
        assert_eq!(
            used("use super::a::b;", 1).into_iter().collect::<Vec<_>>(),
            ["a"]
        );
        assert!(
            used("use super::super::a;", 1).is_empty(),
            "beyond the root"
        );
    }

    #[test]
    fn re_exports_lead_to_their_modules() {
        let exported = exports("pub use a::{B, c::D as E}; pub use crate::f::G;");
        assert_eq!(exported["B"], "a");
        assert_eq!(exported["E"], "a");
        assert_eq!(exported["G"], "f");
    }
}
