//! Files that are not edge lists or Matrix Market files, recognised by their first bytes.
//!
//! Only certain cases are recognised: a list of names may begin with almost anything.

/// The number of bytes from the start of a file by which its kind is recognised.
pub(super) const TOLD_BY: usize = 4096;

/// The first bytes of binary files.
const SIGNATURES: [(&[u8], &str); 23] = [
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "a zip archive"),
    (b"Rar!\x1A\x07", "a RAR archive"),
    (b"!<arch>\n", "an ar archive"),
    (b"\x89PNG\r\n\x1A\n", "a PNG image"),
    (b"\xFF\xD8\xFF", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"%!PS", "a PostScript document"),
    (b"PAR1", "a Parquet file"),
    (b"ARROW1\0\0", "an Arrow file"),
    (b"Obj\x01", "an Avro file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF\r\n\x1A\n", "an HDF5 file"),
    (b"CDF\x01", "a NetCDF file"),
    (b"CDF\x02", "a NetCDF file"),
    (b"MATLAB 5.0 MAT-file", "a MATLAB file"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x7FELF", "a program (ELF)"),
    (b"\x80\x04\x95", "a pickled Python object"),
    (b"\x80\x05\x95", "a pickled Python object"),
    (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "an Office document"),
];

/// Returns the kind, with its article, of a file that begins with `first`, if it cannot be a list
/// of edges.
pub(super) fn recognised(first: &[u8]) -> Option<&'static str> {
    let signature = SIGNATURES
        .iter()
        .find(|(magic, _)| first.starts_with(magic));
    if let Some((_, kind)) = signature {
        return Some(kind);
    }
    match first {
        [0xFF, 0xFE, 0, 0, ..] | [0, 0, 0xFE, 0xFF, ..] => return Some("text in UTF-32"),
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => return Some("text in UTF-16"),
        _ if first.get(257..262) == Some(b"ustar") => return Some("a tar archive"),
        _ => {}
    }
    text(first.strip_prefix("\u{FEFF}".as_bytes()).unwrap_or(first))
}

/// Returns the kind of a text that begins with `first`, if it is recognised.
fn text(first: &[u8]) -> Option<&'static str> {
    let first = first.trim_ascii_start();
    let markup: [(&[u8], _); 7] = [
        (b"<?xml", "an XML file (GraphML or GEXF, for example)"),
        (b"<graphml", "a GraphML file"),
        (b"<gexf", "a GEXF file"),
        (b"<svg", "an SVG image"),
        (b"<!doctype", "an HTML page"),
        (b"<html", "an HTML page"),
        (b"@prefix ", "an RDF file"),
    ];
    let begins = |with: &[u8]| {
        let begin = first.get(..with.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(with))
    };
    if let Some((_, kind)) = markup.iter().find(|(with, _)| begins(with)) {
        return Some(kind);
    }
    if let [open @ (b'{' | b'['), rest @ ..] = first {
        let inner = rest.trim_ascii_start().first();
        if matches!((open, inner), (_, Some(b'"')) | (b'[', Some(b'{' | b'['))) {
            return Some("a JSON file");
        }
    }
    let mut lines = first
        .split(|byte| matches!(byte, b'\r' | b'\n'))
        .map(<[u8]>::trim_ascii);
    let is_comment =
        |line: &[u8]| matches!(line, [] | [b'#' | b'%', ..]) || line.starts_with(b"//");
    let line = lines.clone().find(|line| !is_comment(line))?;
    if line.starts_with(b"<http") && line.ends_with(b" .") {
        return Some("an RDF file");
    }
    let lower = String::from_utf8_lossy(line).to_ascii_lowercase();
    let words: Vec<&str> = lower.split_ascii_whitespace().collect();
    match words[..] {
        ["graph" | "graph[", ..] if lower["graph".len()..].trim_start() == "[" => {
            return Some("a GML file");
        }
        ["graph" | "digraph" | "strict", ..] if lower.ends_with('{') => {
            return Some("a Graphviz file");
        }
        ["*vertices" | "*network", ..] => return Some("a Pajek file"),
        ["dl", n, ..] if n.starts_with("n=") || n == "n" => return Some("a UCINET file"),
        _ => {}
    }
    let problem = lines.find(|line| !matches!(line, [] | [b'c'] | [b'c', b' ' | b'\t', ..]))?;
    let problem = String::from_utf8_lossy(problem);
    let words: Vec<&str> = problem.split_ascii_whitespace().collect();
    let is_number = |word: &str| word.parse::<u64>().is_ok();
    match words[..] {
        [
            "p",
            "sp" | "edge" | "col" | "max" | "min" | "aux" | "matching",
            n,
            m,
        ] if is_number(n) && is_number(m) => Some("a DIMACS file"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_told_and_lists_are_not() {
        let tar = [&[b'x'; 257][..], b"ustar\0"].concat();
        for (first, kind) in [
            (&b"PK\x03\x04..."[..], "zip"),
            (b"%PDF-1.7\n1 2\n", "PDF"),
            (b"\xFF\xFE1\0 \0", "UTF-16"),
            (b"\xFF\xFE\0\x001\0", "UTF-32"),
            (&tar, "tar"),
            (b"\xEF\xBB\xBF<?xml version=\"1.0\"?>", "XML"),
            (b" <graphml>", "GraphML"),
            (b"{\n  \"nodes\": [", "JSON"),
            (b"[{\"a\": 1}]", "JSON"),
            (b"[[1, 2], [2, 3]]", "JSON"),
            (b"# c\ngraph [\n", "GML"),
            (b"graph[\n", "GML"),
            (b"// c\ndigraph links {\n", "Graphviz"),
            (b"*Vertices 3\n", "Pajek"),
            (b"c a road network\nc\np sp 3 4\na 1 2 3\n", "DIMACS"),
            (b"p edge 3 4\ne 1 2\n", "DIMACS"),
            (b"DL n=3\n", "UCINET"),
            (b"<http://a> <http://b> <http://c> .\n", "RDF"),
        ] {
            let found = recognised(first);
            assert!(
                found.is_some_and(|found| found.contains(kind)),
                "{kind}: {found:?}"
            );
        }
        for list in [
            "1 2\n2 3\n",
            "{a} {b}\n",
            "[1] [2]\n",
            "<a> <b>\n",
            "graph theory\ngraph set\n",
            "graphs [\n",
            "c d\nd c\n",
            "c d\np e\n",
            "p sp\n",
            "dl nl\n",
            "",
            "\n",
            "%%MatrixMarket matrix coordinate pattern general\n",
            "% PDF-\n1 2\n",
        ] {
            assert_eq!(recognised(list.as_bytes()), None, "{list:?}");
        }
    }
}
