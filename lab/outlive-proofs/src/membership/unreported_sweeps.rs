//! The sweep of a joiner that finalises the deaths that no member is left to report.
//!
//! The table has members of four hosts: a dead host on the joiner's operating system, with a
//! process and its thread; a dead host in another container of the same kernel; a live host; and a
//! host that reaches the pod from another kernel, where a free presence proves nothing.

use super::obituaries::Obituaries;
use super::sweeps::{hold, live};
use super::tables::Silent;
use outlive::host::{Obituary, Os, OsIdentity, ProcessIdentity, ThreadIdentity};
use outlive::membership::{
    BuryPoint, EventKind, Extent, GroupId, Instance, Level, Record, State, Status, Tables,
    reconcile, steps,
};
use outlive_memory::{Memory, Offset};
use outlive_prove::kill::{Crash, Marked, PointKind, Sweep};

/// A joiner finalises the deaths that are proven on its kernel, wherever it dies. The next one
/// continues, and its sentinel notifies the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinaliseDeaths {
    /// The steps of a join that finds no free id.
    Whole,
    /// Broken: the next joiner looks for absent processes and for hosts without one, not for
    /// members whose host has ended.
    LeavesOrphans,
    /// Broken: a free presence counts as proof on each operating system.
    TrustsOtherKernels,
    /// Broken: the sentinel of the next joiner does not look for deaths that were not reported.
    LeavesGroupsUnnotified,
}

/// The numbers of the operating systems: the joiner's own one, a container on its kernel, and one
/// on another kernel.
const OWN: u16 = 0;
const CONTAINER: u16 = 1;
const OTHER_KERNEL: u16 = 2;

/// The ids in use, each with its level and with its host (a host with its operating system), and
/// whether it is dead, which is proven on the joiner's kernel.
const MEMBERS: [(u32, Level, u16, bool); 9] = [
    (0, Level::Host, OWN, true),
    (1, Level::Process, 0, true),
    (THREAD.id, Level::Thread, 0, true),
    (3, Level::Host, CONTAINER, true),
    (4, Level::Process, 3, true),
    (5, Level::Host, OWN, false),
    (PRESENT, Level::Process, 5, false),
    (7, Level::Host, OTHER_KERNEL, false),
    (8, Level::Process, 7, false),
];
const THREAD: Instance = Instance::new(2, 1);
/// The process of [`THREAD`].
const ITS_PROCESS: Instance = Instance::new(1, 1);
/// The one process whose presence is not free. Of the other kernel no presence is seen.
const PRESENT: u32 = 6;

const EXTENT: Extent = Extent {
    ids: MEMBERS.len() as u32,
    groups: 1,
    events: 16,
    log_bytes: 0,
};
/// Enough for [`tables`] and the obituaries; checked by every access.
const SIZE: u64 = 28 << 10;
/// The words of the obituaries, behind the tables.
const OBITUARIES: Offset = Offset::new(SIZE - 128);
/// The thread that holds the obituary of [`PRESENT`], and the first one that joins.
const PRESENT_THREAD: u32 = 50;
const VICTIM_THREAD: u32 = 100;

fn tables<M: Memory>(memory: M) -> Tables<M> {
    let (places, size) = EXTENT.lay_out();
    assert!(size <= OBITUARIES.raw());
    Tables::new(memory, EXTENT, places)
}

fn os(memory: Marked, thread: u32) -> Obituaries<Marked> {
    Obituaries::new(memory, OBITUARIES, thread)
}

/// Returns the word of a member while it lives.
fn alive((_, level, host, _): (u32, Level, u16, bool)) -> State {
    State {
        host,
        ..live(1, level)
    }
}

impl FinaliseDeaths {
    /// Acts as a joiner, whose thread is `thread`.
    fn finalise(self, memory: Marked, thread: u32) {
        let (tables, os) = (tables(memory), os(memory, thread));
        match self {
            Self::TrustsOtherKernels => {
                for number in [OWN, OTHER_KERNEL] {
                    steps::finalise_deaths(tables, &os, number);
                }
            }
            Self::LeavesOrphans if thread != VICTIM_THREAD => {
                let hosts = MEMBERS
                    .into_iter()
                    .filter(|(_, level, _, is_dead)| *level == Level::Host && *is_dead);
                for (host, ..) in hosts {
                    steps::finalise_empty_host(tables, &os, OWN, Instance::new(host, 1));
                }
            }
            Self::Whole | Self::LeavesOrphans | Self::LeavesGroupsUnnotified => {
                steps::finalise_deaths(tables, &os, OWN);
            }
        }
    }
}

impl Sweep for FinaliseDeaths {
    fn name(&self) -> String {
        match self {
            Self::Whole => "join.finalise deaths".into(),
            Self::LeavesOrphans => "finalises no deaths of orphans".into(),
            Self::TrustsOtherKernels => "trusts presences of other kernels".into(),
            Self::LeavesGroupsUnnotified => "finalises deaths without their notification".into(),
        }
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<BuryPoint>()]
    }

    fn prepare(&self, memory: Marked) {
        let tables = tables(memory);
        for number in [OWN, CONTAINER, OTHER_KERNEL] {
            let identity = OsIdentity {
                id: u128::from(number) + 1,
                boot: 1,
                machine: 1,
                one_kernel: number != OTHER_KERNEL,
            };
            assert_eq!(tables.operating_systems().number(identity), Ok(number));
        }
        for member in MEMBERS {
            let (id, level, ..) = member;
            // SAFETY: no thread acts as an incarnation of the id.
            let is_alive = unsafe {
                tables
                    .generations()
                    .assume_state(id, State::FREE, alive(member))
            };
            assert!(is_alive, "id {id} was free");
            let joined = Instance::new(id, 1);
            tables.groups().log(GroupId::POD).tell_joined(joined, level);
        }
        let thread = ThreadIdentity {
            process: ProcessIdentity {
                pid: 1,
                start_time: 0,
            },
            tid: 1,
            start_time: 0,
        };
        let record = Record {
            instance: THREAD,
            thread,
            process: Some(ITS_PROCESS),
            uid: 0,
            has_cord: false,
            name: "dead".into(),
        };
        steps::write_record(tables, &record);
        let held = os(memory, PRESENT_THREAD).hold_obituary(PRESENT);
        assert!(matches!(held, Ok(Ok(()))));
    }

    fn operate(&self, memory: Marked) {
        self.finalise(memory, VICTIM_THREAD);
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        // The kernel marks the join locks that dead joiners held.
        let me = VICTIM_THREAD + 1 + crash.recoverers_lost;
        for id in 0..EXTENT.ids {
            if let Obituary::Held { tid } = os(memory, me).obituary(id)
                && (VICTIM_THREAD..me).contains(&tid)
            {
                os(memory, me).mark(id);
            }
        }
        self.finalise(memory, me);
        if *self != Self::LeavesGroupsUnnotified {
            reconcile(tables(memory), &Silent);
        }
    }

    fn check(&self, memory: Marked, _crash: &Crash) -> Result<(), String> {
        let tables = tables(memory);
        let log = tables.groups().log(GroupId::POD);
        let joined = MEMBERS.len() as u64;
        let mut deaths = 0;
        for member in MEMBERS {
            let (id, level, _, is_dead) = member;
            let now = tables.generations().state(id);
            let now = now.map_err(|word| format!("the word of id {id} is {word:#x}"))?;
            if !is_dead {
                hold(now == alive(member), || {
                    format!("id {id} is {now}, and nothing proves its death")
                })?;
                continue;
            }
            deaths += 1;
            let dead = State {
                generation: 2,
                status: Status::Dead,
                ..alive(member)
            };
            hold(now == dead, || {
                format!("the death of id {id} is not finalised: it is {now}")
            })?;
            let kind = match level {
                Level::Host => EventKind::HostDied,
                Level::Process => EventKind::ProcessDied,
                Level::Thread => EventKind::ThreadDied,
            };
            let events = (joined + 1..=log.tail())
                .filter_map(|sequence| log.event(sequence))
                .filter(|event| (event.kind, event.instance) == (kind, Instance::new(id, 1)));
            let reported = events.count();
            hold(reported == 1, || {
                format!("the death of id {id} was reported {reported} times")
            })?;
        }
        let expected = joined + deaths;
        hold(log.tail() == expected, || {
            format!("{} events instead of {expected}", log.tail())
        })?;
        for id in (0..EXTENT.ids).filter(|id| *id != PRESENT) {
            let obituary = os(memory, VICTIM_THREAD).obituary(id);
            // The mark of a dead holder remains until the next one takes the lock.
            let is_held = matches!(obituary, Obituary::Held { .. });
            hold(!is_held, || {
                format!("the join lock of id {id} is {obituary:?}")
            })?;
        }
        Ok(())
    }
}
