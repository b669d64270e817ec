//! Formats rows as text for people and as CSV for spreadsheets.

use crate::row::{Goal, On, Row};
use std::io;

/// Formats a number with as many digits as people want to read.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v == 0.0 || !v.is_finite() => 0,
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        v if v >= 0.01 => 3,
        _ => 5,
    };
    format!("{value:.digits$}")
}

fn goal(goal: &Goal) -> String {
    let on = match goal.on {
        On::Ratio => "ratio",
        On::Ours => "ours",
    };
    format!("{on} {} {}", goal.op.sign(), goal.value)
}

/// Formats a row as one line.
pub fn line(row: &Row) -> String {
    let ours = row
        .ours
        .map(|ours| format!("{} {}", number(ours), row.unit));
    let beside = row.peer_name.as_deref().unwrap_or("its peer");
    let peer = row.peer.map(|peer| format!("{beside} {}", number(peer)));
    let ratio = row.ratio.map(|ratio| format!("ratio {}", number(ratio)));
    let said: Vec<_> = [ours, peer, ratio].into_iter().flatten().collect();
    let mut line = format!("{}, {}: {}", row.case, row.metric, said.join(", "));
    if let Some(interval) = interval(row) {
        line += &format!(" ({interval})");
    }
    if let (Some(asked), Some(holds)) = (&row.goal, row.holds) {
        let verdict = if holds { "holds" } else { "MISSED" };
        line += &format!("; {} {verdict}", goal(asked));
    }
    line
}

/// Returns a row's interval; `None` if it has none, or nothing varied.
fn interval(row: &Row) -> Option<String> {
    let (low, high) = (row.low?, row.high?);
    (low < high).then(|| format!("{}..{}", number(low), number(high)))
}

/// Formats the rows as a table: a line for each case, and its metrics under it. Below the table are
/// the reasons why ours is far from the paper's, where a row has one.
pub fn table(rows: &[Row]) -> String {
    // Simulated numbers vary only with the seed, and there are few seeds.
    let is_simulated = |row: &Row| matches!(row.how, None | Some(crate::How::Simulated));
    // If all rows are simulated, no row needs to say so.
    let all_simulated = rows.iter().all(is_simulated);
    let varied: Vec<_> = rows.iter().filter(|row| interval(row).is_some()).collect();
    let interval_heading = match !varied.is_empty() && varied.into_iter().all(is_simulated) {
        true => "of seeds",
        false => "95%",
    };
    let headings = [
        "",
        "ours",
        "peer",
        "ratio",
        interval_heading,
        "paper",
        "goal",
        "",
        "beside",
    ];
    let mut lines: Vec<Vec<String>> = vec![headings.map(str::to_owned).to_vec()];
    let mut case = "";
    for row in rows {
        if row.case != case {
            case = &row.case;
            lines.push(vec![case.to_owned()]);
        }
        let some = |value: Option<f64>| value.map_or_else(String::new, number);
        let verdict = match row.holds {
            None => "",
            Some(true) => "holds",
            Some(false) => "MISSED",
        };
        let how = match row.how {
            None | Some(crate::How::Measured) => "",
            Some(crate::How::Simulated) if all_simulated => "",
            Some(how) => how.name(),
        };
        let beside = [row.peer_name.as_deref().unwrap_or(""), how];
        let beside: Vec<&str> = beside.into_iter().filter(|word| !word.is_empty()).collect();
        lines.push(vec![
            format!("  {} [{}]", row.metric, row.unit),
            some(row.ours),
            some(row.peer),
            some(row.ratio),
            interval(row).unwrap_or_default(),
            some(row.paper),
            row.goal.as_ref().map_or_else(String::new, goal),
            verdict.to_owned(),
            beside.join("; "),
        ]);
    }
    // Columns that are empty throughout are left out.
    let kept: Vec<usize> = (0..headings.len())
        .filter(|column| {
            let mut cells = lines.iter().skip(1).filter_map(|line| line.get(*column));
            *column == 0 || cells.any(|cell| !cell.is_empty())
        })
        .collect();
    for line in lines.iter_mut().filter(|line| line.len() > 1) {
        *line = { kept.iter() }
            .map(|column| line[*column].clone())
            .collect();
    }
    let columns = kept.len();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = lines.iter().filter(|line| line.len() > 1);
            cells
                .map(|line| line[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for line in &lines {
        if line.len() == 1 {
            text += &line[0];
        } else {
            let mut shown = String::new();
            for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
                // Numbers are aligned to the right.
                let padding = " ".repeat(width - cell.chars().count());
                match kept[column] {
                    1..=5 => shown += &format!("{padding}{cell}  "),
                    _ => shown += &format!("{cell}{padding}  "),
                }
            }
            text += shown.trim_end();
        }
        text.push('\n');
    }
    for row in rows {
        if let Some(why) = &row.why {
            text += &format!("{}, {}: {why}\n", row.case, row.metric);
        }
    }
    text
}

/// Writes the rows as CSV, with a line of headings; the goal takes three columns.
///
/// # Errors
/// If `into` cannot be written to.
pub fn csv(rows: &[Row], into: impl io::Write) -> io::Result<()> {
    let mut writer = csv::Writer::from_writer(into);
    for field in &Row::FIELDS {
        match *field {
            "goal" => ["goal_on", "goal_op", "goal_value"]
                .iter()
                .try_for_each(|part| writer.write_field(part))?,
            field => writer.write_field(field)?,
        }
    }
    writer.write_record(None::<&[u8]>)?;
    for row in rows {
        let some = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let (on, op, value) = match &row.goal {
            None => ("", "", String::new()),
            Some(goal) => (
                match goal.on {
                    On::Ratio => "ratio",
                    On::Ours => "ours",
                },
                goal.op.sign(),
                goal.value.to_string(),
            ),
        };
        writer.write_record([
            row.study.clone(),
            row.case.clone(),
            row.metric.clone(),
            row.unit.clone(),
            some(row.ours),
            some(row.peer),
            row.peer_name.clone().unwrap_or_default(),
            some(row.ratio),
            some(row.low),
            some(row.high),
            some(row.paper),
            on.to_owned(),
            op.to_owned(),
            value,
            row.holds
                .map_or_else(String::new, |holds| holds.to_string()),
            row.how
                .map_or_else(String::new, |how| how.name().to_owned()),
            row.why.clone().unwrap_or_default(),
        ])?;
    }
    writer.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Estimate;

    fn rows() -> Vec<Row> {
        let estimate = Estimate {
            value: 1.2,
            low: 1.1,
            high: 1.3,
        };
        vec![
            Row::new("one, \"two\"", "time", "ns")
                .ours(12.0)
                .peer("plain", 10.0)
                .ratio(estimate)
                .goal(Goal::ratio_at_most(1.05)),
            Row::paper_alone("one, \"two\"", "time", "us", 5.43).why("an unknown reason"),
        ]
    }

    #[test]
    fn people_see_what_was_missed_and_what_the_paper_says() {
        let text = table(&rows());
        let (table, below) = text.rsplit_once("one, \"two\"").unwrap();
        assert_eq!(table.matches("one, \"two\"").count(), 1, "{text}");
        assert_eq!(below, ", time: an unknown reason\n", "{text}");
        assert!(
            text.contains("MISSED") && text.contains("1.100..1.300"),
            "{text}"
        );
        assert!(text.contains("5.43"), "{text}");
    }

    #[test]
    fn columns_that_are_empty_throughout_are_left_out() {
        let row = |metric: &str, ours| {
            let row = Row::new("a case", metric, "times").ours(ours);
            row.how(crate::How::Simulated)
        };
        let text = table(&[row("one", 1.5), row("two", 2.5).paper(3.0)]);
        let lines: Vec<Vec<&str>> = { text.lines() }
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["ours", "paper"], "{text}");
        assert_eq!(lines[2], ["one", "[times]", "1.500"], "{text}");
        assert_eq!(lines[3], ["two", "[times]", "2.500", "3.000"], "{text}");
        // Columns that other rows fill are kept.
        let mixed = table(&[row("one", 1.5), rows().remove(0)]);
        assert!(
            mixed.contains("simulated") && mixed.contains("peer"),
            "{mixed}"
        );
    }

    #[test]
    fn csv_quotes_and_has_a_cell_for_everything() {
        let mut bytes = Vec::new();
        csv(&rows(), &mut bytes).unwrap();
        let mut reader = csv::Reader::from_reader(&bytes[..]);
        let columns = reader.headers().unwrap().len();
        let records: Vec<_> = reader.records().collect::<Result<_, _>>().unwrap();
        assert_eq!((records.len(), columns), (2, 17));
        assert_eq!(&records[0][1], "one, \"two\"");
        assert_eq!(&records[0][14], "false");
        assert_eq!(
            (&records[1][10], &records[1][16]),
            ("5.43", "an unknown reason")
        );
        assert!(records[1][4].is_empty());
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        for (value, text) in [
            (12345.6, "12346"),
            (123.45, "123.5"),
            (1.0345, "1.034"),
            (12.346, "12.35"),
            (0.0345, "0.035"),
            (0.0, "0"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
