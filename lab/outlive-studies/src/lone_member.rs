//! A membership of one in private memory, for studies that need no pod and touch little memory.

use crate::StudyError;
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ptr::NonNull;

/// The first offset that a study may use.
pub const FREE: Offset = Offset::new(65536);

/// The only member, and its memory.
pub struct Alone {
    pub memory: Native,
    pub member: Member,
    pub logs: Logs,
}

impl Alone {
    /// Maps `size` bytes, which take no memory until they are touched. They stay mapped.
    pub fn new(size: u64) -> Result<Self, StudyError> {
        Self::over(untouched(size)?)
    }

    /// Maps `size` bytes and touches every page, as a prefaulted segment does.
    pub fn prefaulted(size: u64) -> Result<Self, StudyError> {
        let memory = untouched(size)?;
        for page in (0..size).step_by(Native::GRANULE as usize) {
            // The value that is there already; no other thread knows the memory yet.
            memory.store(Offset::new(page), 0u64, Ordering::Relaxed);
        }
        Self::over(memory)
    }

    fn over(memory: Native) -> Result<Self, StudyError> {
        let generations = Generations::new(memory, Offset::new(0), 4);
        let logs = Logs::new(memory, Offset::new(4096), 4);
        let live = State {
            generation: 1,
            host: 0,
            level: Some(Level::Thread),
            status: Status::Live,
        };
        // SAFETY: no thread acts as the incarnation that this ends; one thread acts as the new one.
        assert!(unsafe { generations.assume_state(0, State::FREE, live) });
        let (instance, log) = (Instance::new(0, 1), logs.at(0));
        // SAFETY: this thread alone acts as 0.1, and no thread raises its generation.
        let member = unsafe { Member::assume(memory, generations, instance, log, None) };
        OwnLog::open(&member).expect("a fresh log");
        Ok(Self {
            memory,
            member,
            logs,
        })
    }
}

fn untouched(size: u64) -> Result<Native, StudyError> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    // SAFETY: a new private mapping at an address of the kernel's choice, never undone.
    let base = unsafe { mmap_anonymous(core::ptr::null_mut(), size as usize, access, flags) };
    let base = base.map_err(|errno| StudyError::io("mapping memory")(errno.into()))?;
    // SAFETY: advice about a mapping of this process, which changes no content; small pages
    // suffice.
    let _ = unsafe { madvise(base, size as usize, Advice::LinuxHugepage) };
    let base = NonNull::new(base.cast()).expect("a mapping is not null");
    // SAFETY: just mapped, never unmapped, and known to no other code.
    let memory = unsafe { Native::new(base, size, PersistenceDomain::Flushed) };
    memory.map_err(|error| StudyError::void(error.to_string()))
}
