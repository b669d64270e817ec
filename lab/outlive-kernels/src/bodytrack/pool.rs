//! A pool of threads: commands from the leader, tickets for pieces of work.

use super::super::combining::Combining;
use outlive_machine::program::{Allocator, Array, ConditionId, Cpu, LockId};

/// The leader's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Find the edges of the frame's pictures.
    Edges(u32),
    /// Blur them along the rows.
    BlurRows,
    /// Blur them along the columns.
    BlurColumns,
    /// Draw and disturb particles for a layer (counted through all frames).
    Draw(u32),
    /// Compare them with the frame's pictures: the frame and the layer.
    Weigh(u32, u32),
    /// No more commands follow.
    End,
}

impl Command {
    fn to_word(self) -> u64 {
        let (kind, one, other) = match self {
            Self::Edges(frame) => (0, frame, 0),
            Self::BlurRows => (1, 0, 0),
            Self::BlurColumns => (2, 0, 0),
            Self::Draw(layer) => (3, layer, 0),
            Self::Weigh(frame, layer) => (4, frame, layer),
            Self::End => (5, 0, 0),
        };
        kind | u64::from(one) << 8 | u64::from(other) << 32
    }

    fn from_word(word: u64) -> Self {
        let (one, other) = ((word >> 8 & 0xff_ffff) as u32, (word >> 32) as u32);
        match word & 0xff {
            0 => Self::Edges(one),
            1 => Self::BlurRows,
            2 => Self::BlurColumns,
            3 => Self::Draw(one),
            4 => Self::Weigh(one, other),
            _ => Self::End,
        }
    }
}

/// The layout of the pool in shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pool {
    dispatch: LockId,
    work: ConditionId,
    /// The number of commands so far, and the last command.
    command: Array<u64>,
    ticket_lock: LockId,
    ticket: Array<u64>,
    done: Combining,
    care: bool,
}

impl Pool {
    pub(super) fn new(memory: &mut Allocator, threads: usize, care: bool) -> Self {
        Self {
            dispatch: memory.lock(),
            work: memory.condition(),
            command: memory.array(2),
            ticket_lock: memory.lock(),
            ticket: memory.array(1),
            done: Combining::new(memory, threads),
            care,
        }
    }

    /// Sends a command to the other threads. Only thread 0 does that, when the last one is done.
    pub(super) fn say(&self, cpu: &mut Cpu<'_>, command: Command) {
        cpu.lock(self.ticket_lock);
        self.ticket.set(cpu, 0, 0);
        cpu.unlock(self.ticket_lock);
        cpu.lock(self.dispatch);
        let commands = self.command.get(cpu, 0);
        self.command.set(cpu, 0, commands + 1);
        self.command.set(cpu, 1, command.to_word());
        cpu.broadcast(self.work);
        cpu.unlock(self.dispatch);
    }

    /// Waits for a command after the first `heard` ones.
    pub(super) fn hear(&self, cpu: &mut Cpu<'_>, heard: &mut u64) -> Command {
        cpu.lock(self.dispatch);
        loop {
            let commands = self.command.get(cpu, 0);
            cpu.compute(2);
            if commands != *heard {
                *heard = commands;
                break;
            }
            cpu.wait(self.work, self.dispatch);
        }
        let command = self.command.get(cpu, 1);
        cpu.unlock(self.dispatch);
        Command::from_word(command)
    }

    /// Takes the next of `pieces` pieces of work, if any is left.
    pub(super) fn take(&self, cpu: &mut Cpu<'_>, pieces: u64) -> Option<u64> {
        cpu.lock(self.ticket_lock);
        let ticket = self.ticket.get(cpu, 0);
        cpu.compute(2);
        self.ticket.set(cpu, 0, ticket + 1);
        cpu.unlock(self.ticket_lock);
        (ticket < pieces).then_some(ticket)
    }

    /// Waits until all threads have done their pieces of the command.
    pub(super) fn finish(&self, cpu: &mut Cpu<'_>) {
        if self.care {
            self.done.meet(cpu);
        }
    }
}
