//! The sweep of the death of a host with its members, whose id becomes that of a thread before the
//! members are declared dead.

use super::obituaries::Obituaries;
use super::sweeps::{SIZE, hold, live, tables};
use outlive::membership::{BuryPoint, Instance, Level, State, Status, steps};
use outlive_memory::Offset;
use outlive_prove::kill::{Crash, Marked, PointKind, Sweep};

/// A fenced host and its members are declared dead, wherever the member that does it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuryHost {
    /// The next manager looks for members without a host.
    Whole,
    /// Broken: it looks for members of hosts that are dead, and the host's id is a thread's.
    LooksForDeadHosts,
}

const HOST: u32 = 0;
const OTHER: u32 = 1;
const MEMBERS: [(u32, Level); 2] = [(4, Level::Process), (5, Level::Thread)];

impl BuryHost {
    const FENCED: State = State {
        generation: 1,
        host: 0,
        level: Some(Level::Host),
        status: Status::Fencing,
    };

    fn bury(memory: Marked, by: u32) {
        let os = Obituaries::new(memory, Offset::new(SIZE - 128), 100);
        // SAFETY: no thread acts as the host or its members.
        unsafe {
            steps::bury_host(
                tables(memory),
                &os,
                HOST,
                Self::FENCED,
                Instance::new(by, 1),
            );
        }
    }
}

impl Sweep for BuryHost {
    fn name(&self) -> String {
        match self {
            Self::Whole => "host.bury".into(),
            Self::LooksForDeadHosts => "buries members of dead hosts only".into(),
        }
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<BuryPoint>()]
    }

    fn prepare(&self, memory: Marked) {
        let generations = tables(memory).generations();
        let members = MEMBERS.map(|(id, level)| (id, live(1, level)));
        let hosts = [(HOST, Self::FENCED), (OTHER, live(1, Level::Host))];
        for (id, state) in members.into_iter().chain(hosts) {
            // SAFETY: no thread acts as an incarnation of the id.
            assert!(unsafe { generations.assume_state(id, State::FREE, state) });
        }
    }

    fn operate(&self, memory: Marked) {
        Self::bury(memory, 2);
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let (tables, by) = (tables(memory), 3 + crash.recoverers_lost);
        Self::bury(memory, by);
        // A thread of the other host receives the id of the dead one.
        let generations = tables.generations();
        let next = State {
            host: OTHER as u16,
            ..live(3, Level::Thread)
        };
        if let Ok(dead) = generations.state(HOST)
            && dead.status == Status::Dead
        {
            // SAFETY: no thread acts as the incarnation that this ends.
            unsafe { generations.assume_state(HOST, dead, next) };
        }
        let os = Obituaries::new(memory, Offset::new(SIZE - 128), 100);
        if *self == Self::Whole {
            steps::bury_orphans(tables, &os, Instance::new(by, 1));
        }
    }

    fn check(&self, memory: Marked, _: &Crash) -> Result<(), String> {
        let generations = tables(memory).generations();
        let left: Vec<_> = { MEMBERS.iter() }
            .map(|(id, _)| *id)
            .filter(|id| generations.current(*id) != 2)
            .collect();
        hold(left.is_empty(), || {
            format!("the members {left:?} of a dead host are still live")
        })?;
        let next = generations
            .state(HOST)
            .map_err(|word| format!("{word:#x}"))?;
        let is_whole = next
            == State {
                host: OTHER as u16,
                ..live(3, Level::Thread)
            };
        hold(is_whole, || format!("the id of the host is that of {next}"))
    }
}
