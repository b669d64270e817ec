//! A combining barrier: the threads of a node meet, then one thread of each node, and then the
//! threads of each node again.
//!
//! A single counter would be a line that every thread takes from the previous one: with 64 threads
//! on 16 nodes, each barrier would need 60 sequential trips through the fabric. So programs for
//! machines with far memory combine near by first (Mellor-Crummey and Scott, TOCS 1991). The
//! original programs use the barrier of pthreads and do not say how it works; the paper's traces
//! have barriers as events.

use outlive_machine::program::{Allocator, BarrierId, Cpu};

/// The number of threads that meet first: those of a node of the paper's machine.
const NEAR: usize = 4;

/// A barrier for all threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Combining {
    /// For one thread of each group; the groups' own barriers have the following numbers.
    among: BarrierId,
    groups: usize,
}

impl Combining {
    pub(super) fn new(memory: &mut Allocator, threads: usize) -> Self {
        let groups = threads.div_ceil(NEAR);
        let among = memory.barrier(groups);
        for group in 0..groups {
            memory.barrier(NEAR.min(threads - group * NEAR));
        }
        Self { among, groups }
    }

    /// Waits until all threads have arrived.
    pub(super) fn meet(self, cpu: &mut Cpu<'_>) {
        let (group, place) = (cpu.thread() / NEAR, cpu.thread() % NEAR);
        let own = BarrierId(self.among.0 + 1 + group as u32);
        cpu.barrier(own);
        if self.groups > 1 {
            if place == 0 {
                cpu.barrier(self.among);
            }
            cpu.barrier(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_machine::program::{Array, Origin, Recording, Reference, Workload};

    /// Each thread publishes its turn, and after the barrier counts the threads that have not yet
    /// reached that turn.
    fn turns(threads: usize, meets: bool) -> Vec<u64> {
        let mut memory = Allocator::new();
        let barrier = Combining::new(&mut memory, threads);
        let (came, late): (Array<u64>, Array<u64>) =
            (memory.array(threads as u64), memory.array(threads as u64));
        let origin = Origin {
            program: "none",
            stores: None,
            shared_stores: None,
            source: "",
            differs: None,
        };
        let body = move |cpu: &mut Cpu<'_>| {
            let own = cpu.thread() as u64;
            for turn in 1..20 {
                came.set(cpu, own, turn);
                if meets {
                    barrier.meet(cpu);
                }
                let missing = (0..came.len()).filter(|other| came.get(cpu, *other) < turn);
                let missing = missing.count() as u64;
                let before = late.get(cpu, own);
                late.set(cpu, own, before + missing);
            }
        };
        let workload = Workload::new("turns", threads, memory, origin, body);
        let mut machine = Reference::of(&workload, Recording::Off, 7);
        machine.run().unwrap();
        late.all(&|word| machine.word(word))
    }

    #[test]
    fn nobody_goes_on_before_all_have_come() {
        for threads in [1, 2, 4, 5, 8, 11, 16] {
            assert!(turns(threads, true).iter().all(|late| *late == 0));
        }
        assert!(turns(11, false).iter().any(|late| *late > 0));
    }
}
