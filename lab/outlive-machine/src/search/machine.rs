//! The interface of a machine that a search explores.

use super::check::Claims;
use super::violation::Violation;

/// A machine without time, with states that a search can tell apart.
pub(super) trait Machine: Clone {
    type Rules;
    /// A possible next step.
    type Choice: Copy;

    /// Lists all possible next steps, in an order that depends on nothing but the
    /// [settled](Machine::settle) state.
    fn list(&self, rules: &Self::Rules, choices: &mut Vec<Self::Choice>);

    /// Takes the step.
    fn take(&mut self, rules: &Self::Rules, choice: Self::Choice) -> Result<(), Violation>;

    /// Checks that the claims hold in this state.
    fn judge(&self, rules: &Self::Rules, claims: Claims) -> Result<(), Violation>;

    /// Sorts the parts of the state that have no order.
    fn settle(&mut self);

    /// Returns whether nothing is under way.
    fn is_quiet(&self) -> bool;

    /// Returns whether the step follows from earlier ones: a machine must come to rest if only such
    /// steps are taken.
    fn follows(choice: Self::Choice) -> bool;

    /// Returns the line that a step concerns, and a description of the step.
    fn describe(&self, choice: Self::Choice) -> (usize, String);

    /// Returns a description of the line's state.
    fn summary(&self, line: usize) -> String;
}
