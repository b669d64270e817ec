//! An execution in readable form: one line per access, death and hook.

use super::engine::access::{Access, Act, Answer};
use std::fmt;

/// The number of lines shown of the beginning and of the end of a long execution.
const SHOWN: usize = 300;

/// The lines of one execution.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Vec<(String, String)>,
}

impl Trace {
    pub(crate) fn push(&mut self, who: &str, what: String) {
        self.lines.push((who.to_owned(), what));
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .lines
            .iter()
            .map(|(who, _)| who.len())
            .max()
            .unwrap_or(0);
        let left_out = self.lines.len().saturating_sub(2 * SHOWN);
        for (i, (who, what)) in self.lines.iter().enumerate() {
            if left_out == 0 || i < SHOWN || i >= SHOWN + left_out {
                writeln!(f, "  {who:width$}  {what}")?;
            } else if i == SHOWN {
                writeln!(f, "  … {left_out} lines …")?;
            }
        }
        Ok(())
    }
}

/// Returns an access as a line of a trace; `way` and `writer` tell which message was taken.
pub(crate) fn place(step: u32, access: &Access, answer: Answer, way: u16, writer: u32) -> String {
    let Access {
        act,
        at,
        size,
        order,
    } = *access;
    let bits = 8 * u32::from(size);
    let by = if writer == 0 {
        "the start".to_owned()
    } else {
        format!("step {writer}")
    };
    let stale = if way == 0 {
        String::new()
    } else {
        format!(", {way} behind the newest")
    };
    let from = format!("(of {by}{stale})");
    let value = answer.value;
    let done = match act {
        Act::Load => format!("load      {order:?} -> {value:#x} {from}"),
        Act::Store(new) if way == 0 => format!("store     {new:#x} {order:?}"),
        Act::Store(new) => format!("store     {new:#x} {order:?}, before the newest {way}"),
        Act::Exchange(new) => format!("exchange  {new:#x} {order:?} -> {value:#x} {from}"),
        Act::CompareExchange {
            expected,
            new,
            failure,
        } => {
            let made = if answer.swapped { "made" } else { "refused" };
            format!(
                "compare   {expected:#x} with {new:#x} {order:?}/{failure:?} -> {made}, found {value:#x} {from}"
            )
        }
        Act::Add(by) => format!("add       {by:#x} {order:?} -> {value:#x} {from}"),
        Act::And(by) => format!("and       {by:#x} {order:?} -> {value:#x} {from}"),
        Act::Or(by) => format!("or        {by:#x} {order:?} -> {value:#x} {from}"),
    };
    format!("{step:4}  [{at:#06x}] u{bits:<3} {done}")
}
