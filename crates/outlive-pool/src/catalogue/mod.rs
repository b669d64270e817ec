//! The named objects behind leased objects: their contents, and their lookup by name, over any
//! memory.

pub mod find;
pub mod manifest;
