//! The log of a group's events: each is reported once, in one order, wherever a member dies; and
//! broken variants, each of which an exploration must find.

use outlive::membership::{
    EventKind, GroupLog, Instance, InstanceId, Level, MemberState, News, Standing, Subscription,
};
use outlive_memory::{Memory, Offset, Ordering};
use outlive_prove::explore::{self, CacheRules, Exploring};
use outlive_prove::proof::{Proof, Reach};
use outlive_prove::schedule::{self, Bounds, End, Ghost, Proving, Scenario};
use outlive_prove::weakened::{Weakened, Weakness};
use std::collections::BTreeMap;

/// The scenarios of this file.
pub fn all() -> Vec<Proof> {
    let every = |scenario, preemptions, deaths| Proof {
        scenario,
        quick: Reach::Every(bounds().preemptions(preemptions).deaths(deaths)),
        full: Reach::Every(Bounds::default().deaths(2)),
    };
    vec![
        every(telling("group log, ring of 4", 4, Story::ThreeIds), 1, 2),
        every(telling("group log, ring of 2", 2, Story::ThreeIds), 1, 2),
        every(
            telling("group log, one id, ring of 4", 4, Story::OneId),
            1,
            2,
        ),
        every(
            telling("group log, one id, ring of 2", 2, Story::OneId),
            2,
            1,
        ),
    ]
}

/// Returns scenarios that must fail within these bounds, each with a part of the message.
pub fn broken() -> Vec<(Scenario, Bounds, &'static str)> {
    vec![
        (nobody_finishes(), bounds(), "is pending"),
        (relaxed_tail(), bounds().deaths(0), "reported twice"),
        (late_plain_helper(), bounds().deaths(0), "the table"),
        (unwritten_table(), bounds().deaths(0), "reported"),
    ]
}

/// The log on memory with caches that die with their hosts. It holds if a line goes through memory
/// from cache to cache and is lost as a whole, and does *not* hold otherwise: a word of the table
/// that falls back by one of its halves has the number of one event and the instance of none, and
/// its number makes every helper take it for written; and a word that a helper found written may
/// fall back before the helper's write-back, after which it is not checked again.
pub fn in_lost_caches(rules: CacheRules) -> Scenario<Exploring> {
    let scenario = explore::scenario("group log, caches lost");
    tellers(scenario.memory(SIZE).caches(rules), 4, Story::ThreeIds)
}

fn bounds() -> Bounds {
    Bounds::default()
        .preemptions(1)
        .stale_reads(1)
        .executions(1_000_000)
}

/// The events that the two tellers report.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Story {
    /// Both report a death; then one reports a join, the other a departure.
    ThreeIds,
    /// Both report a death, then that the id is back.
    OneId,
}

const IDS: u32 = 4;
const SIZE: u64 = 1024;
/// The number of events in the log before the threads start: ids 0, 1 and 2 join.
const BEFORE: u64 = 3;
const DEAD: Instance = Instance::new(2, 1);
const BACK: Instance = Instance::new(2, 2);
const LEAVES: Instance = Instance::new(1, 1);
const JOINS: Instance = Instance::new(3, 1);

fn log<M: Memory>(m: M, ring: u32) -> GroupLog<M> {
    GroupLog::new(m, Offset::new(0), ring, IDS)
}

fn slot_at(ring: u32, sequence: u64) -> Offset {
    Offset::new(128 + (sequence - 1) % u64::from(ring) * 16)
}

fn member_at(ring: u32, id: InstanceId) -> Offset {
    Offset::new(128 + (u64::from(ring) + u64::from(id)) * 16)
}

impl Story {
    /// Reports the events of one teller. Returns the instance and number of each reported event.
    fn tell<M: Memory>(self, log: GroupLog<M>, who: u32) -> Vec<(Instance, u64)> {
        let died = log.tell_died(DEAD).map(|n| (DEAD, n));
        let then = match (self, who) {
            (Self::OneId, _) => log.tell_joined(BACK, Level::Thread).map(|n| (BACK, n)),
            (Self::ThreeIds, 0) => log.tell_joined(JOINS, Level::Thread).map(|n| (JOINS, n)),
            (Self::ThreeIds, _) => log.tell_left(LEAVES).map(|n| (LEAVES, n)),
        };
        died.into_iter().chain(then).collect()
    }

    /// Returns the number of events if no teller dies.
    fn events(self) -> u64 {
        match self {
            Self::ThreeIds => 3,
            Self::OneId => 2,
        }
    }
}

/// The results that are kept outside the memory.
struct Known<M: Memory> {
    told: Vec<(Instance, u64)>,
    reader: Option<Reader<M>>,
}

impl<M: Memory> Default for Known<M> {
    fn default() -> Self {
        Self {
            told: Vec::new(),
            reader: None,
        }
    }
}

/// A subscriber that replays the news it receives.
#[derive(Clone)]
struct Reader<M: Memory> {
    subscription: Subscription<M>,
    members: BTreeMap<InstanceId, MemberState>,
    next: u64,
}

impl<M: Memory> Reader<M> {
    fn new(m: M, ring: u32) -> Self {
        let joined = |id| MemberState {
            instance: Some(Instance::new(id, 1)),
            level: Some(Level::Thread),
            standing: Standing::Member,
            sequence: u64::from(id) + 1,
        };
        Self {
            subscription: Subscription::new(log(m, ring), IDS, BEFORE),
            members: (0..3).map(|id| (id, joined(id))).collect(),
            next: BEFORE + 1,
        }
    }

    /// Polls once; returns whether there was news.
    fn poll(&mut self) -> bool {
        match self.subscription.poll() {
            None => return false,
            Some(News::Event(event)) => {
                assert_eq!(event.sequence, self.next, "a gap, or an event twice");
                self.next += 1;
                let now = MemberState {
                    instance: Some(event.instance),
                    level: event.level,
                    standing: match event.kind {
                        EventKind::Joined | EventKind::Rejoined => Standing::Member,
                        EventKind::Left => Standing::Left,
                        EventKind::ThreadDied => Standing::Died,
                        kind => panic!("no member reported the event {}", kind.name()),
                    },
                    sequence: event.sequence,
                };
                // A resynchronisation may have shown it, or a later one.
                let known = self.members.entry(event.instance.id).or_insert(now);
                if known.sequence <= now.sequence {
                    *known = now;
                }
            }
            Some(News::Resync {
                missed,
                up_to,
                members,
                ..
            }) => {
                assert_eq!(missed, up_to + 1 - self.next);
                assert!(missed > 0, "nothing was missed");
                self.next = up_to + 1;
                self.members = members.into_iter().collect();
            }
        }
        true
    }
}

/// Two tellers, each of which may die, and a reader.
fn tellers<M: Proving>(scenario: Scenario<M>, ring: u32, story: Story) -> Scenario<M> {
    let known = Ghost::new();
    let scenario = watched(scenario, ring, story, &known, true);
    (0..2).fold(scenario, |scenario, who| {
        let known = known.clone();
        scenario.mortal(&format!("teller {who}"), move |m: M| {
            let told = story.tell(log(m, ring), who);
            known.with(|known| known.told.extend(told));
        })
    })
}

fn telling(name: &str, ring: u32, story: Story) -> Scenario {
    tellers(Scenario::new(name).memory(SIZE), ring, story)
}

/// Prepares the log, adds the reader, and checks everything in the end. The tellers are threads 1
/// and 2.
fn watched<M: Proving>(
    scenario: Scenario<M>,
    ring: u32,
    story: Story,
    known: &Ghost<Known<M>>,
    finish: bool,
) -> Scenario<M> {
    let (of_reader, of_check) = (known.clone(), known.clone());
    scenario
        .prepare(move |m| {
            for id in 0..3 {
                log(m, ring).tell_joined(Instance::new(id, 1), Level::Thread);
            }
        })
        .thread("reader", move |m| {
            let mut reader = Reader::new(m, ring);
            for _ in 0..2 {
                reader.poll();
            }
            of_reader.with(|known| known.reader = Some(reader));
        })
        .check(move |m, end| {
            if finish {
                log(m, ring).finish_pending();
            }
            let known = of_check.with(core::mem::take);
            check(log(m, ring), ring, story, known, end);
        })
}

fn check<M: Memory>(log: GroupLog<M>, ring: u32, story: Story, known: Known<M>, end: &End<()>) {
    assert!(!log.finish_pending(), "an event is pending");
    let tail = log.tail();
    let last = BEFORE + story.events();
    let died = |teller: usize| end.died(teller);
    assert!(tail <= last, "{} events reported twice", tail - last);
    assert!(
        end.deaths() > 0 || tail == last,
        "{} events were not reported",
        last - tail
    );
    // Events are numbered without gaps, and the ring has the last of them.
    let oldest = (tail + 1).saturating_sub(u64::from(ring)).max(1);
    let told: BTreeMap<_, _> = (oldest..=tail)
        .map(|n| (n, log.event(n).unwrap_or_else(|| panic!("no event {n}"))))
        .collect();
    // The table agrees with the log.
    let mut latest = BTreeMap::new();
    for event in told.values() {
        latest.insert(event.instance.id, event);
    }
    for (id, event) in latest {
        let member = log.member(id);
        assert_eq!(
            (member.sequence, member.instance),
            (event.sequence, Some(event.instance)),
            "the table lags or is ahead: {member:?} after {event:?}"
        );
    }
    // Each event occurs once: a teller that returned reported its own, or learnt that another had.
    let member = |instance: Instance| log.member(instance.id);
    match story {
        Story::ThreeIds => {
            assert!(died(2) && died(1) || member(DEAD).standing == Standing::Died);
            assert!(died(1) || member(JOINS).standing == Standing::Member);
            assert!(died(2) || member(LEAVES).standing == Standing::Left);
            let mut numbers: Vec<_> = (0..IDS).map(|id| log.member(id).sequence).collect();
            numbers.retain(|n| *n > BEFORE);
            numbers.sort();
            assert!(
                numbers.iter().copied().eq(BEFORE + 1..=tail),
                "reported as {numbers:?} of {tail}"
            );
            for (instance, n) in &known.told {
                assert_eq!(member(*instance).sequence, *n, "{instance} reported as {n}");
            }
        }
        Story::OneId => {
            assert!(
                died(1) && died(2) || tail == last,
                "the surviving members report both"
            );
            let kinds = [EventKind::ThreadDied, EventKind::Rejoined];
            for (n, kind) in (BEFORE + 1..=tail).zip(kinds) {
                assert_eq!(told[&n].kind, kind);
            }
        }
    }
    let mut numbers: Vec<_> = known.told.iter().map(|(_, n)| *n).collect();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), known.told.len(), "reported twice");
    assert!(end.deaths() > 0 || numbers.len() as u64 == story.events());
    // At the end, the reader agrees with the table.
    if let Some(mut reader) = known.reader {
        while reader.poll() {}
        assert_eq!(reader.next, tail + 1, "the reader is behind");
        let members: BTreeMap<_, _> = reader.subscription.members().into_iter().collect();
        assert_eq!(reader.members, members, "the reader and the table");
    }
}

/// Broken: no member completes the event of a dead teller.
fn nobody_finishes() -> Scenario {
    let known = Ghost::new();
    let scenario = Scenario::new("nobody finishes").memory(SIZE);
    let mut scenario = watched(scenario, 4, Story::ThreeIds, &known, false);
    for who in 0..2 {
        let known = known.clone();
        scenario = scenario.mortal(&format!("teller {who}"), move |m| {
            let told = Story::ThreeIds.tell(log(m, 4), who);
            known.with(|known| known.told.extend(told));
        });
    }
    scenario
}

/// Two tellers, both on a weakened memory.
fn weak_teller(name: &str, story: Story, weakness: Weakness) -> Scenario {
    let known = Ghost::new();
    let scenario = Scenario::new(name).memory(SIZE);
    let mut scenario = watched(scenario, 4, story, &known, true);
    for who in 0..2 {
        let known = known.clone();
        scenario = scenario.thread(&format!("teller {who}"), move |m| {
            let told = story.tell(log(Weakened::new(m, weakness), 4), who);
            known.with(|known| known.told.extend(told));
        });
    }
    scenario
}

/// Broken: a tail that orders nothing, so that its reader need not see the table up to it.
fn relaxed_tail() -> Scenario {
    let tail = Weakness::Orderings(Offset::new(0), 8);
    weak_teller("relaxed tail", Story::OneId, tail)
}

/// Broken: the tail advances and the table does not: a reported event still looks like news.
fn unwritten_table() -> Scenario {
    let table = Weakness::Swaps(member_at(4, 0), u64::from(IDS) * 16);
    weak_teller("unwritten table", Story::ThreeIds, table)
}

/// Broken: a helper's store to the table can come late.
fn late_plain_helper() -> Scenario {
    let known = Ghost::new();
    let scenario = schedule::scenario("late plain helper").memory(SIZE);
    let scenario = watched(scenario, 4, Story::OneId, &known, true);
    let of_teller = known.clone();
    scenario
        .thread("teller", move |m| {
            let told = Story::OneId.tell(log(m, 4), 0);
            of_teller.with(|known| known.told.extend(told));
        })
        .thread("helper", |m| {
            let next = log(m, 4).tail() + 1;
            let word: u128 = m.load(slot_at(4, next), Ordering::Acquire);
            if word as u64 >> 16 == next {
                m.store(member_at(4, DEAD.id), word, Ordering::Release);
            }
        })
}
