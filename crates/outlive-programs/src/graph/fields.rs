//! The fields of a line of an edge list. The rules by which they are separated are documented in
//! [`edge_list`](super::edge_list).

use super::Mistake;
use super::error::shown;
use std::borrow::Cow;

/// The separator between the fields of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Separator {
    /// Any run of spaces and tabs.
    WhiteSpace,
    /// One tab.
    Tab,
    /// One comma.
    Comma,
    /// One semicolon.
    Semicolon,
}

impl Separator {
    /// Returns the separator called `name`: `space`, `tab`, `comma` or `semicolon`, or the
    /// character itself.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "space" | " " => Self::WhiteSpace,
            "tab" | "\t" | "\\t" => Self::Tab,
            "comma" | "," => Self::Comma,
            "semicolon" | ";" => Self::Semicolon,
            _ => return None,
        })
    }

    /// Returns its name in errors.
    pub(super) fn shown(self) -> &'static str {
        match self {
            Self::WhiteSpace => "white space",
            Self::Tab => "a tab",
            Self::Comma => "a comma",
            Self::Semicolon => "a semicolon",
        }
    }

    /// Returns the classes of the bytes that end a field.
    fn ends(self) -> u8 {
        match self {
            Self::WhiteSpace => SPACE | TAB,
            Self::Tab => TAB,
            Self::Comma => COMMA,
            Self::Semicolon => SEMICOLON,
        }
    }

    /// Returns the classes of the bytes around a field that do not count.
    fn pads(self) -> u8 {
        match self {
            Self::Tab => SPACE,
            _ => SPACE | TAB,
        }
    }

    /// Decides the separator of a list; `line` is its first line with fields. Returns `None` if
    /// that has only one field.
    pub(super) fn decide(line: &[u8]) -> Result<Option<Self>, Mistake> {
        let (from, rest) = plain_field(line.trim_ascii_start());
        let Some((gap, rest)) = Gap::of(rest) else {
            return Ok(None);
        };
        let (to, rest) = plain_field(rest);
        let separator = gap.separator();
        let Some((next, rest)) = Gap::of(rest) else {
            return Ok(Some(separator));
        };
        let is_comment = |of: &[u8]| of.first().is_some_and(|byte| class(*byte) & COMMENT != 0);
        let agrees = match separator {
            Self::WhiteSpace => next.classes == gap.classes || is_comment(rest),
            Self::Tab => next.classes == TAB,
            Self::Comma | Self::Semicolon => next.separator() == separator,
        };
        let is_number = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
        if agrees {
            Ok(Some(separator))
        } else if (gap.classes | next.classes) & (COMMA | SEMICOLON) == 0
            && is_number(from)
            && is_number(to)
        {
            Ok(Some(Self::WhiteSpace))
        } else {
            Err(Mistake::Ambiguous(shown(line)))
        }
    }
}

/// The bytes between two fields, for any separator.
struct Gap {
    classes: u8,
    len: usize,
}

impl Gap {
    /// Returns the gap at the start of `rest`, at most one comma or semicolon with white space
    /// around it, and the bytes after it; `None` at the end of the line.
    fn of(rest: &[u8]) -> Option<(Self, &[u8])> {
        let (mut classes, mut len) = (0, 0);
        for byte in rest {
            let class = class(*byte) & (SPACE | TAB | COMMA | SEMICOLON);
            let is_second = [class, classes].map(|of| of & (COMMA | SEMICOLON) != 0) == [true; 2];
            if class == 0 || is_second {
                break;
            }
            classes |= class;
            len += 1;
        }
        let ends = len == rest.len() && classes & (COMMA | SEMICOLON) == 0;
        (len > 0 && !ends).then(|| (Self { classes, len }, &rest[len..]))
    }

    fn separator(&self) -> Separator {
        match self.classes & (COMMA | SEMICOLON) {
            COMMA => Separator::Comma,
            SEMICOLON => Separator::Semicolon,
            _ if self.classes == TAB && self.len == 1 => Separator::Tab,
            _ => Separator::WhiteSpace,
        }
    }
}

/// Returns the field at the start of `rest` if every byte that may be a separator is one, and the
/// bytes after it.
fn plain_field(rest: &[u8]) -> (&[u8], &[u8]) {
    let quoted = rest.strip_prefix(b"\"").and_then(closing_quote);
    let len = match quoted {
        Some(at) => at + 2,
        None => {
            let ends = |byte: &u8| class(*byte) & (SPACE | TAB | COMMA | SEMICOLON) != 0;
            rest.iter().position(ends).unwrap_or(rest.len())
        }
    };
    rest.split_at(len)
}

/// Returns the offset of the quote that ends a field in `rest`, the bytes after the quote that
/// begins it.
fn closing_quote(rest: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += rest[at..].iter().position(|byte| *byte == b'"')?;
        if rest.get(at + 1) != Some(&b'"') {
            return Some(at);
        }
        at += 2;
    }
}

/// Spaces, vertical tabs and form feeds.
const SPACE: u8 = 1;
const TAB: u8 = 2;
const COMMA: u8 = 4;
const SEMICOLON: u8 = 8;
const QUOTE: u8 = 16;
/// Bytes that begin a comment.
const COMMENT: u8 = 32;
/// Control characters, line ends included.
const CONTROL: u8 = 64;
/// Bytes that are not ASCII.
const HIGH: u8 = 128;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b' ' | 0x0B | 0x0C => SPACE,
            b'\t' => TAB,
            b',' => COMMA,
            b';' => SEMICOLON,
            b'"' => QUOTE,
            b'#' | b'%' => COMMENT,
            0..=0x1F | 0x7F => CONTROL,
            0x80.. => HIGH,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

#[inline(always)]
fn class(byte: u8) -> u8 {
    CLASSES[byte as usize]
}

/// A field of a line.
pub(super) struct Field<'l> {
    /// The bytes, without the quotes around it.
    pub bytes: Cow<'l, [u8]>,
    /// The classes of its bytes, including the padding after it.
    classes: u8,
    is_quoted: bool,
    /// The classes of the white space before it.
    before: u8,
}

impl Field<'_> {
    /// Returns an error if the field cannot be the name of a vertex. `is_decided` is true if the
    /// separator was derived from the first line, and false if the caller chose it.
    pub fn check_name(&self, separator: Separator, is_decided: bool) -> Result<(), Mistake> {
        if self.bytes.is_empty() {
            return Err(Mistake::EmptyField);
        }
        if self.classes & !COMMENT == 0 {
            return Ok(());
        }
        self.check_unused()?;
        // Padding of a field, but no part of a name.
        let is_control = |byte: &&u8| byte.is_ascii_control();
        if let Some(control) = self.bytes.iter().find(is_control) {
            return Err(Mistake::Control(*control));
        }
        if self.classes & HIGH != 0
            && let Err(error) = std::str::from_utf8(&self.bytes)
        {
            return Err(Mistake::NoText(self.bytes[error.valid_up_to()]));
        }
        if self.is_quoted {
            return Ok(());
        }
        let is_white = separator == Separator::WhiteSpace;
        if is_decided && is_white && self.classes & (COMMA | SEMICOLON) != 0 {
            return Err(Mistake::Ambiguous(shown(&self.bytes)));
        }
        let comment = |pair: &[u8]| class(pair[0]) & SPACE != 0 && class(pair[1]) & COMMENT != 0;
        if !is_white && self.classes & COMMENT != 0 && self.bytes.windows(2).any(comment) {
            return Err(Mistake::CommentInField(shown(&self.bytes)));
        }
        Ok(())
    }

    /// Returns an error if the field has a control character. For fields that are not used.
    pub fn check_unused(&self) -> Result<(), Mistake> {
        match self.classes & CONTROL {
            0 => Ok(()),
            _ => no_control(&self.bytes),
        }
    }

    /// Returns whether spaces are before this field and tabs before the next one, or vice versa.
    pub fn is_between_tab_and_space(&self, next: &Self) -> bool {
        (self.before == SPACE && next.before & TAB != 0)
            || (self.before & TAB != 0 && next.before == SPACE)
    }
}

fn no_control(bytes: &[u8]) -> Result<(), Mistake> {
    match bytes.iter().find(|byte| class(**byte) & CONTROL != 0) {
        Some(b'\r') => Err(Mistake::CarriageReturn),
        Some(byte) => Err(Mistake::Control(*byte)),
        None => Ok(()),
    }
}

/// Returns whether `line` is empty or a comment, for any separator.
pub(super) fn is_blank(line: &[u8]) -> Result<bool, Mistake> {
    match line.trim_ascii_start().first() {
        None => Ok(true),
        Some(byte) if class(*byte) & COMMENT != 0 => no_control(line).map(|()| true),
        Some(_) => Ok(false),
    }
}

/// The fields of a line, one after the other.
pub(super) struct Fields<'l> {
    rest: &'l [u8],
    separator: Separator,
    /// Whether no field has been read yet.
    is_first: bool,
    /// Whether more follows: a field, which may be empty, or white space after which a field may
    /// follow.
    goes_on: bool,
}

impl<'l> Fields<'l> {
    pub fn of(line: &'l [u8], separator: Separator) -> Self {
        Self {
            rest: line,
            separator,
            is_first: true,
            goes_on: true,
        }
    }

    pub fn next(&mut self) -> Result<Option<Field<'l>>, Mistake> {
        if !self.goes_on {
            return Ok(None);
        }
        let before = self.skip(self.separator.pads());
        let is_white = self.separator == Separator::WhiteSpace;
        let may_end = is_white || self.is_first;
        match self.rest.first() {
            None if may_end => return Ok(None),
            Some(byte) if may_end && class(*byte) & COMMENT != 0 => {
                self.goes_on = false;
                no_control(self.rest)?;
                return Ok(None);
            }
            _ => {}
        }
        self.is_first = false;
        let (bytes, classes, is_quoted) = match self.rest.strip_prefix(b"\"") {
            Some(rest) => self.quoted(rest)?,
            None => self.unquoted(),
        };
        // After the field is the byte that ends it, or nothing.
        self.goes_on = !self.rest.is_empty();
        if self.goes_on && !is_white {
            self.rest = &self.rest[1..];
        }
        Ok(Some(Field {
            bytes,
            classes,
            is_quoted,
            before,
        }))
    }

    /// Skips bytes of these classes. Returns the classes that occurred.
    fn skip(&mut self, classes: u8) -> u8 {
        let mut skipped = 0;
        while let [byte, rest @ ..] = self.rest
            && class(*byte) & classes != 0
        {
            skipped |= class(*byte);
            self.rest = rest;
        }
        skipped
    }

    #[inline]
    fn unquoted(&mut self) -> (Cow<'l, [u8]>, u8, bool) {
        let ends = self.separator.ends();
        let (mut classes, mut len) = (0, 0);
        while let Some(byte) = self.rest.get(len)
            && class(*byte) & ends == 0
        {
            classes |= class(*byte);
            len += 1;
        }
        let (mut field, rest) = self.rest.split_at(len);
        self.rest = rest;
        while let [before @ .., last] = field
            && class(*last) & self.separator.pads() != 0
        {
            field = before;
        }
        (field.into(), classes, false)
    }

    /// Reads a field in quotes. `rest` is the bytes after the first quote.
    fn quoted(&mut self, rest: &'l [u8]) -> Result<(Cow<'l, [u8]>, u8, bool), Mistake> {
        let len = closing_quote(rest).ok_or_else(|| Mistake::OpenQuote(shown(self.rest)))?;
        let field = &rest[..len];
        self.rest = &rest[len + 1..];
        if self.separator != Separator::WhiteSpace {
            self.skip(self.separator.pads());
        }
        if let Some(byte) = self.rest.first()
            && class(*byte) & self.separator.ends() == 0
        {
            return Err(Mistake::AfterQuote(shown(field)));
        }
        let classes = field.iter().fold(0, |classes, byte| classes | class(*byte));
        let field: Cow<'l, [u8]> = match classes & QUOTE {
            0 => field.into(),
            _ => {
                let mut is_doubled = false;
                let keep = |byte: &&u8| {
                    is_doubled = **byte == b'"' && !is_doubled;
                    !is_doubled
                };
                field
                    .iter()
                    .filter(keep)
                    .copied()
                    .collect::<Vec<u8>>()
                    .into()
            }
        };
        Ok((field, classes, true))
    }
}

/// Returns the two numbers at the start of `line`, if it has the plain form that most lines have,
/// and the bytes after them: none, or bytes that begin with a separator. All other lines have to be
/// read by [`Fields`].
#[inline]
pub(super) fn two_numbers(line: &[u8], separator: Separator) -> Option<([u32; 2], &[u8])> {
    let (from, rest) = leading_number(line)?;
    let ends = separator.ends();
    let (first, mut rest) = rest.split_first()?;
    if class(*first) & ends == 0 {
        return None;
    }
    let pads = separator.pads();
    while let [byte, behind @ ..] = rest
        && class(*byte) & pads != 0
    {
        rest = behind;
    }
    let (to, rest) = leading_number(rest)?;
    let is_plain = rest.first().is_none_or(|byte| class(*byte) & ends != 0);
    is_plain.then_some(([from, to], rest))
}

/// Returns the number at the start of `bytes`, if it is less than 2^32 and has no leading zero, and
/// the bytes after it.
#[inline]
fn leading_number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (mut number, mut len) = (0u64, 0);
    while let Some(byte) = bytes.get(len) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 || len > 10 {
            break;
        }
        number = number * 10 + u64::from(digit);
        len += 1;
    }
    let is_usual = len == 1 || (len > 1 && bytes[0] != b'0');
    let number = u32::try_from(number).ok()?;
    is_usual.then(|| (number, &bytes[len..]))
}

/// Returns the number of fields in `rest`, the bytes after [`two_numbers`], if these are only plain
/// text.
#[inline]
pub(super) fn count_plain(rest: &[u8]) -> Option<u64> {
    let (mut fields, mut all, mut is_gap) = (0, 0, true);
    for byte in rest {
        let class = class(*byte);
        all |= class;
        let was_gap = is_gap;
        is_gap = class & (SPACE | TAB | COMMA | SEMICOLON) != 0;
        fields += u64::from(was_gap && !is_gap);
    }
    (all & (QUOTE | COMMENT | CONTROL) == 0).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(line: &str, separator: Separator) -> Result<Vec<String>, Mistake> {
        let mut fields = Fields::of(line.as_bytes(), separator);
        let mut all = Vec::new();
        while let Some(field) = fields.next()? {
            all.push(String::from_utf8_lossy(&field.bytes).into_owned());
        }
        Ok(all)
    }

    #[test]
    fn the_first_line_decides() {
        use Separator::{Comma, Semicolon, Tab, WhiteSpace};
        for (line, expected) in [
            ("1 2", Some(WhiteSpace)),
            (" 1   2 0,5", Some(WhiteSpace)),
            ("a b {'x': 1, 'y': 2}", Some(WhiteSpace)),
            ("1\t2", Some(Tab)),
            ("1\t2\t\t3", Some(Tab)),
            ("1\t\t2", Some(WhiteSpace)),
            ("1 \t2", Some(WhiteSpace)),
            ("1 2\t0.5", Some(WhiteSpace)),
            ("1\t2 # c", Some(WhiteSpace)),
            ("a b # c", Some(WhiteSpace)),
            ("1,2", Some(Comma)),
            ("1 , 2,a b;c", Some(Comma)),
            (",1,2", Some(Comma)),
            ("1,", Some(Comma)),
            ("1;2;3", Some(Semicolon)),
            ("\"a b\";\"c, d\"", Some(Semicolon)),
            ("\"a \"\"b\",\"c\"", Some(Comma)),
            ("1", None),
            ("1  ", None),
        ] {
            assert_eq!(
                Separator::decide(line.as_bytes()).unwrap(),
                expected,
                "{line}"
            );
        }
        for line in [
            "New York,Boston",
            "a,b c",
            "a\tb c",
            "a b\tc",
            "1,2;3",
            "1,5;2,5",
            "1, 2 # c",
        ] {
            let found = Separator::decide(line.as_bytes());
            assert!(
                matches!(found, Err(Mistake::Ambiguous(_))),
                "{line}: {found:?}"
            );
        }
    }

    #[test]
    fn fields_are_what_stands_between_separators() {
        use Separator::{Comma, Semicolon, Tab, WhiteSpace};
        for (line, separator, expected) in [
            ("  a\t b  # c", WhiteSpace, &["a", "b"][..]),
            ("a,b c;d", WhiteSpace, &["a,b", "c;d"]),
            ("\"a b\" \"\" c", WhiteSpace, &["a b", "", "c"]),
            ("New York\tBoston\t", Tab, &["New York", "Boston", ""]),
            (
                " a , b,, \"c,\"\"d\"\"\" ,\t",
                Comma,
                &["a", "b", "", "c,\"d\"", ""],
            ),
            ("a;#b", Semicolon, &["a", "#b"]),
            ("# a,b", Comma, &[]),
            ("  ", Comma, &[]),
            ("", Tab, &[]),
            ("\t", Tab, &["", ""]),
        ] {
            assert_eq!(all(line, separator).unwrap(), expected, "{line}");
        }
        assert!(matches!(all("a,\"b", Comma), Err(Mistake::OpenQuote(_))));
        assert!(matches!(
            all("\"a\"b,c", Comma),
            Err(Mistake::AfterQuote(_))
        ));
        assert!(matches!(
            all("a b # c\rd", WhiteSpace),
            Err(Mistake::CarriageReturn)
        ));
    }

    proptest! {
        #[test]
        fn plain_numbers_are_read_as_fields_are(
            line in "(0|[1-9][0-9]{0,10}|00?7)[ \t,;]{1,2}(0|[1-9][0-9]{0,10})([ \t,;]{1,2}[a-z0-9 ,;\t\"#]{0,9})?",
            separator in prop::sample::select(vec![
                Separator::WhiteSpace, Separator::Tab, Separator::Comma, Separator::Semicolon,
            ]),
        ) {
            let Some((edge, rest)) = two_numbers(line.as_bytes(), separator) else {
                return Ok(());
            };
            let Some(more) = count_plain(rest) else {
                return Ok(());
            };
            let fields = all(&line, separator).unwrap();
            prop_assert_eq!(&fields[..2], &edge.map(|vertex| vertex.to_string())[..]);
            // `count_plain` does not count empty fields, and counts the parts between any
            // separators.
            let parts = |field: &String| {
                let separators = [' ', '\t', ',', ';'];
                field.split(separators).filter(|part| !part.is_empty()).count() as u64
            };
            prop_assert_eq!(fields[2..].iter().map(parts).sum::<u64>(), more);
        }
    }
}
