//! A file of Rust, line by line, split into code and comments.

/// A line of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// The code, with the contents of string literals left out.
    pub code: String,
    /// The text of the comment, without its marks.
    pub comment: String,
    /// Whether a part of a string literal is in the line.
    pub has_string: bool,
    /// The width in characters.
    pub width: usize,
}

/// A file of Rust.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its lines.
    pub lines: Vec<Line>,
}

/// The state of the reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    Code,
    /// A string literal that ends with N `#`, or one with escapes.
    Text(Option<usize>),
    /// A block comment of this depth.
    Block(usize),
}

impl Source {
    /// Reads `text`.
    ///
    /// ```
    /// let source = outlive_tidy::Source::read("let a = \"// no\"; // yes");
    /// assert_eq!(source.lines[0].code, "let a = \"\"; ");
    /// assert_eq!(source.lines[0].comment, "yes");
    /// ```
    pub fn read(text: &str) -> Self {
        let mut state = In::Code;
        let lines = text.lines().map(|line| read_line(line, &mut state));
        Self {
            lines: lines.collect(),
        }
    }

    /// Returns the code without comments, contents of strings, and items that are compiled for
    /// tests only.
    pub fn code_without_tests(&self) -> String {
        let code: Vec<&str> = self.lines.iter().map(|line| &*line.code).collect();
        let code = code.join("\n");
        let mut kept = String::new();
        let mut rest = &*code;
        while let Some(at) = rest.find("#[cfg(test)]") {
            kept.push_str(&rest[..at]);
            rest = after_item(&rest[at..]);
        }
        kept.push_str(rest);
        kept
    }
}

/// Returns the code after the item at the beginning of `code`.
fn after_item(code: &str) -> &str {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return &code[at + 1..],
            b'}' => depth -= 1,
            b';' if depth == 0 => return &code[at + 1..],
            _ => {}
        }
    }
    ""
}

fn read_line(text: &str, state: &mut In) -> Line {
    let mut line = Line {
        width: text.chars().count(),
        has_string: matches!(state, In::Text(_)),
        ..Line::default()
    };
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match *state {
            In::Code if rest.starts_with("//") => {
                line.comment = rest.trim_start_matches(['/', '!']).trim().to_owned();
                break;
            }
            In::Code if rest.starts_with("/*") => {
                *state = In::Block(1);
                rest = &rest[2..];
            }
            In::Code => {
                let (taken, next) = code(rest, &line.code);
                line.code.push_str(&rest[..taken]);
                line.has_string |= next != In::Code;
                *state = next;
                rest = &rest[taken..];
            }
            In::Text(end) => {
                let (taken, is_over) = string(rest, end);
                if is_over {
                    line.code.push('"');
                    *state = In::Code;
                }
                rest = &rest[taken..];
            }
            In::Block(depth) => {
                let taken = if rest.starts_with("/*") {
                    *state = In::Block(depth + 1);
                    2
                } else if rest.starts_with("*/") {
                    *state = if depth == 1 {
                        In::Code
                    } else {
                        In::Block(depth - 1)
                    };
                    2
                } else {
                    line.comment.push(first);
                    first.len_utf8()
                };
                rest = &rest[taken..];
            }
        }
    }
    line
}

/// Returns the length in bytes of the next token of `rest`, and the state of the reader after it.
fn code(rest: &str, before: &str) -> (usize, In) {
    let first = rest.chars().next().map_or(1, char::len_utf8);
    let in_a_word = before.ends_with(|it: char| it.is_alphanumeric() || it == '_');
    if !in_a_word {
        let raw = rest
            .strip_prefix('b')
            .or(rest.strip_prefix('c'))
            .unwrap_or(rest);
        if let Some(raw) = raw.strip_prefix('r') {
            let hashes = raw.len() - raw.trim_start_matches('#').len();
            if raw[hashes..].starts_with('"') {
                return (rest.len() - raw.len() + hashes + 1, In::Text(Some(hashes)));
            }
        }
    }
    if rest.starts_with('"') {
        return (1, In::Text(None));
    }
    // A character, not a lifetime.
    if let Some(quoted) = rest.strip_prefix('\'') {
        let mut chars = quoted.char_indices();
        let end = match chars.next() {
            Some((_, '\\')) => quoted[2..].find('\'').map(|at| at + 2),
            Some((_, it)) => {
                (chars.next().map(|(_, next)| next) == Some('\'')).then(|| it.len_utf8())
            }
            None => None,
        };
        if let Some(end) = end {
            return (end + 2, In::Code);
        }
    }
    (first, In::Code)
}

/// Returns the length in bytes of the next piece of `rest`, inside a string literal, and whether
/// the literal ends there.
fn string(rest: &str, end: Option<usize>) -> (usize, bool) {
    let first = rest.chars().next().map_or(1, char::len_utf8);
    match end {
        None if rest.starts_with('\\') => {
            let escaped = rest[1..].chars().next().map_or(0, char::len_utf8);
            (1 + escaped, false)
        }
        None => (first, rest.starts_with('"')),
        Some(hashes) => match rest.strip_prefix('"') {
            Some(after) if after.len() - after.trim_start_matches('#').len() >= hashes => {
                (1 + hashes, true)
            }
            _ => (first, false),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Vec<(String, String)> {
        let lines = Source::read(text).lines;
        lines
            .into_iter()
            .map(|line| (line.code, line.comment))
            .collect()
    }

    fn pair(code: &str, comment: &str) -> (String, String) {
        (code.to_owned(), comment.to_owned())
    }

    #[test]
    fn comments_are_told_from_strings_characters_and_lifetimes() {
        assert_eq!(parts("/// A doc."), [pair("", "A doc.")]);
        assert_eq!(parts("f(\"a // b\\\"\"); // c"), [pair("f(\"\"); ", "c")]);
        assert_eq!(
            parts("f(r#\"a \" // b\"#); //! c"),
            [pair("f(r#\"\"); ", "c")]
        );
        assert_eq!(
            parts("('\"', '\\'', &'a x) // c"),
            [pair("('\"', '\\'', &'a x) ", "c")]
        );
        assert_eq!(
            parts("a /* b\nc */ d"),
            [pair("a ", " b"), pair(" d", "c ")]
        );
        assert_eq!(
            parts("\"a\\\n  // b\" c"),
            [pair("\"", ""), pair("\" c", "")]
        );
    }

    #[test]
    fn what_is_compiled_for_tests_only_is_left_out() {
        let source = Source::read("a\n#[cfg(test)]\nmod tests { { } }\nb\n#[cfg(test)]\nuse x;\nc");
        let code = source.code_without_tests();
        assert_eq!(code.split_whitespace().collect::<String>(), "abc");
    }
}
