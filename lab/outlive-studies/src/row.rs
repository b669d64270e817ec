//! The rows of a study: what was measured, beside what, and whether its goal holds.

use crate::statistics::Estimate;
use serde::Serialize;

/// One line of a study's answer. In JSON it has exactly these fields; one that does not apply is null.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The study.
    pub study: String,
    /// What was done.
    pub case: String,
    /// What was measured of it.
    pub metric: String,
    /// In what.
    pub unit: String,
    /// What Outlive (or this machine) takes.
    pub ours: Option<f64>,
    /// What the peer takes.
    pub peer: Option<f64>,
    /// Who that is, or what limit.
    pub peer_name: Option<String>,
    /// The median of the paired ratios, ours to the peer's.
    pub ratio: Option<f64>,
    /// The lower end of the interval of what the goal is on; of the ratio if there is no goal but a ratio. It is the 95% interval of
    /// what was measured, and the span of the seeds of what was simulated.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// What stands in the paper's text or tables.
    pub paper: Option<f64>,
    /// What is to be reached.
    pub goal: Option<Goal>,
    /// Whether the interval reaches it.
    pub holds: Option<bool>,
    /// How the numbers came about.
    pub how: Option<How>,
    /// Why ours is far from the paper's, if it is to be said.
    pub why: Option<String>,
}

impl Row {
    /// The names of its fields, in order: the keys in JSON.
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

/// What is to be reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// On which number.
    pub on: On,
    /// In which direction.
    pub op: Op,
    /// The bound.
    pub value: f64,
}

/// Which number a goal is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// The paired ratio.
    Ratio,
    /// Our own number.
    Ours,
}

/// On which side of the bound a goal lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Op {
    /// At most.
    #[serde(rename = "<=")]
    AtMost,
    /// At least.
    #[serde(rename = ">=")]
    AtLeast,
    /// Less than that.
    #[serde(rename = "<")]
    Below,
}

/// How a number came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// On this machine, as it is.
    Measured,
    /// On this machine, with something played by something else (a host by processes).
    Emulated,
    /// In a model.
    Simulated,
}

impl Goal {
    /// The ratio is to be at most `value`.
    pub fn ratio_at_most(value: f64) -> Self {
        let (on, op) = (On::Ratio, Op::AtMost);
        Self { on, op, value }
    }

    /// The ratio is to be at least `value`.
    pub fn ratio_at_least(value: f64) -> Self {
        let (on, op) = (On::Ratio, Op::AtLeast);
        Self { on, op, value }
    }

    /// Our number is to be at most `value`.
    pub fn ours_at_most(value: f64) -> Self {
        let (on, op) = (On::Ours, Op::AtMost);
        Self { on, op, value }
    }

    /// Whether the interval from `low` to `high` reaches the goal: some of it lies on the goal's side.
    pub fn is_reached(&self, low: f64, high: f64) -> bool {
        match self.op {
            Op::AtMost => low <= self.value,
            Op::AtLeast => high >= self.value,
            Op::Below => low < self.value,
        }
    }
}

impl Op {
    /// As it is written.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Below => "<",
        }
    }
}

impl How {
    /// In lower case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Emulated => "emulated",
            Self::Simulated => "simulated",
        }
    }
}

impl Row {
    /// A row without numbers yet; measured, unless [`how`](Self::how) says otherwise.
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

    /// A number of a paper's with nothing of ours beside it: `case` says why.
    pub fn paper_alone(
        case: impl Into<String>,
        metric: impl Into<String>,
        unit: impl Into<String>,
        paper: f64,
    ) -> Self {
        let row = Self::new(case, metric, unit).paper(paper);
        Self { how: None, ..row }
    }

    /// Our number.
    pub fn ours(self, ours: f64) -> Self {
        let ours = Some(ours);
        Self { ours, ..self }
    }

    /// Our number with its interval.
    pub fn ours_within(self, ours: Estimate) -> Self {
        Self {
            ours: Some(ours.value),
            low: Some(ours.low),
            high: Some(ours.high),
            ..self
        }
    }

    /// The peer and its number.
    pub fn peer(self, name: impl Into<String>, peer: f64) -> Self {
        Self {
            peer_name: Some(name.into()),
            peer: Some(peer),
            ..self
        }
    }

    /// The ratio with its interval.
    pub fn ratio(self, ratio: Estimate) -> Self {
        Self {
            ratio: Some(ratio.value),
            low: Some(ratio.low),
            high: Some(ratio.high),
            ..self
        }
    }

    /// The paper's number.
    pub fn paper(self, paper: f64) -> Self {
        let paper = Some(paper);
        Self { paper, ..self }
    }

    /// The goal, judged by the interval that was given.
    ///
    /// # Panics
    /// If what it is on was not given with its interval.
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
            "the interval is not that of what the goal is on: {self:?}"
        );
        Self {
            goal: Some(goal),
            holds: Some(goal.is_reached(low, high)),
            ..self
        }
    }

    /// How the numbers came about.
    pub fn how(self, how: How) -> Self {
        let how = Some(how);
        Self { how, ..self }
    }

    /// Why ours is far from the paper's.
    pub fn why(self, why: impl Into<String>) -> Self {
        let why = Some(why.into());
        Self { why, ..self }
    }

    /// Leaves no more digits than anything that is measured has. Whole numbers stay as they are: they were counted.
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

    /// Whether a goal is missed.
    pub fn fails(&self) -> bool {
        self.holds == Some(false)
    }
}

/// `value` with nine digits, which as text is no longer than that.
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
