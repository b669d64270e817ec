//! A judge for tests: each load must get what the last store in coherence order has left, a store that is replicated must be in
//! the logs of all its replicas when it is committed, and at the end logs and archives must hold what was committed.

use super::Cluster;
use super::store_buffer::Entry;
use crate::logging::{Commit, Epoch, LogEntry};
use crate::program::{Image, Thread, Word};

/// What each word holds by the order in which stores were committed, wherever it stands in the machine.
#[derive(Clone, Debug)]
pub(super) struct Oracle {
    words: Vec<u64>,
    /// All that was committed in a machine that replicates, as logs are to have it.
    committed: Vec<LogEntry>,
}

impl Oracle {
    pub fn new(image: &Image) -> Oracle {
        let count = image.words.next_multiple_of(Word::PER_LINE);
        let mut words = vec![0; count as usize];
        for (first, values) in &image.runs {
            words[first.0 as usize..][..values.len()].copy_from_slice(values);
        }
        Oracle {
            words,
            committed: Vec::new(),
        }
    }

    /// A load has got this value from the node's caches.
    pub fn bound(&self, word: Word, value: u64) {
        let last = self.words[word.0 as usize];
        assert_eq!(value, last, "a load of {word:?} got an old value");
    }
}

impl<T: Thread> Cluster<T> {
    /// A node commits a store: no other may be able to read the line.
    pub(super) fn judge_commit(&mut self, n: usize, entry: &Entry) {
        for (other, node) in self.nodes.iter().enumerate() {
            let agent = node.agent(entry.line);
            assert!(
                other == n || !agent.is_readable(),
                "node {n} writes {}, which node {other} has in {agent:?}",
                entry.line
            );
        }
        if let Some(oracle) = &mut self.oracle {
            for place in (0..8).filter(|place| entry.words & 1 << place != 0) {
                let word = entry.line.0 * Word::PER_LINE + place as u64;
                oracle.words[word as usize] = entry.values[place];
            }
        }
    }

    /// A store is about to be committed: each of its replicas must have it.
    pub(super) fn judge_replicas(&mut self, c: usize, entry: &Entry, commit: Commit, epoch: Epoch) {
        let requester = self.requester(c);
        let sequence = entry.replication.sequence();
        let groups = &self.logs_mut().groups;
        for node in groups.replicas(entry.line, requester.node).iter() {
            let unit = &self.logs_mut().units[node.index()];
            assert!(
                sequence.is_some_and(|sequence| unit.waits(requester, sequence)),
                "{requester} commits a store to {} that {node} has not",
                entry.line
            );
        }
        // Who may write has the last exclusive grant: a recovery would take another epoch's entries for somebody else's.
        assert_eq!(
            epoch,
            self.memory.directory(entry.line).epoch(),
            "{requester} writes {} at an epoch that is not the line's",
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

    /// Whether logs and archives hold what was committed and nothing else, when nothing is under way: an entry stands once in
    /// an archive, or in the log of each of its replicas.
    pub(super) fn check_logs(&self) -> Result<(), String> {
        let Some(logs) = &self.logs else {
            return Ok(());
        };
        logs.check_quiet()?;
        let Some(oracle) = &self.oracle else {
            return Ok(());
        };
        let mut archived = Vec::new();
        for archive in &logs.archives {
            archived.extend(archive.entries().map_err(|error| error.to_string())?);
        }
        archived.sort_unstable();
        let mut committed = oracle.committed.clone();
        committed.sort_unstable();
        if let Some(twice) = archived.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{:?} is archived twice", twice[0]));
        }
        let unknown = |entry: &LogEntry| committed.binary_search(entry).is_err();
        if let Some(entry) = archived.iter().find(|entry| unknown(entry)) {
            return Err(format!("{entry:?} is archived and was never committed"));
        }
        let mut logged = Vec::new();
        for unit in &logs.units {
            let (node, first) = (unit.node(), logged.len());
            logged.extend(unit.log_entries());
            for entry in &logged[first..] {
                let (line, from) = (entry.word.line(), entry.requester.node);
                if unknown(entry) || !logs.groups.replicas(line, from).contains(node) {
                    return Err(format!("{node} has {entry:?}, which it should not"));
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
            if copies != wanted && archived.binary_search(entry).is_err() {
                return Err(format!("{entry:?} is in {copies} logs, and in no archive"));
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
