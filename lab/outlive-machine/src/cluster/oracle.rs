//! A judge for tests: each load must get the value of the last store in coherence order, a
//! replicated store must be in the logs of all its replicas when it is committed, and at the end
//! logs and archives must hold all commits.

use std::collections::{HashMap, VecDeque};

use super::failure::Journal;
use super::logs::Logs;
use super::store_buffer::{Entry, Store};
use super::{Breakage, Cluster};
use crate::description::OwnUnit;
use crate::line::{Line, LineAddress};
use crate::logging::{Commit, Epoch, LogEntry};
use crate::parts::Port;
use crate::program::{Image, Thread, Word};
use crate::protocol::{MAX_NODES, NodeId};

/// An entry of a store buffer.
#[derive(Clone, Copy, Debug)]
struct Owed {
    line: LineAddress,
    /// The words that it writes.
    words: u8,
    values: Line,
    /// The number of begun stores that joined in it.
    stores: usize,
}

/// The value of each word by the order in which stores were committed, wherever it is in the
/// machine.
#[derive(Clone, Debug)]
pub(super) struct Oracle {
    pub words: Vec<u64>,
    /// All commits in a machine that replicates, as logs must have them.
    pub committed: Vec<LogEntry>,
    /// The dead nodes, each with the number of entries committed before its death.
    pub deaths: Vec<(NodeId, usize)>,
    /// The number of committed entries of store buffers.
    pub commits: u64,
    /// Lines of dead owners that a recovery has repaired.
    pub restored: u64,
    /// Descriptions of lost commits.
    pub lost: Vec<String>,
    /// Commits that may be lost with a node.
    pub journal: Journal,
    /// The entries of each core's store buffer, as its stores retired: they must be committed in
    /// this order, each once.
    owed: Vec<VecDeque<Owed>>,
    /// The stores of each core that have begun and are not committed, in program order: their
    /// groups in the reorder buffer, words and values. A load gets the youngest that is older than
    /// itself.
    begun: Vec<VecDeque<(u64, Word, u64)>>,
    /// For each node, the number of VALs that it has not sent yet for its committed stores.
    owed_vals: [u32; MAX_NODES],
}

/// The entries of the logs in the memory nodes.
struct Archived {
    entries: Vec<LogEntry>,
    last: HashMap<(NodeId, Word), Commit>,
}

impl Archived {
    /// Returns whether they have this entry, or one of a later commit of its node to the same word.
    fn has(&self, entry: &LogEntry) -> bool {
        let last = self.last.get(&(entry.requester.node, entry.word));
        self.entries.binary_search(entry).is_ok() || last.is_some_and(|last| *last > entry.commit)
    }
}

impl Oracle {
    pub fn new(image: &Image, cores: usize) -> Oracle {
        let count = image.words.next_multiple_of(Word::PER_LINE);
        let mut words = vec![0; count as usize];
        for (first, values) in &image.runs {
            words[first.0 as usize..][..values.len()].copy_from_slice(values);
        }
        Oracle {
            words,
            committed: Vec::new(),
            deaths: Vec::new(),
            commits: 0,
            restored: 0,
            lost: Vec::new(),
            journal: Journal::new(),
            owed: vec![VecDeque::new(); cores],
            begun: vec![VecDeque::new(); cores],
            owed_vals: [0; MAX_NODES],
        }
    }

    /// Removes the entry of a core's atomic that is undone, and will be begun again.
    pub fn withdrawn(&mut self, c: usize) {
        self.owed[c].pop_back();
    }

    /// Drops the entries of a core that has died.
    pub fn owes_nothing(&mut self, c: usize) {
        self.owed[c].clear();
        self.begun[c].clear();
    }

    /// Counts a VAL that a node must send for a committed store.
    pub fn owes_val(&mut self, node: NodeId) {
        self.owed_vals[node.index()] += 1;
    }

    /// Counts a VAL that leaves its node.
    pub fn val_leaves(&mut self, node: NodeId) {
        self.owed_vals[node.index()] -= 1;
    }

    /// Called when a node sends the contents of a line: if the node died now, the values that
    /// others will see, and all before them, must be in the logs.
    pub fn shown(&self, node: NodeId, line: LineAddress) {
        let owed = self.owed_vals[node.index()];
        assert_eq!(
            owed, 0,
            "{node} exposes {line} before the VALs of its committed stores have left"
        );
    }

    /// Records that a core's store begins.
    pub fn began(&mut self, c: usize, store: &Store) {
        if !store.private {
            self.begun[c].push_back((store.number, store.word(), store.value));
        }
    }

    /// Returns the value that a load of a core, group `number` of its reorder buffer, must get from
    /// an own store.
    fn own(&self, c: usize, word: Word, number: u64) -> Option<u64> {
        let older = |store: &&(u64, Word, u64)| store.0 < number && store.1 == word;
        let own = self.begun[c].iter().rev().find(older);
        own.map(|(_, _, value)| *value)
    }

    /// Judges a load that has got this value from a store of its own core.
    pub fn forwarded(&self, c: usize, word: Word, number: u64, value: u64) {
        let own = self.own(c, word, number);
        assert_eq!(
            Some(value),
            own,
            "a load of {word:?} should have got the value that core {c} stored"
        );
    }

    /// Judges a load that has got this value from the node's caches.
    pub fn bound_by(&self, c: usize, word: Word, number: u64, value: u64) {
        let own = self.own(c, word, number);
        assert_eq!(
            own, None,
            "a load of {word:?} got {value}, not the value that core {c} stored"
        );
        self.bound(word, value);
    }

    /// Judges a read after all stores of its core that has got this value from the node's caches.
    pub fn bound(&self, word: Word, value: u64) {
        let last = self.words[word.0 as usize];
        assert_eq!(value, last, "a load of {word:?} got an old value");
    }
}

impl<T: Thread> Cluster<T> {
    /// Judges a load that has got the value of a store of its own core.
    pub(super) fn judge_forwarded(&self, c: usize, word: Word, number: u64, value: u64) {
        let passes = self.broken == Some(Breakage::StoresDrainedOutOfOrder);
        if let Some(oracle) = self.oracle.as_ref().filter(|_| !passes) {
            oracle.forwarded(c, word, number, value);
        }
    }

    /// Judges a load that has got the value in the node's caches.
    pub(super) fn judge_bound(&self, c: usize, word: Word, number: u64, value: u64) {
        let passes = self.broken == Some(Breakage::StoresDrainedOutOfOrder);
        match &self.oracle {
            Some(oracle) if passes => oracle.bound(word, value),
            Some(oracle) => oracle.bound_by(c, word, number, value),
            None => {}
        }
    }

    /// Records that `stores` begun stores, or the write of a serialised operation, have retired:
    /// into an entry of their own, or into the last one.
    pub(super) fn judge_retired(&mut self, c: usize, entered: bool, stores: usize) {
        let Some(oracle) = &mut self.oracle else {
            return;
        };
        let last = self.cores[c].stores.last().filter(|last| !last.private);
        let Some(last) = last else {
            return;
        };
        let owed = Owed {
            line: last.line,
            words: last.words,
            values: last.values,
            stores,
        };
        match oracle.owed[c].back_mut().filter(|_| !entered) {
            Some(last) => {
                *last = Owed {
                    stores: last.stores + stores,
                    ..owed
                }
            }
            None => oracle.owed[c].push_back(owed),
        }
    }

    /// Judges the commit of an entry: it must be the oldest that is owed, with all that joined it.
    pub(super) fn judge_order(&mut self, c: usize, entry: &Entry) {
        let passes = self.broken == Some(Breakage::StoresDrainedOutOfOrder);
        if let Some(oracle) = self.oracle.as_mut().filter(|_| !passes) {
            let owed = oracle.owed[c].pop_front();
            assert_eq!(
                owed.map(|owed| (owed.line, owed.words, owed.values)),
                Some((entry.line, entry.words, entry.values)),
                "core {c} commits a store that is not its oldest"
            );
            // The stores of the program, in its order.
            let mut values = entry.values;
            for (_, word, value) in oracle.begun[c].drain(..owed.map_or(0, |owed| owed.stores)) {
                assert_eq!(word.line(), entry.line, "core {c} commits to another line");
                values[word.place()] = value;
            }
            assert_eq!(
                values, entry.values,
                "core {c} commits values that were not stored last"
            );
        }
    }

    /// Checks that all retired stores were committed, except those of dead cores.
    pub(super) fn check_owed(&self) -> Result<(), String> {
        let owed = self.oracle.iter().flat_map(|oracle| &oracle.owed);
        match owed.enumerate().find(|(_, owed)| !owed.is_empty()) {
            Some((c, owed)) if self.broken != Some(Breakage::StoresDrainedOutOfOrder) => {
                Err(format!(
                    "core {c} has {} stores that have retired and were not committed",
                    owed.len()
                ))
            }
            _ => Ok(()),
        }
    }

    /// Judges a node's commit of a store: no other node may be able to read the line.
    pub(super) fn judge_commit(&mut self, n: usize, entry: &Entry) {
        for (other, node) in self.nodes.iter().enumerate() {
            let agent = node.agent(entry.line);
            assert!(
                other == n || !agent.is_readable(),
                "node {n} writes {}, which node {other} has in {agent:?}",
                entry.line
            );
        }
        let at_switch = self.at_switch(n);
        if let Some(oracle) = &mut self.oracle {
            oracle.commits += 1;
            let words = &mut oracle.words[(entry.line.0 * Word::PER_LINE) as usize..][..8];
            let mut before = [0; 8];
            before.copy_from_slice(words);
            for place in (0..8).filter(|place| entry.words & 1 << place != 0) {
                words[place] = entry.values[place];
            }
            let commit = (entry.line, entry.words, entry.values);
            oracle.journal.commit(n, commit, before, at_switch);
        }
    }

    /// Records that all messages about a node's last commit have left it.
    pub(super) fn judge_sent(&mut self, n: usize) {
        let messages = self.fabric.uplink(Port(n as u16)).messages;
        if let Some(oracle) = &mut self.oracle {
            oracle.journal.has_left(n, messages);
        }
    }

    /// Judges the commit of an atomic that has read `old`: no store may come in between.
    pub(super) fn judge_atomic(&self, word: Word, old: u64) {
        if let Some(oracle) = &self.oracle {
            let last = oracle.words[word.0 as usize];
            assert_eq!(
                last, old,
                "an atomic on {word:?} that read an old value is committed"
            );
        }
    }

    /// Judges a store that is about to be committed: each of its replicas must have it.
    pub(super) fn judge_replicas(&mut self, c: usize, entry: &Entry, commit: Commit, epoch: Epoch) {
        let requester = self.requester(c);
        let sequence = entry.replication.sequence();
        let groups = &self.logs_mut().groups;
        for node in groups.replicas(entry.line, requester.node).iter() {
            if self.is_dead(Port(node.index() as u16)) {
                continue;
            }
            let unit = &self.logs_mut().units[node.index()];
            assert!(
                sequence.is_some_and(|sequence| unit.waits(requester, sequence)),
                "{requester} commits a store to {} that {node} has not logged",
                entry.line
            );
        }
        // The writer has the last exclusive grant: a recovery would attribute entries of another
        // epoch to another owner.
        assert_eq!(
            epoch,
            self.memory.directory(entry.line).epoch(),
            "{requester} writes {} with an epoch that is not the line's",
            entry.line
        );
        let Some(oracle) = &mut self.oracle else {
            return;
        };
        for place in (0..8).filter(|place| entry.words & 1 << place != 0) {
            oracle.committed.push(LogEntry {
                requester,
                commit,
                epoch,
                word: Word(entry.line.0 * Word::PER_LINE + place as u64),
                value: entry.values[place],
            });
        }
    }

    /// Returns the sorted archive entries, and the last commit of each node to each word there.
    fn archived(&self, logs: &Logs) -> Result<Archived, String> {
        let mut entries = Vec::new();
        for archive in &logs.archives {
            entries.extend(archive.entries().map_err(|error| error.to_string())?);
        }
        entries.sort_unstable();
        let mut last = HashMap::new();
        for entry in &entries {
            let commit: &mut Commit = last.entry((entry.requester.node, entry.word)).or_default();
            *commit = entry.commit.max(*commit);
        }
        Ok(Archived { entries, last })
    }

    /// Returns whether an entry is of its line's owner, at the owner's epoch.
    fn is_of_owner(&self, entry: &LogEntry) -> bool {
        let owner = self.memory.directory(entry.word.line()).owner();
        owner == Some((entry.requester.node, entry.epoch))
    }

    /// Checks, when nothing is under way, that logs and archives hold exactly the commits: an entry
    /// is once in an archive, or in the log of each of its replicas, if it is needed.
    pub(super) fn check_logs(&self) -> Result<(), String> {
        let Some(logs) = &self.logs else {
            return Ok(());
        };
        logs.check_quiet(self.dead())?;
        let Some(oracle) = &self.oracle else {
            return Ok(());
        };
        if !oracle.deaths.is_empty() {
            return self.check_logs_after_deaths(logs, oracle);
        }
        let archived = self.archived(logs)?;
        let mut committed = oracle.committed.clone();
        committed.sort_unstable();
        if let Some(twice) = archived.entries.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{:?} is archived twice", twice[0]));
        }
        let unknown = |entry: &LogEntry| committed.binary_search(entry).is_err();
        if let Some(entry) = archived.entries.iter().find(|entry| unknown(entry)) {
            return Err(format!("{entry:?} is archived and was never committed"));
        }
        let mut logged = Vec::new();
        for unit in &logs.units {
            let (node, first) = (unit.node(), logged.len());
            logged.extend(unit.log_entries());
            for entry in &logged[first..] {
                let (line, from) = (entry.word.line(), entry.requester.node);
                if unknown(entry) || !logs.groups.replicas(line, from).contains(node) {
                    return Err(format!("{node} has logged {entry:?}, but should not"));
                }
            }
            let own = &mut logged[first..];
            own.sort_unstable();
            if let Some(twice) = own.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(format!("{node} has {:?} twice", twice[0]));
            }
        }
        logged.sort_unstable();
        for entry in &committed {
            let from = logged.partition_point(|other| other < entry);
            let copies = logged[from..].iter().take_while(|other| *other == entry);
            let (line, from) = (entry.word.line(), entry.requester.node);
            let (copies, wanted) = (copies.count(), logs.groups.replicas(line, from).len());
            if copies != wanted && !archived.has(entry) && self.is_of_owner(entry) {
                return Err(format!("{entry:?} is in {copies} logs, and in no archive"));
            }
        }
        Ok(())
    }

    /// Does the checks of [`check_logs`](Self::check_logs) for the entries that are still needed:
    /// those that the owner of a line has committed at its epoch. After a recovery a unit may save
    /// entries that another has saved too. A node that lives alone may have, only in its caches,
    /// values that only dead nodes have logged, if its own unit was [skipped](OwnUnit::Skipped).
    fn check_logs_after_deaths(&self, logs: &Logs, oracle: &Oracle) -> Result<(), String> {
        let archived = self.archived(logs)?;
        let dead = self.dead();
        let alone = logs.groups.count() == 1 && logs.groups.own_unit() == OwnUnit::Skipped;
        let needed = |entry: &&LogEntry| !alone && self.is_of_owner(entry);
        for entry in oracle.committed.iter().filter(needed) {
            let line = entry.word.line();
            let members = logs.groups.replicas(line, entry.requester.node);
            let logged = |node: NodeId| {
                logs.units[node.index()]
                    .log_entries()
                    .any(|one| one == *entry)
            };
            if !archived.has(entry) && !members.iter().all(logged) {
                return Err(format!(
                    "{entry:?} is not in the logs of all of {members}, and in no archive"
                ));
            }
        }
        match logs
            .groups
            .living()
            .iter()
            .find(|node| dead.contains(*node))
        {
            Some(node) => Err(format!("{node} is dead, and lines belong to its groups")),
            None => Ok(()),
        }
    }

    /// Checks that no directory names a dead node.
    pub(super) fn check_graves(&self) -> Result<(), String> {
        let dead = self.dead();
        for line in (0..self.memory.len()).map(LineAddress) {
            let directory = self.memory.directory(line);
            if directory.names_any(dead) {
                return Err(format!(
                    "the directory of {line} names one of the dead nodes {dead}: {directory:?}"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn check_values(&self) -> Result<(), String> {
        let Some(oracle) = &self.oracle else {
            return Ok(());
        };
        for (number, value) in oracle.words.iter().enumerate() {
            let here = self.word(Word(number as u64));
            if here != *value {
                return Err(format!(
                    "word {number} is {here}, and {value} was stored last"
                ));
            }
        }
        Ok(())
    }
}
