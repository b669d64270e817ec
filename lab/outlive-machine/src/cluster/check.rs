//! Checks of a machine's state, for tests.

use super::Cluster;
use super::core::Activity;
use crate::line::LineAddress;
use crate::program::{Thread, Word};
use crate::protocol::NodeId;

impl<T: Thread> Cluster<T> {
    /// Checks the machine's present state: inclusion of the caches, one writer or many readers of
    /// each line, and equal copies. Where no request is under way, the directory must know all
    /// copies, and if the machine is [judged](Self::judge_values), the line must hold the values
    /// committed to it last. For tests; slow.
    ///
    /// # Errors
    ///
    /// The first fault found.
    pub fn check(&self) -> Result<(), String> {
        for (n, node) in self.nodes.iter().enumerate() {
            node.caches
                .check()
                .map_err(|what| format!("node {n}: {what}"))?;
        }
        for number in 0..self.memory.len() {
            let line = LineAddress(number);
            let states = || {
                self.nodes
                    .iter()
                    .map(|node| (node.agent(line), node.contents(line)))
            };
            let writers = states().filter(|(state, _)| state.is_writable()).count();
            let readers = states().filter(|(state, _)| state.is_readable()).count();
            if writers > 1 || writers == 1 && readers > 1 {
                return Err(format!(
                    "{line} has {writers} writers and {readers} readers"
                ));
            }
            let copies = || states().filter(|(state, _)| state.is_readable());
            if copies()
                .zip(copies().skip(1))
                .any(|(one, other)| one.1 != other.1)
            {
                return Err(format!("the copies of {line} differ"));
            }
            self.check_record(line)?;
        }
        Ok(())
    }

    /// Contents are only in messages, and in no other place, only while the line's directory is
    /// busy. The copies of dead nodes are not known before the line is recovered.
    fn check_record(&self, line: LineAddress) -> Result<(), String> {
        let directory = self.memory.directory(line);
        let known = !directory.names_any(self.dead());
        let Some(record) = directory.record().filter(|_| known) else {
            return Ok(());
        };
        for (n, node) in self.nodes.iter().enumerate() {
            let (agent, id) = (node.agent(line), NodeId::new(n));
            let unknown = agent.is_readable() && !record.holders.contains(id);
            if unknown || agent.is_writable() && !record.owned {
                return Err(format!(
                    "node {n} has {line} in {agent:?}, and its directory says {record:?}"
                ));
            }
        }
        let Some(oracle) = &self.oracle else {
            return Ok(());
        };
        let (here, first) = (self.line(line), (line.0 * Word::PER_LINE) as usize);
        let last = &oracle.words[first..][..here.len()];
        if here != last {
            return Err(format!("{line} is {here:?}, and {last:?} was stored last"));
        }
        Ok(())
    }

    /// Checks a machine that may run on after a recovery. Faults are a recovery that has not ended,
    /// a directory that names a dead node and, if the machine is [judged](Self::judge_values), a
    /// committed value that is missing.
    ///
    /// # Errors
    ///
    /// The first fault found.
    pub fn check_recovered(&self) -> Result<(), String> {
        if !self.is_recovered() {
            return Err("a recovery has not ended".into());
        }
        self.check_graves()?;
        match self
            .judged()
            .and_then(|judged| judged.lost.into_iter().next())
        {
            Some(lost) => Err(lost),
            None => Ok(()),
        }
    }

    /// Checks a machine in which no event is pending: no thread may wait though it could continue,
    /// and the checks of [`check_quiet`](Self::check_quiet) must hold.
    ///
    /// # Errors
    ///
    /// The first fault found.
    pub fn check_standstill(&self) -> Result<(), String> {
        self.check_waits()?;
        self.check_quiet()
    }

    /// Checks, in a machine in which no event is pending, that each thread of a living node has
    /// ended or waits for an object, and that none waits for an object that it could have.
    ///
    /// # Errors
    ///
    /// The first fault found.
    pub fn check_waits(&self) -> Result<(), String> {
        let waits = |c: usize| self.objects.waits_for(c as u16).is_some();
        let mut cores = self.cores.iter().enumerate();
        if let Some((c, core)) =
            cores.find(|(c, core)| core.activity != Activity::Finished && !waits(*c))
        {
            return Err(format!(
                "no event is pending, but thread {c}, which waits for no other thread, is at {:?}",
                core.held
            ));
        }
        self.objects.check_waits()
    }

    /// Checks a machine in which nothing is under way any more. All queues must be empty; if it is
    /// [judged](Self::judge_values), memory must hold the values stored last, and the logs must
    /// hold the commits.
    ///
    /// # Errors
    ///
    /// The first fault found.
    pub fn check_quiet(&self) -> Result<(), String> {
        self.check()?;
        let left = [
            ("contents under way", self.payloads.len()),
            ("packets under way", self.said.len()),
            ("lines being served by directories", self.memory.busy()),
            (
                "misses",
                self.cores.iter().map(|core| core.misses.shared()).sum(),
            ),
            (
                "nodes that are not quiet",
                self.nodes.iter().filter(|node| !node.is_quiet()).count(),
            ),
        ];
        for (what, count) in left {
            if count > 0 {
                return Err(format!("{count} {what} are left"));
            }
        }
        self.check_recovered()?;
        self.check_owed()?;
        self.check_logs()?;
        self.check_values()
    }
}
