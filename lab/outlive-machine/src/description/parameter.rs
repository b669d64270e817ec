//! Reading parameters from TOML, and printing them.

use toml::de::DeValue;

use crate::engine::{Frequency, Time};
use crate::near::near;

use super::error::Wrong;
use super::quantity::{Bytes, Cycles, Rate, read_quantity};

/// The type of a parameter.
pub(super) trait Parameter: Sized {
    /// Reads the parameter from a TOML value.
    fn read(value: &DeValue<'_>) -> Result<Self, Wrong>;
    /// Returns the TOML value that reads back as this parameter.
    fn print(&self) -> String;
}

impl Parameter for u32 {
    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let DeValue::Integer(integer) = value else {
            return Err(Wrong::new(
                format!("expected a count, found {}", kind(value)),
                "write a whole number, as in 4",
            ));
        };
        Self::from_str_radix(integer.as_str(), integer.radix()).map_err(|_| {
            Wrong::new(
                format!("{integer} is out of range"),
                format!("write a whole number from 0 to {}", Self::MAX),
            )
        })
    }

    fn print(&self) -> String {
        self.to_string()
    }
}

/// Reads a quantity with one of `units` from a string.
fn read_with_unit(value: &DeValue<'_>, units: &[(&str, u64)], example: &str) -> Result<u64, Wrong> {
    match value {
        DeValue::String(text) => read_quantity(text, units, example),
        _ => Err(Wrong::new(
            format!("expected a quantity with a unit, found {}", kind(value)),
            format!("write it in quotes with its unit, as in \"{example}\""),
        )),
    }
}

macro_rules! quantity {
    ($Type:ty, $units:expr, $example:literal, $from:expr) => {
        impl Parameter for $Type {
            fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
                let from: fn(u64) -> Result<Self, Wrong> = $from;
                from(read_with_unit(value, &$units, $example)?)
            }

            fn print(&self) -> String {
                format!("\"{self}\"")
            }
        }
    };
}

const TIMES: [(&str, u64); 6] = [
    ("ps", 1),
    ("ns", 1_000),
    ("us", 1_000_000),
    ("ms", 1_000_000_000),
    ("s", 1_000_000_000_000),
    ("µs", 1_000_000),
];
const FREQUENCIES: [(&str, u64); 5] = [
    ("Hz", 1),
    ("kHz", 1_000),
    ("MHz", 1_000_000),
    ("GHz", 1_000_000_000),
    ("THz", 1_000_000_000_000),
];

quantity!(Time, TIMES, "200 ns", |picos| Ok(Time::from_picos(picos)));
quantity!(Bytes, Bytes::UNITS, "48 KiB", |bytes| Ok(Bytes(bytes)));
quantity!(Cycles, Cycles::UNITS, "5 cycles", |cycles| Ok(Cycles(
    cycles
)));
quantity!(Rate, Rate::UNITS, "160 GB/s", |bytes| {
    Rate::from_bytes_per_second(bytes).ok_or_else(|| {
        Wrong::new(
            "a bandwidth of 0 B/s cannot be simulated",
            "give at least 1 B/s",
        )
    })
});
quantity!(Frequency, FREQUENCIES, "2.4 GHz", |hertz| {
    Frequency::from_hertz(hertz).ok_or_else(|| {
        Wrong::new(
            format!("a clock of {hertz} Hz cannot be simulated"),
            "give from 1 Hz to 1 THz",
        )
    })
});

/// Returns the kind of a TOML value, for messages.
pub(super) fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a fractional number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

/// Declares a choice among names. In TOML a name is quoted. A choice may have further names, which
/// are read and never printed.
macro_rules! choice {
    (
        $(#[doc = $about:literal])+
        pub enum $Name:ident { $($(#[doc = $doc:literal])+ $Variant:ident = $name:literal $(| $other:literal)*,)+ }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $Name { $($(#[doc = $doc])+ $Variant,)+ }

        impl $Name {
            /// All choices, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$Variant,)+];

            /// Returns its name in a description.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$Variant => $name,)+ }
            }

            /// Returns the choice with this name, which may be one that is not printed. For ReCXL's
            /// configurations, `recxl-` may be omitted.
            pub fn named(text: &str) -> Option<Self> {
                $(if $crate::description::parameter::is_named(text, &[$name $(, $other)*]) {
                    return Some(Self::$Variant);
                })+
                None
            }
        }

        impl $crate::description::parameter::Parameter for $Name {
            fn read(value: &toml::de::DeValue<'_>) -> Result<Self, $crate::description::error::Wrong> {
                value.as_str().and_then(Self::named).ok_or_else(|| {
                    $crate::description::parameter::no_choice(value, &[$($name $(, $other)*),+], &[$($name),+])
                })
            }

            fn print(&self) -> String {
                format!("\"{}\"", self.name())
            }
        }
    };
}
pub(super) use choice;

/// Returns whether `text` is one of `names`, with or without `recxl-`.
pub(super) fn is_named(text: &str, names: &[&str]) -> bool {
    names
        .iter()
        .any(|name| short(name) == text || *name == text)
}

fn short(name: &str) -> &str {
    name.strip_prefix("recxl-").unwrap_or(name)
}

/// Returns the error for a value that is none of the choices with these names. The hint lists the
/// `printed` ones.
pub(super) fn no_choice(value: &DeValue<'_>, names: &[&str], printed: &[&str]) -> Wrong {
    let quoted = |name: &&str| format!("\"{name}\"");
    let every: Vec<String> = printed.iter().map(quoted).collect();
    let hint = || format!("use one of {}", every.join(", "));
    let Some(text) = value.as_str() else {
        return Wrong::new(format!("{} is not one of the choices", kind(value)), hint());
    };
    let all: Vec<&str> = names.iter().flat_map(|name| [*name, short(name)]).collect();
    Wrong::new(
        format!("{text:?} is not one of the choices"),
        match near(text, &all) {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => hint(),
        },
    )
}
