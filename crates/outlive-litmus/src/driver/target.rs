//! Targets: the text by which a user names a store, and the drivers that the text selects.

use super::{Driver, DriverError, exec};

/// A kind of target, named by the text before the first colon.
#[derive(Clone, Copy, Debug)]
pub struct Scheme {
    /// The text before the colon.
    pub name: &'static str,
    /// The form of a target, for help texts: `sqlite:PATH`.
    pub form: &'static str,
    /// The sentence that explains this kind of target.
    pub about: &'static str,
    /// The function that opens a driver for a target of this kind.
    pub open: Open,
}

/// A function that opens the driver for a target. Its arguments are the whole target, and the part
/// of the target after the colon.
pub type Open = fn(target: &str, place: &str) -> Result<Box<dyn Driver>, DriverError>;

/// The kinds of targets for which this crate has drivers.
pub const SCHEMES: &[Scheme] = &[
    #[cfg(feature = "sqlite")]
    super::sqlite::SCHEME,
    #[cfg(feature = "postgres")]
    super::postgres::SCHEME,
    #[cfg(feature = "mariadb")]
    super::mariadb::SCHEME,
    #[cfg(feature = "redis")]
    super::redis::SCHEME,
    #[cfg(feature = "etcd")]
    super::etcd::SCHEME,
    #[cfg(feature = "lmdb")]
    super::lmdb::SCHEME,
    exec::SCHEME,
];

/// The schemes whose drivers are features of this crate with the same names, and their stores.
const FEATURES: &[(&str, &str)] = &[
    ("sqlite", "SQLite"),
    ("postgres", "PostgreSQL"),
    ("mariadb", "MariaDB"),
    ("redis", "Redis"),
    ("etcd", "etcd"),
    ("lmdb", "LMDB"),
];

/// The names that other programs use for the schemes.
const OTHERS: &[(&str, &str)] = &[
    ("file", "sqlite"),
    ("sqlite3", "sqlite"),
    ("postgresql", "postgres"),
    ("pgsql", "postgres"),
    ("mysql", "mariadb"),
];

/// Opens the driver for a target of one of the [`SCHEMES`].
///
/// ```
/// # use outlive_litmus::driver;
/// let error = driver::open("oracle:/tmp/x").err().unwrap();
/// assert!(error.to_string().starts_with("oracle:/tmp/x: the scheme `oracle` is unknown"));
/// ```
///
/// # Errors
/// If the scheme is unknown, its driver is not in this build, or the driver refuses the target.
pub fn open(target: &str) -> Result<Box<dyn Driver>, DriverError> {
    open_among(target, SCHEMES)
}

/// Opens the driver for a target of one of `schemes`.
///
/// # Errors
/// Returns the errors of [`open`].
pub fn open_among(target: &str, schemes: &[Scheme]) -> Result<Box<dyn Driver>, DriverError> {
    let forms = || {
        let forms: Vec<_> = schemes.iter().map(|it| format!("`{}`", it.form)).collect();
        format!("targets are {}", forms.join(", "))
    };
    let Some((name, place)) = target.split_once(':') else {
        let problem = format!(
            "the target has no scheme (text before a colon); {}",
            forms()
        );
        return Err(DriverError::malformed(target, problem));
    };
    if let Some(scheme) = schemes.iter().find(|it| it.name == name) {
        return (scheme.open)(target, place);
    }
    let problem = match FEATURES.iter().find(|(feature, _)| *feature == name) {
        Some((feature, store)) => {
            format!("this build has no driver for {store}; build it with the feature `{feature}`")
        }
        None => {
            let other = OTHERS.iter().find(|(other, _)| *other == name);
            let instead = match other {
                Some((_, scheme)) => format!("write `{scheme}:` instead"),
                None => forms(),
            };
            format!("the scheme `{name}` is unknown; {instead}")
        }
    };
    Err(DriverError::malformed(target, problem))
}

/// The parameters of a target: the part after the question mark in `PATH?NAME=VALUE&NAME=VALUE`.
///
/// A driver takes those that it knows, and then [ends](Self::end).
#[derive(Debug)]
pub struct Parameters<'t> {
    target: &'t str,
    given: Vec<(&'t str, &'t str)>,
    known: Vec<&'static str>,
}

impl<'t> Parameters<'t> {
    /// Splits `place`, a part of `target`, into a path and the parameters.
    ///
    /// # Errors
    /// If a parameter has no value.
    pub fn split(target: &'t str, place: &'t str) -> Result<(&'t str, Self), DriverError> {
        let (path, text) = place.split_once('?').unwrap_or((place, ""));
        let given = text.split('&').filter(|it| !it.is_empty()).map(|it| {
            let pair = it.split_once('=');
            let problem = || format!("the parameter `{it}` has no value; write `{it}=VALUE`");
            pair.ok_or_else(|| DriverError::malformed(target, problem()))
        });
        let parameters = Self {
            target,
            given: given.collect::<Result<_, _>>()?,
            known: Vec::new(),
        };
        Ok((path, parameters))
    }

    /// Takes the value of the parameter `name`. If it is given twice, the last one counts.
    fn take(&mut self, name: &'static str) -> Option<&'t str> {
        self.known.push(name);
        let mut value = None;
        self.given.retain(|(it, text)| {
            if *it == name {
                value = Some(*text);
            }
            *it != name
        });
        value
    }

    /// Takes the parameter `name`, which has one of the values `choices`.
    ///
    /// # Errors
    /// If it has a value that is not one of `choices`.
    pub fn choice(
        &mut self,
        name: &'static str,
        choices: &[&'static str],
    ) -> Result<Option<&'static str>, DriverError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let choice = choices.iter().find(|it| **it == value).copied();
        let problem = || format!("`{name}={value}` is not one of {}", choices.join(", "));
        let choice = choice.ok_or_else(|| DriverError::malformed(self.target, problem()))?;
        Ok(Some(choice))
    }

    /// Takes the parameter `name`, which is a number.
    ///
    /// # Errors
    /// If it is not a number.
    pub fn number(&mut self, name: &'static str) -> Result<Option<u32>, DriverError> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let problem = || format!("`{name}={value}` is not a number from 0 to {}", u32::MAX);
        let number = value.parse();
        Ok(Some(number.map_err(|_| {
            DriverError::malformed(self.target, problem())
        })?))
    }

    /// Checks that all parameters were taken.
    ///
    /// # Errors
    /// If one is unknown.
    pub fn end(self) -> Result<(), DriverError> {
        let Some((name, _)) = self.given.first() else {
            return Ok(());
        };
        let known = self.known.join(", ");
        let problem = format!("the parameter `{name}` is unknown; known are {known}");
        Err(DriverError::malformed(self.target, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(target: &str) -> String {
        match open(target) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("{target} is accepted"),
        }
    }

    #[test]
    fn errors_name_the_known_targets() {
        assert!(refusal("x.db").contains("no scheme"));
        let unknown = refusal("oracle:x");
        assert!(unknown.contains("`oracle` is unknown") && unknown.contains("exec:COMMAND"));
    }

    #[test]
    fn parameters_are_checked() {
        let parse = |place: &'static str| {
            let (path, mut parameters) = Parameters::split(place, place)?;
            let journal = parameters.choice("journal", &["wal", "delete"])?;
            let busy = parameters.number("busy")?;
            parameters.end().map(|()| (path, journal, busy))
        };
        let problem = |place| parse(place).unwrap_err().problem;
        assert_eq!(parse("/x").unwrap(), ("/x", None, None));
        let all = parse("/x?busy=7&journal=wal").unwrap();
        assert_eq!(all, ("/x", Some("wal"), Some(7)));
        assert_eq!(
            problem("/x?journal=no"),
            "`journal=no` is not one of wal, delete"
        );
        assert!(problem("/x?busy=-1").contains("not a number"));
        assert!(problem("/x?busy").contains("has no value"));
        assert!(problem("/x?jornal=wal").contains("known are journal, busy"));
    }
}
