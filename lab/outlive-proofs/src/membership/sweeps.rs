//! Sweeps of the membership operations that change only shared memory: reporting events, finalising
//! deaths, creating groups, taking the fabric manager's role and the watch of a host. (Joining and
//! leaving make system calls and are swept by real kills.)

use super::host_sweeps::BuryHost;
use super::obituaries::Obituaries;
use super::tables::Silent;
use super::unreported_sweeps::FinaliseDeaths;
use outlive::host::{Obituary, Os};
use outlive::membership::{
    AppendPoint, BuryPoint, CreateGroupPoint, Event, EventKind, Extent, GroupError, GroupId,
    GroupLog, Guard, Instance, Level, Standing, State, Status, Tables, TakeRolePoint,
    TakeWatchPoint, bury, reconcile, steps,
};
use outlive_memory::{Memory, Offset};
use outlive_prove::kill::{Crash, Marked, PointKind, Suite, Sweep};
use outlive_prove::weakened::{Weakened, Weakness};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    suite
        .add(Tell { ring: 16 })
        .add(Tell { ring: 2 })
        .add(Bury::Thread)
        .add(Bury::FencedHost)
        .add(BuryHost::Whole)
        .add(FinaliseDeaths::Whole)
        .add(CreateGroup)
        .add(TakeRole)
        .add(TakeWatch);
}

/// Returns the broken variants. They must fail, each with a part of the expected message.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    vec![
        (Box::new(Bury::ForgetsTheFence), "without its reason"),
        (Box::new(BuryHost::LooksForDeadHosts), "are still live"),
        (
            Box::new(FinaliseDeaths::LeavesOrphans),
            "of id 2 is not finalised",
        ),
        (
            Box::new(FinaliseDeaths::TrustsOtherKernels),
            "nothing proves its death",
        ),
        (
            Box::new(FinaliseDeaths::LeavesGroupsUnnotified),
            "was reported 0 times",
        ),
    ]
}

pub(super) const IDS: u32 = 6;

pub(super) fn tables<M: Memory>(memory: M) -> Tables<M> {
    let extent = Extent {
        ids: IDS,
        groups: 3,
        events: 8,
        log_bytes: 0,
    };
    let (places, size) = extent.lay_out();
    assert!(size <= SIZE);
    Tables::new(memory, extent, places)
}

/// Enough for [`tables`]; checked by every access.
pub(super) const SIZE: u64 = 24 << 10;

pub(super) fn live(generation: u32, level: Level) -> State {
    State {
        generation,
        host: 0,
        level: Some(level),
        status: Status::Live,
    }
}

/// Brings `ids` to life in their first generation, without records.
fn enliven(tables: Tables<Marked>, ids: impl IntoIterator<Item = u32>) {
    for id in ids {
        // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
        let moved = unsafe {
            tables
                .generations()
                .assume_state(id, State::FREE, live(1, Level::Thread))
        };
        assert!(moved, "id {id} was free");
    }
}

/// Returns the instance that acts after a crash. The earlier ones are dead and are raised here: the
/// victim (id 1) and the lost recoverers.
fn survivor(tables: Tables<Marked>, crash: &Crash) -> Instance {
    for id in 1..2 + crash.recoverers_lost {
        let generations = tables.generations();
        if let Ok(seen) = generations.state(id)
            && seen.status == Status::Live
        {
            let dead = State {
                generation: seen.generation + 1,
                status: Status::Dead,
                ..seen
            };
            // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
            unsafe { generations.assume_state(id, seen, dead) };
        }
    }
    Instance::new(2 + crash.recoverers_lost, 1)
}

pub(super) fn hold(what: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if what { Ok(()) } else { Err(otherwise()) }
}

/// A death is reported to a group: once, wherever the reporting member dies.
struct Tell {
    ring: u32,
}

impl Tell {
    fn log(&self, memory: Marked) -> GroupLog<Marked> {
        GroupLog::new(memory, Offset::new(0), self.ring, IDS)
    }
}

const VICTIM: Instance = Instance::new(1, 3);

impl Sweep for Tell {
    fn name(&self) -> String {
        format!("group.append, ring of {}", self.ring)
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<AppendPoint>()]
    }

    fn prepare(&self, memory: Marked) {
        let log = self.log(memory);
        for id in 0..3 {
            log.tell_joined(Instance::new(id, 3), Level::Thread);
        }
    }

    fn operate(&self, memory: Marked) {
        let told = self.log(memory).tell_died(VICTIM);
        assert_eq!(told, Some(4));
    }

    fn recover(&self, memory: Marked, _crash: &Crash) {
        // As every other watcher does; and a later event, to see that the log continues.
        let log = self.log(memory);
        log.tell_died(VICTIM);
        log.tell_left(Instance::new(2, 3));
    }

    fn check(&self, memory: Marked, _crash: &Crash) -> Result<(), String> {
        let log = self.log(memory);
        hold(log.tail() == 5, || {
            format!("{} events instead of 5", log.tail())
        })?;
        let kind_at = |sequence| log.event(sequence).map(|event: Event| event.kind);
        hold(kind_at(4) == Some(EventKind::ThreadDied), || {
            format!("event 4 is {:?}", kind_at(4))
        })?;
        hold(kind_at(5) == Some(EventKind::Left), || {
            format!("event 5 is {:?}", kind_at(5))
        })?;
        let standing = log.member(VICTIM.id).standing;
        hold(standing == Standing::Died, || {
            format!("the table says {standing:?} of the dead member")
        })
    }
}

/// A proven death is finalised: raised once and reported once, to each of two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bury {
    /// The death of a thread.
    Thread,
    /// The death of a fenced host: whichever member reports it, it reports the reason.
    FencedHost,
    /// Broken: the note of the fence is lost.
    ForgetsTheFence,
}

impl Bury {
    const DEAD: Instance = Instance::new(5, 1);

    /// The word of the dead instance before it is raised.
    fn seen(self) -> State {
        match self {
            Self::Thread => live(1, Level::Thread),
            Self::FencedHost | Self::ForgetsTheFence => State {
                status: Status::Fencing,
                ..live(1, Level::Host)
            },
        }
    }

    fn bury<M: Memory>(self, tables: Tables<M>) {
        // SAFETY: no thread acts as instance 5.1.
        unsafe { bury(tables, &Silent, Self::DEAD.id, self.seen()) };
    }
}

impl Sweep for Bury {
    fn name(&self) -> String {
        match self {
            Self::Thread => "instance.bury".into(),
            Self::FencedHost => "instance.bury, a fenced host".into(),
            Self::ForgetsTheFence => "buries and forgets the fence".into(),
        }
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<BuryPoint>(), PointKind::of::<AppendPoint>()]
    }

    fn prepare(&self, memory: Marked) {
        let tables = tables(memory);
        enliven(tables, 1..IDS);
        let (groups, generations) = (tables.groups(), tables.generations());
        let (thread, seen) = (live(1, Level::Thread), self.seen());
        // SAFETY: no thread acts as instance 5.1.
        let is_so =
            seen == thread || unsafe { generations.assume_state(Self::DEAD.id, thread, seen) };
        assert!(is_so, "it was a thread's");
        let created = groups.create(
            generations,
            Instance::new(1, 1),
            "second",
            &Guard::default(),
        );
        let second = created.expect("room for a group");
        for group in [GroupId::POD, second] {
            let level = seen.level.expect("a level");
            groups.log(group).tell_joined(Self::DEAD, level);
        }
    }

    fn operate(&self, memory: Marked) {
        match self {
            Self::Thread | Self::FencedHost => self.bury(tables(memory)),
            Self::ForgetsTheFence => {
                let at = tables(memory).records().fenced_at(Self::DEAD.id);
                self.bury(tables(Weakened::new(memory, Weakness::Stores(at, 8))));
            }
        }
    }

    fn recover(&self, memory: Marked, _crash: &Crash) {
        // The next watcher sees the same proof, and its heartbeat reports the missing events.
        let tables = tables(memory);
        self.bury(tables);
        reconcile(tables, &Silent);
    }

    fn check(&self, memory: Marked, _crash: &Crash) -> Result<(), String> {
        let tables = tables(memory);
        let current = tables.generations().current(5);
        hold(current == 2, || format!("raised to {current} instead of 2"))?;
        let (kind, fenced) = match self {
            Self::Thread => (EventKind::ThreadDied, false),
            Self::FencedHost | Self::ForgetsTheFence => (EventKind::HostDied, true),
        };
        for group in tables.groups().all() {
            let log = tables.groups().log(group);
            let told = log.event(2);
            let died = told.is_some_and(|it| (it.kind, it.instance) == (kind, Self::DEAD));
            hold(log.tail() == 2 && died, || {
                format!("{group} has {} events", log.tail())
            })?;
            hold(told.is_some_and(|it| it.fenced == fenced), || {
                format!("{group} was notified of a death without its reason")
            })?;
        }
        Ok(())
    }
}

/// A group is created whole or not at all, and its creator's death holds up no member.
struct CreateGroup;

impl Sweep for CreateGroup {
    fn name(&self) -> String {
        "group.create".into()
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<CreateGroupPoint>()]
    }

    fn prepare(&self, memory: Marked) {
        enliven(tables(memory), 1..IDS);
    }

    fn operate(&self, memory: Marked) {
        let tables = tables(memory);
        let guard = Guard {
            uid: Some(7),
            ..Guard::default()
        };
        tables
            .groups()
            .create(
                tables.generations(),
                Instance::new(1, 1),
                "victim's",
                &guard,
            )
            .expect("room for it");
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let tables = tables(memory);
        let me = survivor(tables, crash);
        for name in ["victim's", "survivor's"] {
            let guard = Guard {
                uid: Some(7),
                ..Guard::default()
            };
            match tables
                .groups()
                .create(tables.generations(), me, name, &guard)
            {
                Ok(_) | Err(GroupError::Exists { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let groups = tables(memory).groups();
        let mut names: Vec<_> = groups.all().map(|group| groups.name(group)).collect();
        names.sort();
        hold(names == ["", "survivor's", "victim's"], || {
            format!("the groups are {names:?}")
        })?;
        let shown = |uid| outlive::membership::Credentials {
            uid,
            ..Default::default()
        };
        hold(
            groups.admit("victim's", &shown(7)).is_ok()
                && groups.admit("victim's", &shown(8)).is_err(),
            || format!("the guard is not what it was, {}", crash.at),
        )
    }
}

/// The fabric manager's role is taken by one member, and by the next when that one is dead.
struct TakeRole;

impl Sweep for TakeRole {
    fn name(&self) -> String {
        "role.take".into()
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<TakeRolePoint>()]
    }

    fn prepare(&self, memory: Marked) {
        let tables = tables(memory);
        enliven(tables, 0..IDS);
        let first = Instance::new(0, 1);
        assert!(tables.role().take(tables.generations(), first));
        let dead = State {
            generation: 2,
            status: Status::Dead,
            ..live(1, Level::Thread)
        };
        // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
        unsafe {
            tables
                .generations()
                .assume_state(0, live(1, Level::Thread), dead)
        };
    }

    fn operate(&self, memory: Marked) {
        let tables = tables(memory);
        assert!(
            tables
                .role()
                .take(tables.generations(), Instance::new(1, 1))
        );
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let tables = tables(memory);
        // While the taker's death is unproven, the role is not taken from it.
        let holder = tables.role().holder();
        if holder == Some(Instance::new(1, 1)) && tables.generations().current(1) == 1 {
            assert!(
                !tables
                    .role()
                    .take(tables.generations(), Instance::new(4, 1))
            );
        }
        let me = survivor(tables, crash);
        assert!(
            tables.role().take(tables.generations(), me),
            "{me} is not admitted"
        );
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let holder = tables(memory).role().holder();
        let expected = Some(Instance::new(2 + crash.recoverers_lost, 1));
        hold(holder == expected, || {
            format!("the role belongs to {holder:?} instead of {expected:?}")
        })
    }
}

/// The watch of a host is taken from a dead process by one, and by the next when that one is dead.
struct TakeWatch;

impl TakeWatch {
    const HOST: Instance = Instance::new(0, 1);
    /// The words of the obituaries, behind the tables.
    const OBITUARIES: Offset = Offset::new(SIZE - 128);

    fn os(memory: Marked, id: u32) -> Obituaries<Marked> {
        Obituaries::new(memory, Self::OBITUARIES, 100 + id)
    }

    fn stand(memory: Marked, id: u32) -> bool {
        let (tables, os) = (tables(memory), Self::os(memory, id));
        steps::stand_on_watch(tables, &os, Self::HOST, Instance::new(id, 1))
    }

    /// Marks the obituary of the process `id`, as the kernel does, if it is not marked.
    fn mark(memory: Marked, id: u32) {
        let os = Self::os(memory, id);
        if matches!(os.obituary(id), Obituary::Held { .. }) {
            os.mark(id);
        }
    }
}

impl Sweep for TakeWatch {
    fn name(&self) -> String {
        "watch.take".into()
    }

    fn size(&self) -> u64 {
        SIZE
    }

    fn declares(&self) -> Vec<&'static PointKind> {
        vec![PointKind::of::<TakeWatchPoint>()]
    }

    fn prepare(&self, memory: Marked) {
        let generations = tables(memory).generations();
        for id in 0..IDS {
            let level = match id {
                0 => Level::Host,
                _ => Level::Process,
            };
            // SAFETY: no thread acts as the incarnation that this ends; one acts as the new one.
            assert!(unsafe { generations.assume_state(id, State::FREE, live(1, level)) });
            assert!(matches!(Self::os(memory, id).hold_obituary(id), Ok(Ok(()))));
        }
        let last = IDS - 1;
        assert!(Self::stand(memory, last));
        Self::mark(memory, last);
    }

    fn operate(&self, memory: Marked) {
        assert!(Self::stand(memory, 1));
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        // While the victim's death has no mark, the watch is not taken from it.
        let holder = steps::on_watch(tables(memory), Self::HOST);
        let is_held = |id| matches!(Self::os(memory, id).obituary(id), Obituary::Held { .. });
        if holder == Some(Instance::new(1, 1)) && is_held(1) {
            assert!(!Self::stand(memory, IDS - 2));
        }
        for dead in 1..2 + crash.recoverers_lost {
            Self::mark(memory, dead);
        }
        let me = survivor(tables(memory), crash);
        assert!(Self::stand(memory, me.id), "{me} does not get the watch");
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        let holder = steps::on_watch(tables(memory), Self::HOST);
        let expected = Some(Instance::new(2 + crash.recoverers_lost, 1));
        hold(holder == expected, || {
            format!("{holder:?} is on watch instead of {expected:?}")
        })
    }
}
