//! The event log of a control group: any number of tellers report each event once, in one order.

use outlive::membership::{
    Credentials, Event, EventKind, Extent, GroupError, GroupId, GroupLog, Guard, Instance, Level,
    News, Standing, Subscription, Tables,
};
use outlive_memory::{Native, Offset, PersistenceDomain};
use proptest::prelude::*;
use std::collections::HashMap;

const IDS: u32 = 6;

fn log(events: u32) -> GroupLog {
    let size = GroupLog::<Native>::bytes(events, IDS).next_multiple_of(4096);
    let memory = Native::leaked(size, PersistenceDomain::Flushed);
    GroupLog::new(memory, Offset::new(0), events, IDS)
}

#[derive(Clone, Copy, Debug)]
enum Say {
    Joined(Instance),
    Left(Instance),
    Died(Instance),
    Suspected(Instance),
    Role(Instance),
}

fn say(log: GroupLog, what: Say) -> Option<u64> {
    match what {
        Say::Joined(who) => log.tell_joined(who, Level::Thread),
        Say::Left(who) => log.tell_left(who),
        Say::Died(who) => log.tell_died(who),
        Say::Suspected(who) => log.tell_suspected(who),
        Say::Role(who) => log.tell_role(who),
    }
}

/// The expected state of a group, in plain words.
#[derive(Default)]
struct Model {
    known: HashMap<u32, (Instance, Standing)>,
    manager: Option<Instance>,
    told: Vec<(EventKind, Instance)>,
}

impl Model {
    fn say(&mut self, what: Say) {
        let (who, kind, now) = match what {
            Say::Role(who) => {
                if self.manager != Some(who) {
                    self.manager = Some(who);
                    self.told.push((EventKind::RoleChanged, who));
                }
                return;
            }
            Say::Joined(who) => match self.known.get(&who.id) {
                None => (who, EventKind::Joined, Standing::Member),
                Some((of, standing)) => {
                    let back = *of == who && *standing == Standing::Left;
                    if who.generation > of.generation || back {
                        (who, EventKind::Rejoined, Standing::Member)
                    } else {
                        return;
                    }
                }
            },
            Say::Left(who) | Say::Died(who) | Say::Suspected(who) => {
                let Some((of, standing)) = self.known.get(&who.id) else {
                    return;
                };
                if *of != who || !standing.is_in() {
                    return;
                }
                match what {
                    Say::Left(_) => (who, EventKind::Left, Standing::Left),
                    Say::Died(_) => (who, EventKind::ThreadDied, Standing::Died),
                    _ if *standing == Standing::Member => {
                        (who, EventKind::HostSuspected, Standing::Suspect)
                    }
                    _ => return,
                }
            }
        };
        self.known.insert(who.id, (who, now));
        self.told.push((kind, who));
    }
}

fn sayings() -> impl Strategy<Value = Say> {
    let who = (0..IDS, 1u32..4).prop_map(|(id, generation)| Instance::new(id, generation));
    (0..5u8, who).prop_map(|(what, who)| match what {
        0 => Say::Joined(who),
        1 => Say::Left(who),
        2 => Say::Died(who),
        3 => Say::Suspected(who),
        _ => Say::Role(who),
    })
}

proptest! {
    #[test]
    fn a_log_tells_what_the_model_tells(what in prop::collection::vec(sayings(), 0..80), events in 1u32..9) {
        let log = log(events);
        let mut model = Model::default();
        for what in what {
            let before = model.told.len();
            model.say(what);
            let told = say(log, what);
            prop_assert_eq!(told.is_some(), model.told.len() > before);
            if let Some(sequence) = told {
                prop_assert_eq!(sequence, model.told.len() as u64);
                let event = log.event(sequence).expect("just reported");
                prop_assert_eq!((event.kind, event.instance), model.told[before]);
            }
        }
        prop_assert_eq!(log.tail(), model.told.len() as u64);
        for id in 0..IDS {
            let state = log.member(id);
            let known = state.instance.map(|instance| (instance, state.standing));
            prop_assert_eq!(known, model.known.get(&id).copied());
        }
    }
}

/// Four threads report the same joins and deaths: each event comes once.
#[test]
fn many_tellers_tell_each_event_once() {
    const ROUNDS: u32 = 300;
    let log = log(4096);
    std::thread::scope(|scope| {
        for teller in 0..4u32 {
            scope.spawn(move || {
                for generation in 1..=ROUNDS {
                    for id in 0..IDS {
                        let who = Instance::new((id + teller) % IDS, generation);
                        log.tell_joined(who, Level::Thread);
                        log.tell_died(who);
                    }
                }
            });
        }
    });
    let events: Vec<Event> = (1..=log.tail())
        .map(|sequence| log.event(sequence).expect("in the ring"))
        .collect();
    for id in 0..IDS {
        let (mut last, mut open) = (0, false);
        for event in events.iter().filter(|event| event.instance.id == id) {
            match event.kind {
                EventKind::Joined | EventKind::Rejoined => {
                    assert!(event.instance.generation > last, "reported twice: {event}");
                    last = event.instance.generation;
                    open = true;
                }
                EventKind::ThreadDied => {
                    let fits = open && event.instance.generation == last;
                    assert!(fits, "reported twice: {event}");
                    open = false;
                }
                other => panic!("{other:?} was never reported"),
            }
        }
        assert_eq!((last, open), (ROUNDS, false));
    }
}

/// A ring of eight events, a slow reader and a fast teller: the reader is notified that it lagged,
/// and then learns the true state.
#[test]
fn a_reader_that_lags_learns_the_true_state() {
    let log = log(8);
    let mut reader = Subscription::new(log, IDS, 0);
    log.tell_joined(Instance::new(1, 1), Level::Thread);
    assert!(matches!(reader.poll(), Some(News::Event(event)) if event.kind == EventKind::Joined));
    assert_eq!(reader.poll(), None);
    for generation in 2..20 {
        log.tell_joined(Instance::new(2, generation), Level::Process);
        log.tell_died(Instance::new(2, generation));
    }
    let Some(News::Resync {
        missed,
        up_to,
        members,
        manager: None,
    }) = reader.poll()
    else {
        panic!("36 events in a ring of 8 were not noticed");
    };
    assert_eq!((missed, up_to), (36, 37));
    let two = members.iter().find(|(id, _)| *id == 2).expect("a member").1;
    assert_eq!(two.instance, Some(Instance::new(2, 19)));
    assert_eq!(two.standing, Standing::Died);
    assert_eq!(reader.poll(), None);
    log.tell_died(Instance::new(1, 1));
    assert!(matches!(reader.poll(), Some(News::Event(event)) if event.sequence == 38));
}

fn tables(extent: Extent) -> Tables {
    let (places, size) = extent.lay_out();
    let memory = Native::leaked(size, PersistenceDomain::Flushed);
    Tables::new(memory, extent, places)
}

#[test]
fn a_group_admits_only_whom_its_guard_does() {
    let tables = tables(Extent {
        ids: IDS,
        groups: 3,
        events: 8,
        log_bytes: 0,
    });
    let (groups, generations) = (tables.groups(), tables.generations());
    let creator = Instance::new(0, 1);
    let guard = Guard {
        uid: Some(1000),
        gid: None,
        secret: Some(b"sesame".to_vec()),
    };
    let group = groups
        .create(generations, creator, "index", &guard)
        .expect("enough free space");
    assert_eq!(groups.name(group), "index");
    assert_eq!(groups.all().collect::<Vec<_>>(), [GroupId::POD, group]);
    let shown = |uid, secret: Option<&[u8]>| Credentials {
        uid,
        gid: 7,
        secret: secret.map(<[u8]>::to_vec),
    };
    let sesame = Some(&b"sesame"[..]);
    assert_eq!(groups.admit("index", &shown(1000, sesame)), Ok(group));
    for (credentials, why) in [
        (shown(1001, sesame), "another user"),
        (shown(1000, Some(b"Sesame")), "the secret is wrong"),
        (shown(1000, None), "none was given"),
    ] {
        let error = groups.admit("index", &credentials).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(matches!(
        groups.create(generations, creator, "index", &guard),
        Err(GroupError::Exists { .. })
    ));
    assert!(matches!(
        groups.admit("nothing", &shown(0, None)),
        Err(GroupError::NotFound { .. })
    ));
    groups
        .create(generations, creator, "second", &Guard::default())
        .expect("the last slot");
    assert_eq!(
        groups.create(generations, creator, "third", &Guard::default()),
        Err(GroupError::Full { most: 3 })
    );
    assert!(matches!(
        groups.create(generations, creator, "", &guard),
        Err(GroupError::Name { len: 0 })
    ));
}
