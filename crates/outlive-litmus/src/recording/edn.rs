//! The lines of a history, in EDN.

use super::transaction::{Completion, Event, Operation, Transaction};
use std::fmt::Write;

/// Adds the line of an invocation. Its reads have no values.
pub(super) fn invocation(text: &mut String, transaction: &Transaction) {
    line(text, transaction, ":invoke", transaction.invoked, false);
}

/// Adds the line of a completion. Reads of a transaction that did not commit have no values.
pub(super) fn completion(text: &mut String, transaction: &Transaction) {
    let (kind, is_committed) = match transaction.completion {
        Completion::Committed => (":ok", true),
        Completion::Failed => (":fail", false),
        Completion::Unknown => (":info", false),
    };
    line(text, transaction, kind, transaction.completed, is_committed);
}

fn line(text: &mut String, transaction: &Transaction, kind: &str, event: Event, has_values: bool) {
    let (index, process) = (event.index, transaction.process);
    // A string takes all that is written to it.
    let _ = write!(
        text,
        "{{:index {index}, :type {kind}, :process {process}, :f :txn, :value ["
    );
    for (number, operation) in transaction.operations.iter().enumerate() {
        if number > 0 {
            text.push(' ');
        }
        let _ = match *operation {
            Operation::Read {
                object,
                value: Some(value),
            } if has_values => write!(text, "[:r {object} {value}]"),
            Operation::Read { object, .. } => write!(text, "[:r {object} nil]"),
            Operation::Write { object, value } => write!(text, "[:w {object} {value}]"),
        };
    }
    let _ = writeln!(text, "], :time {}}}", event.time);
}
