//! Text for HTML.

/// Escapes text for HTML and for attributes in double quotes. Control characters, and those that
/// change the direction of writing, are shown as escape sequences: names, targets and the messages
/// of stores are foreign input.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            it if it.is_control() || is_format(it) => out.extend(it.escape_unicode()),
            it => out.push(it),
        }
    }
    out
}

/// Escapes a text in which backquotes enclose code.
pub(super) fn prose(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    let mut out = String::new();
    for (at, part) in parts.iter().enumerate() {
        // The last backquote of an odd number encloses nothing.
        let is_code = at % 2 == 1 && at + 1 < parts.len();
        match is_code {
            true => out += &format!("<code>{}</code>", escaped(part)),
            false if at % 2 == 1 => out += &format!("`{}", escaped(part)),
            false => out += &escaped(part),
        }
    }
    out
}

fn is_format(it: char) -> bool {
    matches!(
        it,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fffe}' | '\u{ffff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_is_no_markup() {
        let text = "<script>\"a\" & 'b'</script>\u{1b}[2J\u{202e}";
        let expected = "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\\u{1b}[2J\
                        \\u{202e}";
        assert_eq!(escaped(text), expected);
    }

    #[test]
    fn backquotes_enclose_code() {
        assert_eq!(prose("a `b < c` d"), "a <code>b &lt; c</code> d");
        assert_eq!(prose("a ` b"), "a ` b");
        assert_eq!(prose("`a` `b"), "<code>a</code> `b");
    }
}
