//! The scenarios: programs of the two compute servers, memory servers, and deaths.

/// An operation of a transaction. X is object 0, and Y is object 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Reads an object.
    Read(u8),
    /// Writes an object, or inserts it if it does not exist.
    Put(u8),
    /// Leaves a tombstone.
    Delete(u8),
}

use Operation::{Delete, Put, Read};

impl Operation {
    /// The number of the object.
    pub const fn object(self) -> usize {
        match self {
            Read(object) | Put(object) | Delete(object) => object as usize,
        }
    }
}

/// The transactions of a compute server's coordinator, in order. One that is aborted is not
/// retried.
pub type Program = &'static [&'static [Operation]];

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name.
    pub name: &'static str,
    /// One line that explains it.
    pub about: &'static str,
    /// 2 or 3. X is on the first two servers, with the first as primary. Y is on the second and
    /// the third, or the first if there is no third, with the second as primary.
    pub memory_servers: u8,
    /// Whether X and Y exist at first.
    pub exists: [bool; 2],
    /// The transactions of each compute server.
    pub programs: [Program; 2],
    /// The compute servers that may die.
    pub victims: [bool; 2],
    /// The largest numbers of deaths: of compute servers, recoverers and memory servers.
    pub deaths: [u8; 3],
    /// The largest number of connections that break.
    pub breaks: u8,
    /// Whether a WRITE of a value may be cut by a death.
    pub cuts_values: bool,
    /// Whether the tests explore it; the others are for `--full`.
    pub is_small: bool,
}

impl Scenario {
    /// Whether a transaction of one compute server writes an object that one of the other writes,
    /// and this other server may die.
    pub fn can_steal(&self) -> bool {
        let writes = |of: usize, object: u8| {
            let mut all = self.programs[of].iter().copied().flatten();
            all.any(|it| *it == Put(object) || *it == Delete(object))
        };
        let both = [X, Y].iter().any(|it| writes(0, *it) && writes(1, *it));
        both && self.victims.contains(&true)
    }
}

const X: u8 = 0;
const Y: u8 = 1;

const SMALL: Scenario = Scenario {
    name: "",
    about: "",
    memory_servers: 2,
    exists: [true; 2],
    programs: [&[], &[]],
    victims: [true, false],
    deaths: [1, 0, 0],
    breaks: 0,
    cuts_values: false,
    is_small: true,
};

/// The scenarios.
pub const ALL: [Scenario; 18] = [
    Scenario {
        name: "skew",
        about: "each transaction reads the object that the other one writes",
        programs: [&[&[Read(X), Put(Y)]], &[&[Read(Y), Put(X)]]],
        ..SMALL
    },
    Scenario {
        name: "absence",
        about: "each transaction finds no object, and inserts the one that the other one missed",
        exists: [false; 2],
        programs: [&[&[Read(X), Put(Y)]], &[&[Read(Y), Put(X)]]],
        ..SMALL
    },
    Scenario {
        name: "contention",
        about: "three transactions write one object",
        programs: [&[&[Put(X)]], &[&[Put(X)], &[Put(X)]]],
        ..SMALL
    },
    Scenario {
        name: "pair",
        about: "both transactions write both objects, in opposite orders",
        programs: [&[&[Put(X), Put(Y)]], &[&[Put(Y), Put(X)]]],
        cuts_values: true,
        ..SMALL
    },
    Scenario {
        name: "reader",
        about: "a transaction reads both objects while another one writes them",
        programs: [&[&[Put(X), Put(Y)]], &[&[Read(X), Read(Y)]]],
        cuts_values: true,
        ..SMALL
    },
    Scenario {
        name: "single",
        about: "a transaction reads one object while another one writes it",
        programs: [&[&[Put(X), Put(Y)]], &[&[Read(X)]]],
        cuts_values: true,
        ..SMALL
    },
    Scenario {
        name: "validation",
        about: "a transaction writes what another one only read",
        programs: [&[&[Read(X), Put(Y)]], &[&[Put(X), Put(Y)]]],
        ..SMALL
    },
    Scenario {
        name: "update",
        about: "a transaction reads what it writes and another object",
        programs: [&[&[Read(X), Put(Y), Put(X)]], &[&[Put(X), Put(Y)]]],
        ..SMALL
    },
    Scenario {
        name: "insert-delete",
        about: "a transaction inserts one object and deletes the other one",
        exists: [false, true],
        programs: [&[&[Put(X), Delete(Y)]], &[&[Read(X), Put(Y)]]],
        ..SMALL
    },
    Scenario {
        name: "recoverer",
        about: "the recoverer dies too, and another one executes the recovery again",
        programs: [&[&[Put(X), Put(Y)]], &[&[Put(X)]]],
        deaths: [1, 1, 0],
        ..SMALL
    },
    Scenario {
        name: "loss",
        about: "a memory server dies, and a compute server with it",
        memory_servers: 3,
        programs: [&[&[Put(X), Put(Y)]], &[&[Put(X)]]],
        deaths: [1, 0, 1],
        ..SMALL
    },
    Scenario {
        name: "breaks",
        about: "two connections break while three transactions write one object",
        programs: [&[&[Put(X)]], &[&[Put(X)], &[Put(X)]]],
        deaths: [0; 3],
        breaks: 2,
        ..SMALL
    },
    Scenario {
        name: "broken-pair",
        about: "a connection breaks and a compute server dies while both write both objects",
        programs: [&[&[Put(X), Put(Y)]], &[&[Read(X), Put(Y)]]],
        breaks: 1,
        ..SMALL
    },
    Scenario {
        name: "broken-recoverer",
        about: "a connection breaks, and a compute server and its recoverer die",
        programs: [&[&[Put(X), Put(Y)]], &[&[Put(X)]]],
        deaths: [1, 1, 0],
        breaks: 1,
        ..SMALL
    },
    Scenario {
        name: "full-breaks",
        about: "a connection breaks, a compute server and its recoverer die; three transactions",
        programs: [&[&[Put(X), Put(Y)]], &[&[Read(X), Put(Y)], &[Put(X)]]],
        victims: [true; 2],
        deaths: [1, 1, 0],
        breaks: 1,
        is_small: false,
        ..SMALL
    },
    Scenario {
        name: "full-compute",
        about: "both compute servers and a recoverer die, between and in two transactions each",
        programs: [
            &[&[Read(X), Put(Y)], &[Put(X), Put(Y)]],
            &[&[Read(Y), Put(X)], &[Put(Y)]],
        ],
        victims: [true; 2],
        deaths: [2, 1, 0],
        is_small: false,
        ..SMALL
    },
    Scenario {
        name: "full-tombstones",
        about: "inserts and tombstones, with cut WRITEs; a compute server and two recoverers die",
        exists: [false, true],
        programs: [&[&[Put(X), Delete(Y)]], &[&[Read(X), Put(Y)], &[Delete(X)]]],
        victims: [true; 2],
        deaths: [1, 2, 0],
        cuts_values: true,
        is_small: false,
        ..SMALL
    },
    Scenario {
        name: "full-loss",
        about: "a memory server, a compute server and its recoverer die",
        memory_servers: 3,
        programs: [
            &[&[Read(X), Put(Y)], &[Put(X), Put(Y)]],
            &[&[Put(Y), Put(X)]],
        ],
        victims: [true; 2],
        deaths: [1, 1, 1],
        is_small: false,
        ..SMALL
    },
];

/// Returns the scenario with this name.
pub fn named(name: &str) -> Option<Scenario> {
    ALL.into_iter().find(|it| it.name == name)
}
