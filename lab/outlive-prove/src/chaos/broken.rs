//! Workers that are broken in one known way each. A run with one must not be clean.

use super::ledger::{Intent, What};
use super::stage::own_key;
use super::worker::Hands;
use core::fmt;
use core::str::FromStr;

/// After how many operations a worker that fails does so.
const SOON: u64 = 200;

/// What is wrong with the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// They do not ask whether what they had intended took effect.
    Forgetful,
    /// They panic now and then.
    Panics,
    /// They end by a signal now and then that nobody has sent them.
    Aborts,
    /// They cannot join.
    Lost,
    /// They remove a key of their own now and then, and do not know of it.
    Loses,
    /// They insert one.
    Invents,
    /// They give one another value.
    Changes,
}

impl Broken {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Forgetful,
        Self::Panics,
        Self::Aborts,
        Self::Lost,
        Self::Loses,
        Self::Invents,
        Self::Changes,
    ];

    /// Its name, for the command line and the workers' environment.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forgetful => "forgetful",
            Self::Panics => "panics",
            Self::Aborts => "aborts",
            Self::Lost => "lost",
            Self::Loses => "loses",
            Self::Invents => "invents",
            Self::Changes => "changes",
        }
    }

    /// Whether such a worker does not ask what became of `intent`. Where that would be noticed at once (a cell is
    /// full, a key is there), it asks.
    pub(super) fn forgets(self, intent: Intent) -> bool {
        let counts = [
            What::Count,
            What::Add,
            What::InsertCommon,
            What::RemoveCommon,
        ];
        self == Self::Forgetful && counts.contains(&intent.what)
    }

    /// What such a worker does besides, before it does what `intent` says.
    pub(super) fn misbehave(self, hands: &Hands<'_>, intent: Intent) -> Result<(), String> {
        let (map, heap) = (&hands.map, &hands.heap);
        let key = own_key(hands.worker, intent.which);
        // The own key that it is about to change: whatever it is told of it then is known to be wrong.
        let own = match intent.what {
            What::Put if intent.sequence > SOON => Some(hands.own(intent.which)),
            _ => None,
        };
        let now = intent.sequence.is_multiple_of(SOON) && intent.what != What::Count;
        match self {
            Self::Panics if now => panic!("broken on purpose"),
            Self::Aborts if now => std::process::abort(),
            Self::Loses if matches!(own, Some(Some(_))) => {
                map.remove(heap, &key);
                Ok(())
            }
            Self::Invents if own == Some(None) => map
                .insert(heap, &key, &intent.much)
                .map_err(|error| error.to_string()),
            Self::Changes if matches!(own, Some(Some(_))) => map
                .replace(heap, &key, &u64::MAX)
                .map(drop)
                .map_err(|error| error.to_string()),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Broken {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|broken| broken.name() == name);
        known.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("workers are not broken like {name:?}; there are {names}")
        })
    }
}
