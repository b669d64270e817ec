//! What a pod owes its instances: the logs of the room `recovery`, for membership to call for.

use crate::membership::{Member, Obligations};
use crate::recovery::{OwnLog, Recovered, Recoverers};
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

/// How long a joining instance sleeps between two looks at whoever recovers its predecessor.
const ROUND: Duration = Duration::from_micros(200);

/// Logs, opened, closed and recovered by `recoverers`.
pub(super) struct LogObligations {
    recoverers: Recoverers,
    /// The error of the last recovery, to report it once.
    failed: Mutex<Option<String>>,
}

impl LogObligations {
    pub(super) fn new(recoverers: Recoverers) -> Self {
        Self {
            recoverers,
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
            // Another recovers our predecessor, and lives; if it dies, the claim is ours to take.
            std::thread::sleep(ROUND);
        }
    }

    fn end(&self, member: &Member) -> bool {
        match OwnLog::of(member).close() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(?member, %error, "its log cannot be closed");
                false
            }
        }
    }

    fn recover(&self, member: &Member) {
        let failed = self.recoverers.recover_all(member).err();
        let failed = failed.map(|error| error.to_string());
        let mut before = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &failed
            && *before != failed
        {
            tracing::error!(error, "a dead member could not be recovered here");
        }
        *before = failed;
    }
}
