//! The rows of a study: the measured numbers, their peers, and whether their goals hold.

use crate::statistics::Estimate;
use serde::Serialize;

/// One line of a study's answer. In JSON it has exactly these fields; one that does not apply is
/// null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The name of the study.
    pub study: String,
    /// The work that was measured.
    pub case: String,
    /// The quantity that was measured.
    pub metric: String,
    /// The unit of `metric`.
    pub unit: String,
    /// The number of Outlive, or of this machine.
    pub ours: Option<f64>,
    /// The number of the peer.
    pub peer: Option<f64>,
    /// The name of the peer, or of the limit.
    pub peer_name: Option<String>,
    /// The median of the paired ratios, ours to the peer's.
    pub ratio: Option<f64>,
    /// The lower end of the interval of the number that the goal is on; without a goal, of the
    /// ratio if there is one, else of `ours`. Of measured numbers it is the 95% interval, of
    /// simulated ones the range over the seeds.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// The number in the paper's text or tables.
    pub paper: Option<f64>,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
    /// Whether the interval reaches the goal.
    pub holds: Option<bool>,
    /// How the numbers were obtained.
    pub how: Option<How>,
    /// The reason why ours is far from the paper's, if it needs one.
    pub why: Option<String>,
}

impl Row {
    /// The names of the fields, in order: the keys in JSON.
    pub const FIELDS: [&'static str; 15] = [
        "study",
        "case",
        "metric",
        "unit",
        "ours",
        "peer",
        "peer_name",
        "ratio",
        "low",
        "high",
        "paper",
        "goal",
        "holds",
        "how",
        "why",
    ];
}

/// A bound that a number must reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The number that is bounded.
    pub on: On,
    /// The direction of the bound.
    pub op: Op,
    /// The bound.
    pub value: f64,
}

/// The number that a goal bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// The paired ratio.
    Ratio,
    /// Our number.
    Ours,
}

/// The side of the bound on which a goal lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Op {
    /// At most.
    #[serde(rename = "<=")]
    AtMost,
    /// At least.
    #[serde(rename = ">=")]
    AtLeast,
    /// Less than the bound.
    #[serde(rename = "<")]
    Below,
}

/// How a number was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Measured on this machine as it is.
    Measured,
    /// Measured on this machine, with a substitute for some component (processes for hosts).
    Emulated,
    /// Computed by a model.
    Simulated,
}

impl Goal {
    /// Returns the goal that the ratio is at most `value`.
    pub fn ratio_at_most(value: f64) -> Self {
        let (on, op) = (On::Ratio, Op::AtMost);
        Self { on, op, value }
    }

    /// Returns the goal that the ratio is at least `value`.
    pub fn ratio_at_least(value: f64) -> Self {
        let (on, op) = (On::Ratio, Op::AtLeast);
        Self { on, op, value }
    }

    /// Returns the goal that our number is at most `value`.
    pub fn ours_at_most(value: f64) -> Self {
        let (on, op) = (On::Ours, Op::AtMost);
        Self { on, op, value }
    }

    /// Returns whether the interval from `low` to `high` reaches the goal: some of it lies on the
    /// goal's side.
    pub fn is_reached(&self, low: f64, high: f64) -> bool {
        match self.op {
            Op::AtMost => low <= self.value,
            Op::AtLeast => high >= self.value,
            Op::Below => low < self.value,
        }
    }
}

impl Op {
    /// Returns the operator's symbol.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Below => "<",
        }
    }
}

impl How {
    /// Returns the name, in lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Emulated => "emulated",
            Self::Simulated => "simulated",
        }
    }
}

impl Row {
    /// Returns a row without numbers; it is measured, unless [`how`](Self::how) says otherwise.
    pub fn new(
        case: impl Into<String>,
        metric: impl Into<String>,
        unit: impl Into<String>,
    ) -> Self {
        Self {
            study: String::new(),
            case: case.into(),
            metric: metric.into(),
            unit: unit.into(),
            ours: None,
            peer: None,
            peer_name: None,
            ratio: None,
            low: None,
            high: None,
            paper: None,
            goal: None,
            holds: None,
            how: Some(How::Measured),
            why: None,
        }
    }

    /// Returns a row with a paper's number and none of ours; `case` says why.
    pub fn paper_alone(
        case: impl Into<String>,
        metric: impl Into<String>,
        unit: impl Into<String>,
        paper: f64,
    ) -> Self {
        let row = Self::new(case, metric, unit).paper(paper);
        Self { how: None, ..row }
    }

    /// Sets our number.
    pub fn ours(self, ours: f64) -> Self {
        let ours = Some(ours);
        Self { ours, ..self }
    }

    /// Sets our number and its interval.
    pub fn ours_within(self, ours: Estimate) -> Self {
        Self {
            ours: Some(ours.value),
            low: Some(ours.low),
            high: Some(ours.high),
            ..self
        }
    }

    /// Sets the peer and its number.
    pub fn peer(self, name: impl Into<String>, peer: f64) -> Self {
        Self {
            peer_name: Some(name.into()),
            peer: Some(peer),
            ..self
        }
    }

    /// Sets the ratio and its interval.
    pub fn ratio(self, ratio: Estimate) -> Self {
        Self {
            ratio: Some(ratio.value),
            low: Some(ratio.low),
            high: Some(ratio.high),
            ..self
        }
    }

    /// Sets the paper's number.
    pub fn paper(self, paper: f64) -> Self {
        let paper = Some(paper);
        Self { paper, ..self }
    }

    /// Sets the goal, and judges it by the interval that was given.
    ///
    /// # Panics
    /// If the number that the goal is on was not given with its interval.
    pub fn goal(self, goal: Goal) -> Self {
        let on = match goal.on {
            On::Ratio => self.ratio,
            On::Ours => self.ours,
        };
        let (Some(low), Some(high), Some(on)) = (self.low, self.high, on) else {
            panic!("a goal on something that was not measured: {self:?}");
        };
        assert!(
            low <= on && on <= high,
            "the interval is not that of the value of the goal: {self:?}"
        );
        Self {
            goal: Some(goal),
            holds: Some(goal.is_reached(low, high)),
            ..self
        }
    }

    /// Sets how the numbers were obtained.
    pub fn how(self, how: How) -> Self {
        let how = Some(how);
        Self { how, ..self }
    }

    /// Sets the reason why ours is far from the paper's.
    pub fn why(self, why: impl Into<String>) -> Self {
        let why = Some(why.into());
        Self { why, ..self }
    }

    /// Rounds the numbers to nine digits; no measurement has more. Whole numbers stay as they are:
    /// they were counted.
    pub(crate) fn round(&mut self) {
        for number in [
            &mut self.ours,
            &mut self.peer,
            &mut self.ratio,
            &mut self.low,
            &mut self.high,
        ] {
            *number = number.map(rounded);
        }
    }

    /// Returns whether the goal is missed.
    pub fn fails(&self) -> bool {
        self.holds == Some(false)
    }
}

/// Returns `value` rounded to nine significant digits, so that its text is no longer than that.
fn rounded(value: f64) -> f64 {
    match value.fract() == 0.0 || !value.is_finite() {
        true => value,
        false => format!("{value:.8e}").parse().unwrap_or(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(value: f64) -> Estimate {
        Estimate {
            value,
            low: value - 0.1,
            high: value + 0.1,
        }
    }

    #[test]
    fn a_goal_holds_when_the_interval_reaches_it() {
        for (ratio, holds) in [(0.9, true), (1.05, true), (1.2, false)] {
            let row = Row::new("c", "m", "ns").ratio(around(ratio));
            let row = row.goal(Goal::ratio_at_most(1.0));
            assert_eq!((row.holds, row.fails()), (Some(holds), !holds), "{ratio}");
        }
        for (ratio, holds) in [(4.0, false), (4.95, true), (6.0, true)] {
            let row = Row::new("c", "m", "ns").ratio(around(ratio));
            assert_eq!(
                row.goal(Goal::ratio_at_least(5.0)).holds,
                Some(holds),
                "{ratio}"
            );
        }
        let row = Row::new("c", "m", "us").ours_within(around(1.5));
        assert_eq!(row.goal(Goal::ours_at_most(1.6)).holds, Some(true));
    }

    #[test]
    fn numbers_have_no_noise_behind_them() {
        for (value, text) in [
            (33.172200000000004, "33.1722"),
            (781.6346669999999, "781.634667"),
            (1.0 / 3.0, "0.333333333"),
            (1_234_567_890_123.0, "1234567890123"),
            (0.0, "0"),
        ] {
            assert_eq!(rounded(value).to_string(), text);
        }
        assert!(rounded(f64::NAN).is_nan());
    }

    #[test]
    fn below_is_not_equal() {
        let below = |value, bound| {
            let row = Row::new("c", "m", "times").ours_within(Estimate::exactly(value));
            let (on, op) = (On::Ours, Op::Below);
            row.goal(Goal {
                on,
                op,
                value: bound,
            })
            .holds
        };
        assert_eq!(below(1.0, 1.0), Some(false));
        assert_eq!(below(0.99, 1.0), Some(true));
    }

    #[test]
    #[should_panic(expected = "a goal on something that was not measured")]
    fn a_goal_needs_a_measurement() {
        let _ = Row::new("c", "m", "ns")
            .ours(1.0)
            .goal(Goal::ours_at_most(2.0));
    }

    #[test]
    fn json_has_all_fields_and_null_for_what_does_not_apply() {
        let row = Row::new("two threads", "time", "ns")
            .ours(12.5)
            .peer("plain", 12.0)
            .ratio(around(1.04))
            .goal(Goal::ratio_at_most(1.03));
        let value = serde_json::to_value(Row {
            study: "locks".into(),
            ..row
        })
        .unwrap();
        let fields: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        let mut expected = Row::FIELDS;
        let mut sorted = fields.clone();
        sorted.sort();
        expected.sort_unstable();
        assert_eq!(sorted, expected);
        assert_eq!(
            value["goal"],
            serde_json::json!({"on": "ratio", "op": "<=", "value": 1.03})
        );
        assert_eq!(value["how"], "measured");
        assert!(value["paper"].is_null());
        let alone = serde_json::to_value(Row::paper_alone("c", "m", "us", 95.71)).unwrap();
        assert!(alone["ours"].is_null() && alone["how"].is_null() && alone["goal"].is_null());
        assert_eq!(alone["paper"], 95.71);
    }
}
