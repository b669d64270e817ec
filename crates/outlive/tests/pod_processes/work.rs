//! Work under random deaths: nothing is lost, nothing counts twice.

use crate::{Scene, await_that, settings};
use bytemuck::{Pod as Plain, Zeroable};
use outlive::membership::Process;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::pod::Pod;
use outlive::sync::{Abandoned, RecoverableMutex, Repair};
use std::time::Duration;

/// A value that a half-done update would leave wrong.
#[derive(Clone, Copy, Debug, Plain, Zeroable)]
#[repr(C)]
pub struct Ledger {
    pub total: u64,
    pub entries: [u64; 8],
}

impl Repair for Ledger {
    fn repair(&mut self, _: Abandoned) {}
}

/// Where the ledger is.
pub fn ledger_at(pod: &Pod) -> Offset {
    pod.payload().expect("payload").offset + 4096
}

/// The place where the child on `host` counts its confirmed updates.
fn confirmed_at(pod: &Pod, host: u32) -> Offset {
    pod.payload().expect("payload").offset + 8192 + u64::from(host) * 128
}

/// Books, and confirms each booking outside of the lock, until it is killed.
pub fn worker(pod: &Pod, process: &Process) {
    let member = process.enter(None, "worker").expect("a thread joins");
    let mutex = RecoverableMutex::<Ledger>::at(pod.segment().memory(), ledger_at(pod));
    let host = process.host().id;
    loop {
        {
            let mut ledger = mutex.lock(&member).expect("a sound lock");
            ledger.entries[host as usize] += 1;
            ledger.total += 1;
        }
        member
            .memory()
            .fetch_add(confirmed_at(pod, host), 1u64, Ordering::Relaxed);
    }
}

#[test]
fn a_ledger_is_exact_although_its_clerks_are_killed() {
    const HOSTS: u32 = 3;
    const KILLS: u32 = 12;
    let mut scene = Scene::new(settings());
    let process = scene.join(0);
    let member = process.enter(None, "auditor").expect("a thread joins");
    let memory = scene.pod.segment().memory();
    let mutex = RecoverableMutex::<Ledger>::at(memory, ledger_at(&scene.pod));
    let read = || *mutex.lock(&member).expect("a sound lock");
    let mut clerks: Vec<_> = (1..=HOSTS).map(|host| scene.child("work", host)).collect();
    for kill in 0..KILLS {
        let host = kill % HOSTS + 1;
        let before = read().entries[host as usize];
        await_that("the clerk books", || {
            read().entries[host as usize] > before + 20
        });
        scene.kill(clerks[(host - 1) as usize]);
        scene.children[clerks[(host - 1) as usize]]
            .wait()
            .expect("it is dead");
        let ledger = read();
        assert_eq!(ledger.total, ledger.entries.iter().sum::<u64>());
        // Each dead clerk had at most one booking that it did not live to confirm.
        let confirmed: u64 = memory.load(confirmed_at(&scene.pod, host), Ordering::Relaxed);
        let booked = ledger.entries[host as usize];
        let deaths = u64::from(kill / HOSTS + 1);
        assert!(
            (confirmed..=confirmed + deaths).contains(&booked),
            "host {host}: {booked} booked, {confirmed} confirmed, {deaths} deaths"
        );
        clerks[(host - 1) as usize] = scene.child("work", host);
    }
    for clerk in clerks {
        scene.kill(clerk);
    }
    await_that("all deaths are reported", || {
        let status = scene.pod.status();
        let alive = status
            .members
            .iter()
            .filter(|member| member.state.status.may_write() && u32::from(member.state.host) != 0);
        alive.count() <= 1 // our own host's word names its operating system, not itself
    });
    let ledger = read();
    assert_eq!(ledger.total, ledger.entries.iter().sum::<u64>());
    std::thread::sleep(Duration::from_millis(50));
    scene.assert_sound();
}
