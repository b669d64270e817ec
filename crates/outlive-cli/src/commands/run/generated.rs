//! Generated inputs, which are described by their names.

use crate::failure::Failure;
use std::ffi::OsStr;
use std::ops::RangeInclusive;

/// The prefix of the names of generated inputs. (A file with such a name is given as `./random:…`.)
const PREFIX: &str = "random:";

/// A number in the name of a generated input.
pub struct Number {
    /// Its name in messages, in capitals.
    name: &'static str,
    /// Its value if it and the numbers after it are omitted.
    default: Option<u64>,
    range: RangeInclusive<u64>,
}

impl Number {
    /// The seed of a generated input.
    pub const SEED: Self = Self {
        name: "SEED",
        default: Some(1),
        range: 0..=u64::MAX,
    };

    /// Returns the description of the number `name`, which has a value from 1 to `most`.
    pub const fn up_to(most: u64, name: &'static str) -> Self {
        Self {
            name,
            default: None,
            range: 1..=most,
        }
    }

    /// Sets its value if it and the numbers after it are omitted.
    pub fn or(self, default: u64) -> Self {
        Self {
            default: Some(default),
            ..self
        }
    }
}

/// Returns the numbers in the name of a generated input; `None` if it names a file. The last ones
/// can be omitted if they have defaults.
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
        let form = [Number::up_to(100, "COUNT"), Number::SEED];
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
