//! The named objects that leased objects are: what their contents say, and the way from a name to
//! one, over any memory.

pub mod find;
pub mod manifest;
