//! Stops a child right before and right after each of its stores to shared memory.
//!
//! A stepped instruction costs two switches between processes and a trap, and of some hundred
//! instructions of a recovery one stores to the memory under test. A child that has armed these
//! traps runs freely between its stores. Its mappings of the shared memory are read-only, so a
//! store faults. The first handler makes the mappings writable and sets the processor's trap flag,
//! which stops the child again after this one instruction (of a string instruction: after one
//! round). The second handler makes the mappings read-only again. A tracer sees each signal before
//! the child does. The memory does not change between two stores, so the states after the stores
//! are all the states in which a kill can leave it.
//!
//! The kernel does not store to read-only mappings either: a system call that would do so fails
//! with `EFAULT`. Operations swept by images make no such call.

use super::child::{Registers, Resume, Stop};
use super::control::{Control, Phase};
use super::error::KillError;
use super::shared_memory::Lease;
use super::tracer::{Cut, Moment, Tracer, Window};
use core::ops::Range;
use outlive_memory::Native;

/// Whether this processor has the trap flag. Elsewhere a recovery is stepped.
pub(super) const AVAILABLE: bool = cfg!(target_arch = "x86_64");

/// The addresses of the mappings whose stores are trapped: the memory, and the control page, on
/// which crash points are recorded.
#[derive(Clone, Debug)]
pub(super) struct Traps([Range<usize>; 2]);

impl Traps {
    pub(super) fn over(memory: &Lease, control: &'static Control) -> Self {
        let start = core::ptr::from_ref(control).addr();
        Self([memory.addresses(), start..start + Native::GRANULE as usize])
    }

    pub(super) fn contain(&self, address: usize) -> bool {
        self.0.iter().any(|mapping| mapping.contains(&address))
    }

    /// Arms the traps in this process, a child of a sweep. Without the trap flag it does nothing.
    pub(super) fn arm(&self) {
        #[cfg(target_arch = "x86_64")]
        handlers::arm(&self.0);
    }
}

impl Tracer {
    /// Runs a child through `work`, which arms `traps` when its window has begun. Calls `look`
    /// before the first instruction of the window, right before each store to the traps' mappings
    /// (without a moment), and right after it. Returns the number of stores.
    pub(super) fn record_stores(
        &mut self,
        traps: &Traps,
        work: impl FnOnce(Window),
        mut look: impl FnMut(u32, &Registers, Option<Moment>),
    ) -> Result<Result<u64, Cut>, KillError> {
        let mut child = match self.start(work)? {
            Ok(child) => child,
            Err(cut) => return Ok(Err(cut)),
        };
        let (mut stores, mut is_between) = (0, true);
        let cut = loop {
            let registers = child.registers().map_err(self.system("ptrace"))?;
            let returned = self.control.phase() == Phase::Returned;
            let moment = Moment {
                step: stores,
                instruction: registers.instruction(),
                returned,
            };
            look(child.pid(), &registers, is_between.then_some(moment));
            if returned {
                break None;
            }
            let stop = child.resume(Resume::Run).map_err(self.system("ptrace"))?;
            let is_store = stop == Stop::Faulted(libc::SIGSEGV)
                && traps.contain(child.fault_address().map_err(self.system("ptrace"))?);
            let reason = match is_store {
                true => None,
                false => self.obstacle(stop),
            };
            if let Some(reason) = reason {
                break Some(self.cut(stores, reason));
            }
            if stores == self.most_instructions {
                let reason = "has not returned, but the plan ends here".to_owned();
                break Some(self.cut(stores, reason));
            }
            // The traps' handlers act on the signals.
            child.deliver(if is_store {
                libc::SIGSEGV
            } else {
                libc::SIGTRAP
            });
            stores += u64::from(!is_store);
            is_between = !is_store;
        };
        child.kill().map_err(self.system("waitpid"))?;
        Ok(cut.map_or(Ok(stores), Err))
    }
}

#[cfg(target_arch = "x86_64")]
mod handlers {
    use core::ops::Range;
    use core::sync::atomic::{AtomicUsize, Ordering};

    /// The trap flag: the processor stops after the next instruction.
    const TRAP_FLAG: i64 = 1 << 8;

    /// Starts and lengths of the mappings, for the handlers. A child is a process of its own, so it
    /// does not share them with other sweeps.
    static MAPPINGS: [(AtomicUsize, AtomicUsize); 2] =
        [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 2];

    pub(super) fn arm(mappings: &[Range<usize>; 2]) {
        for (mapping, (start, length)) in mappings.iter().zip(&MAPPINGS) {
            start.store(mapping.start, Ordering::Relaxed);
            length.store(mapping.len(), Ordering::Relaxed);
        }
        handle(libc::SIGSEGV, before_store);
        handle(libc::SIGTRAP, after_store);
        protect(libc::PROT_READ);
    }

    type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

    fn handle(signal: libc::c_int, handler: Handler) {
        // SAFETY: all zero is a valid `sigaction`; the handlers make system calls only, and this
        // process is a child of a sweep, which owns its signals.
        let done = unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(signal, &raw const action, core::ptr::null_mut())
        };
        assert_eq!(done, 0, "a handler for signal {signal} is installed");
    }

    /// Gives all mappings this protection.
    fn protect(protection: libc::c_int) {
        for (start, length) in &MAPPINGS {
            let (start, length) = (
                start.load(Ordering::Relaxed),
                length.load(Ordering::Relaxed),
            );
            let place = core::ptr::with_exposed_provenance_mut(start);
            // SAFETY: whole mappings of this process. If the call fails, the store faults again
            // until the child's time is up.
            unsafe { libc::mprotect(place, length, protection) };
        }
    }

    extern "C" fn before_store(
        _: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        // SAFETY: the kernel passes both, the address because the signal is a fault's.
        let address = unsafe { (*info).si_addr() }.addr();
        let is_in = |(start, length): &(AtomicUsize, AtomicUsize)| {
            address.wrapping_sub(start.load(Ordering::Relaxed)) < length.load(Ordering::Relaxed)
        };
        if !MAPPINGS.iter().any(is_in) {
            // A bug: the instruction faults again, and the signal ends the child.
            // SAFETY: changes the disposition of a signal of this process.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            return;
        }
        protect(libc::PROT_READ | libc::PROT_WRITE);
        set_trap_flag(context, TRAP_FLAG);
    }

    extern "C" fn after_store(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        protect(libc::PROT_READ);
        set_trap_flag(context, 0);
    }

    /// Gives the trap flag this value when the handler returns.
    fn set_trap_flag(context: *mut libc::c_void, flag: i64) {
        // SAFETY: the kernel passes the registers that it restores when the handler returns.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let flags = &mut registers[libc::REG_EFL as usize];
        *flags = *flags & !TRAP_FLAG | flag;
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::super::cases::Cases;
    use super::super::stores::Stores;
    use super::super::watch::Watch;
    use super::*;
    use core::sync::atomic::{AtomicU64, Ordering};

    outlive_memory::crash_points! {
        /// The crash points of the test's work.
        enum TestPoint for "traps.test" {
            /// Right after another point, without a store between them.
            First,
            /// Right after the first.
            Second,
        }
    }

    /// Stores in many ways, and reads in between.
    fn work(words: &[AtomicU64], control: &Control) {
        for round in 0..5u64 {
            words[3].fetch_add(1, Ordering::AcqRel);
            let _ = words[3].compare_exchange(100, 7, Ordering::AcqRel, Ordering::Relaxed);
            control.pass(TestPoint::First);
            control.pass(TestPoint::Second);
            words[9_000].store(round, Ordering::Release);
            assert_eq!(
                words[5..1000]
                    .iter()
                    .map(|it| it.load(Ordering::Relaxed))
                    .max(),
                Some(0)
            );
        }
        let bytes = words.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: these words are used without atomics, by this process alone.
        unsafe {
            // Across the border of two pages, by one instruction and by a repeated one.
            bytes
                .add(3 * 4096 - 4)
                .cast::<u64>()
                .write_unaligned(u64::MAX);
            core::arch::asm!(
                "rep stosb",
                inout("rdi") bytes.add(4 * 4096 - 20) => _,
                inout("rcx") 40 => _,
                in("al") 0xA5u8,
            );
            bytes
                .add(40_000)
                .copy_from_nonoverlapping(bytes.add(4 * 4096 - 20), 333);
        }
    }

    /// Returns each state with its crash point, and whether the work had returned.
    fn states(cases: &Cases) -> Vec<(Vec<u64>, String, bool)> {
        let mut replay = cases.replay(0);
        let mut states = Vec::new();
        while let Some((_, case)) = replay.advance() {
            let point = format!("{:?}", case.point);
            states.push((replay.image().to_vec(), point, case.returned));
        }
        states
    }

    #[test]
    fn the_states_at_the_stores_are_those_after_each_instruction() {
        let memory = Lease::of(1 << 17);
        let (_lease, control) = Control::lease();
        let traps = Traps::over(&memory, control);
        let words = memory.words();
        let mut tracer = Tracer::new("trapped".into(), control, 60, 1_000_000);
        let mut stores = Stores::new();
        let mut recorded = [false, true].map(|is_trapped| {
            memory.zero();
            let mut cases = Cases::from(vec![0; words.len()]);
            let mut watch = Watch::over(words, &mut stores);
            let steps = if is_trapped {
                let work = |window: Window| {
                    window.begin();
                    traps.arm();
                    work(words, control);
                };
                tracer.record_stores(&traps, work, |pid, registers, moment| {
                    let written = watch.look(pid, registers);
                    if let Some(moment) = moment {
                        cases.note(words, written, control, moment);
                    }
                })
            } else {
                let work = |window: Window| {
                    window.begin();
                    work(words, control);
                };
                let trace = tracer.record(work, |pid, registers, moment| {
                    let written = watch.look(pid, registers);
                    cases.note(words, written, control, moment);
                });
                trace.map(|trace| trace.map(|trace| trace.steps()))
            };
            assert!(cases.is(words), "a store was not seen");
            (steps.unwrap().unwrap(), states(&cases))
        });
        let (stores, at_stores) = core::mem::take(&mut recorded[1]);
        let (steps, after_each) = core::mem::take(&mut recorded[0]);
        println!(
            "{stores} stores in {steps} instructions, {} states",
            at_stores.len()
        );
        assert!(at_stores.len() > 5 * 4 + 40 + 2, "{}", at_stores.len());
        assert!(at_stores == after_each, "the states differ");
        assert!(stores < steps / 5, "{stores} of {steps}");
    }

    #[test]
    fn a_fault_elsewhere_ends_the_child() {
        let memory = Lease::of(4096);
        let (_lease, control) = Control::lease();
        let traps = Traps::over(&memory, control);
        let mut tracer = Tracer::new("faulty".into(), control, 60, 1_000_000);
        let work = |window: Window| {
            window.begin();
            traps.arm();
            memory.words()[0].store(1, Ordering::Relaxed);
            // SAFETY: none; the process is meant to die of it.
            unsafe { core::ptr::without_provenance_mut::<u64>(64).write_volatile(1) };
        };
        let recorded = tracer.record_stores(&traps, work, |_, _, _| {}).unwrap();
        let cut = recorded.unwrap_err();
        assert!(cut.reason.contains("signal 11"), "{cut:?}");
        assert_eq!(cut.steps, 1);
    }
}
