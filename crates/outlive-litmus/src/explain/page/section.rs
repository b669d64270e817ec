//! The part of a page about one violated test.

use super::markup::{escaped, prose};
use super::{Tested, drawing};
use crate::explain::words::value;
use crate::explain::{Explanation, Finding};
use crate::run::Violation;
use std::fmt::Write;

const INFERRED: &str = "<span class=\"inferred\">inferred</span>";

/// Returns the name of the section of a test.
pub(super) fn anchor(test: &str) -> String {
    let allowed = |it: char| it.is_ascii_alphanumeric() || it == '-';
    let name: String = test
        .chars()
        .map(|it| if allowed(it) { it } else { '-' })
        .collect();
    format!("test-{name}")
}

pub(super) fn section(text: &mut String, tested: &Tested<'_>, seed: u64) {
    let report = tested.report;
    let _ = writeln!(
        text,
        "<section id=\"{}\">\n<h2>{}</h2>\n<p class=\"soft\">{}</p>",
        anchor(&report.name),
        escaped(&report.name),
        prose(&report.about)
    );
    for (at, violation) in report.violations.iter().enumerate() {
        one(text, violation, tested.explanations.get(at));
    }
    let _ = writeln!(
        text,
        "<h3>Assertion</h3>\n<pre>{}</pre>\n<h3>Command that repeats the clients' choices (seed \
         {seed})</h3>\n<pre>{}</pre>\n</section>",
        escaped(&tested.assertion),
        escaped(&tested.repeat)
    );
}

fn one(text: &mut String, violation: &Violation, explanation: Option<&Explanation>) {
    let _ = writeln!(
        text,
        "<p><span class=\"violated\">{}</span>, found after {} executions and {:.3} s</p>",
        violation.kind.name(),
        violation.executions,
        violation.after.as_secs_f64()
    );
    let Some(explanation) = explanation else {
        return;
    };
    let _ = writeln!(
        text,
        "<p class=\"claim\">{}</p>",
        prose(&explanation.sentence())
    );
    if explanation.result == Finding::Unexplained || explanation.steps.is_empty() {
        values(text, explanation);
        return;
    }
    *text += "<div class=\"pictures\">\n";
    let _ = writeln!(
        text,
        "<figure>\n<figcaption>Cycle of dependencies {INFERRED}</figcaption>\n{}\
         <ul class=\"edges\">",
        drawing::cycle(explanation)
    );
    for it in &explanation.cycle {
        let object = it
            .object
            .as_ref()
            .map(|it| format!(" {it}"))
            .unwrap_or_default();
        let _ = writeln!(
            text,
            "<li><span class=\"kind {}\">{}{}</span>: {}</li>",
            it.kind,
            it.kind,
            escaped(&object),
            prose(&it.meaning)
        );
    }
    *text += "</ul>\n</figure>\n";
    lanes(text, explanation);
    *text += "</div>\n";
    values(text, explanation);
}

/// Writes the interleaving: a lane for each transaction, time downwards.
fn lanes(text: &mut String, explanation: &Explanation) {
    let _ = writeln!(
        text,
        "<figure>\n<figcaption>Interleaving, time downwards {INFERRED}</figcaption>"
    );
    if let Some(start) = &explanation.start {
        let values = start
            .iter()
            .map(|(name, it)| format!("{name} = {}", value(*it)));
        let values = values.collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            text,
            "<p class=\"soft\">It begins in a state between transactions: {}.</p>",
            escaped(&values)
        );
    }
    *text += "<div class=\"scroll\">\n<table class=\"lanes mono\">\n<thead><tr>";
    for it in &explanation.transactions {
        let _ = write!(text, "<th scope=\"col\">{}</th>", escaped(&it.name));
    }
    *text += "</tr></thead>\n<tbody>\n";
    for step in &explanation.steps {
        *text += "<tr>";
        for at in 0..explanation.transactions.len() {
            if at != step.transaction {
                *text += "<td></td>";
                continue;
            }
            let class = match step.step.split(' ').next() {
                Some("read" | "count") => "step read",
                Some("write" | "insert" | "delete") => "step write",
                Some("commit") => "step",
                _ => "step bad",
            };
            let words = escaped(&step.step.replace(" -> ", " → "));
            let note = match step.note.is_empty() {
                true => String::new(),
                false => format!("<small>{}</small>", escaped(&step.note)),
            };
            let _ = write!(
                text,
                "<td><span class=\"{class}\">{words}{note}</span></td>"
            );
        }
        *text += "</tr>\n";
    }
    *text += "</tbody>\n</table>\n</div>\n</figure>\n";
}

/// Writes the observed values beside those of serial executions.
fn values(text: &mut String, explanation: &Explanation) {
    if explanation.observed.is_empty() {
        return;
    }
    *text += "<h3>Values</h3>\n<div class=\"scroll\">\n<table class=\"values\">\n<thead><tr>\
              <th scope=\"col\">execution</th>";
    for (name, _) in &explanation.observed {
        let _ = write!(
            text,
            "<th scope=\"col\" class=\"mono\">{}</th>",
            escaped(name)
        );
    }
    *text += "</tr></thead>\n<tbody>\n<tr><th scope=\"row\">observed</th>";
    for (_, it) in &explanation.observed {
        let _ = write!(text, "<td class=\"mono wrong\">{}</td>", value(*it));
    }
    *text += "</tr>\n";
    for serial in &explanation.serial {
        let order = escaped(&serial.order.join(", then "));
        let _ = write!(text, "<tr><th scope=\"row\">expected: {order}</th>");
        for it in &serial.values {
            let _ = write!(text, "<td class=\"mono\">{}</td>", value(*it));
        }
        *text += "</tr>\n";
    }
    *text += "</tbody>\n</table>\n</div>\n";
}
