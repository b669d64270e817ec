//! The proofs to run: those with a part of their names, or all.

use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use serde::Serialize;

/// The proofs that a command is to run.
#[derive(Args, Debug)]
pub struct Selection {
    /// Only proofs whose names contain NAME, in upper or lower case; a whole name selects only that
    /// proof
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Run all proofs
    #[arg(long, conflicts_with = "names")]
    all: bool,
    /// Print the names instead: of all proofs, or of those selected by NAME
    #[arg(long, conflicts_with_all = ["all", "full"])]
    list: bool,
}

/// The proofs to choose from, for people.
pub struct Choice {
    /// As in `outlive-lab prove kill`.
    pub command: &'static str,
    /// As in "operations".
    pub things: &'static str,
    /// A part of a name.
    pub example: &'static str,
    /// Whether a given word matches a whole word of a name only, and not a part of a longer one.
    pub has_words: bool,
}

impl Selection {
    /// Returns whether names are to be printed instead of proofs run.
    pub fn lists(&self) -> bool {
        self.list
    }

    /// Returns whether all proofs are to be run.
    pub fn is_all(&self) -> bool {
        self.all
    }

    /// Returns the filter that selects from `names`.
    ///
    /// # Errors
    /// If no choice was made, or a given part of a name occurs in none.
    pub fn among<'a>(
        &'a self,
        names: &[String],
        choice: &Choice,
    ) -> Result<impl Fn(&str) -> bool + use<'a>, Failure> {
        let Choice {
            command,
            things,
            example,
            has_words,
        } = choice;
        if self.names.is_empty() && !self.all && !self.list {
            return Err(Failure::Usage(format!(
                "choose {things}: --all, or a part of their names (`outlive-lab prove {command} \
                 --list` prints them), as in `outlive-lab prove {command} --all` or `outlive-lab \
                 prove {command} {example}`"
            )));
        }
        let mut wanted = Vec::new();
        for part in &self.names {
            let plain = plain(part);
            let is_whole = names.iter().any(|name| self::plain(name) == plain);
            if plain.is_empty() || !names.iter().any(|name| self::plain(name).contains(&plain)) {
                return Err(Failure::Usage(format!(
                    "none of the {things} has {part:?} in its name; `outlive-lab prove {command} \
                     --list` prints the names"
                )));
            }
            let is_word = *has_words && names.iter().any(|name| has_word(name, part));
            wanted.push((part.as_str(), plain, is_whole, is_word));
        }
        let every = wanted.is_empty();
        Ok(move |name: &str| {
            let is = |(part, plain, whole, word): &(&str, String, bool, bool)| match (whole, word) {
                (true, _) => self::plain(name) == *plain,
                (false, true) => has_word(name, part),
                (false, false) => self::plain(name).contains(plain),
            };
            every || wanted.iter().any(is)
        })
    }
}

/// Returns the form in which names are compared: their letters and digits, in lower case. So `after
/// a death` finds `AfterADeath`.
fn plain(name: &str) -> String {
    let all = name.chars().filter(|c| c.is_alphanumeric());
    all.flat_map(char::to_lowercase).collect()
}

fn has_word(name: &str, word: &str) -> bool {
    name.split([' ', ','])
        .any(|one| one.eq_ignore_ascii_case(word))
}

/// An entry of the list of proofs.
#[derive(Serialize)]
struct Listed<'n> {
    name: &'n str,
    /// One line that explains the proof.
    about: String,
}

/// Prints each of `names` with its explanation.
pub fn list<'n>(
    names: impl IntoIterator<Item = &'n String>,
    about: impl Fn(&str) -> String,
    json: bool,
) -> Result<(), Failure> {
    let listed = names.into_iter().map(|name| Listed {
        name,
        about: about(name),
    });
    if json {
        return output::json(&listed.collect::<Vec<_>>());
    }
    let mut table = Table::new(["NAME", "WHAT IT DOES"]);
    listed.for_each(|one| table.row([one.name.to_owned(), one.about]));
    table.lines().try_for_each(output::line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        selection: Selection,
        #[arg(long)]
        full: bool,
    }

    const CHOICE: Choice = Choice {
        command: "kill",
        things: "operations",
        example: "buddy",
        has_words: false,
    };

    fn chosen(given: &[&str]) -> Result<Vec<String>, String> {
        let names = ["wb, one", "recxl, one", "recxl, one more", "recxl, two"].map(String::from);
        let given = std::iter::once("prove").chain(given.iter().copied());
        let command = Command::try_parse_from(given).map_err(|error| error.to_string())?;
        let is_chosen = command
            .selection
            .among(&names, &CHOICE)
            .map_err(|failure| format!("{failure:?}"))?;
        Ok(names.into_iter().filter(|name| is_chosen(name)).collect())
    }

    #[test]
    fn a_part_of_a_name_is_enough_and_a_whole_name_is_that_alone() {
        let of = |given: &[&str]| chosen(given).unwrap();
        assert_eq!(of(&["--all"]).len(), 4);
        assert_eq!(of(&["--list"]).len(), 4);
        assert_eq!(of(&["one"]), ["wb, one", "recxl, one", "recxl, one more"]);
        assert_eq!(of(&["recxl, one"]), ["recxl, one"]);
        assert_eq!(of(&["two", "wb", "--list"]), ["wb, one", "recxl, two"]);
        assert_eq!(of(&["ReCXL, One"]), ["recxl, one"]);
        assert_eq!(of(&["one MORE"]), ["recxl, one more"]);
        assert_eq!(of(&["OneMore"]), ["recxl, one more"]);
        assert!(chosen(&[","]).is_err());
    }

    #[test]
    fn a_word_is_no_part_of_a_longer_one() {
        let names = ["wb one", "recxl one", "recxl-more one", "recxl-more two"].map(String::from);
        let of = |given: &str, has_words| -> Vec<String> {
            let command = Command::try_parse_from(["prove", given]).unwrap();
            let choice = Choice {
                has_words,
                ..CHOICE
            };
            let is_chosen = command.selection.among(&names, &choice).unwrap();
            names
                .iter()
                .filter(|name| is_chosen(name))
                .cloned()
                .collect()
        };
        assert_eq!(of("recxl", true), ["recxl one"]);
        assert_eq!(of("recxl-more", true), names[2..]);
        assert_eq!(of("ReCXL", true), ["recxl one"]);
        assert_eq!(of("recx", true), names[1..]);
        assert_eq!(of("recxl one", true), ["recxl one"]);
        assert_eq!(of("recxl", false), names[1..]);
    }

    #[test]
    fn who_says_nothing_or_what_is_not_there_is_told_what_can_be_said() {
        assert!(chosen(&[]).unwrap_err().contains("choose operations"));
        let said = chosen(&["one", "three"]).unwrap_err();
        assert!(said.contains("three") && said.contains("--list"), "{said}");
        for both in [
            &["--all", "one"][..],
            &["--list", "--full"],
            &["--all", "--list"],
        ] {
            assert!(chosen(both).unwrap_err().contains("cannot be used with"));
        }
    }
}
