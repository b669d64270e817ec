//! Fields of the barrier's word, as in `outlive/src/sync/barrier/word.rs`: for broken variants.

/// The number of waiting members.
pub(crate) const WAITING: u128 = (1 << 13) - 1;
/// The last step and its seat: the slot that must follow.
pub(crate) const STEP: u128 = 0x3FFF << 26;
/// Whether a member sleeps.
pub(crate) const ASLEEP: u128 = 1 << 40;
/// One release.
pub(crate) const RELEASE: u128 = 1 << 41;
/// One change of the members.
pub(crate) const CHANGE: u128 = 1 << 81;

/// Broken: the word does not record which slot must follow.
pub(crate) fn forget_step(_: u128, after: u128) -> u128 {
    after & !STEP
}
