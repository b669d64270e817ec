//! The group barrier and the removal of dead members; and broken variants, which a sweep must find.

use super::fixture::{WAITING, forget_step};
use crate::membership::tables::Silent;
use crate::pod::{IDS, LOCK, Pod, SIZE};
use core::time::Duration;
use outlive::membership::{Instance, Member};
use outlive::sync::{
    Arrival, BarrierPoint, GroupBarrier, Outcome, Seat, Ticket, Waiting, Withdrawal,
};
use outlive_memory::{Memory, Ordering};
use outlive_prove::kill::{Crash, Marked, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for what in What::SOUND {
        suite.add(Killed(what));
    }
    suite.declare::<BarrierPoint>();
}

/// Returns the sweeps that must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (JoinWithoutAStep, "seats are taken"),
        (LeaveWithoutAStep, "seats are taken"),
        (BuryAndKeepWaiting, "has not arrived"),
    ]
    .map(|(what, message)| -> (Box<dyn Sweep>, _) { (Box::new(Killed(what)), message) })
    .into()
}

crate::cases! {
    enum What {
        /// A member joins while others wait.
        Join,
        /// A member joins when all seats are taken, one of them by a dead member.
        JoinWhereOneDied,
        /// A member arrives before the others.
        Arrive,
        /// A member arrives last, and releases.
        Enter,
        /// A member waits for a dead one, removes it and arrives again.
        WaitForTheDead,
        /// A member sleeps until its time is up, and withdraws.
        Doze,
        /// A member arrives and withdraws.
        Withdraw,
        /// Waiting is interrupted.
        Interrupt,
        /// An instance that is not a member removes a dead one.
        Bury,
        /// A member leaves while others wait.
        Leave,
    }
    broken {
        /// A join does not record which slot must follow.
        JoinWithoutAStep,
        /// A leave does not record which slot must follow.
        LeaveWithoutAStep,
        /// The dead member is removed, but remains counted as waiting.
        BuryAndKeepWaiting,
    }
}

use What::*;

impl What {
    fn has_seat(self) -> bool {
        !self.joins() && !self.buries()
    }

    fn joins(self) -> bool {
        matches!(self, Join | JoinWhereOneDied | JoinWithoutAStep)
    }

    fn buries(self) -> bool {
        matches!(self, Bury | BuryAndKeepWaiting)
    }

    fn seats(self) -> u32 {
        if self == JoinWhereOneDied { 3 } else { IDS }
    }

    /// Returns whether member 3 has a seat and is dead.
    fn has_dead(self) -> bool {
        self.buries() || matches!(self, JoinWhereOneDied | WaitForTheDead)
    }

    fn weakness(self) -> Option<Weakness> {
        match self {
            JoinWithoutAStep | LeaveWithoutAStep => Some(Weakness::Rewrites(LOCK, forget_step)),
            BuryAndKeepWaiting => Some(Weakness::Rewrites(LOCK, |before, after| {
                after & !WAITING | before & WAITING
            })),
            _ => None,
        }
    }
}

/// Number 0 is the victim; 1 and 2 have seats, and remove dead members; 3 died before.
struct Killed(What);

fn barrier<M: Memory>(memory: M, what: What) -> GroupBarrier<M> {
    GroupBarrier::new(memory, LOCK, what.seats())
}

/// Returns the victim. No thread rings its wake-up futexes.
fn victim<M: Memory>(memory: M) -> Member<M> {
    let pod = Pod::new(memory);
    let instance = Instance::new(0, pod.generations.current(0));
    // SAFETY: as in the fixture: one thread acts as the instance, and it is dead when it has
    // stopped.
    unsafe {
        Member::assume(
            memory,
            pod.generations,
            instance,
            pod.logs.at(0),
            Some(&Silent),
        )
    }
}

const AT_ONCE: Waiting = Waiting {
    spins: 0,
    yielding: Duration::ZERO,
    nap: Duration::from_millis(1),
};

/// Arrives before the others.
fn arrive_early<M: Memory>(seat: &mut Seat<'_, M>) -> Ticket {
    let Arrival::Waiting(ticket) = seat.arrive().unwrap() else {
        panic!("others have not arrived");
    };
    ticket
}

fn operate<M: Memory>(memory: M, what: What) {
    let member = victim(memory);
    let barrier = barrier(memory, what);
    if what.joins() {
        return core::mem::forget(barrier.join(&member).unwrap());
    }
    if what.buries() {
        return assert_eq!(barrier.bury(&member).unwrap(), 1);
    }
    let mut seat = barrier.seat_of(&member).unwrap();
    match what {
        Arrive => {
            seat.arrive().unwrap();
        }
        Enter => assert!(seat.enter(AT_ONCE).unwrap(), "the others wait"),
        WaitForTheDead => {
            let ticket = arrive_early(&mut seat);
            let outcome = seat.wait(&ticket, AT_ONCE, None).unwrap();
            assert_eq!(outcome, Outcome::Changed);
            seat.arrive().unwrap();
        }
        Doze | Withdraw => {
            let ticket = arrive_early(&mut seat);
            if what == Doze {
                let patience = Some(Duration::from_micros(2));
                let outcome = seat.wait(&ticket, AT_ONCE, patience).unwrap();
                assert_eq!(outcome, Outcome::TimedOut);
            }
            let withdrawal = seat.withdraw(&ticket).unwrap();
            assert_eq!(withdrawal, Withdrawal::Withdrawn);
        }
        Interrupt => seat.interrupt().unwrap(),
        Leave | LeaveWithoutAStep => return seat.leave().unwrap(),
        _ => unreachable!("done above"),
    }
    core::mem::forget(seat);
}

impl Sweep for Killed {
    fn name(&self) -> String {
        format!("barrier {:?}", self.0)
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn prepare(&self, memory: Marked) {
        let pod = Pod::new(memory);
        let barrier = barrier(memory, self.0);
        let mut others = Vec::new();
        for id in 0..IDS {
            let member = pod.join(id);
            let sits = match id {
                0 => self.0.has_seat(),
                3 => self.0.has_dead(),
                _ => true,
            };
            if sits {
                core::mem::forget(barrier.join(&member).unwrap());
            }
            others.push(member);
        }
        // The dead member had arrived. Of the living, 1 has; so has 2 if the victim is the last.
        let arrive = |id: usize| {
            let mut seat = barrier.seat_of(&others[id]).unwrap();
            seat.arrive().unwrap();
            core::mem::forget(seat);
        };
        arrive(1);
        if self.0 == Enter {
            arrive(2);
        }
        if self.0.has_dead() {
            arrive(3);
            pod.declare_dead(3);
        }
    }

    fn operate(&self, memory: Marked) {
        match self.0.weakness() {
            None => operate(memory, self.0),
            Some(weakness) => operate(Weakened::new(memory, weakness), self.0),
        }
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pod = Pod::new(memory);
        for id in 0..=crash.recoverers_lost {
            if pod.status(id).may_write() {
                pod.declare_dead(id);
            }
        }
        let member = pod.act_as(1 + crash.recoverers_lost);
        barrier(memory, self.0).bury(&member).unwrap();
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let (pod, barrier) = (Pod::new(memory), barrier(memory, self.0));
        let report = barrier.check(pod.generations);
        if let Some(finding) = report.findings.first() {
            return Err(finding.to_string());
        }
        let view = barrier.view().map_err(|error| error.to_string())?;
        // Of 1 and 2, which remove dead members, some may have died.
        let lost = crash.recoverers_lost;
        let expected = 2 - lost;
        let seats = barrier.occupants().count() as u32;
        if (view.members, seats, report.gone.len()) != (expected, expected, 0) {
            return Err(format!("not {expected} members: {view:?}, {seats} seats"));
        }
        // Every member has joined once, and every dead one was removed once.
        let came = 2 + u64::from(self.0.has_seat()) + u64::from(self.0.has_dead());
        let went = came - 2 + u64::from(lost);
        let changes = came + went;
        let more = match self.0 {
            what if what.joins() => [0, 2],
            Interrupt => [0, 1],
            _ => [0, 0],
        };
        let least = u64::from(crash.returned) * more[1];
        let seen = view.changes.wrapping_sub(changes);
        if !more.contains(&seen) || seen < least {
            return Err(format!("{seen} changes more than {changes}: {view:?}"));
        }
        if view.releases > u64::from(self.0 == Enter)
            || crash.returned && self.0 == Enter && view.releases != 1
        {
            return Err(format!("{} releases", view.releases));
        }
        let before: u128 = memory.load(LOCK, Ordering::Relaxed);
        let met = self.living_meet(&pod, 1 + lost, view.waiting);
        memory.store(LOCK, before, Ordering::Relaxed);
        met
    }
}

impl Killed {
    /// Checks that the living meet: the barrier waits for all of them and for no others. A member
    /// that waits already is 1, which had arrived before the operation.
    fn living_meet(&self, pod: &Pod<Marked>, first: u32, waiting: u32) -> Result<(), String> {
        let barrier = barrier(pod.memory, self.0);
        for id in first + waiting.min(1)..3 {
            let member = pod.act_as(id);
            let mut seat = barrier.seat_of(&member).ok_or("a seat is lost")?;
            let arrival = seat.arrive().map_err(|error| error.to_string())?;
            let as_it_should = match arrival {
                Arrival::Last(ticket) => id == 2 && seat.release(&ticket),
                Arrival::Waiting(_) => id < 2,
            };
            core::mem::forget(seat);
            if !as_it_should {
                return Err(format!("{id} arrived: {arrival:?}"));
            }
        }
        Ok(())
    }
}
