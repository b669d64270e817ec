//! `outlive pod bury`: an operator's confirmation that a host is off.

use super::Which;
use crate::failure::Failure;
use crate::output;
use clap::Args;
use outlive::membership::Level;

/// Arguments of `outlive pod bury`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod bury /dev/dax0.0 --host 3 --yes-it-is-off\n\n\
    Use this command only if the death of a host cannot be proven: its machine is off for good, \
    and the pod was created without a fence command, or the command cannot reach the machine. All \
    other deaths are detected without it: always on this machine, and by the fence command on \
    other machines.\n\n\
    The command takes your word that the host no longer runs. Survivors then take its locks and \
    finish its operations. If the host still runs and writes later, the pod is corrupted. The \
    command refuses a host that has processes on this machine, or whose heartbeat advances. It \
    cannot detect stopped processes in another container of this machine that opened the device by \
    another device node, or an overlay by another mount, or that have closed all their descriptors \
    on an overlay. It takes twice the pod's suspicion time.")]
pub struct Bury {
    #[command(flatten)]
    which: Which,
    /// The host's id
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=65_535))]
    host: u32,
    /// Confirm that the host is off and cannot access this pod's memory again
    #[arg(long)]
    yes_it_is_off: bool,
}

impl Bury {
    pub fn run(self) -> Result<(), Failure> {
        let path = self.which.path().display();
        let pod = self.which.open()?;
        let state = pod.tables().generations().state(self.host);
        let is_up = state.is_ok_and(|it| it.level == Some(Level::Host) && it.status.may_write());
        // If the host is not up, the error below is more useful than the question.
        if !self.yes_it_is_off && is_up {
            return Err(Failure::Usage(format!(
                "nothing was done. If host {0} is certainly off, and only then, run: outlive pod \
                 bury {path} --host {0} --yes-it-is-off",
                self.host
            )));
        }
        let host = pod.bury_host(self.host)?;
        output::line(format_args!(
            "host {host} counts as dead, with all its members; survivors, or the next process that \
             joins {path}, recover their locks and unfinished operations"
        ))
    }
}
