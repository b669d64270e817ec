//! An axis: the positions of values, and the ticks.

/// Maps values to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    is_logarithmic: bool,
    from: i32,
    to: i32,
}

/// The ratio of the greatest to the least value from which an axis is logarithmic.
const FAR: f64 = 6.0;

/// The values that ticks may have, times powers of ten.
const ROUND: [f64; 3] = [1.0, 2.0, 5.0];

impl Axis {
    /// Returns an axis for all of `values`, from the pixel `from` to the pixel `to`, with space
    /// beside the outermost.
    pub fn around(values: &[f64], from: i32, to: i32) -> Self {
        let (low, high) = range(values);
        let has_nought = values.contains(&0.0);
        match high / low < FAR {
            true => Self {
                low: if has_nought { 0.0 } else { low * 0.9 },
                high: high * 1.11,
                is_logarithmic: false,
                from,
                to,
            },
            false => Self::logarithmic(low, high, from, to),
        }
    }

    /// Returns an axis for bars of the heights `values`: from zero, or logarithmic if the heights
    /// differ much and `may` allows it.
    pub fn of_bars(values: &[f64], may: bool, from: i32, to: i32) -> Self {
        let (low, high) = range(values);
        match may && high / low >= FAR {
            true => Self::logarithmic(low, high, from, to),
            false => Self {
                low: 0.0,
                high: high * 1.06,
                is_logarithmic: false,
                from,
                to,
            },
        }
    }

    /// Returns a logarithmic axis between round values.
    fn logarithmic(low: f64, high: f64, from: i32, to: i32) -> Self {
        let below = { steps(low / 10.0, low) }.fold(low / 10.0, f64::max);
        let above = { steps(high, high * 10.0) }.fold(high * 10.0, f64::min);
        Self {
            low: below,
            high: above,
            is_logarithmic: true,
            from,
            to,
        }
    }

    pub fn is_logarithmic(&self) -> bool {
        self.is_logarithmic
    }

    /// Returns the lowest value that has a position.
    pub fn low(&self) -> f64 {
        self.low
    }

    /// Returns the position of a value; values beyond an end are placed at that end.
    pub fn pixel(&self, value: f64) -> i32 {
        let value = value.clamp(self.low, self.high);
        let part = match self.is_logarithmic {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        self.from + (part * f64::from(self.to - self.from)).round() as i32
    }

    /// Returns the values of the ticks: round ones, and not too many.
    pub fn ticks(&self) -> Vec<f64> {
        const MOST: usize = 13;
        let (low, high) = (self.low * (1.0 - 1e-9), self.high * (1.0 + 1e-9));
        if self.is_logarithmic {
            let all: Vec<f64> = steps(low, high).collect();
            let is_power = |value: &f64| (value.log10() - value.log10().round()).abs() < 1e-9;
            return match all.len() <= MOST {
                true => all,
                false => all.into_iter().filter(is_power).collect(),
            };
        }
        let step = steps((high - low) / 10.0, high - low).next();
        let Some(step) = step else { return vec![high] };
        let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
        (first..=last).map(|tick| tick as f64 * step).collect()
    }
}

/// Returns the least and the greatest positive value; 1 and 1 if there is none.
fn range(values: &[f64]) -> (f64, f64) {
    let values = { values.iter() }.filter(|value| value.is_finite() && **value > 0.0);
    let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(low, high), value| {
        (low.min(*value), high.max(*value))
    });
    match low <= high {
        true => (low, high),
        false => (1.0, 1.0),
    }
}

/// Returns the round values from `low` to `high`, in order.
fn steps(low: f64, high: f64) -> impl Iterator<Item = f64> {
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let all = powers.flat_map(|power| ROUND.map(|round| round * 10f64.powi(power)));
    all.filter(move |value| (low..=high).contains(value))
}

/// Formats a tick's value, with commas between thousands.
pub fn label(tick: f64) -> String {
    let text = format!("{tick:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match rest {
        "" => grouped,
        rest => format!("{grouped}.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_by_much_is_logarithmic_with_round_ticks() {
        let axis = Axis::around(&[0.9, 36.0], 0, 100);
        assert!(axis.is_logarithmic());
        assert_eq!(axis.ticks(), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(
            (axis.pixel(0.5), axis.pixel(5.0), axis.pixel(50.0)),
            (0, 50, 100)
        );
        assert_eq!(axis.pixel(1000.0), 100);
        let wide = Axis::around(&[0.003, 4000.0], 0, 100).ticks();
        assert!(wide.len() <= 13 && wide.contains(&1.0), "{wide:?}");
    }

    #[test]
    fn what_is_alike_is_linear() {
        let axis = Axis::around(&[0.98, 1.02], 0, 100);
        assert!(!axis.is_logarithmic());
        let ticks = axis.ticks();
        assert!(ticks.len() > 3 && ticks.len() < 14, "{ticks:?}");
        let bars = Axis::of_bars(&[0.75, 1.1], true, 100, 0);
        assert_eq!((bars.pixel(0.0), bars.low()), (100, 0.0));
        let percent = Axis::of_bars(&[0.1, 90.0], false, 100, 0);
        assert!(!percent.is_logarithmic());
        // Zero is drawn at zero, not at the lowest of the others.
        let nought = Axis::around(&[0.0, 2.0], 0, 100);
        assert_eq!((nought.pixel(0.0), nought.low()), (0, 0.0));
        // Values without a positive one are no reason to fail.
        assert!(!Axis::of_bars(&[0.0], true, 0, 9).ticks().is_empty());
    }

    #[test]
    fn labels_are_short() {
        for (tick, text) in [
            (1.0, "1"),
            (0.5, "0.5"),
            (0.002, "0.002"),
            (0.30000000000000004, "0.3"),
            (20.0, "20"),
            (200_000.0, "200,000"),
            (1500.0, "1,500"),
            (1.05, "1.05"),
            (0.0, "0"),
        ] {
            assert_eq!(label(tick), text);
        }
    }
}
