//! Suggestions for misspelt names.

/// Returns the name of `names` that `name` probably stands for, if one is close.
pub fn near<'n>(name: &str, names: &[&'n str]) -> Option<&'n str> {
    let near = names
        .iter()
        .map(|known| (distance(name, known), *known))
        .min();
    near.filter(|(far, known)| *far <= 1 + known.len() / 4)
        .map(|(_, known)| known)
}

/// Returns the number of characters to insert, delete or replace to get from one name to the other;
/// names are cut to 40 characters.
fn distance(from: &str, to: &str) -> usize {
    let from: Vec<char> = from.chars().take(40).collect();
    let to: Vec<char> = to.chars().take(40).collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
