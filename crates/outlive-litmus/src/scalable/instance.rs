//! Serial executions of one instance.

use super::possible::{Known, can_be};
use super::serial::{State, execute, initial};
use super::{NotScalable, Proof};
use crate::test::{Condition, Seen, Test};

/// The maximum number of serial executions of an instance that are enumerated.
pub const MAX_EXECUTIONS: u64 = 1 << 20;

/// The end of a transaction.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// It was acknowledged as committed.
    Committed,
    /// It aborted.
    Aborted,
    /// It took effect, but its commit was not acknowledged.
    Unanswered,
    /// It had no effect, and its outcome is unknown to its client.
    Lost,
}

const ENDS: [End; 4] = [End::Committed, End::Aborted, End::Unanswered, End::Lost];

/// The execution so far.
struct Execution<'t> {
    test: &'t Test,
    condition: &'t Condition<Seen>,
    /// The transactions in their order, with their ends.
    ends: Vec<(usize, End)>,
    /// The values that each transaction has read; `None` if they can be any.
    locals: Vec<Option<State>>,
    executions: u64,
}

/// Shows that the outcome occurs in no serial execution.
pub(super) fn prove(test: &Test, condition: &Condition<Seen>) -> Result<Proof, NotScalable> {
    let mut execution = Execution {
        test,
        condition,
        ends: Vec::new(),
        locals: vec![None; test.transactions.len()],
        executions: 0,
    };
    execution.continue_from(&initial(&test.objects))?;
    Ok(Proof::Instance {
        executions: execution.executions,
    })
}

impl Execution<'_> {
    /// Executes the transactions that are left, in all orders and with all ends.
    fn continue_from(&mut self, state: &State) -> Result<(), NotScalable> {
        let count = self.test.transactions.len();
        if self.ends.len() == count {
            return self.end(state);
        }
        for next in 0..count {
            let is_over = |it: usize| self.ends.iter().any(|&(over, _)| over == it);
            let waits = { self.test.order.iter() }.any(|&(a, b)| b == next && !is_over(a));
            if is_over(next) || waits {
                continue;
            }
            let executed = execute(&self.test.transactions[next], state);
            for end in ENDS {
                let takes_effect = matches!(end, End::Committed | End::Unanswered);
                if takes_effect && executed.is_none() {
                    continue;
                }
                self.ends.push((next, end));
                let (after, locals) = match &executed {
                    Some((after, locals)) if takes_effect => (after, Some(locals.clone())),
                    _ => (state, None),
                };
                self.locals[next] = locals;
                self.continue_from(after)?;
                self.ends.pop();
            }
        }
        Ok(())
    }

    /// Demands that the outcome is not the excluded one.
    fn end(&mut self, state: &State) -> Result<(), NotScalable> {
        self.executions += 1;
        if self.executions > MAX_EXECUTIONS {
            return Err(NotScalable::Undecided {
                reason: format!("an instance has more than {MAX_EXECUTIONS} serial executions"),
                instead: "write a test with fewer transactions, or order some of them".into(),
            });
        }
        let is_excluded = can_be(self.condition, true, &|it| match it {
            Seen::Object(object) => Known::Value(state[object]),
            Seen::Read { transaction, local } => match &self.locals[transaction] {
                Some(locals) => Known::Value(locals[local.0]),
                None => Known::Any,
            },
            Seen::Committed(transaction) => {
                let end = self.ends.iter().find(|(it, _)| *it == transaction);
                Known::Value(match end {
                    Some((_, End::Committed)) => Some(1),
                    Some((_, End::Aborted)) => Some(0),
                    Some((_, End::Unanswered | End::Lost)) | None => None,
                })
            }
        });
        if !is_excluded {
            return Ok(());
        }
        let ends = self.ends.iter().map(|&(it, end)| {
            let end = match end {
                End::Committed => "commits",
                End::Aborted => "aborts (and may have read any values)",
                End::Unanswered => "commits without an answer",
                End::Lost => "is cut off (and may have read any values)",
            };
            format!("{} {end}", self.test.transactions[it].name)
        });
        let ends: Vec<String> = ends.collect();
        Err(NotScalable::Serial {
            execution: format!(
                "{}, with {}",
                ends.join(", "),
                super::shown(self.test, state)
            ),
        })
    }
}
