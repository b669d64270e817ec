//! The logs in the memory nodes are truncated, so that they do not grow with the length of a run.
//!
//! [`Archive::truncate`](crate::logging::Archive::truncate) may be done at any time, and by answers of directories that are
//! of any age. Here it is done when a dump has become whole, if the archive has then grown to twice of what was left when all
//! directories had been asked. So what it costs to go through an archive is in proportion to what has come, and an archive has
//! at most a few times what was ever needed of it.
//!
//! A unit saves in one memory node, whatever lines its entries are of, since its share is one stream through one compressor. So
//! most entries stand in other memory nodes than the directories of their lines. First all is dropped that is known to be
//! obsolete without a message: by the directories that are here, and by what the entries say themselves. For a
//! node that keeps in its caches what it writes that is enough. Only if not a quarter has become free by it, each other memory
//! node is asked, once for all of its lines that are left.
//!
//! Nobody waits for the answers, and nothing is undone if they come late. They are messages as all others: they count as
//! under way when a recovery waits for that, and there is nothing else that a recovery would have to know of them. A memory node does
//! all this by software beside its work (as it repairs its directories in a recovery), and a unit is told that it has
//! [`Stored`](crate::logging::Stored) before it begins.

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

/// How far a memory node is with its archive.
#[derive(Clone, Debug, Default)]
pub(super) struct Truncation {
    /// The archive is gone through when it has so many bytes.
    at: u64,
    /// How many memory nodes have been asked and have not answered.
    awaited: u32,
    /// While there are such: the answers that have come.
    answers: Vec<(LineAddress, Standing)>,
    /// What has been dropped so far.
    pub done: Truncated,
}

impl<T: Thread> Cluster<T> {
    /// A dump has become whole in a memory node.
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

    /// Asks the other memory nodes for what they know of these lines.
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

    /// A memory node is asked what its directories know of these lines. It looks them up one after the other.
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

    /// What another memory node's directories know has come. With the last answer, the archive is truncated.
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

    /// Truncates an archive, by these answers (by rising address) and by what the memory node knows itself. When it has been read,
    /// and of which lines something is left.
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

    /// What a line's directory says now.
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
