//! The detection of objects that do not announce their memory accesses, because they were compiled
//! without the instrumentation.

use std::ops::Range;

/// The symbol that every object compiled with the instrumentation calls, even one without any code.
const ANNOUNCES: &[u8] = b"__tsan_init";
const OBJECT: &[u8] = b"\x7fELF";
/// The type field of a relocatable object, at its place in the file; others have another value.
const RELOCATABLE: (Range<usize>, &[u8]) = (16..18, &[1, 0]);
const ARCHIVE: &[u8] = b"!<arch>\n";
/// The size of the header of an archive's member; `LENGTH` is the field of the member's length, in
/// decimal digits.
const MEMBER: usize = 60;
const LENGTH: Range<usize> = 48..58;

/// Returns whether a file is an object, or an archive with one, that is not instrumented.
pub(super) fn is_unseen(bytes: &[u8]) -> bool {
    match bytes.strip_prefix(ARCHIVE) {
        Some(members) => Members(members).any(object_is_unseen),
        None => object_is_unseen(bytes),
    }
}

fn object_is_unseen(bytes: &[u8]) -> bool {
    let (at, kind) = RELOCATABLE;
    bytes.starts_with(OBJECT)
        && bytes.get(at) == Some(kind)
        && !bytes
            .windows(ANNOUNCES.len())
            .any(|window| window == ANNOUNCES)
}

/// The members of an archive, as long as it is well-formed.
struct Members<'a>(&'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (header, rest) = self.0.split_at_checked(MEMBER)?;
        let length = str::from_utf8(&header[LENGTH]).ok()?.trim_end();
        let length = length.parse().ok()?;
        let member = rest.get(..length)?;
        // Members begin at even offsets.
        self.0 = rest.get(length.next_multiple_of(2)..).unwrap_or_default();
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(symbols: &str) -> Vec<u8> {
        let mut bytes = OBJECT.to_vec();
        bytes.resize(16, 0);
        bytes.extend([1, 0]);
        bytes.extend(symbols.as_bytes());
        bytes
    }

    fn archive(members: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = ARCHIVE.to_vec();
        for member in members {
            bytes.extend(format!("{:<48}{:<10}`\n", "name/", member.len()).bytes());
            bytes.extend(member);
            bytes.resize(bytes.len().next_multiple_of(2), b'\n');
        }
        bytes
    }

    #[test]
    fn what_was_compiled_otherwise_is_found() {
        let (seen, unseen) = (object("\0__tsan_init\0main"), object("\0main"));
        assert!(is_unseen(&unseen) && !is_unseen(&seen));
        assert!(!is_unseen(&archive(&[seen.clone(), seen.clone()])));
        assert!(is_unseen(&archive(&[seen.clone(), unseen.clone()])));
        // A system library, a linker script, a truncated archive: none is reported.
        let mut library = unseen.clone();
        library[16] = 3;
        let cut = &archive(&[seen, unseen])[..100];
        for other in [&library[..], b"INPUT(-lm)", b"", cut] {
            assert!(!is_unseen(other));
        }
    }
}
