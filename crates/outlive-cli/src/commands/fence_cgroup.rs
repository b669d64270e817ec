//! `outlive pod fence-cgroup`: a fence command for hosts that have a control group each.

use crate::failure::Failure;
use crate::output;
use clap::Args;
use core::time::Duration;
use outlive::host::Cgroup;
use std::ffi::OsString;

/// The time that the processes of a group may take to end: a little less than the fence time-out of
/// a pod, after which the pod kills the command.
const PATIENCE: Duration = Duration::from_secs(4);

/// Arguments of `outlive pod fence-cgroup`.
#[derive(Args, Debug)]
#[command(
    after_help = "Example, where host 3 is a container whose group is /sys/fs/cgroup/pod/host-3:\n  \
    outlive pod create /dev/shm/demo --fence-command 'outlive pod fence-cgroup /sys/fs/cgroup/pod/host-{host}'\n\n\
    It kills all processes of the group, also stopped and frozen ones and the first process of a PID namespace, and ends with \
    0 once none is left. The group must hold the processes of this host and no others, and be reached from where the \
    command runs: outside the container. It takes cgroup v2 and Linux 5.14; `outlive doctor` tells."
)]
pub struct FenceCgroup {
    /// The directory of the host's control group; `{host}` stands for the id of the host
    group: String,
    /// The host's id and its name, which the pod appends to its fence command. The name is not
    /// used: other users chose it
    // Arguments after the id are not parsed: a host may be called `--help`, and the help exits with
    // 0.
    #[arg(value_names = ["ID", "NAME"], required = true, num_args = 1..=2, trailing_var_arg = true, allow_hyphen_values = true)]
    host: Vec<OsString>,
}

impl FenceCgroup {
    pub fn run(self) -> Result<(), Failure> {
        if !self.group.contains("{host}") {
            return Err(Failure::Usage(format!(
                "{} is the group of every host: write {{host}} where the host's id stands in its name",
                self.group
            )));
        }
        let id = self.host[0].to_str().and_then(|id| id.parse::<u16>().ok());
        let Some(id) = id else {
            return Err(Failure::Usage(format!(
                "{:?} is not an id of a host",
                self.host[0]
            )));
        };
        let group = Cgroup::open(self.group.replace("{host}", &id.to_string()))?;
        // Nothing says that the host was ever in it.
        if group.is_empty()? {
            return Err(Failure::new(format_args!(
                "{} is empty: whether host {id} was in it is not known; if the host is off, say so by `outlive pod bury`",
                group.path().display()
            )));
        }
        group.kill()?;
        if !group.wait_empty(PATIENCE)? {
            return Err(Failure::new(format_args!(
                "{} still has processes {} s after they were killed",
                group.path().display(),
                PATIENCE.as_secs()
            )));
        }
        output::line(format_args!(
            "no process of host {id} is left in {}",
            group.path().display()
        ))
    }
}
