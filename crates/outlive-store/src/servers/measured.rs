//! Measurements of recoveries, with the feature `measurements`: the link over which the members of
//! this process recover the logs of dead compute servers, and the last recovery with its time.

use super::{Behind, Direct, Store};
use crate::protocol::{LogArea, RecoverLogsError, Recovered};
use crate::verbs::Link;
use core::time::Duration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A recovery of a dead compute server's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecovery {
    /// The process id of the dead compute server.
    pub process: u16,
    /// The result of the recovery.
    pub recovered: Recovered,
    /// The duration, from the first verb to the last one. It does not include the detection of the
    /// death and the claim of the logs.
    pub duration: Duration,
}

/// The link and the last recovery, which a handle of a store and its clones share.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured(Arc<Mutex<Recoveries>>);

#[derive(Debug, Default)]
struct Recoveries {
    link: Option<Link>,
    last: Option<LogRecovery>,
}

impl Measured {
    fn recoveries(&self) -> MutexGuard<'_, Recoveries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store {
    /// Sets an emulated link, over which the members of this process recover the logs of dead
    /// compute servers from now on. Without one, the default, verbs access mapped memory when they
    /// are posted.
    pub fn set_recovery_link(&self, link: Option<Link>) {
        self.measured().recoveries().link = link;
    }

    /// Returns the last recovery of logs that a member of this process has completed.
    pub fn last_recovery(&self) -> Option<LogRecovery> {
        self.measured().recoveries().last
    }

    /// Recovers the logs of a dead compute server over the link, and notes the time.
    pub(super) fn recover_measured(
        &self,
        process: u16,
        area: &LogArea,
    ) -> Result<Recovered, RecoverLogsError> {
        let link = self.measured().recoveries().link;
        let begin = Instant::now();
        let recovered = match link {
            None => self.recover_over(Direct, process, area),
            Some(link) => self.recover_over(Behind::new(link, process.into()), process, area),
        }?;
        self.measured().recoveries().last = Some(LogRecovery {
            process,
            recovered,
            duration: begin.elapsed(),
        });
        Ok(recovered)
    }
}
