//! The results of litmus tests as text.

use super::explanations::Explained;
use crate::amount::Many;
use crate::output;
use crate::table::Table;
use outlive_litmus::explain::{self, Explanation, Finding};
use outlive_litmus::run::{Executed, Outcome, TestReport, Violation};

/// The maximum number of transactions of a violation that are printed: the last ones.
const SHOWN: usize = 12;

/// Returns a table of all tests, and a paragraph for each violation: its explanation, and the
/// command that repeats its test.
pub fn lines(run: &Explained<'_>, repeat: &impl Fn(&TestReport) -> String) -> Vec<String> {
    let mut table = Table::new([
        "test",
        "forbidden from",
        "executions",
        "overlaps",
        "conflicts",
        "aborted",
        "unknown",
        "crashes",
        "in commits",
        "verdict",
    ]);
    for test in &run.report.tests {
        let levels: Vec<String> = test
            .forbidden_from
            .iter()
            .map(ToString::to_string)
            .collect();
        let in_commits = test.crashes.iter().filter(|it| it.within_commit);
        let in_commits: u64 = in_commits.map(|it| it.crashes).sum();
        let crashes: u64 = test.crashes.iter().map(|it| it.crashes).sum();
        table.row([
            test.name.clone(),
            levels.join(", "),
            test.executions.to_string(),
            test.overlaps.to_string(),
            test.conflicts.to_string(),
            test.count(Outcome::Aborted).to_string(),
            test.count(Outcome::Unknown).to_string(),
            crashes.to_string(),
            in_commits.to_string(),
            verdict(test),
        ]);
    }
    let mut lines: Vec<String> = table.lines().collect();
    if let Some(reason) = &run.report.left {
        lines.push(format!(
            "the table of the tests was not removed: {}",
            output::printable(reason)
        ));
    }
    let is_violated = |it: &(&TestReport, _)| !it.0.violations.is_empty();
    for (test, explanations) in run.tests().filter(is_violated) {
        lines.push(String::new());
        // A file of tests can contain control characters.
        let about = output::printable(&test.about);
        lines.push(format!("{}: {about}", test.name));
        for (at, violation) in test.violations.iter().enumerate() {
            lines.extend(explained(violation, explanations.get(at)));
        }
        lines.push(format!("  repeat: {}", repeat(test)));
    }
    lines
}

fn verdict(test: &TestReport) -> String {
    let name = test.verdict.name();
    // Targets and the messages of stores can contain control characters.
    let reason = test.verdict.reason().map(|it| output::printable(&it));
    let kinds: Vec<&str> = test.violations.iter().map(|it| it.kind.name()).collect();
    match (reason, kinds.is_empty()) {
        (None, true) => name.into(),
        (None, false) => format!("{name}: {}", kinds.join(", ")),
        (Some(reason), true) => format!("{name}: {reason}"),
        // The test has found a violation before it ended.
        (Some(reason), false) => format!("{name}: {reason}; {}", kinds.join(", ")),
    }
}

fn explained(violation: &Violation, explanation: Option<&Explanation>) -> Vec<String> {
    let mut lines = vec![format!(
        "  {} after {:.3} s and {}",
        violation.kind.name(),
        violation.after.as_secs_f64(),
        Many(violation.executions, "execution")
    )];
    if let Some(explanation) = explanation {
        let explained = explain::lines(explanation).into_iter();
        lines.extend(explained.map(|it| format!("    {it}")));
        if explanation.result != Finding::Unexplained {
            return lines;
        }
    }
    if !violation.state.is_empty() {
        lines.push(format!("    read: {}", values(&violation.state)));
    }
    let others = violation.transactions.len().saturating_sub(SHOWN);
    if others > 0 {
        lines.push(format!(
            "    {} before; --json names all",
            Many(others as u64, "transaction")
        ));
    }
    lines.extend(violation.transactions[others..].iter().map(ran));
    lines
}

fn ran(executed: &Executed) -> String {
    let (begin, end) = (executed.begin.as_micros(), executed.end.as_micros());
    let returned = match executed.values.is_empty() {
        true => String::new(),
        false => format!(", returned {}", values(&executed.values)),
    };
    format!(
        "    {begin:>7} to {end:>7} us: {} {}{returned}",
        executed.transaction, executed.outcome
    )
}

fn values(values: &[(String, Option<i64>)]) -> String {
    let one = |(name, value): &(String, Option<i64>)| match value {
        Some(value) => format!("{name} = {value}"),
        None => format!("{name} absent"),
    };
    values.iter().map(one).collect::<Vec<_>>().join(", ")
}
