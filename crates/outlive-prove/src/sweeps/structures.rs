//! The map, the list and their recovery; and ways to get them wrong, each of which a sweep must find.

use crate::fixtures::structures::{Case, REGION, bytes_for};
use crate::kill::{Crash, Marked, Suite, Sweep};
use outlive::structures::{
    AddPagePoint, CreatePoint, DoublePoint, InsertPoint, OpenBucketsPoint, RemovePoint,
    ReplacePoint,
};

/// Adds the sweeps of this file.
pub fn add_to(suite: &mut Suite) {
    for case in Case::SOUND {
        suite.add(Killed(case));
    }
    suite
        .declare::<CreatePoint>()
        .declare::<InsertPoint>()
        .declare::<RemovePoint>()
        .declare::<ReplacePoint>()
        .declare::<OpenBucketsPoint>()
        .declare::<AddPagePoint>()
        .declare::<DoublePoint>();
}

/// Sweeps that must fail, each with a part of what must be said.
pub fn broken() -> Vec<(Box<dyn Sweep>, &'static str)> {
    [
        (Case::LinksFirst, "which is nowhere"),
        (Case::ForgetsSeen, "took_effect: Some(false)"),
        (Case::ForgetsLinked, "took_effect: Some(false)"),
    ]
    .map(|(case, message)| -> (Box<dyn Sweep>, _) { (Box::new(Killed(case)), message) })
    .into()
}

/// Number 0 is the victim; 1 and 2 recover; 3 looks.
struct Killed(Case);

impl Sweep for Killed {
    fn name(&self) -> String {
        format!("structures {:?}", self.0)
    }

    fn size(&self) -> u64 {
        bytes_for::<Marked>(REGION)
    }

    fn prepare(&self, memory: Marked) {
        self.0.prepare(memory);
    }

    fn operate(&self, memory: Marked) {
        let pod = self.0.pod(memory);
        self.0.operate(&pod, &pod.act_as(0));
    }

    fn recover(&self, memory: Marked, crash: &Crash) {
        let pod = self.0.pod(memory);
        for id in 0..=crash.recoverers_lost {
            if pod.status(id).may_write() {
                pod.declare_dead(id);
            }
        }
        self.0.recover(&pod, 1 + crash.recoverers_lost);
    }

    fn check(&self, memory: Marked, crash: &Crash) -> Result<(), String> {
        self.0.check(&self.0.pod(memory), crash.returned)
    }
}
