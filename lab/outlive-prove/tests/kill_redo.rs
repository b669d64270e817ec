//! A redo-logged update of several words, swept; and ways to get it wrong, each of which must be
//! found.

use outlive_memory::{CrashPoint, Memory, Offset, Ordering::Relaxed, Ordering::Release};
use outlive_prove::kill::{
    Crash, Marked, Plan, PointKind, Sample, Sweep, SweepReport, sweep, unless_forbidden,
};

outlive_memory::crash_points! {
    /// The points at which an update may be cut short.
    enum UpdatePoint for "redo.update" {
        /// The log is being written; nothing has happened.
        Logging,
        /// The log is complete and committed; the update will take effect.
        Committed,
        /// The words are written, the log is not yet free.
        Applied,
        /// The log is free again.
        Freed,
    }
}

outlive_memory::crash_points! {
    /// The points at which a recovery may be cut short.
    enum RecoveryPoint for "redo.recover" {
        /// A committed log was found.
        Found,
        /// Its words are written.
        Replayed,
    }
}

const COMMIT: Offset = Offset::new(0);
const LOG: Offset = Offset::new(64);
const WORDS: [Offset; 4] = [
    Offset::new(512),
    Offset::new(576),
    Offset::new(640),
    Offset::new(1024),
];
const OLD: [u64; 4] = [11, 12, 13, 14];
const NEW: [u64; 4] = [21, 22, 23, 24];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    CommitsEarly,
    AppliesUnlogged,
    FreesBeforeReplay,
    AddsInReplay,
    ForgetsThePoint,
    WaitsForTheDead,
    LoopsWithoutHint,
    Aborts,
    LosesWhatReturned,
}

struct Update(Flaw);

/// A checksum of the log: enough to tell a whole log from a part of one.
fn checksum<M: Memory>(memory: M) -> u64 {
    let words = (0..2 * WORDS.len() as u64).map(|i| memory.load::<u64>(LOG + 8 * i, Relaxed));
    words.fold(0x9E37_79B9_7F4A_7C15, |sum: u64, word| {
        (sum ^ word).wrapping_mul(0x1000_0000_01B3).rotate_left(23)
    }) | 1
}

impl Update {
    fn update<M: Memory>(&self, memory: M) {
        memory.crash_point(UpdatePoint::Logging);
        for (i, (word, value)) in (0u64..).zip(WORDS.iter().zip(NEW)) {
            if self.0 == Flaw::CommitsEarly && i == 3 {
                memory.store(COMMIT, 1u64, Release);
            }
            memory.store(LOG + 16 * i, word.raw(), Relaxed);
            memory.store(LOG + 16 * i + 8, value, Relaxed);
            if self.0 == Flaw::AppliesUnlogged && i == 2 {
                memory.store(*word, value, Relaxed);
            }
        }
        if self.0 != Flaw::LosesWhatReturned {
            memory.store(COMMIT, checksum(memory), Release);
        }
        if self.0 != Flaw::ForgetsThePoint {
            memory.crash_point(UpdatePoint::Committed);
        }
        if self.0 == Flaw::LosesWhatReturned {
            return;
        }
        for (word, value) in WORDS.into_iter().zip(NEW) {
            memory.store(word, value, Relaxed);
        }
        memory.crash_point(UpdatePoint::Applied);
        memory.store(COMMIT, 0u64, Release);
        memory.crash_point(UpdatePoint::Freed);
    }

    fn replay<M: Memory>(&self, memory: M) {
        let commit: u64 = memory.load(COMMIT, Relaxed);
        if commit == 0 {
            return;
        }
        let whole = commit == checksum(memory) || self.0 == Flaw::CommitsEarly;
        if whole {
            match self.0 {
                Flaw::WaitsForTheDead => {
                    while memory.load::<u64>(COMMIT, Relaxed) != 0 {
                        memory.spin_hint();
                    }
                }
                Flaw::LoopsWithoutHint => while memory.load::<u64>(COMMIT, Relaxed) != 0 {},
                Flaw::Aborts => std::process::abort(),
                Flaw::FreesBeforeReplay => memory.store(COMMIT, 0u64, Release),
                _ => {}
            }
            memory.crash_point(RecoveryPoint::Found);
            for i in 0..WORDS.len() as u64 {
                let word = Offset::from_raw(memory.load(LOG + 16 * i, Relaxed));
                let value: u64 = memory.load(LOG + 16 * i + 8, Relaxed);
                memory.store(word, value, Relaxed);
            }
            memory.crash_point(RecoveryPoint::Replayed);
        }
        memory.store(COMMIT, 0u64, Release);
    }
}

impl Sweep for Update {
    fn name(&self) -> String {
        format!("redo.update {:?}", self.0)
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![
            PointKind::of::<UpdatePoint>(),
            PointKind::of::<RecoveryPoint>(),
        ]
    }

    fn prepare(&self, memory: Marked) {
        for (word, value) in WORDS.into_iter().zip(OLD) {
            memory.store(word, value, Relaxed);
        }
    }

    fn operate(&self, memory: Marked) {
        self.update(memory);
    }

    fn recover(&self, memory: Marked, _: &Crash) {
        self.replay(memory);
        if self.0 == Flaw::AddsInReplay {
            memory.fetch_add(WORDS[0], 1u64, Relaxed);
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let mut words = WORDS.map(|word| memory.load::<u64>(word, Relaxed));
        if self.0 == Flaw::AddsInReplay && [12, 22].contains(&words[0]) {
            words[0] -= 1;
        }
        // Where the effect is lost, the test must fail because the operation returned.
        let passed = self.0 != Flaw::LosesWhatReturned && crash.passed(UpdatePoint::Committed);
        let must_be_new = crash.returned || passed;
        match words {
            NEW => Ok(()),
            OLD if must_be_new => Err("a committed update is lost".to_owned()),
            OLD => Ok(()),
            torn => Err(format!("torn: {torn:?}")),
        }
    }
}

/// Runs the sweep, or says why it cannot be run here.
fn swept(flaw: Flaw, plan: &Plan) -> Option<SweepReport> {
    unless_forbidden(sweep(&Update(flaw), plan))
}

fn finds(flaw: Flaw, message: &str) {
    let mut plan = Plan::quick();
    plan.recovery_patience = 1;
    plan.most_failures = 2;
    let Some(report) = swept(flaw, &plan) else {
        return;
    };
    assert!(!report.failures.is_empty(), "{flaw:?} was not found");
    assert!(report.stopped == (report.failures.len() == 2));
    for failure in &report.failures {
        assert!(failure.message.contains(message), "{failure}");
        assert!(failure.instruction.contains("+0x"), "{failure}");
    }
}

#[test]
fn the_update_survives_a_kill_at_every_instruction() {
    let mut plan = Plan::quick();
    plan.recoveries = Sample::Every;
    let Some(report) = swept(Flaw::None, &plan) else {
        return;
    };
    report.assert_clean();
    assert!(report.instructions > 50 && report.images > 12, "{report}");
    assert_eq!(report.kills, 8 + report.killed_again);
    // A crash point alone is an image of its own, but no other memory to recover from.
    assert!(report.recoveries_swept >= 14 && report.recoveries_swept < report.images);
    // Twice for each image, each memory left by a real kill, and each image of a recovery.
    let survived = report.images + report.kills + report.second_kills;
    assert_eq!(report.recoveries, 2 * survived);
    let covered: u64 = report.coverage.points().map(|(_, kills)| kills).sum();
    assert!(covered > report.instructions, "{:?}", report.coverage);
}

#[test]
fn a_commit_before_the_log_is_complete_is_found() {
    finds(Flaw::CommitsEarly, "");
}

#[test]
fn a_word_written_before_the_commit_is_found() {
    finds(Flaw::AppliesUnlogged, "torn");
}

/// Only a second kill, in the middle of recovery, shows it.
#[test]
fn a_log_freed_before_it_is_replayed_is_found_by_killing_the_recoverer() {
    finds(Flaw::FreesBeforeReplay, "");
    let mut plan = Plan::quick();
    if let Some(report) = swept(Flaw::FreesBeforeReplay, &plan) {
        let second = |failure: &outlive_prove::kill::Failure| failure.recovery_at.is_some();
        assert!(report.failures.iter().all(second), "{report}");
    }
    plan.recoveries = Sample::NONE;
    if let Some(report) = swept(Flaw::FreesBeforeReplay, &plan) {
        assert!(report.failures.is_empty(), "{report}");
    }
}

#[test]
fn a_recovery_that_cannot_be_repeated_is_found() {
    finds(Flaw::AddsInReplay, "after recovering twice: torn");
}

#[test]
fn an_effect_lost_after_return_is_found() {
    finds(Flaw::LosesWhatReturned, "a committed update is lost");
}

#[test]
fn waiting_for_the_dead_is_found() {
    finds(Flaw::WaitsForTheDead, "waits for a dead member");
}

#[test]
fn a_recovery_that_never_ends_is_found() {
    finds(Flaw::LoopsWithoutHint, "still running after 1 s");
}

#[test]
fn a_recovery_that_crashes_is_found() {
    finds(Flaw::Aborts, "signal 6");
}

#[test]
fn a_crash_point_that_is_never_passed_is_reported() {
    let Some(report) = swept(Flaw::ForgetsThePoint, &Plan::quick()) else {
        return;
    };
    assert_eq!(report.missing, ["redo.update.Committed"]);
    assert!(!report.is_clean());
    let missing = report.coverage.missing::<UpdatePoint>();
    assert_eq!(missing, [UpdatePoint::Committed.name()]);
    assert!(report.coverage.missing::<RecoveryPoint>().is_empty());
}
