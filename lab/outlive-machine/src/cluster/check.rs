//! What is wrong with a machine, for tests.

use super::Cluster;
use super::core::Activity;
use crate::line::LineAddress;
use crate::program::{Thread, Word};
use crate::protocol::NodeId;

impl<T: Thread> Cluster<T> {
    /// What is wrong with the machine's state now: inclusion of the caches, one writer or many readers, copies that differ, and of
    /// lines that nobody asks for copies that their directories do not know of; if it is [judged](Self::judge_values), such lines
    /// that do not hold what was committed to them last. For tests; it takes long.
    ///
    /// # Errors
    ///
    /// The first thing found.
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

    /// Contents are in messages alone only while the line's directory is busy; and what the dead had is not known before it is recovered.
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

    /// What is wrong with a machine after a recovery, though it may run on: a recovery that has not come to its end, a directory that
    /// names the dead; if it is [judged](Self::judge_values), what was committed and is not there.
    ///
    /// # Errors
    ///
    /// The first thing found.
    pub fn check_recovered(&self) -> Result<(), String> {
        if !self.is_recovered() {
            return Err("a recovery has not come to its end".into());
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

    /// What is wrong with a machine that does nothing any more: who waits though it could go on, and [what should be
    /// empty](Self::check_quiet).
    ///
    /// # Errors
    ///
    /// The first thing found.
    pub fn check_standstill(&self) -> Result<(), String> {
        self.check_waits()?;
        self.check_quiet()
    }

    /// Of a machine that does nothing any more: a thread of a living node that has not ended and waits for nobody, or for what it
    /// could have.
    ///
    /// # Errors
    ///
    /// The first thing found.
    pub fn check_waits(&self) -> Result<(), String> {
        let waits = |c: usize| self.objects.waits_for(c as u16).is_some();
        let mut cores = self.cores.iter().enumerate();
        if let Some((c, core)) =
            cores.find(|(c, core)| core.activity != Activity::Finished && !waits(*c))
        {
            return Err(format!(
                "nothing happens any more, and thread {c}, which waits for nobody, is at {:?}",
                core.held
            ));
        }
        self.objects.check_waits()
    }

    /// What is wrong with a machine in which nothing is under way any more: what should be empty and is not; if it is
    /// [judged](Self::judge_values), memory that does not hold what was stored last, and logs that do not hold what was committed.
    ///
    /// # Errors
    ///
    /// The first thing found.
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
