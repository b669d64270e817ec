//! Which objects do not announce what they read and write, since they were compiled in another way.

use std::ops::Range;

/// What every object calls that is compiled with the instrumentation, even one without any code.
const ANNOUNCES: &[u8] = b"__tsan_init";
const OBJECT: &[u8] = b"\x7fELF";
/// Of an object that is to be linked, at its place in the file; of a library or program it is another one.
const RELOCATABLE: (Range<usize>, &[u8]) = (16..18, &[1, 0]);
const ARCHIVE: &[u8] = b"!<arch>\n";
/// The header of an archive's member has its length in these bytes, in decimal digits.
const MEMBER: usize = 60;
const LENGTH: Range<usize> = 48..58;

/// Whether a file is an object, or an archive with one, that is not instrumented. What is no such file is of no concern.
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

/// What is in an archive, as long as it makes sense.
struct Members<'a>(&'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (header, rest) = self.0.split_at_checked(MEMBER)?;
        let length = str::from_utf8(&header[LENGTH]).ok()?.trim_end();
        let length = length.parse().ok()?;
        let member = rest.get(..length)?;
        // They begin at even places.
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
        // A library of the system's, a script of the linker, a cut archive: nothing is said of them.
        let mut library = unseen.clone();
        library[16] = 3;
        let cut = &archive(&[seen, unseen])[..100];
        for other in [&library[..], b"INPUT(-lm)", b"", cut] {
            assert!(!is_unseen(other));
        }
    }
}
