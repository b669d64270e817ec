//! An explanation as text.

use super::words::{value, values};
use super::{Explanation, Finding};

/// The maximum number of serial executions that are printed.
const MOST_SERIAL: usize = 6;

/// Returns the lines of an explanation: the sentence, the interleaving with a column for each
/// transaction and time downwards, the cycle, and the values of serial executions.
#[must_use]
pub fn lines(explanation: &Explanation) -> Vec<String> {
    let mut lines = vec![explanation.sentence()];
    if explanation.result == Finding::Unexplained {
        return lines;
    }
    if !explanation.observed.is_empty() {
        lines.push(format!("observed: {}", values(&explanation.observed)));
    }
    if explanation.steps.is_empty() {
        return lines;
    }
    for it in &explanation.serial[..explanation.serial.len().min(MOST_SERIAL)] {
        let names = explanation.observed.iter().map(|it| it.0.clone());
        let values = values(&names.zip(it.values.iter().copied()).collect::<Vec<_>>());
        lines.push(format!("expected: {values} ({})", it.order.join(", then ")));
    }
    lines.push("interleaving (inferred), time downwards:".into());
    if let Some(start) = &explanation.start {
        lines.push(format!(
            "  in a state between transactions: {}",
            values_of(start)
        ));
    }
    lines.extend(columns(explanation).into_iter().map(|it| format!("  {it}")));
    lines.push(format!("cycle (inferred): {}", explanation.cycle_line()));
    lines.extend(explanation.cycle.iter().map(|it| {
        let object = it
            .object
            .as_ref()
            .map(|it| format!(" {it}"))
            .unwrap_or_default();
        format!("  {}{object}: {}", it.kind, it.meaning)
    }));
    lines
}

fn values_of(state: &[(String, Option<i64>)]) -> String {
    let one = |(name, it): &(String, Option<i64>)| format!("{name} = {}", value(*it));
    state.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns the steps as a table with a column for each transaction.
fn columns(explanation: &Explanation) -> Vec<String> {
    let count = explanation.transactions.len();
    let headings = explanation.transactions.iter().map(|it| it.name.clone());
    let mut rows: Vec<Vec<String>> = vec![headings.collect()];
    for it in &explanation.steps {
        let mut row = vec![String::new(); count];
        row[it.transaction] = match it.note.is_empty() {
            true => it.step.clone(),
            false => format!("{} ({})", it.step, it.note),
        };
        rows.push(row);
    }
    let width = |column: usize| rows.iter().map(|it| it[column].chars().count()).max();
    let widths: Vec<usize> = (0..count).map(|it| width(it).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<String> = cells
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
