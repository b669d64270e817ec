//! The roles of children.

use crate::work::{Ledger, ledger_at, worker};
use outlive::membership::ProcessOptions;
use outlive::memory::{Memory, Offset, Ordering};
use outlive::pod::Pod;
use outlive::sync::RecoverableMutex;
use std::time::Duration;

/// Where in the payload a child that writes all the time counts.
pub fn counter(pod: &Pod) -> Offset {
    pod.payload().expect("payload").offset + 64
}

/// Not a test: the children's entry point. Without a role it does nothing.
#[test]
fn play() {
    let Ok(role) = std::env::var("OUTLIVE_TEST_ROLE") else {
        return;
    };
    let path = std::env::var("OUTLIVE_TEST_POD").expect("a pod");
    let host = std::env::var("OUTLIVE_TEST_HOST").expect("a host");
    let pod = Pod::open(path).expect("the pod opens");
    if role == "leave slowly" {
        return crate::leaving::leave_slowly(&pod, host.parse().expect("a number"));
    }
    let options = ProcessOptions::on_host(host.parse().expect("a number")).name(role.clone());
    let process = pod.join(options).expect("the child joins");
    match role.as_str() {
        "idle" => {
            let _member = process.enter(Some(9), "idler").expect("a thread joins");
            sleep();
        }
        "leave" => {
            let member = process.enter(Some(9), "leaver").expect("a thread joins");
            drop(member);
            process.leave().expect("no thread is a member");
        }
        "scribble" => {
            let member = process.enter(None, "scribbler").expect("a thread joins");
            let at = counter(&pod);
            loop {
                member.memory().fetch_add(at, 1u64, Ordering::Relaxed);
            }
        }
        "hold" => {
            let member = process.enter(Some(9), "holder").expect("a thread joins");
            let mutex = RecoverableMutex::<Ledger>::at(pod.segment().memory(), ledger_at(&pod));
            let mut ledger = mutex.lock(&member).expect("the lock is free");
            ledger.entries[0] += 1000;
            // Not committed: this must never be seen.
            member
                .memory()
                .store(counter(&pod), 1u64, Ordering::Release);
            sleep();
        }
        "operate" => crate::leaving::operate(&process),
        "work" => worker(&pod, &process),
        "meet" => crate::barrier::meet(&pod, &process),
        "sit" => crate::barrier::sit(&pod, &process),
        "enter and end" => {
            // The thread ends while it is a member, and the process lives on.
            let there = process.clone();
            std::thread::spawn(move || {
                let member = there.enter(Some(9), "short").expect("a thread joins");
                std::mem::forget(member);
            })
            .join()
            .expect("it ends well");
            sleep();
        }
        "guess" => {
            let member = process.enter(None, "guesser").expect("a thread joins");
            let wrong = process.join_group(&member, "secret", Some(b"swordfish"));
            assert!(wrong.is_err(), "the wrong word was taken");
            let none = process.join_group(&member, "secret", None);
            assert!(none.is_err(), "no word was taken");
            let mut events = process
                .join_group(&member, "secret", Some(b"sesame"))
                .expect("the right word");
            // Our own joining is the first event that we receive.
            assert!(events.wait_for(Duration::from_secs(10)).is_some());
            sleep();
        }
        other => panic!("no role {other:?}"),
    }
}

fn sleep() {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
