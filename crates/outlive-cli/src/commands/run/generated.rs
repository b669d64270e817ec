//! Inputs that are generated: their names say how.

use crate::failure::Failure;
use std::ffi::OsStr;
use std::ops::RangeInclusive;

/// What the names of generated inputs begin with. (A file whose name begins so is called `./random:…`.)
const PREFIX: &str = "random:";

/// A number in such a name.
pub struct Number {
    /// What it is called, in capitals.
    pub name: &'static str,
    /// If it can be left out, as those after it then: what it is.
    pub default: Option<u64>,
    /// What it can be.
    pub range: RangeInclusive<u64>,
}

/// The numbers in the name of a generated input; `None` if it is a file's. The last can be left out that have defaults.
pub fn numbers<const N: usize>(
    name: &OsStr,
    form: &[Number; N],
) -> Result<Option<[u64; N]>, Failure> {
    let Some(text) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
        return Ok(None);
    };
    let mut parts = text.split(':');
    let mut found = [0; N];
    for (place, number) in found.iter_mut().zip(form) {
        let value = match parts.next() {
            Some(part) => part.parse().ok(),
            None => number.default,
        };
        let value = value.filter(|value| number.range.contains(value));
        *place = value.ok_or_else(|| wrong(name, form))?;
    }
    match parts.next() {
        Some(_) => Err(wrong(name, form)),
        None => Ok(Some(found)),
    }
}

fn wrong(name: &OsStr, form: &[Number]) -> Failure {
    let (mut shown, mut ranges) = (PREFIX.to_owned(), Vec::new());
    for (at, number) in form.iter().enumerate() {
        let colon = if at == 0 { "" } else { ":" };
        match number.default {
            Some(_) => shown += &format!("[{colon}{}]", number.name),
            None => shown += &format!("{colon}{}", number.name),
        }
        let (least, most) = (number.range.start(), number.range.end());
        if *most < u64::MAX {
            ranges.push(format!("{} from {least} to {most}", number.name));
        }
    }
    Failure::Usage(format!(
        "{} is not a generated input: write {shown}, {}",
        name.display(),
        ranges.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_generated_inputs_have_numbers() {
        let form = [
            Number {
                name: "COUNT",
                default: None,
                range: 1..=100,
            },
            Number {
                name: "SEED",
                default: Some(1),
                range: 0..=u64::MAX,
            },
        ];
        let of = |name: &str| numbers(OsStr::new(name), &form);
        assert!(matches!(of("random"), Ok(None)));
        assert!(matches!(of("./random:1"), Ok(None)));
        assert!(matches!(of("random:7"), Ok(Some([7, 1]))));
        assert!(matches!(of("random:7:0"), Ok(Some([7, 0]))));
        for bad in [
            "random:",
            "random:0",
            "random:101",
            "random:7:",
            "random:7:1:1",
            "random:x",
        ] {
            let said = match of(bad) {
                Err(Failure::Usage(said)) => said,
                other => panic!("{bad}: {other:?}"),
            };
            assert!(
                said.ends_with("write random:COUNT[:SEED], COUNT from 1 to 100"),
                "{said}"
            );
        }
    }
}
