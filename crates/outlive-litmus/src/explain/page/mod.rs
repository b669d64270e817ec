//! A page in HTML: the results of a run, and a picture of each violation.
//!
//! The page is one file without scripts and without references to other files. It is well-formed
//! XML, so that the tests can parse it.

mod drawing;
mod markup;
mod section;

use super::Explanation;
use crate::run::{TestReport, Verdict};
use markup::escaped;
use std::fmt::Write;

const STYLE: &str = include_str!("style.css");

/// The contents of a page.
#[derive(Clone, Debug)]
pub struct Page<'p> {
    /// The store, as its user named it.
    pub target: &'p str,
    /// The level that the store gave, and its conditions; `None` if it was not judged.
    pub level: Option<&'p str>,
    /// The names of the faults that were injected.
    pub faults: &'p [&'p str],
    /// The seed of the clients' choices.
    pub seed: u64,
    /// The tests in their order.
    pub tests: Vec<Tested<'p>>,
}

/// A test of a page.
#[derive(Clone, Debug)]
pub struct Tested<'p> {
    /// The result of the test.
    pub report: &'p TestReport,
    /// The test's assertion as text.
    pub assertion: String,
    /// An explanation for each violation that the test found.
    pub explanations: &'p [Explanation],
    /// The command that repeats the test.
    pub repeat: String,
}

/// Returns the page as HTML.
#[must_use]
pub fn page(page: &Page<'_>) -> String {
    let target = escaped(page.target);
    let mut text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n\
         <meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>Litmus tests of {target}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Litmus tests of <span class=\"mono\">{target}</span></h1>\n"
    );
    summary(&mut text, page);
    overview(&mut text, page);
    for tested in &page.tests {
        if !tested.report.violations.is_empty() {
            section::section(&mut text, tested, page.seed);
        }
    }
    text += "<footer>\n<p><span class=\"inferred\">inferred</span> The store is a black box. An \
             interleaving is the shortest one that the values allow, and its cycle is forbidden by \
             the level; the store's own order of events can differ.</p>\n\
             <p><span class=\"kind ww\">ww</span> the second transaction overwrites a version of the \
             first; <span class=\"kind wr\">wr</span> it reads one; \
             <span class=\"kind rw\">rw</span> it overwrites a version that the first read; \
             <span class=\"kind rt\">rt</span> it began after the first had ended.</p>\n</footer>\n";
    text + "</main>\n</body>\n</html>\n"
}

fn summary(text: &mut String, page: &Page<'_>) {
    let violated = page
        .tests
        .iter()
        .filter(|it| !it.report.violations.is_empty())
        .count();
    let all = page.tests.len();
    if let Some(level) = page.level {
        let _ = writeln!(
            text,
            "<p class=\"claim\">Level given: {}</p>",
            escaped(level)
        );
    }
    let class = if violated == 0 { "passed" } else { "violated" };
    let noun = if all == 1 { "test" } else { "tests" };
    let faults = match page.faults.is_empty() {
        true => "no faults injected".into(),
        false => format!("faults injected: {}", escaped(&page.faults.join(", "))),
    };
    let _ = writeln!(
        text,
        "<p><span class=\"{class}\">{violated} of {all} {noun} violated</span>; seed {}; {faults}.</p>",
        page.seed
    );
}

fn overview(text: &mut String, page: &Page<'_>) {
    *text += "<h2>Tests</h2>\n<div class=\"scroll\">\n<table class=\"list\">\n<thead><tr>\
              <th scope=\"col\">test</th><th scope=\"col\">result</th>\
              <th scope=\"col\">forbidden from</th>\
              <th scope=\"col\" class=\"wide\">executions</th>\
              <th scope=\"col\" class=\"wide\">seconds</th></tr></thead>\n<tbody>\n";
    for tested in &page.tests {
        let report = tested.report;
        let name = escaped(&report.name);
        let name = match report.violations.is_empty() {
            true => name,
            false => format!("<a href=\"#{}\">{name}</a>", section::anchor(&report.name)),
        };
        let class = match report.verdict {
            Verdict::Passed => "passed",
            _ if !report.violations.is_empty() => "violated",
            Verdict::Blocked(_) => "violated",
            _ => "idle",
        };
        let result = match report.verdict.reason() {
            Some(reason) => format!("{}: {reason}", report.verdict.name()),
            None => report.verdict.name().into(),
        };
        let levels: Vec<String> = report
            .forbidden_from
            .iter()
            .map(ToString::to_string)
            .collect();
        let _ = writeln!(
            text,
            "<tr><th scope=\"row\">{name}</th><td class=\"{class}\">{}</td>\
             <td class=\"levels\">{}</td><td class=\"number wide\">{}</td>\
             <td class=\"number wide\">{:.1}</td></tr>",
            escaped(&result),
            escaped(&levels.join(", ")),
            report.executions,
            report.elapsed.as_secs_f64()
        );
    }
    *text += "</tbody>\n</table>\n</div>\n";
}
