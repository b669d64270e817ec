//! Sections of a description: structs whose fields are read, printed and documented from one
//! declaration.

use toml::de::DeValue;

use super::error::Wrong;

/// A section of a description.
pub(super) trait Section {
    /// Returns the names of its fields.
    fn fields(&self) -> &'static [&'static str];
    /// Sets a field. Returns `None` if no field has that name.
    fn set(&mut self, field: &str, value: &DeValue<'_>) -> Option<Result<(), Wrong>>;
    /// Appends its fields in TOML, with their documentation as comments above them.
    fn print(&self, to: &mut String);
}

/// Declares a struct as a [`Section`]. The documentation of a field is its comment in the printed
/// description.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        pub struct $Name:ident {
            $($(#[doc = $doc:literal])+ pub $field:ident: $Type:ty = $default:expr,)+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $Name {
            $($(#[doc = $doc])+ pub $field: $Type,)+
        }

        impl Default for $Name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $crate::description::section::Section for $Name {
            fn fields(&self) -> &'static [&'static str] {
                &[$(stringify!($field)),+]
            }

            fn set(
                &mut self,
                field: &str,
                value: &toml::de::DeValue<'_>,
            ) -> Option<Result<(), $crate::description::error::Wrong>> {
                use $crate::description::parameter::Parameter;
                match field {
                    $(stringify!($field) => Some(<$Type>::read(value).map(|value| self.$field = value)),)+
                    _ => None,
                }
            }

            fn print(&self, to: &mut String) {
                use std::fmt::Write;
                use $crate::description::parameter::Parameter;
                $(
                    $(writeln!(to, "#{}", $doc).expect("memory suffices");)+
                    writeln!(to, "{} = {}", stringify!($field), self.$field.print()).expect("memory suffices");
                )+
            }
        }
    };
}
pub(super) use section;
