//! How data is removed that nobody will read any more, and its block goes back to the heap.
//!
//! Whoever removes sits at a [desk](crate::desk), which says what he is about. He *offers* the data, by a tag in its cell that
//! only he has; then he looks for users: jobs that are not over and name it, tasks that are not over and lead to the
//! cell, others' desks. If there is one he takes the tag away. Otherwise he *takes* the data, by exchanging his tag for
//! another: that is the removal. Then the block goes to the desk and is retired from there, and the entry is removed.
//!
//! # Who may still have a reference
//!
//! * *A task that reads or writes the name.* It leads to the cell by its ports. Whoever makes ports notes the cell in
//!   them and then looks whether it is offered; who removes offers it and then looks at all ports; between the two each makes a
//!   full fence, so one sees the other. The former takes the tag away, and the data stays. If it is too late, he makes
//!   another cell: for him the name has no data.
//! * *A job that was submitted.* Its record has names, no cells. It is seen, or it came after the removal.
//! * *A reader.* A task holds a pin from its first look at data on, as whoever waits for a job does while he copies its result.
//!   So a block that is retired stays as long as somebody may be reading it: the heap's own reclamation.
//! * *Whoever ended long ago.* Ports stay a while when their task is over, and are not asked any more what they lead to.
//! * *A handle in the program's hands* ([`Data`](super::Data), [`Array`](crate::Array)): the program's to know, as the
//!   documentation of those says.
//!
//! | a death after | leaves | the next one at the desk |
//! | --- | --- | --- |
//! | the desk says which cell and which block | nothing else | clears the desk |
//! | the data is offered | a tag | takes it away |
//! | it is taken | a tag, and the block in the cell | goes on |
//! | the block is at the desk, too | the same | goes on |
//! | the cell is through | a block at the desk | retires it |
//! | the block is retired | an entry that is gone | drops it, as does whoever meets it |
//!
//! The tags are of one desk, and stand by one block: so the next one at the desk may look at the cell even if its entry is
//! free by then, and finds nothing there that concerns him.

use super::{Cell, Tag};
use crate::crew::ports_of;
use crate::desk::{At, Desk};
use crate::jobs::{Root, shown_key};
use crate::layout::{DESKS_IN_ALL, Hand, Layout};
use crate::slot::Slot;
use crate::{PoolError, State, Status, supply};
use outlive::heap::LocalHeap;
use outlive::memory::Memory;

outlive::memory::crash_points! {
    /// Where the removal of data may be cut short.
    pub enum RemovePoint for "tasks.remove" {
        /// The desk says what is to be removed.
        Noted,
        /// It is offered: whoever uses it may keep it.
        Offered,
        /// It is removed; its block hangs on the cell.
        Taken,
        /// The block is at the desk, too.
        OnDesk,
        /// The cell is nobody's.
        Gone,
        /// The block is retired.
        Retired,
        /// The entry is removed.
        Dropped,
    }
}

impl<M: Memory> Layout<M> {
    /// Removes the data of the name `key`; `false` if it has none. Lock-free.
    ///
    /// # Errors
    /// If somebody uses it, or removes it just now.
    ///
    /// # Crash
    /// It has its data, or none; what is left to do is done by whoever next sits at the desk, or removes it again.
    pub fn remove_data(self, hand: Hand<'_, M>, key: &[u8]) -> Result<bool, PoolError> {
        self.remove_data_slowly(hand, key, || ())
    }

    /// The same, with a `pause` between the offer and the look at who uses it: for the proofs.
    pub fn remove_data_slowly(
        self,
        hand: Hand<'_, M>,
        key: &[u8],
        pause: impl FnOnce(),
    ) -> Result<bool, PoolError> {
        Desk::settle_those_of_the_gone(self, hand)?;
        let desk = Desk::take_for_removal(self, hand)?;
        let seated = desk.seated(hand);
        let removed = self.remove_data_at(hand, desk, key, pause);
        // Also what an error left half-done.
        let left = seated.leave();
        let removed = removed?;
        left?;
        Ok(removed)
    }

    fn remove_data_at(
        self,
        hand: Hand<'_, M>,
        desk: Desk<M>,
        key: &[u8],
        pause: impl FnOnce(),
    ) -> Result<bool, PoolError> {
        let heap = hand.heap;
        // The cell stays a cell while this looks at it.
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
            return Err(in_use("another removes it".into()));
        }
        self.memory.crash_point(RemovePoint::Offered);
        pause();
        let offered = Tag::Offered(desk.number());
        if let Some(by) = self.user_of(hand, desk, key, cell)? {
            cell.retag(block, offered, None);
            desk.forget();
            return Err(in_use(by));
        }
        if !cell.retag(block, offered, Some(Tag::Taken(desk.number()))) {
            desk.forget();
            return Err(in_use("a task that was just spawned names it".into()));
        }
        self.memory.crash_point(RemovePoint::Taken);
        finish(self, heap, desk, cell, Some(key));
        desk.forget();
        Ok(true)
    }

    /// Wrong: takes the data without a look at who uses it, or [looks](Self::data_is_used) before it offers it. For the proofs
    /// that see it.
    pub fn remove_used_data(
        self,
        hand: Hand<'_, M>,
        key: &[u8],
        is_used: impl FnOnce(Desk<M>, Cell<M>) -> bool,
    ) -> Result<bool, PoolError> {
        let desk = Desk::take_for_removal(self, hand)?;
        let mut removed = false;
        if let Some(cell) = self.names.find(hand.heap, key)
            && let Some(data) = cell.value()
            && !is_used(desk, cell)
        {
            desk.note(At::Data(cell.offset()), data.block().raw());
            cell.offer(data.block(), desk.number());
            let taken = Some(Tag::Taken(desk.number()));
            cell.retag(data.block(), Tag::Offered(desk.number()), taken);
            finish(self, hand.heap, desk, cell, Some(key));
            removed = true;
        }
        desk.leave(hand)?;
        Ok(removed)
    }

    /// Whether somebody uses the name or its cell.
    pub fn data_is_used(
        self,
        hand: Hand<'_, M>,
        desk: Desk<M>,
        key: &[u8],
        cell: Cell<M>,
    ) -> Result<bool, PoolError> {
        Ok(self.user_of(hand, desk, key, cell)?.is_some())
    }

    /// Who uses the name or its cell, for people.
    fn user_of(
        self,
        hand: Hand<'_, M>,
        desk: Desk<M>,
        key: &[u8],
        cell: Cell<M>,
    ) -> Result<Option<String>, PoolError> {
        for number in (0..DESKS_IN_ALL).filter(|number| *number != desk.number()) {
            if Desk::at(self, number).brings_to(cell) {
                return Ok(Some("somebody brings it data".into()));
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
                return Ok(Some(format!("job `{name}` names it, and has not ended")));
            }
        }
        // One that was given up while it waited may be in lists still, and is asked what it waits for.
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

    /// Whether what is new in `slot` was spawned by an attempt that has died: the next owner frees it. If its owner died in a
    /// commit, another does that.
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

/// All that remains when the data is taken: by who sits at the desk.
fn finish<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
    desk: Desk<M>,
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
    // Its maker has it at hand; after him it is looked for, and whoever asks for the name drops the entry as well.
    let known = key.map(<[u8]>::to_vec);
    if let Some(key) = known.or_else(|| layout.names.name_of(heap, cell.offset())) {
        layout.names.drop_gone(heap, &key);
    }
    memory.crash_point(RemovePoint::Dropped);
}

/// Settles a removal at `desk`, whose owner is gone, or could not go on.
pub(crate) fn settle<M: Memory>(
    layout: Layout<M>,
    heap: &LocalHeap<'_, M>,
    desk: Desk<M>,
    cell: Cell<M>,
) {
    if !cell.retag(desk.noted(), Tag::Offered(desk.number()), None) {
        finish(layout, heap, desk, cell, None);
    }
}
