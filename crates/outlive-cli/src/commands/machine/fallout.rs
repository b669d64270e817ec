//! Nodes that die in a run: how that is asked for, and what came of it.

use crate::failure::Failure;
use crate::output;
use outlive_machine::engine::Time;
use outlive_machine::protocol::{MAX_NODES, NodeId};
use outlive_machine::run::{Crash, Died, Fallout, Living};
use serde::Serialize;

/// Reads `NODE@TIME`.
pub fn crash(text: &str) -> Result<Crash, String> {
    let wrong =
        || "give a node and a time, such as 3@50us: times are in ns, us, ms or s".to_owned();
    let (node, at) = text.split_once('@').ok_or_else(wrong)?;
    let node = node.strip_prefix("CN").unwrap_or(node);
    let node: usize = node.parse().map_err(|_| wrong())?;
    if node >= MAX_NODES {
        return Err(format!(
            "a machine has at most {MAX_NODES} compute nodes, numbered from 0"
        ));
    }
    let digits = at.trim_end_matches(|end: char| end.is_ascii_alphabetic());
    let picos = match at[digits.len()..].trim() {
        "ns" => 1e3,
        "us" => 1e6,
        "ms" => 1e9,
        "s" => 1e12,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.trim().parse().map_err(|_| wrong())?;
    let picos = (number * picos).round();
    if !(0.0..9e15).contains(&picos) {
        return Err(wrong());
    }
    Ok(Crash {
        at: Time::from_picos(picos as u64),
        node: NodeId::new(node),
    })
}

/// What came of the nodes' deaths, as JSON.
#[derive(Serialize)]
pub struct Told {
    deaths: Vec<Death>,
    /// Simulated time at which the recovery from all of them was over.
    recovered_seconds: Option<f64>,
    recoveries: u32,
    /// Commits that were judged.
    stores: u64,
    /// Lines of the dead to which a recovery has given contents.
    restored: u64,
    /// Lines that do not hold what was committed to them.
    lost: u64,
    /// Nothing was lost, and there was a recovery.
    whole: bool,
    living: &'static str,
    messages: Vec<String>,
    #[serde(skip)]
    after: Option<Time>,
}

#[derive(Serialize)]
struct Death {
    node: usize,
    seconds: f64,
    owned: u64,
    dirty: u64,
    #[serde(skip)]
    at: Time,
}

impl From<&Fallout> for Told {
    fn from(fallout: &Fallout) -> Self {
        let death = |died: &Died| Death {
            node: died.crash.node.index(),
            seconds: died.crash.at.as_seconds(),
            owned: died.owned.recorded,
            dirty: died.owned.dirty,
            at: died.crash.at,
        };
        let (living, messages) = match &fallout.living {
            Living::Ended => ("ended", Vec::new()),
            Living::Nobody => ("nobody", Vec::new()),
            Living::Wait(threads) => ("wait", threads.clone()),
            Living::Left => ("left", Vec::new()),
            Living::GaveUp(what) => ("gave up", vec![what.clone()]),
        };
        let last = fallout.deaths.last().map(|died| died.crash.at);
        Self {
            deaths: fallout.deaths.iter().map(death).collect(),
            recovered_seconds: fallout.recovered.map(Time::as_seconds),
            recoveries: fallout.recoveries,
            stores: fallout.commits,
            restored: fallout.restored,
            lost: fallout.lost.len() as u64,
            whole: fallout.is_whole(),
            living,
            messages: some(messages).chain(some(fallout.lost.clone())).collect(),
            after: fallout.recovered.zip(last).map(|(over, last)| over - last),
        }
    }
}

/// The first few, and how many more there are.
fn some(all: Vec<String>) -> impl Iterator<Item = String> {
    const MOST: usize = 8;
    let more = all.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("… and {more} more"));
    all.into_iter().take(MOST).chain(more)
}

impl Told {
    /// Whether nothing was lost, and there was a recovery.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// For people.
    pub fn tell(&self) -> Result<(), Failure> {
        for death in &self.deaths {
            output::line(format_args!(
                "CN{} died at {}: {} lines were its alone, {} of them written",
                death.node, death.at, death.owned, death.dirty
            ))?;
        }
        if self.deaths.is_empty() {
            return output::line("Nobody died: the program had ended before");
        }
        match self.after {
            Some(after) => output::line(format_args!(
                "The recovery was over {after} after that, in {} round{}: {} lines have what logs and memory had",
                self.recoveries,
                if self.recoveries == 1 { "" } else { "s" },
                self.restored
            ))?,
            None => output::line("It was not recovered, so what the dead had is lost")?,
        }
        match self.lost {
            0 if !self.whole => {}
            0 => output::line(format_args!(
                "{} commits judged: nothing was lost",
                self.stores
            ))?,
            lost => output::line(format_args!(
                "{} commits judged: {lost} lines do not hold what was committed to them",
                self.stores
            ))?,
        }
        output::line(match self.living {
            "ended" => "The living have come to their end",
            "nobody" => "Nobody lives",
            "wait" => "The living wait for what the dead were to do",
            "left" => "The living were left there",
            _ => "A living thread has met what the dead had left half done, and gave up",
        })?;
        let mut messages = self.messages.iter();
        messages.try_for_each(|message| output::line(format_args!("  {message}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_messages_a_few_are_told_and_how_many_more_there_are() {
        let all: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        let told: Vec<String> = some(all.clone()).collect();
        assert_eq!(told[8..], ["… and 2 more"]);
        assert_eq!(some(all[..8].to_vec()).collect::<Vec<_>>(), all[..8]);
    }

    #[test]
    fn a_crash_is_a_node_and_a_time() {
        let at = |picos, node| Crash {
            at: Time::from_picos(picos),
            node: NodeId::new(node),
        };
        assert_eq!(crash("3@50us"), Ok(at(50_000_000, 3)));
        assert_eq!(crash("CN0@2.5 ms"), Ok(at(2_500_000_000, 0)));
        for wrong in [
            "3", "3@", "3@50", "@5us", "x@5us", "3@-1us", "3@5h", "3@1e99s", "999@1us",
        ] {
            assert!(crash(wrong).is_err(), "{wrong}");
        }
    }
}
