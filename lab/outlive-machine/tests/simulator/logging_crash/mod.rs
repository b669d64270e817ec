//! Dumps while nodes store and die at any step: every committed store is in a living log or in an
//! archive, and a recovery restores the committed values from them.
//!
//! A small model of nodes around the real parts: each message waits in the port of its sender,
//! leaves it in order, and arrives at any time. A node's death discards the messages that have not
//! left its port.

mod world;

use outlive_machine::engine::Random;
use outlive_machine::logging::LoggingUnit;
use outlive_machine::protocol::NodeId;
use world::{Fault, NODES, World};

const STEPS: u32 = 1_500;

#[test]
fn without_deaths_each_committed_store_is_archived_once() {
    for seed in 0..60 {
        let mut world = World::new(seed, Fault::None);
        world.run(STEPS).unwrap();
        let mut archived = world.archive.entries().unwrap();
        let mut committed: Vec<_> = world.committed.iter().map(|(entry, _)| *entry).collect();
        archived.sort();
        committed.sort();
        assert!(committed.len() > 50, "{}", committed.len());
        assert!(world.archive.len() > 3);
        assert_eq!(archived, committed, "seed {seed}");
        let counts = world.units.iter().map(LoggingUnit::counts);
        assert!(
            counts.clone().any(|counts| counts.early_vals > 0),
            "VALs were reordered"
        );
        assert!(
            counts.clone().any(|counts| counts.spilled > 0),
            "the SRAM was full"
        );
    }
}

#[test]
fn a_death_at_any_step_loses_nothing() {
    for seed in 0..2 {
        let mut world = World::new(seed, Fault::None);
        for step in 0..STEPS {
            let mut fork = world.clone();
            let victim = NodeId::new((step as usize + seed as usize) % NODES);
            fork.plan.push_back((fork.steps + 1, victim));
            let told = fork.run(step + 200);
            assert_eq!(told, Ok(()), "seed {seed}: {victim} dies at step {step}");
            world.step();
        }
    }
}

/// Up to two deaths (N_r is 3); the second may be in the recovery from the first.
fn two_deaths(seed: u64, fault: Fault) -> Result<(), String> {
    two_deaths_in(&mut World::new(seed, fault), seed)
}

fn two_deaths_in(world: &mut World, seed: u64) -> Result<(), String> {
    let mut random = Random::new(seed ^ 0x5eed);
    let first = random.below(u64::from(STEPS) / 2) as u32;
    let second = first + random.below(300) as u32;
    let victim = random.below(NODES as u64) as usize;
    let other = (victim + 1 + random.below(NODES as u64 - 1) as usize) % NODES;
    world.plan = [(first, NodeId::new(victim)), (second, NodeId::new(other))].into();
    world.run(STEPS)
}

#[test]
fn two_deaths_of_three_replicas_lose_nothing() {
    for seed in 0..400 {
        assert_eq!(two_deaths(seed, Fault::None), Ok(()), "seed {seed}");
    }
}

/// The same with an archive that is truncated by answers of any age. Returns how many were dropped.
fn truncating(seed: u64, fault: Fault) -> Result<u64, String> {
    let mut world = World::new(seed, fault);
    world.truncates = true;
    two_deaths_in(&mut world, seed).map(|()| world.dropped)
}

#[test]
fn truncating_at_any_time_loses_nothing() {
    let mut dropped = 0;
    for seed in 0..400 {
        let told = truncating(seed, Fault::None);
        dropped += told.unwrap_or_else(|lost| panic!("seed {seed}: {lost}"));
    }
    assert!(dropped > 10_000, "{dropped}");
}

#[test]
fn truncating_too_early_loses_stores() {
    for fault in [Fault::TruncatesRecalled, Fault::TruncatesByOldOwners] {
        let lost = (0..600).find_map(|seed| truncating(seed, fault).err());
        assert!(
            lost.is_some_and(|lost| lost.contains("lost") || lost.contains("instead")),
            "{fault:?}"
        );
    }
}

#[test]
fn a_worse_barrier_loses_stores() {
    for fault in [Fault::WholeLogs, Fault::NoWaiting, Fault::DeadHaveSaved] {
        let lost = (0..600).find_map(|seed| two_deaths(seed, fault).err());
        assert!(
            lost.is_some_and(|lost| lost.contains("lost") || lost.contains("instead")),
            "{fault:?}"
        );
    }
}
