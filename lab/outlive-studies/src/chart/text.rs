//! The space that text takes. The reader's font is not known, so this is approximate for a usual
//! one.

/// Returns the width of `text` in pixels.
pub fn width(text: &str, size: i32) -> i32 {
    text.chars().count() as i32 * size * 11 / 20
}

/// Returns the part of a label that fits into `room` pixels.
pub fn shortened(label: &str, room: i32, size: i32) -> String {
    let most = (room * 20 / (size * 11)).max(2) as usize;
    if label.chars().count() <= most {
        return label.to_owned();
    }
    let kept: String = label.chars().take(most - 1).collect();
    kept + "…"
}

/// The maximum number of lines of a label.
const LINES: usize = 3;

/// Splits a label at spaces into as few lines as the width allows.
pub fn wrapped(label: &str, room: i32, size: i32) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), label);
    while width(rest, size) > room && lines.len() + 1 < LINES {
        let fits = |at: &usize| width(&rest[..*at], size) <= room;
        let spaces = rest.match_indices(' ').map(|(at, _)| at);
        let Some(at) = spaces.rev().find(fits) else {
            break;
        };
        lines.push(rest[..at].to_owned());
        rest = &rest[at + 1..];
    }
    lines.push(shortened(rest, room, size));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_labels_are_cut_between_characters() {
        let long = "µ".repeat(300);
        let short = shortened(&long, 600, 12);
        assert!(short.ends_with('…') && width(&short, 12) <= 600);
        assert_eq!(shortened("short", 600, 12), "short");
    }

    #[test]
    fn a_label_has_three_lines_before_it_is_cut() {
        assert_eq!(wrapped("geometric mean", 60, 12), ["geometric", "mean"]);
        assert_eq!(wrapped("geometric mean", 600, 12), ["geometric mean"]);
        let long = wrapped("geometric mean of all the programs", 90, 12);
        assert_eq!(long, ["geometric", "mean of all", "the programs"]);
        let longer = wrapped("geometric mean of all the programs that are", 90, 12);
        assert_eq!(longer[2], "the programs…");
        assert_eq!(wrapped("streamcluster", 30, 12).len(), 1);
    }
}
