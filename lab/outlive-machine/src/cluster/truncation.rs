//! Truncation of the logs in the memory nodes, so that they do not grow with the length of a run.
//!
//! [`Archive::truncate`](crate::logging::Archive::truncate) may run at any time, with answers of
//! directories of any age. Here it runs when a dump is complete, if the archive has then grown to
//! twice its size after the last time that all directories were asked. So the cost of scanning an
//! archive is proportional to the amount added, and an archive is at most a few times as large as
//! was ever needed of it.
//!
//! A unit saves in one memory node, whatever the lines of its entries, since its share is one
//! stream through one compressor. So most entries are in other memory nodes than the directories of
//! their lines. First, all entries are dropped that are known to be obsolete without a message: by
//! the local directories, and by the entries themselves. That is enough for a node that keeps the
//! lines that it writes in its caches. Only if this has not freed a quarter, each other memory node
//! is asked, once for all of its lines that are left.
//!
//! No part waits for the answers, and nothing is undone if they come late. They are messages like
//! all others: they count as under way when a recovery waits for the fabric to drain, and a
//! recovery need not know anything else of them. A memory node does all this in software,
//! concurrently with its other work (as it repairs its directories in a recovery), and a unit is
//! notified by [`Stored`](crate::logging::Stored) before it begins.

use super::event::Event;
use super::logs::told;
use super::packet::Says;
use super::{Breakage, Cluster};
use crate::engine::{EventQueue, Time};
use crate::line::LineAddress;
use crate::logging::{Standing, Truncated};
use crate::parts::Port;
use crate::program::Thread;
use crate::protocol::DirectoryState;

/// The progress of a memory node's truncation of its archive.
#[derive(Clone, Debug, Default)]
pub(super) struct Truncation {
    /// The size in bytes at which the archive is scanned.
    at: u64,
    /// The number of memory nodes that have been asked and have not answered.
    awaited: u32,
    /// The answers that have come, while others are awaited.
    answers: Vec<(LineAddress, Standing)>,
    /// The entries and bytes dropped so far.
    pub done: Truncated,
}

impl<T: Thread> Cluster<T> {
    /// Called when a dump has become complete in a memory node.
    pub(super) fn archive_has_grown(&mut self, m: usize, now: Time, queue: &mut EventQueue<Event>) {
        let logs = self.logs_mut();
        let (archive, truncation) = (&logs.archives[m], &logs.truncations[m]);
        let at = truncation.at;
        if truncation.awaited > 0 || archive.bytes() < at {
            return;
        }
        let (read, lines) = self.truncate(m, &[], now);
        if self.logs_mut().archives[m].bytes() * 4 > at * 3 {
            self.ask_for_standings(m, &lines, read, queue);
        }
    }

    /// Asks the other memory nodes for the directory state of these lines.
    fn ask_for_standings(
        &mut self,
        m: usize,
        lines: &[LineAddress],
        at: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let mut questions = vec![Vec::new(); self.memories.len()];
        for line in lines {
            questions[self.home(*line)].push(*line);
        }
        let mut awaited = 0;
        for (other, lines) in questions.into_iter().enumerate() {
            if other != m && !lines.is_empty() {
                let port = |m: usize| self.fabric.memory_node(m as u16);
                let ways = (port(m), port(other));
                self.say(at, ways, Says::AskStandings(lines.into()), queue);
                awaited += 1;
            }
        }
        let logs = self.logs_mut();
        let truncation = &mut logs.truncations[m];
        truncation.awaited = awaited;
        if awaited == 0 {
            truncation.at = 2 * logs.archives[m].bytes();
        }
    }

    /// Answers a request for the directory state of these lines, which are looked up one after the
    /// other.
    pub(super) fn standings_asked(
        &mut self,
        (from, port): (Port, Port),
        lines: &[LineAddress],
        now: Time,
        queue: &mut EventQueue<Event>,
    ) {
        let standings = lines.iter().map(|line| (*line, self.standing(*line)));
        let answer = Says::TellStandings(standings.collect());
        let at = now + self.timing.directory * lines.len() as u64;
        self.say(at, (port, from), answer, queue);
    }

    /// Handles the answer of another memory node. With the last answer, the archive is truncated.
    pub(super) fn standings_told(
        &mut self,
        port: Port,
        standings: &[(LineAddress, Standing)],
        now: Time,
    ) {
        let m = usize::from(port.0) - self.nodes.len();
        let truncation = &mut self.logs_mut().truncations[m];
        truncation.answers.extend(standings);
        truncation.awaited -= 1;
        if truncation.awaited > 0 {
            return;
        }
        let mut answers = std::mem::take(&mut truncation.answers);
        answers.sort_unstable_by_key(|(line, _)| *line);
        self.truncate(m, &answers, now);
        let logs = self.logs_mut();
        logs.truncations[m].at = 2 * logs.archives[m].bytes();
    }

    /// Truncates an archive, by these answers (by rising address) and by the memory node's own
    /// directories. Returns when it has been read, and the lines of which entries are left.
    fn truncate(
        &mut self,
        m: usize,
        answers: &[(LineAddress, Standing)],
        now: Time,
    ) -> (Time, Vec<LineAddress>) {
        let mut archive = std::mem::take(&mut self.logs_mut().archives[m]);
        let read = self.memories[m].go_through(archive.bytes(), now);
        let standing = |line| match self.home(line) == m {
            true => self.standing(line),
            false => {
                let place = answers.binary_search_by_key(&line, |(line, _)| *line);
                place.map_or(Standing::default(), |place| answers[place].1)
            }
        };
        let (done, lines) = told(archive.truncate(standing), now);
        self.memories[m].go_through(done.written, now);
        let logs = self.logs_mut();
        logs.archives[m] = archive;
        logs.truncations[m].done += done;
        (read, lines)
    }

    /// Returns the present state of a line by its directory.
    fn standing(&self, line: LineAddress) -> Standing {
        let directory = self.memory.directory(line);
        let recalled = matches!(directory.state(), DirectoryState::OS | DirectoryState::OX);
        let early = match self.broken {
            Some(Breakage::TruncatesOwned) => true,
            Some(Breakage::TruncatesRecalled) => recalled,
            _ => false,
        };
        let standing = Standing::from(&directory);
        Standing {
            owner: standing.owner.filter(|_| !early),
            ..standing
        }
    }
}
