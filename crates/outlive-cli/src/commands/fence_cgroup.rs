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
#[command(after_help = "Example, where host 3 is a container whose group is \
    /sys/fs/cgroup/pod/host-3:\n  \
    outlive pod create /dev/shm/demo --fence-command 'outlive pod fence-cgroup /sys/fs/cgroup/pod/host-{host}'\n\n\
    The command kills all processes of the group, including stopped and frozen ones and the first \
    process of a PID namespace, and exits with 0 when none is left. The group must contain the \
    processes of this host and no others. Its directory must be visible to the command, which runs \
    outside the container. cgroup v2 and Linux 5.14 are required; `outlive doctor` checks them.")]
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
                "{} would be the group of every host: write {{host}} in place of the host's id in \
                 its path",
                self.group
            )));
        }
        let id = self.host[0].to_str().and_then(|id| id.parse::<u16>().ok());
        let Some(id) = id else {
            return Err(Failure::Usage(format!(
                "{:?} is not the id of a host, which is a number from 0 to 65535",
                self.host[0]
            )));
        };
        let group = Cgroup::open(self.group.replace("{host}", &id.to_string()))?;
        // Whether the host was ever in it is not known.
        if group.is_empty()? {
            return Err(Failure::new(format_args!(
                "{} is empty: it is not known whether host {id} was in it; if the host is \
                 certainly off, confirm that by `outlive pod bury`",
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
