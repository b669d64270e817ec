//! Widths of lines, lengths of files, and the words of comments.

use outlive_tidy::{Source, files, root};
use std::fs;
use std::path::{Path, PathBuf};

/// The widest comment in Rust.
const WIDTH: usize = 100;
/// The widest line of a document.
const DOCUMENT_WIDTH: usize = 120;
/// The longest file of Rust, in lines.
const LENGTH: usize = 600;

/// Files that are longer than [`LENGTH`], with the reason.
const LONG: &[(&str, &str)] = &[];

/// Pronouns that hide the actor: "whoever finds it" for "a survivor".
const PRONOUNS: &[&str] = &[
    "who",
    "whoever",
    "whose",
    "whom",
    "somebody",
    "someone",
    "nobody",
    "anybody",
    "everybody",
    "what",
];

/// The most [`PRONOUNS`] in 10,000 words of a crate's comments: in the product and the laboratory.
const MOST_PRONOUNS: [(&str, usize); 2] = [("crates", 30), ("lab", 60)];

/// Words that the glossary replaces.
const BANNED: &[&str] = &[
    "nought",
    "noughts",
    "so-manieth",
    "heir",
    "heirs",
    "blow",
    "blows",
    "burier",
];

fn rust() -> Vec<(PathBuf, Source)> {
    let mut found = Vec::new();
    for directory in ["crates", "lab", "fuzz"] {
        for path in files(&root().join(directory), "rs") {
            let text = fs::read_to_string(&path).expect("a readable source");
            found.push((path, Source::read(&text)));
        }
    }
    assert!(found.len() > 500, "only {} files were found", found.len());
    found
}

fn shown(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap_or(path);
    path.display().to_string()
}

fn demand_none(wrong: &[String]) {
    assert!(
        wrong.is_empty(),
        "{} places:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// The text of a comment outside tables and pictures.
fn prose(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let mut in_a_picture = false;
    let lines = source.lines.iter().enumerate();
    lines.filter_map(move |(at, line)| {
        let is_edge = line.comment.starts_with("```");
        in_a_picture ^= is_edge;
        let is_prose = !in_a_picture && !is_edge && !line.comment.starts_with('|');
        is_prose.then_some((at + 1, &*line.comment))
    })
}

/// Of code, `cargo fmt --check` is the judge; it leaves string literals and bodies of macros alone.
#[test]
fn comments_are_not_too_wide() {
    let mut wrong = Vec::new();
    for (path, source) in rust() {
        for (at, _) in prose(&source) {
            let line = &source.lines[at - 1];
            if line.width > WIDTH && line.code.trim().is_empty() && !line.has_string {
                wrong.push(format!(
                    "{}:{at}: {} columns wide",
                    shown(&path),
                    line.width
                ));
            }
        }
    }
    demand_none(&wrong);
}

#[test]
fn lines_of_documents_are_not_too_wide() {
    let mut wrong = Vec::new();
    for path in files(&root(), "md") {
        let text = fs::read_to_string(&path).expect("a readable document");
        let mut in_code = false;
        for (at, line) in text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            let is_table = line.starts_with('|');
            let width = line.chars().count();
            if width > DOCUMENT_WIDTH && !in_code && !is_table {
                wrong.push(format!("{}:{}: {width} columns wide", shown(&path), at + 1));
            }
        }
    }
    demand_none(&wrong);
}

#[test]
fn files_are_not_too_long() {
    let mut wrong = Vec::new();
    for (path, source) in rust() {
        let name = shown(&path);
        let is_named = LONG.iter().any(|(long, _)| *long == name);
        match (source.lines.len() > LENGTH, is_named) {
            (true, false) => wrong.push(format!("{name} has {} lines", source.lines.len())),
            (false, true) => wrong.push(format!(
                "{name} is no longer too long; remove it from the list"
            )),
            _ => {}
        }
    }
    demand_none(&wrong);
}

/// Counts words and [`PRONOUNS`] in the comments of `sources`.
fn count<'s>(sources: impl Iterator<Item = &'s Source>) -> (usize, usize) {
    let (mut words, mut pronouns) = (0, 0);
    for source in sources {
        for (_, comment) in prose(source) {
            for word in comment.split(|it: char| !it.is_alphanumeric() && it != '\'') {
                if !word.is_empty() {
                    words += 1;
                    pronouns += usize::from(PRONOUNS.contains(&&*word.to_lowercase()));
                }
            }
        }
    }
    (words, pronouns)
}

#[test]
fn comments_name_their_actors() {
    let all = rust();
    let mut wrong = Vec::new();
    for (directory, most) in MOST_PRONOUNS {
        let entries = fs::read_dir(root().join(directory)).expect("a directory");
        for entry in entries {
            let path = entry.expect("a readable directory").path();
            let of_it = all.iter().filter(|(file, _)| file.starts_with(&path));
            let (words, pronouns) = count(of_it.map(|(_, source)| source));
            let now = (pronouns * 10_000).div_ceil(words.max(1));
            let name = shown(&path);
            if now > most {
                wrong.push(format!(
                    "{name}: {now} in 10,000 words are indefinite pronouns, {most} at most"
                ));
            }
        }
    }
    demand_none(&wrong);
}

/// Comments that say nothing.
const EMPTY: &[&str] = &[
    "Which.",
    "Where.",
    "Where it is.",
    "What.",
    "What it is.",
    "Who.",
    "Why.",
    "When.",
    "How many.",
    "How much.",
];

#[test]
fn comments_are_not_empty() {
    let mut wrong = Vec::new();
    for (path, source) in rust() {
        for (at, comment) in prose(&source) {
            if EMPTY.contains(&comment) {
                wrong.push(format!("{}:{at}: {comment}", shown(&path)));
            }
        }
    }
    demand_none(&wrong);
}

#[test]
fn comments_have_no_banned_words() {
    let mut wrong = Vec::new();
    for (path, source) in rust() {
        for (at, comment) in prose(&source) {
            for banned in BANNED {
                let has_it = comment
                    .to_lowercase()
                    .split(|it: char| !it.is_alphanumeric() && it != '-')
                    .any(|it| it == *banned);
                if has_it {
                    wrong.push(format!("{}:{at}: {banned}", shown(&path)));
                }
            }
        }
    }
    demand_none(&wrong);
}
