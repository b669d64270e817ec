//! What a machine is made of: TOML in, checked parameters out.
