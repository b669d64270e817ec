//! What a search asks of the machine that it explores.

use super::check::Claims;
use super::violation::Violation;

/// A machine without time, whose states can be told apart.
pub(super) trait Machine: Clone {
    /// What drives it.
    type Rules;
    /// What can happen next.
    type Choice: Copy;

    /// All that can happen next, in an order that depends on nothing but the [settled](Machine::settle) state.
    fn list(&self, rules: &Self::Rules, choices: &mut Vec<Self::Choice>);

    /// Lets it happen.
    fn take(&mut self, rules: &Self::Rules, choice: Self::Choice) -> Result<(), Violation>;

    /// What must hold in every state.
    fn judge(&self, rules: &Self::Rules, claims: Claims) -> Result<(), Violation>;

    /// Brings what has no order into one.
    fn settle(&mut self);

    /// Whether nothing is under way.
    fn is_quiet(&self) -> bool;

    /// Whether it is a consequence of what has happened: a machine must come to rest if nothing else happens.
    fn follows(choice: Self::Choice) -> bool;

    /// What is about to happen, and to which line.
    fn describe(&self, choice: Self::Choice) -> (usize, String);

    /// What is known of the line.
    fn summary(&self, line: usize) -> String;
}
