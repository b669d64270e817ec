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
}
