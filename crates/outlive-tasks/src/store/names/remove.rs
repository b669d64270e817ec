//! How data without further readers is removed, and its block is returned to the heap.
//!
//! The remover owns a [staging slot](crate::store::staging), which names its operation. It *offers*
//! the data by a tag in the cell that no other thread uses. Then it looks for users: jobs that are
//! not over and name the data, tasks that are not over and lead to the cell, other staging slots.
//! If it finds one, it clears the tag. Otherwise it *takes* the data by exchanging its tag for
//! another: that is the removal. Then the block goes to the staging slot and is retired from there,
//! and the entry is removed.
//!
//! # Possible references
//!
//! * *A task that reads or writes the name.* Its ports lead to the cell. The maker of ports notes
//!   the cell in them and then checks whether it is offered. A remover offers the cell and then
//!   reads all ports. Between the two steps each makes a full fence, so one sees the other. The
//!   maker clears the tag, and the data stays. If it is too late for that, it makes another cell:
//!   for it the name has no data.
//! * *A submitted job.* Its record has names, no cells. The remover sees it, or it came after the
//!   removal.
//! * *A reader.* A task holds a pin from its first access to data on, and a thread that waits for a
//!   job holds one while it copies the result. So a retired block stays as long as a thread may be
//!   reading it: the heap's own reclamation.
//! * *A task that ended long ago.* Its ports stay for a while, but are not searched any more.
//! * *A handle in the program* ([`Data`](super::Data), [`Array`](crate::Array)): the program is
//!   responsible, as the documentation of those says.
//!
//! | a death after | leaves | the slot's next owner |
//! | --- | --- | --- |
//! | the staging slot names the cell and the block | nothing else | clears the slot |
//! | the data is offered | a tag | clears it |
//! | it is taken | a tag, and the block in the cell | continues |
//! | the staging slot has the block, too | the same | continues |
//! | the cell is gone | a block in the staging slot | retires it |
//! | the block is retired | an entry that is gone | drops it, as does any thread that finds it |
//!
//! A tag belongs to one staging slot, and is beside one block. So the slot's next owner may read
//! the cell even if its entry is free by then, and finds no tag of its own there.

use super::{Cell, Tag};
use crate::engine::slot::Slot;
use crate::engine::supply;
use crate::store::jobs::{Root, shown_key};
use crate::store::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::store::staging::{At, StagingSlot};
use crate::store::task_ports::ports_of;
use crate::{PoolError, State, Status};
use outlive::heap::LocalHeap;
use outlive::memory::Memory;

outlive::memory::crash_points! {
    /// The crash points of the removal of data.
    pub enum RemovePoint for "tasks.remove" {
        /// The staging slot names the data that is to be removed.
        Noted,
        /// The data is offered: a user may keep it.
        Offered,
        /// The data is removed; the cell still holds its block.
        Taken,
        /// The staging slot has the block, too.
        OnDesk,
        /// The cell is gone.
        Gone,
        /// The block is retired.
        Retired,
        /// The entry is removed.
        Dropped,
    }
}

impl<M: Memory> Layout<M> {
    /// Removes the data of the name `key`. Returns `false` if it has none. Lock-free.
    ///
    /// # Errors
    /// If it has users, or is being removed by another thread.
    ///
    /// # Crash
    /// The name has its data, or none. The next owner of the staging slot, or another removal, does
    /// the rest.
    pub fn remove_data(self, hand: Hand<'_, M>, key: &[u8]) -> Result<bool, PoolError> {
        StagingSlot::settle_those_of_the_gone(self, hand)?;
        let desk = StagingSlot::take_for_removal(self, hand)?;
        let seated = desk.seated(hand);
        let removed = self.remove_data_at(hand, desk, key);
        // Also after an error: it settles the rest.
        let left = seated.leave();
        let removed = removed?;
        left?;
        Ok(removed)
    }

    fn remove_data_at(
        self,
        hand: Hand<'_, M>,
        desk: StagingSlot<M>,
        key: &[u8],
    ) -> Result<bool, PoolError> {
        let heap = hand.heap;
        // The pin keeps the cell valid.
        let _pin = heap.pin();
        let Some(cell) = self.names.find(heap, key) else {
            return Ok(false);
        };
        let Some(data) = cell.value() else {
            if cell.is_gone() {
                self.names.drop_gone(heap, key);
            }
            return Ok(false);
        };
        let in_use = |by: String| PoolError::DataInUse {
            name: shown_key(key),
            by,
        };
        let block = data.block();
        desk.note(At::Data(cell.offset()), block.raw());
        self.memory.crash_point(RemovePoint::Noted);
        if !cell.offer(block, desk.number()) {
            desk.forget();
            return Err(in_use("another member is removing it".into()));
        }
        self.memory.crash_point(RemovePoint::Offered);
        let offered = Tag::Offered(desk.number());
        if let Some(by) = self.user_of(hand, desk, key, cell)? {
            cell.retag(block, offered, None);
            desk.forget();
            return Err(in_use(by));
        }
        if !cell.retag(block, offered, Some(Tag::Taken(desk.number()))) {
            desk.forget();
            return Err(in_use(
                "a task that was just spawned reads or writes it".into(),
            ));
        }
        self.memory.crash_point(RemovePoint::Taken);
        finish_removal_of_data(self, heap, desk, cell, Some(key));
        desk.forget();
        Ok(true)
    }

    /// Returns a description of the user of the name or of its cell.
    pub fn user_of(
        self,
        hand: Hand<'_, M>,
        desk: StagingSlot<M>,
        key: &[u8],
        cell: Cell<M>,
    ) -> Result<Option<String>, PoolError> {
        for number in (0..DESKS_IN_ALL).filter(|number| *number != desk.number()) {
            if StagingSlot::at(self, number).brings_to(cell) {
                return Ok(Some("another member is putting its data".into()));
            }
        }
        for job in self.all_jobs(hand) {
            if job.state().is_over() {
                continue;
            }
            let names = |all: &[Vec<u8>]| all.iter().any(|name| name == key);
            if let Some(contents) = job.contents()
                && (names(&contents.reads) || names(&contents.writes))
            {
                let name = String::from_utf8_lossy(&contents.name);
                return Ok(Some(format!(
                    "job `{name}` reads or writes it, and has not ended"
                )));
            }
        }
        // A task that was given up while it waited may still be in lists, and its ports are
        // searched.
        let counts = |status: Status| !status.state().is_over() || status.is_given_up();
        let task_uses = || Some("a task that has not ended reads or writes it".to_owned());
        for number in 0..self.roots {
            let root = Root::of(self, number);
            if root.has_ports()
                && counts(root.task().status()?)
                && root.ports_of().may_lead_to(cell.offset())
            {
                return Ok(task_uses());
            }
        }
        let mut used = false;
        for number in 0..self.slots.used() {
            let (slot, chunk) = (self.slots.slot(number), self.slots.settings().chunk);
            let is_abandoned = self.is_abandoned(hand, slot)?;
            supply::each(self.memory, slot, chunk, |task| {
                let status = task.status()?;
                let is_nobodys = is_abandoned && status.state() == State::New;
                used |= task.inputs() != 0
                    && counts(status)
                    && !is_nobodys
                    && ports_of(self.memory, task)
                        .is_some_and(|ports| ports.may_lead_to(cell.offset()));
                Ok::<(), PoolError>(())
            })?;
        }
        Ok(if used { task_uses() } else { None })
    }

    /// Returns whether new tasks in `slot` were spawned by an attempt that has died: the next owner
    /// frees them. (If the owner died in a commit, another worker continues that.)
    fn is_abandoned(self, hand: Hand<'_, M>, slot: Slot<M>) -> Result<bool, PoolError> {
        let generations = hand.heap.member().generations();
        let is_gone = slot.owner().is_none_or(|one| generations.is_gone(one));
        let commits = match slot.running(self.memory)? {
            Some(task) => task.status()?.state() == State::Committing,
            None => false,
        };
        Ok(is_gone && !commits)
    }
}

/// Finishes the removal of data that is taken. Called by the owner of the staging slot.
pub fn finish_removal_of_data<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
    desk: StagingSlot<M>,
    cell: Cell<M>,
    key: Option<&[u8]>,
) {
    let (memory, block, taken) = (layout.memory, desk.noted(), Tag::Taken(desk.number()));
    if cell.is_tagged(block, taken) {
        desk.lay(block);
        memory.crash_point(RemovePoint::OnDesk);
        cell.let_go(block, Some(taken));
    }
    memory.crash_point(RemovePoint::Gone);
    heap.retire_from(desk.block_at());
    memory.crash_point(RemovePoint::Retired);
    // The remover knows the key; after its death the key is searched for. A thread that looks up
    // the name drops the entry as well.
    let known = key.map(<[u8]>::to_vec);
    if let Some(key) = known.or_else(|| layout.names.name_of(heap, cell.offset())) {
        layout.names.drop_gone(heap, &key);
    }
    memory.crash_point(RemovePoint::Dropped);
}

/// Settles a removal in `desk`, whose owner is dead or could not finish it.
pub(crate) fn settle<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
    desk: StagingSlot<M>,
    cell: Cell<M>,
) {
    if !cell.retag(desk.noted(), Tag::Offered(desk.number()), None) {
        finish_removal_of_data(layout, heap, desk, cell, None);
    }
}
