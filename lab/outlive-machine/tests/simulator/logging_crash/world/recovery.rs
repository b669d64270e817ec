//! Deaths, the recovery from logs, and the check that it restores the committed values.

use super::{CORES, LINES, Place, World};
use outlive_machine::line::LineAddress;
use outlive_machine::logging::{Advance, Epoch, LatestWords, LineVersions, LogEntry};
use outlive_machine::protocol::NodeId;
use std::collections::BTreeSet;

impl World {
    pub(super) fn die(&mut self, victim: NodeId) {
        self.living = self.living.without(victim);
        self.dead.push(victim);
        self.ports.get_mut(&Place::Node(victim)).unwrap().clear();
        for core in 0..usize::from(CORES) {
            self.stores[victim.index() * usize::from(CORES) + core].clear();
        }
    }

    /// Brings the machine to a sound state without the dead nodes; another death on the way
    /// restarts this.
    fn recover(&mut self) -> Result<(), String> {
        self.recovering = true;
        'again: loop {
            let dead = self.dead.clone();
            while self.step() {}
            if self.dead != dead {
                continue;
            }
            for &victim in &dead {
                for node in self.living.iter() {
                    self.units[node.index()].forget(self.now, victim).unwrap();
                }
                self.archive.lose(victim);
                let advance = self.barrier.lose(victim);
                self.announce(advance);
                for store in self.stores.iter_mut().flatten() {
                    store.awaited = store.awaited.without(victim);
                    store.replicas = store.replicas.without(victim);
                }
            }
            // The memory node is asked as early as possible, the units as late as possible:
            // concurrent events must move no entry from the units to the memory node.
            let lines: Vec<_> = (0..LINES).map(LineAddress).collect();
            let archived = self.archive.fetch(&lines).unwrap();
            while self.step() {}
            if self.dead != dead {
                continue;
            }
            assert!(self.barrier.is_idle(), "no unit is awaited");
            self.nothing_is_lost()?;
            self.lines_of_the_dead(&archived)?;
            // All validated entries go to the archives, so that no entry depends on fewer copies.
            for _ in 0..2 {
                let begin = self.barrier.begin();
                self.announce(begin.map(Advance::Begin));
                while self.step() {}
                if self.dead != dead {
                    continue 'again;
                }
            }
            self.nothing_is_lost()?;
            break;
        }
        self.groups = self.groups.regrouped(self.living);
        for node in self.living.iter() {
            self.units[node.index()]
                .regroup(self.groups.clone())
                .unwrap();
        }
        self.dead.clear();
        self.recovering = false;
        Ok(())
    }

    /// Checks that every committed store is in a living log or in an archive.
    fn nothing_is_lost(&self) -> Result<(), String> {
        let mut found: BTreeSet<LogEntry> = self.archive.entries().unwrap().into_iter().collect();
        let lines: Vec<_> = (0..LINES).map(LineAddress).collect();
        for node in self.living.iter() {
            let fetched = self.units[node.index()].fetch(&lines);
            found.extend(fetched.into_iter().flat_map(|versions| versions.updates));
        }
        let whole = self.committed.iter().filter(|(_, left)| *left == 0);
        let mut needed = whole.filter(|(entry, _)| !self.truncates || self.is_needed(entry));
        match needed.find(|(entry, _)| !found.contains(entry)) {
            Some((entry, _)) => Err(format!("{entry:?} is lost")),
            None => Ok(()),
        }
    }

    /// Returns whether a recovery would look for the entry: its node owns the line at this epoch,
    /// and has not written the word since.
    pub(super) fn is_needed(&self, entry: &LogEntry) -> bool {
        let owner = self.owners[entry.word.line().0 as usize];
        let later = |(other, _): &(LogEntry, usize)| {
            (other.requester.node, other.word) == (entry.requester.node, entry.word)
                && other.commit > entry.commit
        };
        owner == (entry.requester.node, entry.epoch) && !self.committed.iter().any(later)
    }

    /// Recovers the lines of dead owners: each word as its last commit left it. A dead node may
    /// have validated the last commit only in part.
    fn lines_of_the_dead(&mut self, archived: &[LineVersions]) -> Result<(), String> {
        for (line, archived) in archived.iter().enumerate() {
            let (owner, epoch) = self.owners[line];
            if self.living.contains(owner) {
                continue;
            }
            let address = LineAddress(line as u64);
            let mut latest = LatestWords::new(address, owner, epoch);
            for node in self
                .groups
                .replicas(address, owner)
                .iter()
                .filter(|node| self.living.contains(*node))
            {
                let fetched = self.units[node.index()].fetch(&[address]);
                fetched[0]
                    .updates
                    .iter()
                    .for_each(|entry| latest.offer(entry));
            }
            archived
                .updates
                .iter()
                .for_each(|entry| latest.offer(entry));
            let mut recovered = self.memory[line];
            latest.apply(&mut recovered);
            let mut right = self.memory[line];
            let mut allowed = [const { Vec::new() }; 8];
            for (entry, left) in &self.committed {
                if (entry.requester.node, entry.epoch, entry.word.line()) == (owner, epoch, address)
                {
                    let place = entry.word.place();
                    if *left == 0 {
                        right[place] = entry.value;
                        allowed[place].clear();
                    } else {
                        allowed[place].push(entry.value);
                    }
                }
            }
            for place in 0..8 {
                let value = recovered[place];
                if value != right[place] && !allowed[place].contains(&value) {
                    return Err(format!(
                        "{address} word {place} is {value} instead of {}",
                        right[place]
                    ));
                }
            }
            // The line is as memory has it now, and owned by a living node.
            self.memory[line] = recovered;
            let heir = self.living.iter().next().unwrap();
            self.owners[line] = (heir, Epoch(epoch.0 + 1));
            self.recalled[line] = false;
        }
        Ok(())
    }

    /// Runs `steps` steps, recovers from deaths, then empties all logs and checks that all entries
    /// are in the archives.
    pub fn run(&mut self, steps: u32) -> Result<(), String> {
        while self.steps < steps {
            self.step();
            // A death is detected after a while.
            if !self.dead.is_empty() && (self.draw(20) == 0 || self.steps >= steps) {
                self.recover()?;
            }
        }
        self.plan.clear();
        if !self.dead.is_empty() {
            self.recover()?;
        }
        self.recovering = true;
        while self.step() {}
        for _ in 0..2 {
            let begin = self.barrier.begin();
            self.announce(begin.map(Advance::Begin));
            while self.step() {}
        }
        self.nothing_is_lost()?;
        if self.truncates {
            self.nothing_more_is_kept()?;
        }
        for node in self.living.iter() {
            let left = self.units[node.index()].log_len();
            if left > 0 {
                return Err(format!("{left} entries stay in the log of {node}"));
            }
        }
        Ok(())
    }

    /// If the directories are asked now, at most twice the needed entries stay in the archive.
    fn nothing_more_is_kept(&mut self) -> Result<(), String> {
        self.told = self.standings();
        self.truncate();
        self.nothing_is_lost()?;
        let entries = self.archive.entries().unwrap();
        let needed = entries.iter().filter(|entry| self.is_needed(entry)).count();
        match entries.len() <= 2 * needed {
            true => Ok(()),
            false => Err(format!("{} are kept, {needed} needed", entries.len())),
        }
    }
}
