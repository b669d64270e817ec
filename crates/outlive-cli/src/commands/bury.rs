//! `outlive pod bury`: an operator's word that a host is off.

use super::Which;
use crate::failure::Failure;
use crate::output;
use clap::Args;

/// Arguments of `outlive pod bury`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod bury /dev/dax0.0 --host 3 --yes-it-is-off\n\n\
    A host that died is noticed without this, wherever its death can be proven: on this machine always, on another one by the \
    fence command. This is for the rest: the machine is gone for good, and the pod was created without a fence command, or \
    the command cannot reach it.\n\n\
    It is your word that the host no longer runs. Others then take the locks that it held and finish what it had begun. If it \
    runs all the same and writes later, the pod is corrupt. A host whose processes are on this machine, or whose heart beats, is \
    refused. It takes twice the pod's suspicion time.")]
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
        if !self.yes_it_is_off {
            return Err(Failure::Usage(format!(
                "nothing was done. If host {0} is certainly off, and only then: outlive pod bury {path} --host {0} \
                 --yes-it-is-off",
                self.host
            )));
        }
        let host = self.which.open()?.bury_host(self.host)?;
        output::line(format_args!(
            "host {host} counts as dead, with all its members; what they held is recovered by the living, or by the next \
             process that joins {path}"
        ))
    }
}
