//! The results of litmus tests in JUnit's format, for systems of continuous integration.

use crate::failure::Failure;
use outlive_litmus::run::{Report, TestReport, Verdict};
use std::fmt::Write;
use std::path::Path;

/// Writes the results to a file. A test is a failure in the file if `fails` returns true.
pub fn write(
    path: &Path,
    target: &str,
    report: &Report,
    fails: impl Fn(&TestReport) -> bool,
) -> Result<(), Failure> {
    std::fs::write(path, text(target, report, fails)).map_err(|error| {
        Failure::new(format_args!(
            "{} cannot be written: {error}",
            path.display()
        ))
    })
}

fn text(target: &str, report: &Report, fails: impl Fn(&TestReport) -> bool) -> String {
    let failures = report.tests.iter().filter(|it| fails(it)).count();
    let is_skipped = |it: &&TestReport| skipped(it).is_some() && !fails(it);
    let skips = report.tests.iter().filter(is_skipped).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuite name=\"{}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skips}\">\n",
        escaped(target),
        report.tests.len()
    );
    for test in &report.tests {
        let _ = write!(
            text,
            "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
            test.family.name(),
            escaped(&test.name),
            test.elapsed.as_secs_f64()
        );
        let verdict = match test.verdict.reason() {
            Some(reason) => format!("{}: {reason}", test.verdict.name()),
            None => test.verdict.name().into(),
        };
        let verdict = escaped(&verdict);
        let _ = match (fails(test), skipped(test)) {
            (true, _) => writeln!(text, "><failure message=\"{verdict}\"/></testcase>"),
            (_, Some(_)) => writeln!(text, "><skipped message=\"{verdict}\"/></testcase>"),
            _ => writeln!(text, "/>"),
        };
    }
    text + "</testsuite>\n"
}

/// Returns the reason why a test proves nothing.
fn skipped(test: &TestReport) -> Option<&str> {
    match &test.verdict {
        Verdict::NotExercised(reason) | Verdict::NotApplicable(reason) => Some(reason),
        _ => None,
    }
}

/// Escapes text for an attribute of XML.
fn escaped(text: &str) -> String {
    let one = |c: char| match c {
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '"' => "&quot;".into(),
        c if c.is_control() => " ".into(),
        // XML does not permit them, even escaped.
        '\u{fffe}' | '\u{ffff}' => String::new(),
        c => c.to_string(),
    };
    text.chars().map(one).collect()
}
