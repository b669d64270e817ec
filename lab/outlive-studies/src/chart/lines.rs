//! A line for each row, with its marks.

use super::axis::{self, Axis};
use super::marks::{self, Mark};
use super::{Area, ChartError, WIDTH, text};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const LABELS: i32 = 400;
const LINE: i32 = 17;
/// The height between a panel's top and its first line: title and legend.
const ABOVE: i32 = 40;
/// The height of the axis.
const BELOW: i32 = 38;
const SIZE: i32 = 12;

/// The marks at one height.
pub struct Line {
    pub label: String,
    pub marks: Vec<(Mark, f64)>,
    pub interval: Option<(f64, f64)>,
    pub color: RGBColor,
}

pub struct Lines {
    pub title: String,
    /// The name of our mark in the legend.
    pub ours: &'static str,
    pub lines: Vec<Line>,
}

impl Line {
    fn label(&self) -> Vec<String> {
        text::wrapped(&self.label, LABELS - 20, SIZE)
    }

    fn height(&self) -> i32 {
        LINE * self.label().len() as i32
    }

    fn fails(&self) -> bool {
        self.color == marks::MISSED
    }
}

impl Lines {
    pub fn height(&self) -> u32 {
        (ABOVE + BELOW + self.lines.iter().map(Line::height).sum::<i32>()) as u32
    }

    fn axis(&self) -> Axis {
        let values = self.lines.iter().flat_map(|line| {
            let ends = { line.interval.into_iter() }.flat_map(|(low, high)| [low, high]);
            line.marks.iter().map(|(_, value)| *value).chain(ends)
        });
        let values: Vec<f64> = values.collect();
        Axis::around(&values, LABELS, WIDTH as i32 - 30)
    }

    pub fn draw(&self, area: &Area<'_>) -> Result<(), ChartError> {
        let axis = self.axis();
        let bottom = self.height() as i32 - BELOW;
        let heading = ("sans-serif", 14).into_font().color(&BLACK);
        let title = match axis.is_logarithmic() {
            true => format!("{} (logarithmic)", self.title),
            false => self.title.clone(),
        };
        area.draw_text(&title, &heading, (12, 14))
            .map_err(ChartError::of)?;
        let has = |wanted: Mark| match wanted {
            Mark::Missed => self.lines.iter().any(Line::fails),
            wanted => {
                let mut marks = self.lines.iter().flat_map(|line| &line.marks);
                marks.any(|(mark, _)| *mark == wanted)
            }
        };
        marks::legend(area, (LABELS, 20), self.ours, has, (0, 7))?;
        draw_axis(&axis, area, bottom)?;
        let right = Pos::new(HPos::Right, VPos::Center);
        let mut top = ABOVE;
        for line in &self.lines {
            let style = ("sans-serif", SIZE)
                .into_font()
                .color(&line.color)
                .pos(right);
            for (place, part) in line.label().iter().enumerate() {
                let y = top + LINE * place as i32 + LINE / 2;
                area.draw_text(part, &style, (LABELS - 10, y))
                    .map_err(ChartError::of)?;
            }
            draw_line(line, &axis, area, top + line.height() / 2)?;
            top += line.height();
        }
        Ok(())
    }
}

fn draw_axis(axis: &Axis, area: &Area<'_>, bottom: i32) -> Result<(), ChartError> {
    let below = Pos::new(HPos::Center, VPos::Top);
    let style = ("sans-serif", 11).into_font().color(&BLACK).pos(below);
    for tick in axis.ticks() {
        let x = axis.pixel(tick);
        area.draw(&PathElement::new([(x, ABOVE), (x, bottom)], super::GRID))
            .map_err(ChartError::of)?;
        area.draw_text(&axis::label(tick), &style, (x, bottom + 5))
            .map_err(ChartError::of)?;
    }
    let ends = [(LABELS, bottom), (WIDTH as i32 - 30, bottom)];
    area.draw(&PathElement::new(ends, BLACK))
        .map_err(ChartError::of)
}

fn draw_line(line: &Line, axis: &Axis, area: &Area<'_>, y: i32) -> Result<(), ChartError> {
    if let Some((from, to)) = line.interval {
        let ends = [from, to].map(|end| (axis.pixel(end), y));
        area.draw(&PathElement::new(ends, line.color.stroke_width(2)))
            .map_err(ChartError::of)?;
    }
    for (mark, value) in &line.marks {
        let color = match mark {
            Mark::Ours => line.color,
            mark => mark.color(),
        };
        if *value <= axis.low() && axis.is_logarithmic() {
            // The mark has no position on a logarithmic axis, so its value is written instead.
            let style = ("sans-serif", 11).into_font().color(&color);
            area.draw_text(
                &axis::label(*value),
                &style,
                (axis.pixel(*value) + 3, y - 6),
            )
            .map_err(ChartError::of)?;
            continue;
        }
        // The paper's mark is drawn below the line: it often has the position of the goal or of our
        // mark.
        let below = if *mark == Mark::Paper { 5 } else { 0 };
        let at = (axis.pixel(*value), y + below);
        mark.draw(area, at, color, (0, 7))?;
        if *mark == Mark::Ours && line.fails() {
            Mark::Missed.draw(area, (at.0 + 12, y), marks::MISSED, (0, 0))?;
        }
    }
    Ok(())
}
