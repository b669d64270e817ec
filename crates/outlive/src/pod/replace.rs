//! Refuses to replace a pod in which a host beats.

use super::{Pod, PodError};
use crate::membership::{InstanceId, Level, one_that_beats};
use crate::segment::Segment;
use std::path::Path;

/// Returns an error if `path` holds a pod in which a host beats whose processes are not seen by the
/// locks of the file at `path`: it reached the memory by a device, by an overlay above the file, or
/// from another machine. Waits for twice the suspicion time if there may be such a host.
///
/// Of all other processes, the creation of the new segment sees the locks. A host that is stopped
/// is not seen.
pub(super) fn refuse_the_living(path: &Path) -> Result<(), PodError> {
    // The creation reports what cannot be opened, and replaces what is no pod.
    let Ok(segment) = Segment::open(path) else {
        return Ok(());
    };
    let beats = Pod::of(segment).ok().and_then(|pod| {
        let hosts = unseen_hosts(&pod);
        one_that_beats(pod.tables, &hosts, pod.settings.suspicion)
    });
    segment.close().map_err(crate::segment::OpenError::from)?;
    match beats {
        None => Ok(()),
        Some(host) => Err(PodError::InUse {
            path: path.into(),
            why: format!("the heartbeat of host {host} continues in it; end its processes first"),
        }),
    }
}

/// Returns the hosts whose processes may have their locks elsewhere than on the file of `pod`.
fn unseen_hosts(pod: &Pod) -> Vec<InstanceId> {
    let systems = pod.tables.operating_systems();
    let is_seen = |number: u16| pod.segment.has_one_kernel() && systems.has_one_kernel(number);
    let hosts = pod.tables.writers();
    let hosts = hosts.filter(|(_, it)| it.level == Some(Level::Host) && !is_seen(it.host));
    hosts.map(|(id, _)| id).collect()
}
