//! The recoverers of dead compute servers.

use super::{CLIENTS, COORDINATORS, World, mortals, pause};
use outlive_store::protocol::{Recovered, recover_logs_in_groups};

impl World {
    /// Recovers compute servers whose deaths are recorded, as one of the recoverers.
    pub(super) async fn recoverer(&self, compute: usize) {
        let me = compute - CLIENTS;
        while self.is_running() {
            pause().await;
            // The second recoverer works after the death of the first one.
            let predecessors = CLIENTS..compute;
            if predecessors.clone().any(|it| !self.is_known_dead(it)) {
                continue;
            }
            for dead in mortals().filter(|it| self.is_known_dead(*it)) {
                if !self.needs_recovery(dead) {
                    continue;
                }
                // A predecessor is revoked before its work is continued.
                for revoked in predecessors.clone().chain([dead]) {
                    if !self.plan.keeps_rights || self.network.is_dead(revoked) {
                        self.network.revoke(revoked).await;
                    }
                }
                {
                    let configuration = &mut *self.configuration.borrow_mut();
                    configuration.recovering.insert(dead);
                    configuration.recoveries += u64::from(!self.plan.hides_recoveries);
                }
                let worker = self.worker(compute, dead);
                // The slots of a server are in one group, or each in its own.
                let group = 1 + dead as u16 % COORDINATORS;
                match recover_logs_in_groups(&worker, group).await {
                    Ok(Recovered { forward, back, .. }) => {
                        let mut counts = self.counts.borrow_mut();
                        counts.forward += forward;
                        counts.back += back;
                        counts.again += u64::from(me > 0);
                        let configuration = &mut *self.configuration.borrow_mut();
                        configuration.fail(dead);
                        configuration.recovered.insert(dead);
                        configuration.recovering.remove(&dead);
                        let id = configuration.ids[dead];
                        configuration.commits.retain(|(it, _), _| *it != id);
                    }
                    Err(_) => return,
                }
            }
        }
    }

    /// Returns whether a dead compute server has to be recovered. A successor that died before it
    /// received a process id has neither logs nor latches.
    fn needs_recovery(&self, dead: usize) -> bool {
        let is_recovered = self.configuration.borrow().recovered.contains(&dead);
        self.has_had_id(dead) && !is_recovered
    }

    pub(super) fn are_recovered(&self) -> bool {
        let mut out = mortals().filter(|it| self.is_out(*it));
        out.all(|it| !self.needs_recovery(it))
    }

    /// Returns whether a compute server has received a process id.
    pub(super) fn has_had_id(&self, compute: usize) -> bool {
        self.configuration.borrow().ids[compute] != 0
    }
}
