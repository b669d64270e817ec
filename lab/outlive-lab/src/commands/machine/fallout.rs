//! Nodes that die in a run: the option that requests it, and the result.

use crate::amount::Many;
use crate::failure::Failure;
use crate::output;
use outlive_machine::engine::Time;
use outlive_machine::protocol::{MAX_NODES, NodeId};
use outlive_machine::run::{Crash, Died, Fallout, Living};
use serde::Serialize;

/// The latest time of a death in picoseconds: two hours and a half.
const LATEST: f64 = 9e15;

/// Reads `NODE@TIME`.
pub fn crash(text: &str) -> Result<Crash, String> {
    let wrong =
        || "give a node and a time, such as 3@50us: times are in ps, ns, us, ms or s".to_owned();
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
        "ps" => 1.0,
        "ns" => 1e3,
        "us" => 1e6,
        "ms" => 1e9,
        "s" => 1e12,
        _ => return Err(wrong()),
    };
    let number: f64 = digits.trim().parse().map_err(|_| wrong())?;
    if number < 0.0 || number.is_nan() {
        return Err(wrong());
    }
    let exact = number * picos;
    let picos = exact.round();
    if picos > LATEST {
        return Err(format!(
            "a run cannot be that long; give at most {} s",
            LATEST / 1e12
        ));
    }
    if picos == 0.0 && exact > 0.0 {
        return Err("the shortest simulated time is 1 ps; give at least 1ps, or 0ps".to_owned());
    }
    Ok(Crash {
        at: Time::from_picos(picos as u64),
        node: NodeId::new(node),
    })
}

/// The result of the nodes' deaths, as JSON.
#[derive(Serialize)]
pub struct Told {
    deaths: Vec<Death>,
    /// The simulated time at which the recovery from all deaths ended.
    recovered_seconds: Option<f64>,
    recoveries: u32,
    /// The number of commits that were judged.
    stores: u64,
    /// The lines of the dead nodes to which a recovery has given contents.
    restored: u64,
    /// The lines that do not hold the value committed to them; unknown before a recovery has ended.
    lost: Option<u64>,
    /// Whether nothing was lost and there was a recovery.
    whole: bool,
    /// Whether the configuration promises that nothing is lost by these deaths.
    promised: bool,
    /// The largest number of nodes that died before the recovery from the first of them ended.
    together: usize,
    living: &'static str,
    messages: Vec<String>,
    #[serde(skip)]
    after: Option<Time>,
    /// The number of requested deaths that did not happen, since no running thread was left.
    #[serde(skip)]
    spared: usize,
}

#[derive(Serialize)]
struct Death {
    node: usize,
    seconds: f64,
    owned: u64,
    dirty: u64,
    #[serde(skip)]
    at: Time,
    /// Whether it had threads.
    #[serde(skip)]
    ran: bool,
}

impl Told {
    /// Returns the result of a run with `crashes` requested deaths and threads on the first
    /// `nodes`.
    pub fn new(fallout: &Fallout, crashes: usize, nodes: usize) -> Self {
        let death = |died: &Died| Death {
            node: died.crash.node.index(),
            seconds: died.crash.at.as_seconds(),
            owned: died.owned.recorded,
            dirty: died.owned.dirty,
            at: died.crash.at,
            ran: died.crash.node.index() < nodes,
        };
        let (living, messages) = match &fallout.living {
            Living::Ended => ("ended", Vec::new()),
            Living::Nobody => ("nobody", Vec::new()),
            Living::Wait(threads) => ("wait", threads.clone()),
            Living::Left => ("left", Vec::new()),
            Living::GaveUp(what) => ("gave up", vec![what.clone()]),
        };
        let last = fallout.deaths.last().map(|died| died.crash.at);
        // A line that the recovery has not reached yet is not lost.
        let is_known = fallout.recovered.is_some() || fallout.deaths.is_empty();
        let lost = is_known.then(|| fallout.lost.clone());
        Self {
            deaths: fallout.deaths.iter().map(death).collect(),
            recovered_seconds: fallout.recovered.map(Time::as_seconds),
            recoveries: fallout.recoveries,
            stores: fallout.commits,
            restored: fallout.restored,
            lost: lost.as_ref().map(|lost| lost.len() as u64),
            whole: fallout.is_whole(),
            promised: fallout.promised,
            together: fallout.together,
            living,
            messages: some(messages)
                .chain(some(lost.unwrap_or_default()))
                .collect(),
            spared: crashes - fallout.deaths.len(),
            after: fallout.recovered.zip(last).map(|(over, last)| over - last),
        }
    }
}

/// Formats a time as on the command line, where zero needs a unit.
fn moment(at: Time) -> String {
    match at {
        Time::ZERO => "0 ns".to_owned(),
        _ => at.to_string(),
    }
}

/// Returns the first few messages, and the number of the others.
fn some(all: Vec<String>) -> impl Iterator<Item = String> {
    const MOST: usize = 8;
    let more = all.len().saturating_sub(MOST);
    let more = (more > 0).then(|| format!("… and {more} more"));
    all.into_iter().take(MOST).chain(more)
}

impl Told {
    /// Returns whether nothing was lost and there was a recovery.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns whether a node died before the program's end.
    pub fn is_of_deaths(&self) -> bool {
        !self.deaths.is_empty()
    }

    /// Prints it for people. `end` is the time at which the program ended, if it did; `replicas` is
    /// the number of nodes that log a store.
    pub fn tell(&self, end: Time, replicas: Option<u32>) -> Result<(), Failure> {
        for death in &self.deaths {
            output::line(format_args!(
                "CN{} died at {}{}: it owned {}, {} of them written",
                death.node,
                moment(death.at),
                match death.ran {
                    true => "",
                    false =>
                        ", without threads (--spread puts the threads on as many nodes as \
                         possible)",
                },
                Many(death.owned, "line"),
                death.dirty
            ))?;
        }
        if self.deaths.is_empty() {
            return output::line(format_args!(
                "No node died: the program had already ended at {end}"
            ));
        }
        if self.spared > 0 {
            output::line(format_args!(
                "{} did not die: no thread was running by then",
                Many(self.spared as u64, "other node")
            ))?;
        }
        match self.after {
            Some(after) => output::line(format_args!(
                "Recovery was complete {after} after {}, in {}: {} of the dead nodes, or on the \
                 way to them, {} restored from logs and memory",
                match self.deaths.len() {
                    1 => "the death",
                    _ => "the last death",
                },
                match self.recoveries {
                    1 => "one recovery".into(),
                    recoveries => format!("{recoveries} recoveries"),
                },
                Many(self.restored, "line"),
                match self.restored {
                    1 => "was",
                    _ => "were",
                }
            ))?,
            None => output::line(match self.living {
                "nobody" => "No node was left to recover the lines of the dead nodes",
                _ => {
                    "The run ended before recovery was complete, so it is unknown whether anything \
                     was lost"
                }
            })?,
        }
        match self.lost {
            None => {}
            Some(0) => output::line(format_args!(
                "{} commits judged: nothing was lost",
                self.stores
            ))?,
            Some(lost) => output::line(format_args!(
                "{} commits judged: {} the last value committed to {}",
                self.stores,
                match lost {
                    1 => "1 line does not hold".into(),
                    lost => format!("{lost} lines do not hold"),
                },
                match lost {
                    1 => "it",
                    _ => "them",
                }
            ))?,
        }
        match replicas.filter(|_| !self.promised) {
            Some(replicas) if self.together >= replicas as usize => output::line(format_args!(
                "More nodes died than this machine promises to survive: {} before a recovery \
                 ended; it promises that nothing is lost if fewer than {replicas} die \
                 (logging_unit.replication_factor)",
                Many(self.together as u64, "node")
            ))?,
            Some(_) => {
                output::line("No node was left to recover the lines of the last one that died")?
            }
            None => {}
        }
        output::line(match self.living {
            "ended" => "All surviving threads ended",
            "nobody" => "No thread survived",
            "wait" => "The surviving threads wait for work of the dead ones",
            "left" => "The run ended before the surviving threads did",
            _ => {
                "A surviving thread found an operation that a dead one had left half done, and \
                 gave up"
            }
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
        assert_eq!(crash("3@0us"), Ok(at(0, 3)));
        assert_eq!(crash("3@0.0005ns"), Ok(at(1, 3)));
        for wrong in [
            "3", "3@", "3@50", "@5us", "x@5us", "3@-1us", "-1@1us", "3@5h", "3@NaNs",
        ] {
            assert!(
                crash(wrong).unwrap_err().contains("such as 3@50us"),
                "{wrong}"
            );
        }
        for (wrong, said) in [
            ("3@1e99s", "a run cannot be that long; give at most 9000 s"),
            ("3@99999999999s", "a run cannot be that long"),
            ("3@0.0000001ns", "give at least 1ps"),
            ("999@1us", "at most 32 compute nodes"),
        ] {
            assert!(crash(wrong).unwrap_err().contains(said), "{wrong}");
        }
    }
}
