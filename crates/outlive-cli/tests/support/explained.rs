//! Checks that `docs/json.md` explains the fields that `--json` prints.

use serde_json::Value;
use std::collections::BTreeSet;

pub const EXPLAINED: &str = include_str!("../../../../docs/json.md");

/// Collects the names of all fields in `value`, except those of objects whose fields are data.
fn fields(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| fields(one, found)),
        Value::Object(all) => {
            for (name, value) in all {
                found.insert(name.clone());
                if name != "effects" {
                    fields(value, found);
                }
            }
        }
        _ => {}
    }
}

/// Requires that the part of the document that begins with `heading` names all fields.
#[track_caller]
pub fn assert_explained(heading: &str, printed: &str) {
    let printed: Value = serde_json::from_str(printed).unwrap();
    let (_, part) = EXPLAINED.split_once(heading).expect("a heading");
    let part = part.split("\n## ").next().unwrap();
    let mut found = BTreeSet::new();
    fields(&printed, &mut found);
    assert!(found.len() > 3, "{printed:#}");
    let missing: Vec<_> = found
        .iter()
        .filter(|name| !part.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "{heading}: {missing:?}");
}
