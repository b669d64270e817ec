//! The reader of descriptions, which reports the place of every error.

use std::ops::Range;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::{DescriptionError, Wrong};
use super::parameter::kind;
use super::{Description, Protocol};
use crate::near::near;

impl FromStr for Description {
    type Err = DescriptionError;

    /// Reads a description; parameters that the text does not set have their defaults.
    ///
    /// # Errors
    ///
    /// If the text is not TOML, a section or field does not exist, a value has the wrong kind or
    /// unit, or the machine cannot exist. The first error in the text is returned.
    fn from_str(text: &str) -> Result<Self, DescriptionError> {
        Self::read(text, None)
    }
}

impl Description {
    /// Reads a description, and replaces its protocol by `protocol`, if one is given.
    ///
    /// # Errors
    ///
    /// As for a text alone, or if the machine cannot exist with that protocol.
    pub fn read(text: &str, protocol: Option<Protocol>) -> Result<Self, DescriptionError> {
        let table = DeTable::parse(text).map_err(|error| {
            let said = error.message().trim();
            let wrong = match said {
                "duplicate key" => Wrong::new(
                    "this occurs here for the second time",
                    "give each section and each field only once",
                ),
                _ => Wrong::new(
                    format!("this is not TOML: {said}"),
                    "a line reads `field = value`",
                ),
            };
            DescriptionError::at(text, error.span().unwrap_or(0..0), wrong)
        })?;
        let mut reader = Reader {
            description: Self::default(),
            places: Vec::new(),
        };
        reader
            .table(table.get_ref(), "")
            .map_err(|(place, wrong)| DescriptionError::at(text, place, wrong))?;
        if let Some(protocol) = protocol {
            reader.description.ours.coherence.protocol = protocol;
        }
        reader.description.check().map_err(|impossible| {
            // At least one of the fields is in the text, since the defaults are possible with any
            // protocol.
            let place = |field: &&str| {
                reader
                    .places
                    .iter()
                    .find(|(name, _)| name == *field)
                    .map(|(_, place)| place.clone())
            };
            let place = impossible.fields.iter().find_map(place).unwrap_or(0..0);
            DescriptionError::at(
                text,
                place,
                Wrong {
                    what: impossible.what,
                    hint: impossible.hint,
                },
            )
        })?;
        Ok(reader.description)
    }
}

struct Reader {
    description: Description,
    /// The place of the value of each `section.field` in the text.
    places: Vec<(String, Range<usize>)>,
}

type Misplaced = (Range<usize>, Wrong);

impl Reader {
    /// Reads the tables that hold sections: the whole text (`prefix` is empty), and `ours`.
    fn table(&mut self, table: &DeTable<'_>, prefix: &str) -> Result<(), Misplaced> {
        for (key, value) in in_order(table) {
            let name = format!("{prefix}{}", key.get_ref());
            let names: Vec<&str> = self
                .description
                .sections_mut()
                .map(|(name, ..)| name)
                .to_vec();
            let content = |value: &Spanned<DeValue<'_>>| {
                let wrong = || {
                    Wrong::new(
                        format!("`{name}` is {}, not a section", kind(value.get_ref())),
                        format!("begin the section with `[{name}]`"),
                    )
                };
                (value.span(), wrong())
            };
            if names.contains(&name.as_str()) {
                let fields = value.get_ref().as_table().ok_or_else(|| content(value))?;
                self.section(&name, fields)?;
            } else if names
                .iter()
                .any(|section| section.starts_with(&format!("{name}.")))
            {
                let sections = value.get_ref().as_table().ok_or_else(|| content(value))?;
                self.table(sections, &format!("{name}."))?;
            } else {
                let home = self.home(key.get_ref());
                let hint = match home {
                    Some(section) => format!("`{}` belongs in [{section}]", key.get_ref()),
                    None => suggestion(&name, &names),
                };
                return Err((
                    key.span(),
                    Wrong::new(format!("there is no section `{name}`"), hint),
                ));
            }
        }
        Ok(())
    }

    fn section(&mut self, name: &str, fields: &DeTable<'_>) -> Result<(), Misplaced> {
        for (key, value) in in_order(fields) {
            let field: &str = key.get_ref();
            let sections = self.description.sections_mut();
            let Some((.., section)) = sections.into_iter().find(|(section, ..)| *section == name)
            else {
                continue;
            };
            match section.set(field, value.get_ref()) {
                Some(Ok(())) => self.places.push((format!("{name}.{field}"), value.span())),
                Some(Err(wrong)) => return Err((value.span(), wrong)),
                None => {
                    let near = suggestion(field, section.fields());
                    let hint = self
                        .home(field)
                        .map(|home| format!("it belongs in [{home}]"))
                        .unwrap_or(near);
                    return Err((
                        key.span(),
                        Wrong::new(format!("there is no field `{field}` in [{name}]"), hint),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the section that has such a field.
    fn home(&mut self, field: &str) -> Option<&'static str> {
        let sections = self.description.sections_mut();
        sections
            .into_iter()
            .find(|(.., section)| section.fields().contains(&field))
            .map(|(name, ..)| name)
    }
}

type Entry<'t, 'i> = (
    &'t Spanned<std::borrow::Cow<'i, str>>,
    &'t Spanned<DeValue<'i>>,
);

/// Returns the entries in the order of the text, so that the first error is reported. (A table
/// orders them alphabetically.)
fn in_order<'t, 'i>(table: &'t DeTable<'i>) -> Vec<Entry<'t, 'i>> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

/// Suggests the nearest name if one is close, else all names.
fn suggestion(name: &str, names: &[&str]) -> String {
    match near(name, names) {
        Some(known) => format!("did you mean `{known}`?"),
        None => format!(
            "use one of {}",
            names
                .iter()
                .map(|known| format!("`{known}`"))
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}
