//! The marks for values, and their legend.

use super::{Area, ChartError, text};
use plotters::prelude::*;

pub const OURS: RGBColor = RGBColor(0, 90, 181);
pub const PEER: RGBColor = RGBColor(120, 120, 120);
pub const PAPER: RGBColor = RGBColor(204, 102, 0);
pub const MISSED: RGBColor = RGBColor(200, 0, 30);
pub const GOAL: RGBColor = RGBColor(20, 130, 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Ours,
    Peer,
    Paper,
    Goal,
    /// A cross beside a mark that has missed its goal.
    Missed,
}

impl Mark {
    const ALL: [Self; 5] = [
        Self::Ours,
        Self::Peer,
        Self::Paper,
        Self::Goal,
        Self::Missed,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Peer => "peer",
            Self::Paper => "paper",
            Self::Goal => "goal",
            Self::Missed => "goal missed",
        }
    }

    pub fn color(self) -> RGBColor {
        match self {
            Self::Ours => OURS,
            Self::Peer => PEER,
            Self::Paper => PAPER,
            Self::Goal => GOAL,
            Self::Missed => MISSED,
        }
    }

    /// Draws the mark around `at`. A goal is a line, `reach` pixels to both sides.
    pub fn draw(
        self,
        area: &Area<'_>,
        at: (i32, i32),
        color: RGBColor,
        reach: (i32, i32),
    ) -> Result<(), ChartError> {
        let (x, y) = at;
        let line = |from: (i32, i32), to: (i32, i32)| {
            area.draw(&PathElement::new([from, to], color.stroke_width(2)))
        };
        match self {
            Self::Ours => area.draw(&Circle::new(at, 4, color.filled())),
            Self::Peer => area.draw(&Circle::new(at, 4, color.stroke_width(1))),
            // The white edge makes it visible on a bar of a similar colour.
            Self::Paper => area
                .draw(&TriangleMarker::new(at, 8, WHITE.filled()))
                .and_then(|()| area.draw(&TriangleMarker::new(at, 5, color.filled()))),
            Self::Goal => line((x - reach.0, y - reach.1), (x + reach.0, y + reach.1)),
            Self::Missed => line((x - 4, y - 4), (x + 4, y + 4))
                .and_then(|()| line((x - 4, y + 4), (x + 4, y - 4))),
        }
        .map_err(ChartError::of)
    }
}

/// Draws the legend of the marks for which `has` is true, from `x` on; `ours` names our mark.
pub fn legend(
    area: &Area<'_>,
    (mut x, y): (i32, i32),
    ours: &str,
    has: impl Fn(Mark) -> bool,
    goal_reach: (i32, i32),
) -> Result<(), ChartError> {
    for mark in Mark::ALL {
        if !has(mark) {
            continue;
        }
        let color = mark.color();
        mark.draw(area, (x, y), color, goal_reach)?;
        let name = match mark {
            Mark::Ours => ours,
            mark => mark.name(),
        };
        let style = ("sans-serif", 12).into_font().color(&color);
        area.draw_text(name, &style, (x + 10, y - 6))
            .map_err(ChartError::of)?;
        x += 32 + text::width(name, 12);
    }
    Ok(())
}
