//! Tests that the engine really stops after each instruction, and really kills there.

use outlive_memory::{Memory, Offset, Ordering::Relaxed};
use outlive_prove::kill::{
    At, Crash, KillError, Marked, Plan, Sample, Sweep, SweepReport, sweep, unless_forbidden,
};

/// Returns the report, or `None` if this cannot be run.
fn swept<S: Sweep>(operation: &S, plan: &Plan) -> Option<SweepReport> {
    unless_forbidden(sweep(operation, plan))
}

const WORD: Offset = Offset::new(128);

/// Instructions whose effects are known, one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// A hundred increments, one after another.
    Straight,
    /// A hundred increments by one instruction in a loop.
    Loop,
    /// A hundred bytes written by one instruction that repeats itself.
    #[cfg(target_arch = "x86_64")]
    Repeat,
}

const EFFECTS: u64 = 100;

impl Sweep for Known {
    fn name(&self) -> String {
        format!("known effects, {self:?}")
    }

    fn prepare(&self, memory: Marked) {
        memory.store(WORD, 1000u64, Relaxed);
    }

    #[cfg(target_arch = "x86_64")]
    fn operate(&self, memory: Marked) {
        let word = memory.native().address(WORD, EFFECTS).as_ptr();
        // SAFETY: each writes the bytes given, in the memory, which no other thread uses.
        unsafe {
            match self {
                Self::Straight => core::arch::asm!(
                    ".rept 100",
                    "inc qword ptr [{word}]",
                    ".endr",
                    word = in(reg) word,
                ),
                Self::Loop => core::arch::asm!(
                    "2:",
                    "inc qword ptr [{word}]",
                    "dec {left}",
                    "jnz 2b",
                    word = in(reg) word,
                    left = inout(reg) EFFECTS => _,
                ),
                Self::Repeat => core::arch::asm!(
                    "rep stosb",
                    inout("rdi") word.add(64) => _,
                    inout("rcx") EFFECTS => _,
                    in("al") 0xA5u8,
                ),
            }
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn operate(&self, memory: Marked) {
        let word = memory.native().address(WORD, EFFECTS).as_ptr();
        // SAFETY: each increments one word of the memory, which no other thread uses.
        unsafe {
            match self {
                Self::Straight => core::arch::asm!(
                    ".rept 100",
                    "ldr {value}, [{word}]",
                    "add {value}, {value}, #1",
                    "str {value}, [{word}]",
                    ".endr",
                    word = in(reg) word,
                    value = out(reg) _,
                ),
                Self::Loop => core::arch::asm!(
                    "2:",
                    "ldr {value}, [{word}]",
                    "add {value}, {value}, #1",
                    "str {value}, [{word}]",
                    "subs {left}, {left}, #1",
                    "b.ne 2b",
                    word = in(reg) word,
                    value = out(reg) _,
                    left = inout(reg) EFFECTS => _,
                ),
            }
        }
    }

    fn recover(&self, _: Marked, _: &Crash) {}

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let mut bytes = [0; 2 * EFFECTS as usize];
        memory.copy_out(WORD + 64, &mut bytes);
        let written = bytes.iter().take_while(|byte| **byte == 0xA5).count() as u64;
        let effects = memory.load::<u64>(WORD, Relaxed) - 1000 + written;
        match crash.at {
            At::Instruction(step) if step < effects => Err(format!("{effects} at step {step}")),
            _ if crash.returned && effects != EFFECTS => Err(format!("returned at {effects}")),
            _ => Ok(()),
        }
    }
}

/// A hundred effects are a hundred states, and a victim really killed at each instruction leaves
/// the memory of the image: a kill one instruction early or late would not.
fn each_effect_is_a_state_and_real_kills_agree(operation: Known) -> Option<SweepReport> {
    let mut plan = Plan::full();
    plan.recoveries = Sample::UpTo(3);
    let report = swept(&operation, &plan)?;
    report.assert_clean();
    // The memory before, after each effect, and after the return.
    assert_eq!(report.images, 1 + EFFECTS + 1);
    assert_eq!(report.kills, report.instructions + 1 + report.killed_again);
    // A breakpoint that the machine missed would show here; seldom, if ever. One that is counted
    // wrongly does in each loop.
    assert!(report.strayed * 20 <= report.kills, "{report}");
    assert!(report.killed_again * 20 <= report.kills, "{report}");
    assert_eq!(report.recoveries_swept, 3);
    Some(report)
}

#[test]
fn straight_code_is_swept_instruction_by_instruction() {
    if let Some(report) = each_effect_is_a_state_and_real_kills_agree(Known::Straight) {
        assert!(report.addresses >= EFFECTS, "{report}");
        assert!(report.addresses <= report.instructions + 1);
    }
}

#[test]
fn a_loop_is_swept_instruction_by_instruction() {
    each_effect_is_a_state_and_real_kills_agree(Known::Loop);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_repeated_instruction_is_swept_round_by_round() {
    each_effect_is_a_state_and_real_kills_agree(Known::Repeat);
}

/// A loop that counts in the memory: a breakpoint in it is passed many times before the right one.
struct Loop;

impl Sweep for Loop {
    fn name(&self) -> String {
        "loop".to_owned()
    }

    fn prepare(&self, _: Marked) {}

    fn operate(&self, memory: Marked) {
        for round in 1..=10u64 {
            memory.store(WORD, round, Relaxed);
            memory.copy_in(WORD + 64, &[round as u8; 40]);
        }
    }

    fn recover(&self, _: Marked, _: &Crash) {}

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let round: u64 = memory.load(WORD, Relaxed);
        match round {
            10 => Ok(()),
            _ if crash.returned => Err(format!("returned in round {round}")),
            0..10 => Ok(()),
            _ => Err(format!("round {round}")),
        }
    }
}

#[test]
fn real_kills_in_loops_fall_on_the_instruction_meant() {
    let mut plan = Plan::quick();
    plan.real_kills = Sample::UpTo(5);
    let Some(report) = swept(&Loop, &plan) else {
        return;
    };
    report.assert_clean();
    assert_eq!(report.kills, 5 + report.killed_again);
    assert!(report.strayed <= 1 && report.killed_again <= 1, "{report}");
    assert!(report.images > 10 * 6, "{report}");
    assert!(report.addresses < report.instructions / 5, "{report}");
}

/// Writes a value that differs from run to run, and claims to be deterministic.
struct Undetermined;

impl Sweep for Undetermined {
    fn name(&self) -> String {
        "undetermined".to_owned()
    }

    fn prepare(&self, _: Marked) {}

    fn operate(&self, memory: Marked) {
        memory.store(WORD, u64::from(std::process::id()), Relaxed);
    }

    fn recover(&self, _: Marked, _: &Crash) {}

    fn check(&self, _: Marked, _: &Crash) -> Result<(), String> {
        Ok(())
    }
}

/// Real kills are compared with the images in order to find this.
#[test]
fn a_real_kill_that_leaves_other_memory_than_its_image_is_reported() {
    let Some(report) = swept(&Undetermined, &Plan::quick()) else {
        return;
    };
    assert!(!report.failures.is_empty());
    let other =
        |failure: &outlive_prove::kill::Failure| failure.message.contains("differs from the image");
    assert!(report.failures.iter().all(other), "{report}");
}

/// Operations that cannot be swept.
#[derive(Debug)]
enum Unfit {
    PanicsInPrepare,
    PanicsInOperation,
    NeverEnds,
    TouchesNothing,
    Crashes,
    Waits,
}

impl Sweep for Unfit {
    fn name(&self) -> String {
        format!("{self:?}")
    }

    fn prepare(&self, _: Marked) {
        assert!(!matches!(self, Self::PanicsInPrepare), "no way to prepare");
    }

    fn operate(&self, memory: Marked) {
        match self {
            Self::PanicsInOperation => {
                memory.load::<u64>(Offset::new(1 << 20), Relaxed);
            }
            Self::NeverEnds => while memory.load::<u64>(WORD, Relaxed) == 0 {},
            Self::Crashes => std::process::abort(),
            Self::Waits => std::thread::sleep(core::time::Duration::from_secs(3600)),
            Self::TouchesNothing | Self::PanicsInPrepare => {}
        }
    }

    fn recover(&self, _: Marked, _: &Crash) {}

    fn check(&self, _: Marked, _: &Crash) -> Result<(), String> {
        Ok(())
    }
}

/// An operation that fails without a kill is an error with the reason, and the sweep ends.
#[test]
fn an_operation_that_cannot_be_swept_is_an_error() {
    let mut plan = Plan::quick();
    plan.patience = 2;
    for (operation, says) in [
        (Unfit::PanicsInPrepare, "no way to prepare"),
        (Unfit::PanicsInOperation, "outside a memory of 4096 bytes"),
        (Unfit::NeverEnds, "the plan ends here"),
        (Unfit::Crashes, "died of signal 6"),
        (Unfit::Waits, "still running after 2 s"),
    ] {
        // A panic takes many instructions until its message is made.
        plan.most_instructions = match operation {
            Unfit::NeverEnds => 2000,
            _ => 1 << 20,
        };
        match sweep(&operation, &plan) {
            Err(KillError::PtraceForbidden(forbidden)) => println!("skipped: {forbidden}"),
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(says), "{operation:?}: {message}");
            }
            Ok(report) => panic!("{operation:?} was swept: {report}"),
        }
    }
    if let Some(report) = swept(&Unfit::TouchesNothing, &plan) {
        // Before, and after the return: the same memory, but the guarantees on return must hold.
        assert_eq!(report.images, 2);
    }
}

/// A sweep leaves no process behind, and the affinity of the caller's thread as before.
#[test]
fn nothing_is_left_behind() {
    // SAFETY: reads the affinity of this thread into a set of the size given.
    let affinity = || unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        libc::CPU_COUNT(&set)
    };
    let before = affinity();
    let _ = swept(&Loop, &Plan::quick());
    assert_eq!(affinity(), before);
    let thread = std::fs::read_link("/proc/thread-self").expect("/proc is mounted");
    let children = std::path::Path::new("/proc").join(thread).join("children");
    // Where the kernel keeps the list: the children of this very thread.
    if let Ok(children) = std::fs::read_to_string(children) {
        assert_eq!(children, "");
    }
}
