//! Draws rows as an SVG: the ratios with their intervals and goals, and the measured numbers with
//! the papers'; grids of cases and metrics as grouped bars.
//!
//! Text stays text, in any font that the reader has; no font is needed here.

mod axis;
mod bars;
mod lines;
mod marks;
mod text;

use crate::row::{How, On, Row};
use crate::study::MACHINE;
use bars::Bars;
use lines::{Line, Lines};
use marks::{MISSED, Mark, OURS, PEER};
use plotters::coord::Shift;
use plotters::prelude::*;
use std::fmt::Display;

/// The chart could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the chart cannot be drawn: {why}")]
pub struct ChartError {
    why: String,
}

impl ChartError {
    fn of(why: impl Display) -> Self {
        let why = why.to_string();
        Self { why }
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 1180;
/// The height of a note below the panels.
const NOTE: u32 = 18;
/// The colour of the lines through a plot at its ticks.
const GRID: RGBColor = RGBColor(225, 225, 225);

enum Panel {
    Lines(Lines),
    Bars(Bars),
}

impl Panel {
    fn height(&self) -> u32 {
        match self {
            Self::Lines(lines) => lines.height(),
            Self::Bars(bars) => bars.height(),
        }
    }

    fn draw(&self, area: &Area<'_>) -> Result<(), ChartError> {
        match self {
            Self::Lines(lines) => lines.draw(area),
            Self::Bars(bars) => bars.draw(area),
        }
    }
}

/// Returns the SVG of `rows`, with the title `title`.
///
/// # Errors
/// If a number cannot be drawn.
pub fn svg(title: &str, rows: &[Row]) -> Result<String, ChartError> {
    let (of_machine, rows): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.case == MACHINE);
    let panels = panels(&rows);
    let notes: Vec<String> = of_machine.into_iter().filter_map(note).collect();
    let height = 40 + NOTE * notes.len() as u32 + panels.iter().map(Panel::height).sum::<u32>();
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(ChartError::of)?;
        let style = ("sans-serif", 18).into_font().color(&BLACK);
        root.draw_text(title, &style, (12, 10))
            .map_err(ChartError::of)?;
        let mut rest = root.margin(36, 0, 0, 0);
        for panel in &panels {
            let (here, below) = rest.split_vertically(panel.height());
            panel.draw(&here)?;
            rest = below;
        }
        for note in &notes {
            let style = ("sans-serif", 12).into_font().color(&PEER);
            rest.draw_text(note, &style, (12, 0))
                .map_err(ChartError::of)?;
            rest = rest.margin(NOTE, 0, 0, 0);
        }
        root.present().map_err(ChartError::of)?;
    }
    Ok(text)
}

/// Returns a panel of ratios, and one for each unit.
fn panels(rows: &[&Row]) -> Vec<Panel> {
    let ratios = Lines {
        title: ratios_title(rows).into(),
        ours: "ratio",
        lines: rows.iter().copied().filter_map(ratio).collect(),
    };
    let mut panels = Vec::new();
    if !ratios.lines.is_empty() {
        panels.push(Panel::Lines(ratios));
    }
    let mut units: Vec<&str> = Vec::new();
    for row in rows {
        if !units.contains(&row.unit.as_str()) {
            units.push(&row.unit);
        }
    }
    for unit in units {
        let has_number = |row: &&Row| row.ours.or(row.peer).or(row.paper).is_some();
        let of_unit = rows.iter().copied().filter(|row| row.unit == unit);
        let of_unit: Vec<&Row> = of_unit.filter(has_number).collect();
        if let Some(bars) = Bars::of(unit, &of_unit) {
            panels.push(Panel::Bars(bars));
            continue;
        }
        let lines: Vec<Line> = of_unit.into_iter().filter_map(numbers).collect();
        if !lines.is_empty() {
            panels.push(Panel::Lines(Lines {
                title: title(unit),
                ours: "ours",
                lines,
            }));
        }
    }
    panels
}

/// Returns the title of a panel of numbers in a unit.
fn title(unit: &str) -> String {
    match unit.contains(' ') {
        true => unit.to_owned(),
        false => format!("in {unit}"),
    }
}

/// Returns the title of the panel of ratios. Simulated ratios have no 95% intervals.
fn ratios_title(rows: &[&Row]) -> &'static str {
    let is_measured = |row: &&Row| row.ratio.is_some() && row.how != Some(How::Simulated);
    match rows.iter().any(is_measured) {
        true => "ratios, with 95% intervals",
        false => "ratios",
    }
}

/// Returns the note for a row about the machine, which is not a result.
fn note(row: &Row) -> Option<String> {
    let value = row.ours?;
    Some(format!(
        "{}: {} {}{}",
        row.case, row.metric, value, row.unit
    ))
}

fn label(row: &Row) -> String {
    format!("{} · {}", row.case, row.metric)
}

fn ratio(row: &Row) -> Option<Line> {
    let ratio = row
        .ratio
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)?;
    let on_ratio = row.goal.filter(|goal| goal.on == On::Ratio);
    let mut marks: Vec<_> = { on_ratio.into_iter() }
        .map(|goal| (Mark::Goal, goal.value))
        .collect();
    marks.push((Mark::Ours, ratio));
    Some(Line {
        label: label(row),
        marks,
        interval: row.low.zip(row.high).filter(|_| is_of_ratio(row)),
        color: match (row.fails(), row.ours) {
            (true, _) => MISSED,
            // The peer compared with itself.
            (false, None) => PEER,
            (false, Some(_)) => OURS,
        },
    })
}

/// Returns whether a row's interval is that of its ratio.
fn is_of_ratio(row: &Row) -> bool {
    match row.goal {
        Some(goal) => goal.on == On::Ratio,
        None => row.ratio.is_some(),
    }
}

fn numbers(row: &Row) -> Option<Line> {
    // The comparison of the peer with itself is in the panel of ratios.
    if row.metric == crate::paired::SAME {
        return None;
    }
    let on_ours = row.goal.filter(|goal| goal.on == On::Ours);
    // The goal's mark is drawn first, so that it hides no other mark.
    let marks: Vec<(Mark, f64)> = [
        (Mark::Goal, on_ours.map(|goal| goal.value)),
        (Mark::Peer, row.peer),
        (Mark::Paper, row.paper),
        (Mark::Ours, row.ours),
    ]
    .into_iter()
    .filter_map(|(mark, value)| {
        Some((
            mark,
            value.filter(|value| value.is_finite() && *value >= 0.0)?,
        ))
    })
    .collect();
    (!marks.is_empty()).then(|| Line {
        label: label(row),
        marks,
        interval: row.low.zip(row.high).filter(|_| !is_of_ratio(row)),
        color: if row.fails() { MISSED } else { OURS },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Goal;
    use crate::statistics::Estimate;

    #[test]
    fn ratios_values_goals_and_the_paper_are_drawn() {
        let estimate = |value: f64| Estimate {
            value,
            low: value * 0.9,
            high: value * 1.1,
        };
        let rows = [
            Row::new("missed case", "time", "ns")
                .ours(12.0)
                .peer("plain", 10.0)
                .ratio(estimate(1.2))
                .goal(Goal::ratio_at_most(1.05)),
            Row::new("good case", "time", "us")
                .ours_within(estimate(1.0))
                .goal(Goal::ours_at_most(1.6)),
            Row::new("no goal", "time", "us").ours_within(estimate(2.0)),
            Row::paper_alone("the paper's", "time", "us", 5.43),
            Row::new("nothing to draw", "time", "s"),
        ];
        let svg = svg("a study", &rows).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in [
            "a study",
            "ratios, with 95% intervals",
            "in ns",
            "in us",
            "missed case",
            "goal missed",
            "the paper",
        ] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        assert!(!svg.contains("in s<") && !svg.contains("nothing to draw"));
        // The interval is that of our number, even without a goal.
        assert_eq!(numbers(&rows[2]).unwrap().interval, Some((1.8, 2.2)));
        assert_eq!(numbers(&rows[0]).unwrap().interval, None);
    }

    #[test]
    fn the_machine_is_a_note_and_what_the_goal_is_on_hides_nothing() {
        let rows = [
            Row::new("a case", "time", "%")
                .ours_within(Estimate {
                    value: 3.0,
                    low: 2.9,
                    high: 3.1,
                })
                .paper(2.0)
                .goal(Goal::ours_at_most(2.0)),
            Row::new(MACHINE, "time stolen", "%").ours(12.5),
        ];
        let svg = svg("a study", &rows).unwrap();
        assert!(svg.contains("time stolen 12.5%"), "{svg}");
        assert_eq!(
            svg.matches("<circle").count(),
            1 + 1,
            "one and the legend's"
        );
        let line = numbers(&rows[0]).unwrap();
        let marks: Vec<Mark> = line.marks.iter().map(|(mark, _)| *mark).collect();
        assert_eq!(marks, [Mark::Goal, Mark::Paper, Mark::Ours]);
    }

    #[test]
    fn a_nought_among_greater_numbers_is_drawn() {
        let row = |case, ours| Row::new(case, "count", "lines").ours(ours);
        let rows = [row("none", 0.0), row("few", 3.0), row("many", 4000.0)];
        let svg = svg("noughts", &rows).unwrap();
        assert!(svg.contains("none") && svg.contains("logarithmic"), "{svg}");
        assert_eq!(
            svg.matches("<circle").count(),
            2 + 1,
            "two and the legend's"
        );
    }

    #[test]
    fn simulated_grids_are_bars_in_groups() {
        let row = |case: &str, metric: &str, ours| {
            let row = Row::new(case, metric, "times write-back").ours(ours);
            row.how(How::Simulated)
        };
        let rows: Vec<Row> = { ["ycsb", "barnes", "canneal", "geometric mean"].iter() }
            .flat_map(|case| [row(case, "wt", 9.5), row(case, "recxl-baseline", 1.3)])
            .collect();
        let svg = svg("a figure", &rows).unwrap();
        assert!(svg.contains("times write-back (logarithmic)"), "{svg}");
        // One label for each case, not one for each pair of case and metric.
        assert_eq!(svg.matches("canneal").count(), 1);
        assert!(svg.matches("<rect").count() > rows.len());
        assert!(!svg.contains("95%"));
    }

    #[test]
    fn no_rows_are_no_panels() {
        assert!(svg("empty", &[]).unwrap().contains("empty"));
    }
}
