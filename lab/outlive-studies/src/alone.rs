//! A membership of one, in private memory: for what needs no pod, and more memory than it touches.

use crate::StudyError;
use outlive::membership::{Generations, Instance, Level, Member, State, Status};
use outlive::memory::{Memory, Native, Offset, Ordering, PersistenceDomain};
use outlive::recovery::{Logs, OwnLog};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use std::ptr::NonNull;

/// Where what is measured may begin.
pub const FREE: Offset = Offset::new(65536);

/// The one member, and its memory.
pub struct Alone {
    pub memory: Native,
    pub member: Member,
    pub logs: Logs,
}

impl Alone {
    /// With `size` bytes, which take nothing before they are touched. They stay mapped.
    pub fn new(size: u64) -> Result<Self, StudyError> {
        Self::over(untouched(size)?)
    }

    /// With `size` bytes that are there, as those of a prefaulted segment.
    pub fn prefaulted(size: u64) -> Result<Self, StudyError> {
        let memory = untouched(size)?;
        for page in (0..size).step_by(Native::GRANULE as usize) {
            // What stands there anyway; nobody else knows the memory yet.
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
        // SAFETY: no thread acts as the incarnation that this ends; one acts as what it begins.
        assert!(unsafe { generations.assume_state(0, State::FREE, live) });
        let (instance, log) = (Instance::new(0, 1), logs.at(0));
        // SAFETY: this thread alone acts as 0.1, and nobody raises its generation.
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
    // SAFETY: advice about memory of our own, which changes nothing that it holds; small pages will do.
    let _ = unsafe { madvise(base, size as usize, Advice::LinuxHugepage) };
    let base = NonNull::new(base.cast()).expect("a mapping is not null");
    // SAFETY: just mapped, never unmapped, and known to nobody else.
    let memory = unsafe { Native::new(base, size, PersistenceDomain::Flushed) };
    memory.map_err(|error| StudyError::void(error.to_string()))
}
