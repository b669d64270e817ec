//! Dirty lines: the stores that a host's death may lose.
//!
//! Live hosts are coherent: a load sees the newest store. Below this common view, every aligned 8
//! bytes keep the values that they have had since one certainly reached memory; since caches evict
//! at any time, any of these may be the value in memory. A dirty line has a set of hosts that may
//! hold it. When such a host dies, the line falls back to one of those values, at once and for all
//! hosts, and is clean.
//!
//! A write-back records the line's values when it begins; the drain that follows on the same thread
//! makes those the oldest that can survive. If another host takes the line over and loses it
//! between the two, it is lost all the same, which real write-backs do not exclude either.

use super::rules::{CacheRules, Tearing, Transfers, WriteBacks};
use crate::schedule::engine::access::{Access, Act, Answer};
use crate::schedule::engine::choices::Dice;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The size of a cache line in bytes.
pub(crate) const LINE: u64 = 64;
const PIECE: u64 = 8;
/// The host of the preparation, the hooks and the check, which never dies.
const LIVING: usize = 31;

/// Eight aligned bytes: the last value that certainly reached memory, then all values since, each
/// with the moment of its store.
#[derive(Clone, Debug, PartialEq)]
struct Piece {
    values: Vec<(u64, u64)>,
}

impl Piece {
    fn newest(&self) -> u64 {
        self.values.last().expect("a value").1
    }

    fn clean(&mut self) {
        self.values.drain(..self.values.len() - 1);
    }

    /// Marks the value at `moment` as having reached memory.
    fn persist(&mut self, moment: u64) {
        let later = self.values.iter().position(|(at, _)| *at > moment);
        let floor = later.unwrap_or(self.values.len()).saturating_sub(1);
        self.values.drain(..floor);
    }
}

/// The caches and the memory of one execution.
#[derive(Debug)]
pub(crate) struct Caches {
    rules: CacheRules,
    /// By actor.
    hosts: Vec<usize>,
    /// The memory, by pieces.
    pieces: Vec<Piece>,
    /// By line, for dirty ones: the hosts that may have it, as bits.
    dirty: BTreeMap<u64, u32>,
    /// By actor: the lines that it wrote back, and when.
    writing: Vec<Vec<(u64, u64)>>,
    /// By word: offset and size.
    words: Vec<(u64, u8)>,
    moment: u64,
    seen: BTreeSet<u64>,
    drawn: bool,
}

/// The values to which one piece or one line may fall back.
struct Fallback {
    line: u64,
    /// Ways, each a list of pieces and the values they fall back to; the first loses nothing.
    ways: Vec<Vec<(usize, u64)>>,
}

impl Caches {
    /// Creates a memory of `size` bytes; `hosts` are those of the threads, of `actors` in all.
    pub(crate) fn new(rules: CacheRules, size: u64, hosts: &[usize], actors: usize) -> Self {
        let mut hosts = hosts.to_vec();
        hosts.resize(actors, LIVING);
        let pieces = size.div_ceil(PIECE) as usize;
        Self {
            rules,
            hosts,
            pieces: vec![
                Piece {
                    values: vec![(0, 0)]
                };
                pieces
            ],
            dirty: BTreeMap::new(),
            writing: vec![Vec::new(); actors],
            words: Vec::new(),
            moment: 0,
            seen: BTreeSet::new(),
            drawn: false,
        }
    }

    pub(crate) fn clear(&mut self) {
        for piece in &mut self.pieces {
            piece.values.clear();
            piece.values.push((0, 0));
        }
        self.dirty.clear();
        self.writing.iter_mut().for_each(Vec::clear);
        self.words.clear();
        self.moment = 0;
    }

    /// Marks everything as having reached memory.
    pub(crate) fn settle(&mut self) {
        self.pieces.iter_mut().for_each(Piece::clean);
        self.dirty.clear();
    }

    fn read(&self, at: u64, size: u8) -> u128 {
        let piece = (at / PIECE) as usize;
        let low = u128::from(self.pieces[piece].newest());
        if size == 16 {
            return low | u128::from(self.pieces[piece + 1].newest()) << 64;
        }
        let mask = u128::MAX >> (128 - 8 * u32::from(size));
        low >> (8 * (at % PIECE)) & mask
    }

    fn write(&mut self, at: u64, size: u8, value: u128) {
        self.moment += 1;
        let piece = (at / PIECE) as usize;
        let shift = 8 * (at % PIECE) as u32;
        let mask = (u128::MAX >> (128 - 8 * u32::from(size))) << shift;
        let was = u128::from(self.pieces[piece].newest());
        let low = if size == 16 {
            value
        } else {
            was & !mask | value << shift
        };
        self.pieces[piece].values.push((self.moment, low as u64));
        if size == 16 {
            self.pieces[piece + 1]
                .values
                .push((self.moment, (value >> 64) as u64));
        }
    }

    fn pieces_of(line: u64) -> std::ops::Range<usize> {
        let first = (line / PIECE) as usize;
        first..first + (LINE / PIECE) as usize
    }

    fn clean_line(&mut self, line: u64) {
        let end = self.pieces.len();
        let of = Self::pieces_of(line);
        self.pieces[of.start..of.end.min(end)]
            .iter_mut()
            .for_each(Piece::clean);
        self.dirty.remove(&line);
    }

    /// Takes the line into the host's cache.
    fn fetch(&mut self, line: u64, host: usize, writes: bool) {
        let Some(&holders) = self.dirty.get(&line) else {
            if writes {
                self.dirty.insert(line, 1 << host);
            }
            return;
        };
        let me = 1 << host;
        if holders == me {
            return;
        }
        if self.rules.transfers == Transfers::ThroughMemory {
            self.clean_line(line);
            if writes {
                self.dirty.insert(line, me);
            }
            return;
        }
        self.dirty
            .insert(line, if writes { me } else { holders | me });
    }

    pub(crate) fn access(&mut self, actor: usize, word: usize, access: &Access) -> Answer {
        if self.words.len() <= word {
            self.words.resize(word + 1, (0, 1));
        }
        self.words[word] = (access.at, access.size);
        let was = self.read(access.at, access.size);
        let new = access.replaces(was);
        self.fetch(access.at / LINE * LINE, self.hosts[actor], new.is_some());
        if let Some(new) = new {
            self.write(access.at, access.size, new);
        }
        let value = match access.act {
            Act::Store(value) => value,
            _ => was,
        };
        Answer {
            value,
            swapped: new.is_some(),
        }
    }

    /// Returns the current value of a word.
    pub(crate) fn value(&self, word: usize) -> u128 {
        let (at, size) = self.words[word];
        self.read(at, size)
    }

    pub(crate) fn write_back(&mut self, actor: usize, at: u64, len: u64) {
        if len == 0 {
            return;
        }
        let own = 1 << self.hosts[actor];
        for line in (at / LINE * LINE..at + len).step_by(LINE as usize) {
            let reached = match (self.dirty.get(&line), self.rules.write_backs) {
                (None, _) => false,
                (Some(_), WriteBacks::AnyCache) => true,
                (Some(&holders), WriteBacks::OwnCache) => holders == own,
            };
            if reached {
                self.writing[actor].push((line, self.moment));
            }
        }
    }

    pub(crate) fn drains(&self, actor: usize) -> bool {
        !self.writing[actor].is_empty()
    }

    pub(crate) fn drain(&mut self, actor: usize) {
        for (line, moment) in std::mem::take(&mut self.writing[actor]) {
            let of = Self::pieces_of(line);
            let end = of.end.min(self.pieces.len());
            let pieces = &mut self.pieces[of.start..end];
            pieces.iter_mut().for_each(|piece| piece.persist(moment));
            if pieces.iter().all(|piece| piece.values.len() == 1) {
                self.dirty.remove(&line);
            }
        }
    }

    fn fallbacks(&self, host: usize) -> Vec<Fallback> {
        let held = self
            .dirty
            .iter()
            .filter(|(_, holders)| **holders & 1 << host != 0);
        let mut all = Vec::new();
        for (&line, _) in held {
            let of = Self::pieces_of(line);
            let of = of.start..of.end.min(self.pieces.len());
            match self.rules.tearing {
                Tearing::Words => {
                    for i in of {
                        let mut values: Vec<u64> = Vec::new();
                        for (_, value) in self.pieces[i].values.iter().rev() {
                            if !values.contains(value) {
                                values.push(*value);
                            }
                        }
                        let ways = values.into_iter().map(|value| vec![(i, value)]).collect();
                        all.push(Fallback { line, ways });
                    }
                }
                Tearing::Lines => {
                    let moments: BTreeSet<u64> = of
                        .clone()
                        .flat_map(|i| self.pieces[i].values.iter().map(|v| v.0))
                        .collect();
                    let mut ways: Vec<Vec<(usize, u64)>> = Vec::new();
                    for moment in moments.into_iter().rev() {
                        let at = |i: usize| {
                            let mut values = self.pieces[i].values.iter().rev();
                            values.find(|(at, _)| *at <= moment)
                        };
                        let way: Option<Vec<_>> = of
                            .clone()
                            .map(|i| at(i).map(|(_, value)| (i, *value)))
                            .collect();
                        // Earlier, a piece has no value: the line reached memory later.
                        ways.extend(way.filter(|way| !ways.contains(way)));
                    }
                    all.push(Fallback { line, ways });
                }
            }
        }
        all.retain(|fallback| fallback.ways.len() > 1);
        all
    }

    pub(crate) fn images(&mut self, host: usize) -> u16 {
        let all = self.fallbacks(host);
        let count = all
            .iter()
            .try_fold(1u64, |count, f| count.checked_mul(f.ways.len() as u64));
        match count {
            Some(count) if count <= u64::from(self.rules.images) => count as u16,
            _ => {
                self.drawn = true;
                self.rules.images
            }
        }
    }

    /// Loses the host's lines in one of the ways that [`images`](Self::images) counted.
    pub(crate) fn lose(&mut self, host: usize, image: u16) -> Vec<String> {
        let all = self.fallbacks(host);
        let count = all
            .iter()
            .try_fold(1u64, |count, f| count.checked_mul(f.ways.len() as u64));
        let drawn = count.is_none_or(|count| count > u64::from(self.rules.images));
        let mut rest = u64::from(image);
        let mut dice = Dice::new(rest);
        let mut lost = Vec::new();
        for fallback in &all {
            let ways = fallback.ways.len() as u64;
            let way = match (drawn, image) {
                (true, 0) => 0,
                (true, 1) => ways - 1,
                (true, _) => dice.roll() % ways,
                (false, _) => rest % ways,
            };
            rest /= ways;
            for &(piece, value) in &fallback.ways[way as usize] {
                let was = self.pieces[piece].newest();
                if was != value {
                    let at = piece as u64 * PIECE;
                    lost.push(format!(
                        "lost: [{at:#06x}] falls back from {was:#x} to {value:#x}"
                    ));
                }
                self.moment += 1;
                self.pieces[piece].values.push((self.moment, value));
            }
        }
        let held: Vec<u64> = (self.dirty.iter())
            .filter(|(_, holders)| **holders & 1 << host != 0)
            .map(|(line, _)| *line)
            .collect();
        held.into_iter().for_each(|line| self.clean_line(line));
        self.remember();
        debug_assert!(
            all.iter()
                .all(|fallback| !self.dirty.contains_key(&fallback.line))
        );
        lost
    }

    fn remember(&mut self) {
        let mut hasher = DefaultHasher::new();
        for piece in &self.pieces {
            piece.newest().hash(&mut hasher);
        }
        self.seen.insert(hasher.finish());
    }

    pub(crate) fn images_seen(&self) -> (u64, bool) {
        (self.seen.len() as u64, !self.drawn)
    }
}
