//! The removal of a pod. Tests: `tests/pod_destroy.rs`.

use super::origin::is_copy;
use super::{Pod, PodError, Presence, access_of};
use crate::host::{Access, Linux, OsError};
use crate::membership::Level;
use crate::segment::Segment;
use std::path::{Path, PathBuf};

impl Pod {
    /// Removes the pod at `path`, complete or not, sound or damaged, and the files that this
    /// operating system keeps for it. Those stay, for `outlive pod clean`, if damage hides which
    /// pod they belong to, or while other processes have the pod open; in the latter case the file
    /// that stays is returned.
    ///
    /// Live members are not left in a pod without a name: the caller ends them first, or calls
    /// [`destroy_forcibly`](Self::destroy_forcibly). A process that merely has the pod open, or a
    /// member that is known to be dead, does not prevent the removal. The members of a pod that is
    /// too damaged to be opened are not known.
    ///
    /// The check and the removal are two steps. A process that joins at the same time is found by
    /// the check; or its join is refused ([`PodError::Removed`]); or it joins in between, and is
    /// then a member of a removed pod, as after a forced removal. A join that begins after the
    /// removal is refused.
    ///
    /// ```
    /// use outlive::pod::{Pod, PodError, PodOptions};
    /// # let path = format!("/dev/shm/outlive-doc-destroy-{}", std::process::id());
    /// let pod = Pod::create(&path, PodOptions::new().size(8 << 20))?;
    /// let session = pod.session()?;
    /// assert!(matches!(Pod::destroy(&path), Err(PodError::InUse { .. })));
    /// drop(session);
    /// Pod::destroy(&path)?;
    /// # Ok::<(), PodError>(())
    /// ```
    ///
    /// # Errors
    /// [`PodError::InUse`] if the pod has members that live, or may live on another machine; the
    /// error names one. Also if `path` is not a segment.
    pub fn destroy(path: impl AsRef<Path>) -> Result<Option<PathBuf>, PodError> {
        let path = path.as_ref();
        refuse_members(path)?;
        Self::destroy_forcibly(path)
    }

    /// Does the same as [`destroy`](Self::destroy), even if the pod has live members. They continue
    /// to use its memory, which is freed when the last of them ends. No other process finds them,
    /// and none can join them.
    ///
    /// # Errors
    /// If `path` is not a segment.
    pub fn destroy_forcibly(path: impl AsRef<Path>) -> Result<Option<PathBuf>, PodError> {
        let path = path.as_ref();
        let is_copy = is_copy(path);
        let number = Self::number_at(path).or_else(|| {
            // The pod may be a device that can be mapped but not read.
            let segment = Segment::open(path).ok()?;
            let number = Self::of(segment).ok().map(|pod| pod.number());
            segment.close().ok()?;
            number
        });
        // The directory of its cords, and their access.
        let directory = std::fs::canonicalize(path).ok();
        let directory = directory.as_deref().and_then(Path::parent);
        let access =
            std::fs::metadata(path).map_or_else(|_| Access::default(), |it| access_of(&it));
        Segment::destroy(path)?;
        // A copy that was not adopted has the number of the original. The original's files stay.
        if let Some(number) = number.filter(|_| !is_copy) {
            Linux::remove_cords(directory, number, access);
            match Linux::remove_side_file(number) {
                // Another process has the pod open and keeps the file; a clean-up removes it
                // afterwards.
                Err(OsError::InUse { path }) => return Ok(Some(path)),
                removed => {
                    removed?;
                }
            }
        }
        Ok(None)
    }
}

/// Returns an error if the pod at `path` has members that may be alive.
fn refuse_members(path: &Path) -> Result<(), PodError> {
    // What cannot be opened has no known members; the removal decides about it.
    let Ok(pod) = Pod::observe(path) else {
        return Ok(());
    };
    let status = pod.status();
    let presences = pod.presences(&status);
    let is_there = |id| presences.get(&id).is_some_and(|it| *it != Presence::Gone);
    let there: Vec<_> = { status.members.iter() }
        .filter(|member| is_there(member.id))
        .collect();
    // A process is named rather than its host or its threads.
    let is_process = |level| level == Some(Level::Process);
    let named = { there.iter() }.find(|member| is_process(member.state.level));
    let refused = named.or(there.first()).map(|member| {
        let pid = { member.record.as_ref() }
            .filter(|_| is_process(member.state.level))
            .map(|record| {
                format!(
                    " (pid {} in its own PID namespace)",
                    record.thread.process.pid
                )
            });
        let is_sure = presences.values().any(|it| *it == Presence::Here);
        let sure = if is_sure {
            ""
        } else {
            ", as far as can be determined here"
        };
        PodError::InUse {
            path: path.into(),
            why: format!(
                "it has {} members{sure}, among them the {} {}{}; end them first, or remove it \
                 with `Pod::destroy_forcibly` (`outlive pod destroy --force`)",
                there.len(),
                member.state.level.map_or("member", Level::name),
                member.instance(),
                pid.unwrap_or_default(),
            ),
        }
    });
    pod.close()?;
    refused.map_or(Ok(()), Err)
}
