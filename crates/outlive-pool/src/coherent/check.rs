//! The check of a pool's tables.

use super::{Coherent, Homes, Phase};
use crate::layout::{MapWord, Owner};
use outlive::memory::Memory;

/// The contents of a pool, counted by a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// The number of allocations that belong to a process.
    pub owned: u64,
    /// The number of allocations that were kept.
    pub kept: u64,
    /// The number of allocations that sealed objects have.
    pub objects: u64,
    /// The number of allocated slices.
    pub slices: u64,
    /// The number of allocated slices that cannot be accessed: they are being allocated or freed.
    pub hidden: u64,
    /// The number of frames in use on live servers.
    pub frames: u64,
}

impl<M: Memory> Coherent<M> {
    /// Checks the tables, and the fine maps of live servers. While clients allocate, free and move,
    /// it reports contradictions that do not exist.
    ///
    /// # Errors
    /// Returns all contradictions.
    pub fn check(self, homes: &impl Homes<M>) -> Result<Census, Vec<String>> {
        let (mut census, mut wrong) = (Census::default(), Vec::new());
        // The generation of the slice before, if that can be accessed.
        let mut before = None;
        for slice in 0..self.sizes.slices {
            let beside = before.take();
            let word = self.map_word(slice);
            if !self.has_sound_mover(slice) {
                wrong.push(format!(
                    "slice {slice} has a mover without a record of the move"
                ));
            }
            let first = match self.owner(slice) {
                Owner::Free => {
                    if word.segment() != 0 {
                        wrong.push(format!("slice {slice} is free, and has a frame"));
                    }
                    continue;
                }
                Owner::Instance(_) => {
                    census.owned += 1;
                    slice
                }
                owner @ (Owner::Kept(generation) | Owner::Object(generation)) => {
                    match owner {
                        Owner::Kept(_) => census.kept += 1,
                        _ => census.objects += 1,
                    }
                    if word.has_access() && word.generation() != generation {
                        wrong.push(format!("slice {slice} was kept with another generation"));
                    }
                    slice
                }
                Owner::PartOf(first) => {
                    let before = slice.checked_sub(1).map(|it| self.owner(it));
                    let follows = before == Some(Owner::PartOf(first)) || first + 1 == slice;
                    if !follows || first >= slice {
                        wrong.push(format!("slice {slice} is a part of {first}, alone"));
                        continue;
                    }
                    if matches!(self.owner(first), Owner::Free | Owner::PartOf(_)) {
                        wrong.push(format!("slice {slice} is a part of {first}, a free slice"));
                    }
                    first
                }
            };
            before = word.has_access().then(|| word.generation());
            if first == slice && before.is_some() && before == beside {
                wrong.push(format!(
                    "slice {slice} has the generation of the allocation before"
                ));
            }
            census.slices += 1;
            census.hidden += u64::from(!word.has_access());
            let is_replicated = self.address_of(slice, word).is_replicated();
            if word.has_access() && is_replicated {
                wrong.extend(self.wrong_replicas(slice));
            }
            let whole = self.map_word(first);
            if word.has_access() && whole.has_access() && word.generation() != whole.generation() {
                wrong.push(format!("slice {slice} has another generation than {first}"));
            }
        }
        let is_over = |phase| matches!(phase, Phase::Free | Phase::Dead);
        for server in self.servers().filter(|it| it.owner.is_none()) {
            if !is_over(server.phase) {
                let (id, phase) = (server.id, server.phase);
                wrong.push(format!("{id} has no owner, and is {phase}"));
            }
        }
        for server in self.servers().filter(|it| it.phase == Phase::Live) {
            let home = match homes.home(server.id.0, server.generation) {
                Ok(Some(home)) => home,
                Ok(None) => continue,
                Err(error) => {
                    wrong.push(error.to_string());
                    continue;
                }
            };
            if let Some(index) = home.damaged_index() {
                let server = server.id;
                wrong.push(format!(
                    "index {index} of {server} names a frame that does not exist"
                ));
            }
            for (index, slice) in home.uses() {
                census.frames += 1;
                let has = (slice < self.sizes.slices).then(|| self.map_word(slice));
                let is_named = has.is_some_and(|word| {
                    word.segment() == server.id.0
                        && word.server_generation() == server.generation
                        && u64::from(word.index()) == index
                });
                let frame = MapWord::pending(
                    server.id.0,
                    server.generation,
                    has.map_or(0, |word| word.generation()),
                    index as u32,
                );
                let is_moving = has.is_some() && self.is_moving(slice, frame);
                if !is_named && !is_moving {
                    wrong.push(format!(
                        "frame {index} of {} is used by slice {slice}, which does not name it",
                        server.id
                    ));
                }
            }
        }
        match wrong.is_empty() {
            true => Ok(census),
            false => Err(wrong),
        }
    }
}
