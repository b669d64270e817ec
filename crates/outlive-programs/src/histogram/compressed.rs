//! Recognises compressed pictures, which cannot be counted directly, by their first bytes.

/// The offset and the bytes by which each kind is recognised, and its name.
const SIGNATURES: [(usize, &[u8], &str); 14] = [
    (0, b"\x89PNG\r\n\x1a\n", "PNG picture"),
    (0, b"\xFF\xD8\xFF", "JPEG picture"),
    (0, b"GIF87a", "GIF picture"),
    (0, b"GIF89a", "GIF picture"),
    (8, b"WEBPVP8", "WebP picture"),
    (0, b"II*\0", "TIFF picture"),
    (0, b"MM\0*", "TIFF picture"),
    (4, b"ftypavif", "AVIF picture"),
    (4, b"ftyphei", "HEIF picture"),
    (4, b"ftypmif1", "HEIF picture"),
    (0, b"\0\0\0\x0CJXL \r\n\x87\n", "JPEG XL picture"),
    (0, b"\0\0\0\x0CjP  \r\n\x87\n", "JPEG 2000 picture"),
    (0, b"\xFF\x4F\xFF\x51", "JPEG 2000 picture"),
    (0, b"qoif", "QOI picture"),
];

/// Returns the kind of a file that begins with `head`, if it is such a picture.
pub(super) fn name_of_compressed(head: &[u8]) -> Option<&'static str> {
    let is_there = |(at, bytes, _): &&(usize, &[u8], &str)| {
        head.get(*at..).is_some_and(|from| from.starts_with(bytes))
    };
    SIGNATURES.iter().find(is_there).map(|(.., name)| *name)
}

#[cfg(test)]
mod tests {
    use super::super::{Format, Layout};

    #[test]
    fn compressed_pictures_are_refused_by_name_unless_bytes_are_asked_for() {
        for (file, name) in [
            (&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], "PNG"),
            (b"\xFF\xD8\xFF\xE0\0\x10JFIF", "JPEG"),
            (b"GIF89a\x01\0", "GIF"),
            (b"RIFF\x10\0\0\0WEBPVP8L", "WebP"),
            (b"\0\0\0\x1Cftypavif\0", "AVIF"),
        ] {
            let said = Layout::find(file, Format::Any).unwrap_err().to_string();
            assert!(
                said.starts_with(&format!("this is a {name} picture")),
                "{said}"
            );
            assert_eq!(
                Layout::find(file, Format::Bytes).unwrap().channels(),
                ["bytes"]
            );
        }
        for file in [&b"RIFF\x10\0\0\0WAVEfmt "[..], b"GIF", b"\x89PN", b""] {
            assert_eq!(
                Layout::find(file, Format::Any).unwrap().channels(),
                ["bytes"]
            );
        }
    }
}
