//! Acknowledged writes survive crashes of the store, or are found to be lost.

#[allow(dead_code)]
mod reference;

use outlive_litmus::driver::Driver;
use outlive_litmus::run::{self, Options, RunError, Survival};
use reference::{Kind, Memory, Power};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Kills a store twelve times.
fn killed(change: impl FnOnce(&mut Power), patience: Duration) -> Result<Survival, RunError> {
    killed_of(Kind::Optimistic, change, patience)
}

fn killed_of(
    kind: Kind,
    change: impl FnOnce(&mut Power),
    patience: Duration,
) -> Result<Survival, RunError> {
    let memory = Memory::new(kind);
    let mut power = memory.power();
    change(&mut power);
    let driver: Arc<dyn Driver> = Arc::new(memory);
    let options = Options {
        patience,
        ..Options::default()
    };
    run::survive(&driver, &power, 12, &options, &AtomicBool::new(false))
}

const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn acknowledged_writes_survive() {
    let survival = killed(|_| (), PATIENCE).unwrap();
    assert_eq!((survival.kills, survival.lost), (12, None), "{survival:?}");
    assert!(survival.acknowledged > 12 && survival.blocked.is_none());
}

#[test]
fn lost_writes_are_found() {
    let survival = killed(|it| it.loses_commits = true, PATIENCE).unwrap();
    let lost = survival.lost.expect("a lost write");
    assert_eq!(lost.kill, survival.kills);
    assert!(lost.read.unwrap() < lost.acknowledged, "{lost:?}");
    assert!(lost.acknowledged <= lost.begun);
}

#[test]
fn a_kill_that_hits_nothing_is_no_kill() {
    let result = killed(|it| it.misses = true, Duration::from_millis(100));
    assert!(matches!(result, Err(RunError::NotKilled)), "{result:?}");
}

#[test]
fn a_kill_before_any_acknowledgement_shows_nothing() {
    let result = killed_of(Kind::AbortsAll, |_| (), Duration::from_millis(100));
    let is_refused = matches!(result, Err(RunError::NothingAcknowledged));
    assert!(is_refused, "{result:?}");
}
