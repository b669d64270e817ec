//! The operating systems that the hosts of a pod run on.
//!
//! Obituaries and pids are valid for the processes that share a side file. Each side file is an
//! operating system and gets a number, which a host's state names. The key of an entry is one
//! 128-bit word, claimed by one compare-and-swap, so a kill leaves it either free or claimed.
//!
//! **A number is given to another operating system** when the table is full: containers come and
//! go, each with a side file of its own. A process registers as one on operating system `n` by a
//! read lock on a byte of the pod's file, before it checks whether `n` is still its own. A process
//! that gives `n` away has the write lock, sees that no host of the table is on `n`, and changes
//! the entry by compare-and-swap. So no process uses a number that belongs to another operating
//! system, and a process that dies at any point leaves the entry as it was, or given away. Only
//! numbers of operating systems that reach the pod by a file of one kernel are given away: other
//! kernels do not see the locks.
//!
//! **The meaning of a free presence byte.** Within one operating system, it proves that the process
//! is dead. Between two, it proves the same if both reach the pod by a file that one kernel at a
//! time can map: the kernel that shows no lock is the one that the process ran on, or that kernel
//! is gone. A free byte proves nothing if one of the two reached the pod by memory that kernels
//! share (a device, a file that is mapped directly), or whose locks are separate (two nodes of one
//! device). There the presence bytes are those of the side file, which only one operating system
//! sees.

use super::{JoinError, Level, Tables};
use crate::host::{Os, OsError, OsIdentity, Presence};
use outlive_memory::{Memory, Native, Offset, Ordering};

/// A handle on the table of operating systems.
#[derive(Clone, Copy, Debug)]
pub struct OperatingSystems<M: Memory = Native> {
    memory: M,
    table: Offset,
}

/// The error if the table of operating systems is full: it has [`MOST`](OperatingSystems::MOST)
/// entries, and none of them can be given to another operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pod's table of operating systems is full: it has {} entries, each for a boot or a container that once used the pod; create a new pod", OperatingSystems::<Native>::MOST)]
pub struct TooManyBoots;

const STRIDE: u64 = 64;
const MACHINE: u64 = 16;
const BOOT: u64 = 32;
const REACH: u64 = 48;
/// The value of the word at [`REACH`] if the pod is reached by a file that one kernel at a time can
/// map. Zero, as in an entry whose creator died before it wrote this word, is the value that proves
/// less.
const ONE_KERNEL: u64 = 1;

impl<M: Memory> OperatingSystems<M> {
    /// The number of entries of the table.
    pub const MOST: u16 = 256;
    /// The size of the table in bytes. An entry holds the operating system's key, machine id and
    /// boot id, and a word that tells whether one kernel at a time can map the file by which it
    /// reaches the pod.
    pub const BYTES: u64 = Self::MOST as u64 * STRIDE;

    pub(crate) fn new(memory: M, table: Offset) -> Self {
        Self { memory, table }
    }

    fn key_at(self, number: u16) -> Offset {
        self.table + u64::from(number) * STRIDE
    }

    /// Returns the number of this operating system, which gets one if it has none. Lock-free.
    ///
    /// # Errors
    /// If the table is full.
    pub fn number(self, identity: OsIdentity) -> Result<u16, TooManyBoots> {
        let key = identity.id;
        for number in 0..Self::MOST {
            let at = self.key_at(number);
            // AcqRel: the key itself publishes nothing, but all processes must find the same
            // number, so the scan stops at the first entry that has this key or gets it.
            match self
                .memory
                .compare_exchange(at, 0u128, key, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => {}
                Err(taken) if taken == key => {}
                Err(_) => continue,
            }
            // All processes of this operating system write the same values, so they may be written
            // twice or, after a death right here, by the next process.
            self.memory
                .store(at + MACHINE, identity.machine, Ordering::Release);
            self.memory
                .store(at + BOOT, identity.boot, Ordering::Release);
            let reach = u64::from(identity.one_kernel) * ONE_KERNEL;
            self.memory.store(at + REACH, reach, Ordering::Release);
            self.memory.persist(at, STRIDE);
            return Ok(number);
        }
        Err(TooManyBoots)
    }

    /// Gives the number `number`, which no host is on and no process can use, to the operating
    /// system `identity`. Returns `false` if the entry has changed.
    fn give(self, number: u16, identity: OsIdentity) -> bool {
        let at = self.key_at(number);
        let before = self.memory.load::<u128>(at, Ordering::Acquire);
        let given = self
            .memory
            .compare_exchange(at, before, identity.id, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        self.memory.persist(at, STRIDE);
        given
    }

    /// Returns whether `number` is that of `identity`.
    fn is_of(self, number: u16, identity: OsIdentity) -> bool {
        self.memory
            .load::<u128>(self.key_at(number), Ordering::Acquire)
            == identity.id
    }

    /// Returns the number of this operating system, if it has one. For observers.
    pub fn find(self, identity: OsIdentity) -> Option<u16> {
        let key = identity.id;
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

    /// Returns whether a free presence byte, as seen on operating system `observer`, proves the
    /// death of a process of operating system `member`.
    pub fn absence_is_proof(self, observer: u16, member: u16) -> bool {
        observer == member || self.has_one_kernel(observer) && self.has_one_kernel(member)
    }

    /// Returns whether system `number` reaches the pod by a file that one kernel at a time can map.
    pub fn has_one_kernel(self, number: u16) -> bool {
        number < Self::MOST
            && self
                .memory
                .load::<u64>(self.key_at(number) + REACH, Ordering::Acquire)
                == ONE_KERNEL
    }

    /// Returns whether operating system `number` may run on the kernel of the machine `machine` in
    /// its boot `boot`. It cannot if it is of another boot, of this machine or of another one. If a
    /// machine or a boot is not known (0), it may, since a container may have its own boot id.
    /// Within one boot, machine ids do not distinguish kernels: a container may have its own.
    pub(crate) fn may_be_of_boot(self, number: u16, machine: u128, boot: u128) -> bool {
        if number >= Self::MOST {
            return true;
        }
        let at = self.key_at(number);
        let its_machine = self.memory.load::<u128>(at + MACHINE, Ordering::Acquire);
        let its_boot = self.memory.load::<u128>(at + BOOT, Ordering::Acquire);
        let are_known = ![machine, boot, its_machine, its_boot].contains(&0);
        !are_known || boot == its_boot
    }

    /// Returns whether the operating system `number` is an earlier boot of the machine of `now`.
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

/// Registers the calling process as one on the operating system `identity`. Returns the number of
/// that system, and the lock that keeps the number for as long as the lock lives.
pub(crate) fn enter_system<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    identity: OsIdentity,
) -> Result<(u16, Presence), JoinError> {
    let systems = tables.operating_systems();
    for _ in 0..TRIES {
        let number = match systems.number(identity) {
            Ok(number) => number,
            Err(full) => {
                if !identity.one_kernel || !give_one(tables, os, identity)? {
                    return Err(full.into());
                }
                continue;
            }
        };
        // The lock comes before the check: see the head of the file.
        if let Some(used) = os.use_system(number)?
            && systems.is_of(number, identity)
        {
            return Ok((number, used));
        }
    }
    Err(TooManyBoots.into())
}

/// The number of attempts to get a number while others give numbers away concurrently.
const TRIES: u32 = 1000;

/// Gives `identity` the number of a system that no process is on. Returns `false` if there is none.
fn give_one<M: Memory>(
    tables: Tables<M>,
    os: &dyn Os,
    identity: OsIdentity,
) -> Result<bool, OsError> {
    let systems = tables.operating_systems();
    let has_host = |number: u16| {
        tables
            .writers()
            .any(|(_, state)| state.level == Some(Level::Host) && state.host == number)
    };
    for number in 0..OperatingSystems::<M>::MOST {
        if !systems.has_one_kernel(number) || has_host(number) {
            continue;
        }
        if let Some(_reserved) = os.reserve_system(number)?
            // Checked again: a host may have come up on it between the first check and the lock.
            && !has_host(number)
            && systems.give(number, identity)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlive_memory::PersistenceDomain;

    #[test]
    fn an_operating_system_keeps_its_number_and_the_table_ends() {
        let memory = Native::leaked(
            OperatingSystems::<Native>::BYTES,
            PersistenceDomain::Flushed,
        );
        let table = OperatingSystems::new(memory, Offset::new(0));
        let os = |boot: u128| OsIdentity {
            id: boot,
            boot: boot << 64 | 1,
            machine: boot,
            one_kernel: boot <= 2,
        };
        for boot in 1..=256u128 {
            assert_eq!(table.find(os(boot)), None);
            assert_eq!(table.number(os(boot)), Ok(boot as u16 - 1));
        }
        assert_eq!(table.number(os(17)), Ok(16));
        assert_eq!(table.find(os(17)), Some(16));
        let rebooted = OsIdentity {
            id: 4711,
            boot: 4711,
            ..os(17)
        };
        assert!(table.is_earlier_boot(16, rebooted));
        assert!(!table.is_earlier_boot(16, os(17)));
        assert!(!table.is_earlier_boot(15, rebooted));
        // A kernel is known by its boot: containers of it may have machine ids of their own.
        let boot = |boot: u128| boot << 64 | 1;
        assert!(table.may_be_of_boot(16, 17, boot(17)));
        assert!(
            table.may_be_of_boot(16, 4711, boot(17)),
            "another machine id"
        );
        assert!(
            table.may_be_of_boot(16, 0, boot(4711)),
            "an unknown machine"
        );
        assert!(!table.may_be_of_boot(16, 17, boot(4711)), "another boot");
        assert_eq!(table.number(os(999)), Err(TooManyBoots));
        assert!(table.absence_is_proof(0, 1), "both by a local file");
        assert!(table.absence_is_proof(7, 7), "the same one");
        for (observer, member) in [(0, 2), (2, 0), (2, 3), (0, 256), (256, 0)] {
            assert!(!table.absence_is_proof(observer, member));
        }
    }
}
