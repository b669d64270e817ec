//! Grouped bars: a group for each case, a colour for each metric, as in papers.

use super::axis::{self, Axis};
use super::marks::{self, Mark};
use super::{Area, ChartError, WIDTH, text};
use crate::row::{How, On, Row};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const LEFT: i32 = 64;
const RIGHT: i32 = WIDTH as i32 - 20;
const TITLE: i32 = 34;
/// The height of a line of the legend.
const LEGEND: i32 = 18;
const PLOT: i32 = 260;
/// The height of the groups' names.
const BELOW: i32 = 52;
const SIZE: i32 = 12;

/// Colours that most people can distinguish.
const COLORS: [RGBColor; 12] = [
    RGBColor(0, 90, 181),
    RGBColor(230, 159, 0),
    RGBColor(0, 140, 100),
    RGBColor(204, 80, 0),
    RGBColor(86, 180, 233),
    RGBColor(190, 90, 150),
    RGBColor(90, 90, 90),
    RGBColor(222, 205, 60),
    RGBColor(110, 60, 150),
    RGBColor(150, 110, 70),
    RGBColor(150, 200, 120),
    RGBColor(20, 20, 20),
];

struct Bar {
    group: usize,
    metric: usize,
    value: f64,
    interval: Option<(f64, f64)>,
    paper: Option<f64>,
    goal: Option<f64>,
    fails: bool,
}

pub struct Bars {
    unit: String,
    groups: Vec<String>,
    metrics: Vec<String>,
    bars: Vec<Bar>,
}

impl Bars {
    /// Returns the bars of `rows`, all in `unit`; `None` if they are no grid of cases and metrics.
    pub fn of(unit: &str, rows: &[&Row]) -> Option<Self> {
        let (mut groups, mut metrics) = (Vec::<String>::new(), Vec::<String>::new());
        let mut bars = Vec::<Bar>::new();
        for row in rows {
            let is_plain = row.peer.is_none() && row.ratio.is_none();
            if row.how != Some(How::Simulated) || !is_plain {
                return None;
            }
            let value = row
                .ours
                .filter(|value| value.is_finite() && *value >= 0.0)?;
            let (group, metric) = (
                place(&mut groups, &row.case),
                place(&mut metrics, &row.metric),
            );
            let is_same = |bar: &Bar| (bar.group, bar.metric) == (group, metric);
            if bars.iter().any(is_same) {
                return None;
            }
            bars.push(Bar {
                group,
                metric,
                value,
                interval: row.low.zip(row.high).filter(|(low, high)| low < high),
                paper: row.paper,
                goal: row
                    .goal
                    .filter(|goal| goal.on == On::Ours)
                    .map(|goal| goal.value),
                fails: row.fails(),
            });
        }
        let is_grid = groups.len() >= 4
            && metrics.len() <= COLORS.len()
            && 2 * bars.len() >= groups.len() * metrics.len();
        is_grid.then(|| Self {
            unit: unit.to_owned(),
            groups,
            metrics,
            bars,
        })
    }

    pub fn height(&self) -> u32 {
        (self.top() + PLOT + BELOW) as u32
    }

    /// Returns the top of the plot.
    fn top(&self) -> i32 {
        let lines = self.legend().last().map_or(0, |(_, y)| *y);
        TITLE + lines + 2 * LEGEND
    }

    /// Returns the positions of the metrics' names, relative to the end of the title.
    fn legend(&self) -> Vec<(i32, i32)> {
        let (mut x, mut y) = (LEFT, 0);
        let mut places = Vec::new();
        for metric in &self.metrics {
            let width = 40 + text::width(metric, SIZE);
            if x > LEFT && x + width > RIGHT {
                (x, y) = (LEFT, y + LEGEND);
            }
            places.push((x, y));
            x += width;
        }
        places
    }

    fn axis(&self) -> Axis {
        let values = self.bars.iter().flat_map(|bar| {
            let ends = { bar.interval.into_iter() }.flat_map(|(low, high)| [low, high]);
            { [Some(bar.value), bar.paper, bar.goal].into_iter().flatten() }.chain(ends)
        });
        let mut values: Vec<f64> = values.collect();
        let positive = { values.iter() }.copied().filter(|value| *value > 0.0);
        match self.is_relative() {
            true => values.push(1.0),
            // The lowest bar has some height too.
            false => values.push(positive.fold(f64::INFINITY, f64::min) / 1.5),
        }
        let may = !self.unit.starts_with('%');
        Axis::of_bars(&values, may, self.top() + PLOT, self.top())
    }

    /// Returns whether the values are multiples of some reference, which is 1.
    fn is_relative(&self) -> bool {
        self.unit.starts_with("times ")
    }

    pub fn draw(&self, area: &Area<'_>) -> Result<(), ChartError> {
        let axis = self.axis();
        let heading = ("sans-serif", 14).into_font().color(&BLACK);
        let mut title = super::title(&self.unit);
        if axis.is_logarithmic() {
            title += " (logarithmic)";
        }
        area.draw_text(&title, &heading, (12, 10))
            .map_err(ChartError::of)?;
        self.draw_legend(area)?;
        self.draw_axis(&axis, area)?;
        for (place, group) in self.groups.iter().enumerate() {
            self.draw_name(place, group, area)?;
        }
        for bar in &self.bars {
            self.draw_bar(bar, &axis, area)?;
        }
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>) -> Result<(), ChartError> {
        let style = ("sans-serif", SIZE).into_font().color(&BLACK);
        for ((metric, (x, y)), color) in self.metrics.iter().zip(self.legend()).zip(COLORS) {
            let y = TITLE + y;
            area.draw(&Rectangle::new([(x, y), (x + 11, y + 11)], color.filled()))
                .map_err(ChartError::of)?;
            let name = text::shortened(metric, RIGHT - LEFT, SIZE);
            area.draw_text(&name, &style, (x + 16, y))
                .map_err(ChartError::of)?;
        }
        let has = |mark: Mark| {
            self.bars.iter().any(|bar| match mark {
                Mark::Ours | Mark::Peer => false,
                Mark::Paper => bar.paper.is_some(),
                Mark::Goal => bar.goal.is_some(),
                Mark::Missed => bar.fails,
            })
        };
        let at = (RIGHT - 240, 18);
        marks::legend(area, at, "ours", has, (6, 0))
    }

    fn draw_axis(&self, axis: &Axis, area: &Area<'_>) -> Result<(), ChartError> {
        let left = Pos::new(HPos::Right, VPos::Center);
        let style = ("sans-serif", 11).into_font().color(&BLACK).pos(left);
        for tick in axis.ticks() {
            let y = axis.pixel(tick);
            area.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], super::GRID))
                .map_err(ChartError::of)?;
            area.draw_text(&axis::label(tick), &style, (LEFT - 6, y))
                .map_err(ChartError::of)?;
        }
        let y = self.base(axis);
        area.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], BLACK))
            .map_err(ChartError::of)
    }

    /// Returns the position where bars begin. The reference of relative values has no bar.
    fn base(&self, axis: &Axis) -> i32 {
        match self.is_relative() && axis.is_logarithmic() {
            true => axis.pixel(1.0),
            false => axis.pixel(axis.low()),
        }
    }

    /// Returns the left end of a group, and its width.
    fn group(&self, place: usize) -> (i32, i32) {
        let (count, place) = (self.groups.len() as i32, place as i32);
        let from = LEFT + (RIGHT - LEFT) * place / count;
        let to = LEFT + (RIGHT - LEFT) * (place + 1) / count;
        (from, to - from)
    }

    fn draw_name(&self, place: usize, name: &str, area: &Area<'_>) -> Result<(), ChartError> {
        let (from, width) = self.group(place);
        let middle = Pos::new(HPos::Center, VPos::Top);
        let style = ("sans-serif", SIZE).into_font().color(&BLACK).pos(middle);
        for (line, part) in text::wrapped(name, width - 4, SIZE).iter().enumerate() {
            let y = self.top() + PLOT + 6 + 15 * line as i32;
            area.draw_text(part, &style, (from + width / 2, y))
                .map_err(ChartError::of)?;
        }
        Ok(())
    }

    fn draw_bar(&self, bar: &Bar, axis: &Axis, area: &Area<'_>) -> Result<(), ChartError> {
        let (from, width) = self.group(bar.group);
        // A sixth of a group's width is the gap to the next group.
        let (gap, count) = (width / 12, self.metrics.len() as i32);
        let at = |metric: i32| from + gap + (width - 2 * gap) * metric / count;
        let (left, right) = (at(bar.metric as i32), at(bar.metric as i32 + 1) - 1);
        let (base, end) = (self.base(axis), axis.pixel(bar.value));
        let (top, middle) = (base.min(end), i32::midpoint(left, right));
        let color = COLORS[bar.metric];
        let corners = [(left, top), (right.max(left + 1), base.max(end))];
        let above = Pos::new(HPos::Center, VPos::Bottom);
        let small = ("sans-serif", 10).into_font().color(&BLACK).pos(above);
        if bar.value > 0.0 {
            area.draw(&Rectangle::new(corners, color.filled()))
                .map_err(ChartError::of)?;
        }
        // A bar of height zero has a number, so that it differs from a missing bar. Other bars have
        // one if it fits.
        let number = crate::sheet::number(bar.value);
        let highest = bar
            .interval
            .map_or(top, |(_, high)| top.min(axis.pixel(high)));
        let mut above = highest - 2;
        if bar.value == 0.0 || text::width(&number, 10) <= right - left + 4 {
            area.draw_text(&number, &small, (middle, above))
                .map_err(ChartError::of)?;
            above -= 12;
        }
        if let Some((low, high)) = bar.interval {
            let ends = [low, high].map(|end| (middle, axis.pixel(end)));
            area.draw(&PathElement::new(ends, BLACK))
                .map_err(ChartError::of)?;
        }
        if let Some(goal) = bar.goal {
            let reach = ((right - left) / 2 + 3, 0);
            Mark::Goal.draw(area, (middle, axis.pixel(goal)), marks::GOAL, reach)?;
        }
        if let Some(paper) = bar.paper {
            Mark::Paper.draw(area, (middle, axis.pixel(paper)), marks::PAPER, (0, 0))?;
        }
        if bar.fails {
            Mark::Missed.draw(area, (middle, above - 8), marks::MISSED, (0, 0))?;
        }
        Ok(())
    }
}

/// Returns the index of `name` in `names`; appends it if it is new.
fn place(names: &mut Vec<String>, name: &str) -> usize {
    let place = names.iter().position(|known| known == name);
    place.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let cases = ["a", "b", "c", "mean"];
        let row = |case, metric, ours| {
            let row = Row::new(case, metric, "times that").ours(ours);
            row.how(How::Simulated)
        };
        { cases.iter() }
            .flat_map(|case| [row(*case, "one", 0.5), row(*case, "two", 20.0)])
            .collect()
    }

    fn of(rows: &[Row]) -> Option<Bars> {
        Bars::of("times that", &rows.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_grid_of_cases_and_metrics_has_bars() {
        let bars = of(&rows()).unwrap();
        assert_eq!((bars.groups.len(), bars.metrics.len()), (4, 2));
        let axis = bars.axis();
        assert!(axis.is_logarithmic() && bars.base(&axis) == axis.pixel(1.0));
        // A missing cell is allowed, and so are rows that are all zero.
        let noughts: Vec<Row> = { rows().into_iter() }
            .map(|row| {
                Row {
                    unit: "lines".into(),
                    ..row
                }
                .ours(0.0)
            })
            .collect();
        let refs: Vec<&Row> = noughts.iter().collect();
        let ticks = Bars::of("lines", &refs).unwrap().axis().ticks();
        assert!(
            ticks.len() > 2 && ticks.iter().all(|tick| *tick <= 2.0),
            "{ticks:?}"
        );
        assert!(of(&rows()[1..]).is_some());
    }

    #[test]
    fn what_is_no_grid_has_none() {
        assert!(of(&rows()[..6]).is_none(), "too few cases");
        let mut twice = rows();
        twice.push(twice[0].clone());
        assert!(of(&twice).is_none(), "one of them twice");
        let mut beside = rows();
        beside[0] = beside[0].clone().peer("a peer", 1.0);
        assert!(of(&beside).is_none(), "a peer");
        let mut measured = rows();
        measured[0].how = Some(How::Measured);
        assert!(of(&measured).is_none(), "measured");
    }
}
