//! The program to run, by its name: a built-in workload, or the file of a trace.

use super::size::Size;
use crate::amount::Many;
use crate::failure::Failure;
use outlive_machine::run::Subject;
use outlive_machine::trace::{Order, Parts, Replay};
use std::path::Path;

/// The run that was requested.
pub struct Wanted<'a> {
    /// The name of a workload or a file.
    pub name: &'a str,
    pub size: Option<Size>,
    pub threads: Option<usize>,
    pub recorded_order: bool,
    /// The number of cores.
    pub cores: usize,
}

/// The program that was found.
pub struct Found {
    pub subject: Subject,
    /// For a built-in workload only.
    pub size: Option<Size>,
}

impl Wanted<'_> {
    pub fn find(&self) -> Result<Found, Failure> {
        let built_in = outlive_kernels::ALL
            .iter()
            .find(|(name, _)| *name == self.name);
        match built_in {
            Some((_, make)) => self.built_in(*make),
            None => self.trace(),
        }
    }

    fn built_in(&self, make: outlive_kernels::Make) -> Result<Found, Failure> {
        if self.recorded_order {
            return Err(Failure::Usage(format!(
                "--recorded-order is for traces, and {} is a built-in workload",
                self.name
            )));
        }
        let threads = self.threads.unwrap_or(self.cores);
        if threads > self.cores {
            return Err(Failure::Usage(format!(
                "{threads} threads do not fit on this machine, which has {}; describe more nodes (--machine), or run fewer \
                 threads",
                Many(self.cores as u64, "core")
            )));
        }
        let size = self.size.unwrap_or(Size::Study);
        let subject = Subject::program(make(threads, size.into()));
        let size = Some(size);
        Ok(Found { subject, size })
    }

    /// Returns the error for a name of neither a workload nor a file; the name shows which was
    /// meant.
    fn nothing(&self) -> Failure {
        let name = self.name;
        if name.contains(['/', '.']) {
            return Failure::new(format_args!(
                "there is no file {name:?}; `outlive-lab machine record-build` makes programs that write traces"
            ));
        }
        let meant = outlive_kernels::near(name).map(|near| format!("did you mean {near}? "));
        Failure::Usage(format!(
            "there is no workload {name:?}, and no file of that name either; {}`outlive-lab machine list` names the workloads, and \
             `outlive-lab machine record-build` makes programs that write traces",
            meant.unwrap_or_default()
        ))
    }

    fn trace(&self) -> Result<Found, Failure> {
        let path = Path::new(self.name);
        if !path.exists() {
            return Err(self.nothing());
        }
        for (given, flag) in [
            (self.size.is_some(), "--size"),
            (self.threads.is_some(), "--threads"),
        ] {
            if given {
                return Err(Failure::Usage(format!(
                    "{flag} is for built-in workloads: the trace {} is replayed as it was recorded",
                    path.display()
                )));
            }
        }
        let replay = match self.recorded_order {
            true => Replay {
                order: Order::Recorded,
                parts: Parts::Exact,
            },
            false => Replay::default(),
        };
        let subject = Subject::trace_file(path, replay)
            .map_err(|error| Failure::new(format_args!("{}: {error}", path.display())))?;
        let threads = subject.thread_count();
        if threads > self.cores {
            return Err(Failure::Usage(format!(
                "the trace {} has {} (the first is main), which do not fit on this machine, with {}; describe more nodes (--machine), or \
                 record it with fewer threads",
                path.display(),
                Many(threads as u64, "thread"),
                Many(self.cores as u64, "core")
            )));
        }
        let size = None;
        Ok(Found { subject, size })
    }
}
