//! The names of flaws on the command line.

use outlive_store::protocol::Flaw;

/// Returns the name of a flaw, such as `covert-latches`.
pub fn name(flaw: Flaw) -> String {
    let mut name = String::new();
    for letter in format!("{flaw:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(letter.to_lowercase());
    }
    name
}

/// Returns the flaw with this name.
///
/// # Errors
/// The list of the names, if there is no such flaw.
pub fn by_name(wanted: &str) -> Result<Flaw, String> {
    let found = Flaw::ALL.into_iter().find(|it| name(*it) == wanted);
    found.ok_or_else(|| {
        let names = Flaw::ALL.map(name).join(", ");
        format!("the flaws are {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flaw_has_a_name() {
        assert_eq!(name(Flaw::CovertLatches), "covert-latches");
        for flaw in Flaw::ALL {
            assert_eq!(by_name(&name(flaw)), Ok(flaw));
        }
        assert!(by_name("covert").unwrap_err().contains("lost-decision, "));
    }
}
