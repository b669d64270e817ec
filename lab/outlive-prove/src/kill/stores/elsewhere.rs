//! For processors whose instructions are not decoded.

use super::Reach;
use crate::kill::child::Registers;
use core::ops::Range;

/// Assumes for every instruction that it may store anywhere.
pub(in crate::kill) struct Stores;

impl Stores {
    pub(in crate::kill) fn new() -> Self {
        Self
    }

    pub(in crate::kill) fn next(&mut self, _: u32, _: &Registers, _: &Range<u64>) -> Reach {
        Reach::Anywhere
    }
}
