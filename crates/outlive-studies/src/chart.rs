//! Rows as an SVG: the ratios with their intervals and goals, and what was measured beside the papers' numbers.
//!
//! Text stays text, in whatever font the reader has; none is needed here.

use crate::row::{On, Row};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
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

const WIDTH: u32 = 1180;
const LABELS: u32 = 600;
const LINE: u32 = 17;
/// Title, legend and axis of a panel.
const FRAME: u32 = 78;

const OURS: RGBColor = RGBColor(0, 90, 181);
const PEER: RGBColor = RGBColor(120, 120, 120);
const PAPER: RGBColor = RGBColor(204, 102, 0);
const MISSED: RGBColor = RGBColor(200, 0, 30);
const GOAL: RGBColor = RGBColor(20, 130, 60);

/// What is drawn at one height.
struct Line {
    label: String,
    marks: Vec<(Mark, f64)>,
    interval: Option<(f64, f64)>,
    color: RGBColor,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Ours,
    Peer,
    Paper,
    Goal,
}

struct Panel {
    title: String,
    lines: Vec<Line>,
}

/// The SVG of `rows`, with `title` above it.
///
/// # Errors
/// If there is something in the numbers that cannot be drawn.
pub fn svg(title: &str, rows: &[Row]) -> Result<String, ChartError> {
    let panels = panels(rows);
    let heights: Vec<u32> = panels
        .iter()
        .map(|panel| FRAME + LINE * panel.lines.len() as u32)
        .collect();
    let height = 40 + heights.iter().sum::<u32>();
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(ChartError::of)?;
        let style = ("sans-serif", 18).into_font().color(&BLACK);
        root.draw_text(title, &style, (12, 10))
            .map_err(ChartError::of)?;
        let mut rest = root.margin(36, 0, 0, 0);
        for (panel, height) in panels.iter().zip(heights) {
            let (here, below) = rest.split_vertically(height);
            draw(panel, &here)?;
            rest = below;
        }
        root.present().map_err(ChartError::of)?;
    }
    Ok(text)
}

/// A panel of ratios, and one for each unit.
fn panels(rows: &[Row]) -> Vec<Panel> {
    let label = |row: &Row| format!("{} · {}", row.case, row.metric);
    let drawable = |value: &f64| value.is_finite() && *value > 0.0;
    let ratios = rows.iter().filter_map(|row| {
        let ratio = row.ratio.filter(drawable)?;
        let on_ratio = row.goal.filter(|goal| goal.on == On::Ratio);
        let interval_is_the_ratios = row.goal.is_none_or(|goal| goal.on == On::Ratio);
        let mut marks = vec![(Mark::Ours, ratio)];
        marks.extend(on_ratio.map(|goal| (Mark::Goal, goal.value)));
        Some(Line {
            label: label(row),
            marks,
            interval: row.low.zip(row.high).filter(|_| interval_is_the_ratios),
            color: match (row.fails(), row.ours) {
                (true, _) => MISSED,
                // The peer beside itself.
                (false, None) => PEER,
                (false, Some(_)) => OURS,
            },
        })
    });
    let mut panels = vec![Panel {
        title: "ratios, with 95% intervals".into(),
        lines: ratios.collect(),
    }];
    let mut units: Vec<&str> = Vec::new();
    for row in rows {
        if !units.contains(&row.unit.as_str()) {
            units.push(&row.unit);
        }
    }
    for unit in units {
        let lines = rows
            .iter()
            .filter(|row| row.unit == unit)
            .filter_map(|row| {
                let on_ours = row.goal.filter(|goal| goal.on == On::Ours);
                let mut marks: Vec<(Mark, f64)> = [
                    (Mark::Peer, row.peer),
                    (Mark::Paper, row.paper),
                    (Mark::Goal, on_ours.map(|goal| goal.value)),
                    (Mark::Ours, row.ours),
                ]
                .into_iter()
                .filter_map(|(mark, value)| Some((mark, value.filter(drawable)?)))
                .collect();
                // The peer beside itself has had its line.
                let again = row.metric == crate::paired::SAME;
                if again {
                    marks.clear();
                }
                (!marks.is_empty()).then(|| Line {
                    label: label(row),
                    marks,
                    interval: on_ours.and(row.low.zip(row.high)),
                    color: if row.fails() { MISSED } else { OURS },
                })
            });
        panels.push(Panel {
            title: format!("in {unit}"),
            lines: lines.collect(),
        });
    }
    panels.retain(|panel| !panel.lines.is_empty());
    panels
}

fn draw(panel: &Panel, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), ChartError> {
    let values = panel.lines.iter().flat_map(|line| {
        let ends = line
            .interval
            .into_iter()
            .flat_map(|(low, high)| [low, high]);
        line.marks.iter().map(|(_, value)| *value).chain(ends)
    });
    let (low, high) = values
        .filter(|value| value.is_finite() && *value > 0.0)
        .fold((f64::INFINITY, 0.0f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
    // Room beside the outermost marks, and a range even where all are alike.
    let axis = Axis::of(low * 0.9, high * 1.11);
    let (low, high) = (axis.place(low * 0.9), axis.place(high * 1.11));
    let many = panel.lines.len();
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_top(40)
        .x_label_area_size(26)
        .y_label_area_size(LABELS)
        .build_cartesian_2d(low..high, 0.0..many as f64)
        .map_err(ChartError::of)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_labels(8)
        .x_label_formatter(&|place| crate::sheet::number(axis.value(*place)))
        .light_line_style(WHITE)
        .label_style(("sans-serif", 11))
        .draw()
        .map_err(ChartError::of)?;
    let plain = ("sans-serif", 12).into_font();
    let right = Pos::new(HPos::Right, VPos::Center);
    let heading = ("sans-serif", 14).into_font().color(&BLACK);
    area.draw_text(&panel.title, &heading, (12, 14))
        .map_err(ChartError::of)?;
    legend(panel, area)?;
    for (index, line) in panel.lines.iter().enumerate() {
        let y = many as f64 - index as f64 - 0.5;
        let (_, pixel) = chart.backend_coord(&(low, y));
        let (_, top) = area.get_base_pixel();
        let style = plain.clone().color(&line.color).pos(right);
        let label = shortened(&line.label);
        area.draw_text(&label, &style, (LABELS as i32 - 8, pixel - top))
            .map_err(ChartError::of)?;
        if let Some((from, to)) = line.interval {
            let [from, to] = [from, to].map(|end| (axis.place(end).clamp(low, high), y));
            chart
                .draw_series([PathElement::new([from, to], line.color.stroke_width(2))])
                .map_err(ChartError::of)?;
        }
        for (mark, value) in &line.marks {
            let at = (axis.place(*value), y);
            let drawn = match mark {
                Mark::Ours => chart
                    .draw_series([Circle::new(at, 4, line.color.filled())])
                    .map(drop),
                Mark::Peer => chart
                    .draw_series([Circle::new(at, 4, PEER.stroke_width(1))])
                    .map(drop),
                Mark::Paper => chart
                    .draw_series([TriangleMarker::new(at, 5, PAPER.filled())])
                    .map(drop),
                Mark::Goal => chart
                    .draw_series([PathElement::new(
                        [(at.0, y - 0.4), (at.0, y + 0.4)],
                        GOAL.stroke_width(2),
                    )])
                    .map(drop),
            };
            drawn.map_err(ChartError::of)?;
        }
    }
    Ok(())
}

/// Values that differ by factors are placed by their logarithms.
#[derive(Clone, Copy)]
enum Axis {
    Linear,
    Logarithmic,
}

impl Axis {
    fn of(low: f64, high: f64) -> Self {
        if high / low < 6.0 {
            Self::Linear
        } else {
            Self::Logarithmic
        }
    }

    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
        }
    }

    fn value(self, place: f64) -> f64 {
        match self {
            Self::Linear => place,
            Self::Logarithmic => 10f64.powf(place),
        }
    }
}

/// Says what the marks of this panel are.
fn legend(panel: &Panel, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), ChartError> {
    let is_ratio = panel.title.starts_with("ratios");
    let has = |wanted| {
        let mut marks = panel.lines.iter().flat_map(|line| &line.marks);
        marks.any(|(mark, _)| *mark == wanted)
    };
    let mut x = LABELS as i32;
    for (mark, name, color) in [
        (Mark::Ours, if is_ratio { "ratio" } else { "ours" }, OURS),
        (Mark::Peer, "peer", PEER),
        (Mark::Paper, "paper", PAPER),
        (Mark::Goal, "goal", GOAL),
    ] {
        if !has(mark) {
            continue;
        }
        let at = (x, 20);
        let drawn = match mark {
            Mark::Ours => area.draw(&Circle::new(at, 4, color.filled())),
            Mark::Peer => area.draw(&Circle::new(at, 4, color.stroke_width(1))),
            Mark::Paper => area.draw(&TriangleMarker::new(at, 5, color.filled())),
            Mark::Goal => area.draw(&PathElement::new([(x, 13), (x, 27)], color.stroke_width(2))),
        };
        drawn.map_err(ChartError::of)?;
        let style = ("sans-serif", 12).into_font().color(&color);
        area.draw_text(name, &style, (x + 8, 14))
            .map_err(ChartError::of)?;
        x += 70;
    }
    if panel.lines.iter().any(|line| line.color == MISSED) {
        let style = ("sans-serif", 12).into_font().color(&MISSED);
        area.draw_text("missed", &style, (x, 14))
            .map_err(ChartError::of)?;
    }
    Ok(())
}

/// As much of a label as there is room for.
fn shortened(label: &str) -> String {
    const MOST: usize = 100;
    if label.chars().count() <= MOST {
        return label.to_owned();
    }
    let kept: String = label.chars().take(MOST - 1).collect();
    kept + "…"
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
            "the paper",
        ] {
            assert!(svg.contains(text), "{text} is not in {svg}");
        }
        assert!(!svg.contains("in s<") && !svg.contains("nothing to draw"));
    }

    #[test]
    fn no_rows_are_no_panels() {
        assert!(svg("empty", &[]).unwrap().contains("empty"));
    }

    #[test]
    fn long_labels_are_cut_between_characters() {
        let long = "µ".repeat(300);
        assert_eq!(shortened(&long).chars().count(), 100);
        assert_eq!(shortened("short"), "short");
    }
}
