//! The pod's obligations to its instances: the logs of `recovery`, for membership to call for.

use crate::heap::Heap;
use crate::membership::{Member, Obligations};
use crate::objects::Directory;
use crate::recovery::{OwnLog, RecoverError, Recovered, Recoverers};
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

/// The interval at which a joining instance polls the recovery of its predecessor.
const ROUND: Duration = Duration::from_micros(200);

/// Logs, opened, closed and recovered by `recoverers`.
pub(super) struct LogObligations {
    recoverers: Recoverers,
    heap: Option<Heap>,
    /// The error of the last recovery, to report it once.
    failed: Mutex<Option<String>>,
}

impl LogObligations {
    pub(super) fn new(recoverers: Recoverers, heap: Option<Heap>) -> Self {
        Self {
            recoverers,
            heap,
            failed: Mutex::new(None),
        }
    }

    pub(super) fn recoverers(&self) -> &Recoverers {
        &self.recoverers
    }
}

impl Obligations for LogObligations {
    fn begin(&self, member: &Member) -> Result<(), String> {
        loop {
            match self.recoverers.recover(member, member.instance().id) {
                Ok(Recovered::ByAnother(_)) => {}
                Ok(Recovered::Completed { .. } | Recovered::NothingLeft) => {
                    if OwnLog::open(member).is_ok() {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error.to_string()),
            }
            // A live member recovers our predecessor; if it dies, we can take the claim.
            std::thread::sleep(ROUND);
        }
    }

    fn end(&self, member: &Member) -> bool {
        let directory = self.heap.and_then(|heap| Directory::open(heap).ok()?);
        if directory.is_some_and(|directory| directory.has_leases(member.instance().id)) {
            tracing::warn!(
                ?member,
                "a member that leaves has handles of named objects open"
            );
            return false;
        }
        match OwnLog::of(member).close() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(?member, %error, "the log of a member that leaves cannot be closed");
                false
            }
        }
    }

    fn recover(&self, member: &Member) {
        let failed = match self.recoverers.recover_all(member) {
            Ok(_) | Err(RecoverError::Leaving { .. }) => None,
            Err(error) => Some(error.to_string()),
        };
        let mut before = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &failed
            && *before != failed
        {
            tracing::error!(error, "this process could not recover a dead member");
        }
        *before = failed;
    }
}
