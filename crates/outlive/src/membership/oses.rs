//! The operating systems that the hosts of a pod run on.
//!
//! A process id, an obituary and a pidfd mean something within one boot of one kernel and one pid
//! namespace. So each such place gets a number, and a host's state names it. The table only grows: an
//! entry is one 128-bit word, claimed by one compare-and-swap, so there is no step to be killed in.

use crate::host::OsIdentity;
use outlive_memory::{Memory, Native, Offset, Ordering};

/// A handle on the table of operating systems.
#[derive(Clone, Copy, Debug)]
pub struct OperatingSystems<M: Memory = Native> {
    memory: M,
    table: Offset,
}

/// The table has no room for one more operating system: it has seen
/// [`MOST`](OperatingSystems::MOST) boots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pod has seen {} boots and has no room for another; create a new one", OperatingSystems::<Native>::MOST)]
pub struct TooManyBoots;

/// The 128 bits that stand for an operating system: a boot id is random, so that the namespace can be
/// folded into it without two ever meeting.
fn key(identity: OsIdentity) -> u128 {
    (identity.boot ^ u128::from(identity.pid_namespace)).max(1)
}

const STRIDE: u64 = 48;
const MACHINE: u64 = 16;
const BOOT: u64 = 32;

impl<M: Memory> OperatingSystems<M> {
    /// How many boots a pod can see.
    pub const MOST: u16 = 256;
    /// How many bytes the table takes: a key, a machine and a boot for each.
    pub const BYTES: u64 = Self::MOST as u64 * STRIDE;

    pub(crate) fn new(memory: M, table: Offset) -> Self {
        Self { memory, table }
    }

    fn key_at(self, number: u16) -> Offset {
        self.table + u64::from(number) * STRIDE
    }

    /// The number of this operating system, which gets one if it has none. Lock-free.
    ///
    /// # Errors
    /// If the table is full.
    pub fn number(self, identity: OsIdentity) -> Result<u16, TooManyBoots> {
        let key = key(identity);
        for number in 0..Self::MOST {
            let at = self.key_at(number);
            // AcqRel: nothing is published by the key itself, but the same number must be found by all,
            // so the scan stops at the first entry that is ours or becomes ours.
            match self
                .memory
                .compare_exchange(at, 0u128, key, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {}
                Err(taken) if taken == key => {}
                Err(_) => continue,
            }
            // Everybody on this operating system writes the same, so it may be written twice or, after a
            // death right here, by the next one.
            self.memory
                .store(at + MACHINE, identity.machine, Ordering::Release);
            self.memory
                .store(at + BOOT, identity.boot, Ordering::Release);
            self.memory.persist(at, STRIDE);
            return Ok(number);
        }
        Err(TooManyBoots)
    }

    /// The number of this operating system, if it has one: for those who only look.
    pub fn find(self, identity: OsIdentity) -> Option<u16> {
        let key = key(identity);
        (0..Self::MOST)
            .map(|number| {
                (
                    number,
                    self.memory.load(self.key_at(number), Ordering::Acquire),
                )
            })
            .take_while(|(_, taken): &(u16, u128)| *taken != 0)
            .find_map(|(number, taken)| (taken == key).then_some(number))
    }

    /// Whether operating system `number` is an earlier boot of the machine that `now` runs on. A machine
    /// runs one boot at a time, so everything of that boot is dead.
    pub fn is_earlier_boot(self, number: u16, now: OsIdentity) -> bool {
        if number >= Self::MOST || now.machine == 0 {
            return false;
        }
        let at = self.key_at(number);
        let machine = self.memory.load::<u128>(at + MACHINE, Ordering::Acquire);
        let boot = self.memory.load::<u128>(at + BOOT, Ordering::Acquire);
        machine == now.machine && boot != 0 && boot != now.boot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_memory::PersistenceDomain;

    #[test]
    fn an_operating_system_keeps_its_number_and_the_table_ends() {
        let memory = Native::leaked(16384, PersistenceDomain::Flushed);
        let table = OperatingSystems::new(memory, Offset::new(0));
        let os = |boot: u128| OsIdentity {
            boot: boot << 64 | 1,
            pid_namespace: 0,
            machine: boot,
        };
        for boot in 1..=256u128 {
            assert_eq!(table.find(os(boot)), None);
            assert_eq!(table.number(os(boot)), Ok(boot as u16 - 1));
        }
        assert_eq!(table.number(os(17)), Ok(16));
        assert_eq!(table.find(os(17)), Some(16));
        let rebooted = OsIdentity {
            boot: 4711,
            ..os(17)
        };
        assert!(table.is_earlier_boot(16, rebooted));
        assert!(!table.is_earlier_boot(16, os(17)));
        assert!(!table.is_earlier_boot(15, rebooted));
        assert_eq!(table.number(os(999)), Err(TooManyBoots));
    }
}
