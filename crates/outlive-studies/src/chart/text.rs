//! How much room text takes. The reader's font is not known, so this is about right for a usual one.

/// The width of `text` in pixels.
pub fn width(text: &str, size: i32) -> i32 {
    text.chars().count() as i32 * size * 11 / 20
}

/// As much of a label as there is room for.
pub fn shortened(label: &str, room: i32, size: i32) -> String {
    let most = (room * 20 / (size * 11)).max(2) as usize;
    if label.chars().count() <= most {
        return label.to_owned();
    }
    let kept: String = label.chars().take(most - 1).collect();
    kept + "…"
}

/// The label in one line, or in two where it is too long for one, cut at a space.
pub fn wrapped(label: &str, room: i32, size: i32) -> Vec<String> {
    if width(label, size) <= room {
        return vec![label.to_owned()];
    }
    let fits = |at: &usize| width(&label[..*at], size) <= room;
    let spaces = label.match_indices(' ').map(|(at, _)| at);
    match spaces.rev().find(fits) {
        None => vec![shortened(label, room, size)],
        Some(at) => vec![
            label[..at].to_owned(),
            shortened(&label[at + 1..], room, size),
        ],
    }
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
    fn a_label_has_two_lines_before_it_is_cut() {
        assert_eq!(wrapped("geometric mean", 60, 12), ["geometric", "mean"]);
        assert_eq!(wrapped("geometric mean", 600, 12), ["geometric mean"]);
        assert_eq!(wrapped("streamcluster", 30, 12).len(), 1);
    }
}
