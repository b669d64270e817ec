//! The first line of an edge list, which may be a header that names the columns.

/// Usual names of the columns of sources and targets, in lower case and without punctuation.
const PAIRS: [(&str, &str); 22] = [
    ("source", "target"),
    ("source", "destination"),
    ("source", "dest"),
    ("source", "dst"),
    ("source", "sink"),
    ("src", "dst"),
    ("src", "dest"),
    ("src", "target"),
    ("from", "to"),
    ("fromnode", "tonode"),
    ("fromnodeid", "tonodeid"),
    ("fromid", "toid"),
    ("fromvertex", "tovertex"),
    ("sourceid", "targetid"),
    ("sourceid", "destinationid"),
    ("sourcenode", "targetnode"),
    ("sourcename", "targetname"),
    ("srcid", "dstid"),
    ("startid", "endid"),
    ("startnode", "endnode"),
    ("follower", "followee"),
    ("citing", "cited"),
];

/// Returns the columns of the source and the target, counted from 0, if a usual pair of words names
/// them.
pub(super) fn usual_columns(fields: &[Vec<u8>]) -> Option<[usize; 2]> {
    let plain = |field: &Vec<u8>| {
        let letters = field.iter().filter(|byte| byte.is_ascii_alphanumeric());
        letters.map(u8::to_ascii_lowercase).collect::<Vec<u8>>()
    };
    let plain: Vec<Vec<u8>> = fields.iter().map(plain).collect();
    let column = |name: &str| plain.iter().position(|field| field == name.as_bytes());
    PAIRS
        .iter()
        .find_map(|(from, to)| Some([column(from)?, column(to)?]))
}

/// Returns whether `field` looks like a number: digits, which may have a sign before them and
/// points in them.
pub(super) fn is_number(field: &[u8]) -> bool {
    let digits = field.strip_prefix(b"-").unwrap_or(field);
    digits.first().is_some_and(u8::is_ascii_digit)
        && digits
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_words_name_columns() {
        let columns = |line: &str| {
            let fields: Vec<Vec<u8>> = line.split(',').map(|field| field.into()).collect();
            usual_columns(&fields)
        };
        assert_eq!(columns("Source,Target,Weight"), Some([0, 1]));
        assert_eq!(columns(":START_ID,:END_ID"), Some([0, 1]));
        assert_eq!(columns("FromNodeId,ToNodeId"), Some([0, 1]));
        assert_eq!(columns("id,from,to"), Some([1, 2]));
        assert_eq!(columns("target,source"), Some([1, 0]));
        assert_eq!(columns("a,b"), None);
        assert_eq!(columns("source,from"), None);
        for (field, expected) in [
            ("7", true),
            ("-07", true),
            ("1.5", true),
            ("", false),
            ("-", false),
            ("7a", false),
        ] {
            assert_eq!(is_number(field.as_bytes()), expected, "{field}");
        }
    }
}
