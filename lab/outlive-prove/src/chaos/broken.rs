//! Workers that are broken in one known way each. A run with such a worker must fail.

use super::ledger::{Intent, What};
use super::stage::own_key;
use super::worker::Hands;
use core::fmt;
use core::str::FromStr;

/// The number of operations after which a broken worker misbehaves.
const SOON: u64 = 200;

/// The way in which the workers are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Broken {
    /// They do not ask whether an inherited intent took effect.
    Forgetful,
    /// They panic now and then.
    Panics,
    /// They abort now and then, so they end by a signal that no process sent.
    Aborts,
    /// They cannot join.
    Lost,
    /// They remove an own key now and then without recording it.
    Loses,
    /// They insert an own key without recording it.
    Invents,
    /// They change the value of an own key without recording it.
    Changes,
}

impl Broken {
    /// All variants.
    pub const ALL: [Self; 7] = [
        Self::Forgetful,
        Self::Panics,
        Self::Aborts,
        Self::Lost,
        Self::Loses,
        Self::Invents,
        Self::Changes,
    ];

    /// Returns the name, for the command line and the workers' environment.
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

    /// Returns whether such a worker does not ask about the effect of `intent`. It asks where the
    /// omission would be noticed at once (a cell is full, a key exists).
    pub(super) fn forgets(self, intent: Intent) -> bool {
        let counts = [
            What::Count,
            What::Add,
            What::InsertCommon,
            What::RemoveCommon,
        ];
        self == Self::Forgetful && counts.contains(&intent.what)
    }

    /// Misbehaves in this variant's way, before `intent` is carried out.
    pub(super) fn misbehave(self, hands: &Hands<'_>, intent: Intent) -> Result<(), String> {
        let (map, heap) = (&hands.map, &hands.heap);
        let key = own_key(hands.worker, intent.which);
        // The value of the own key that `intent` is about to change: the map's answer to that
        // operation then reveals the fault.
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
            format!("there is no fault {name:?} of workers; use one of {names}")
        })
    }
}
