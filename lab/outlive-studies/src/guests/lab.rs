//! Two guests that share one memory, and their control: it uses their monitors and answers their
//! fence commands.

use super::archive::Archive;
use super::guest::{Guest, Heard, Machine, Port};
use super::needs::Needs;
use super::program;
use crate::scratch::Directory;
use crate::{Run, StudyError};
use outlive_programs::wordcount::shipped_text;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The guest that survives, and the one that is killed.
pub const STAYS: &str = "guest-a";
pub const GOES: &str = "guest-b";

/// The path of the pod in the guests.
pub const POD: &str = "/pod";

/// Two guests.
pub struct Lab {
    pub stays: Guest,
    pub goes: Guest,
    machine: Machine,
    heard: Receiver<Heard>,
    tell: Sender<Heard>,
    /// The lines since the last [`forget`](Self::forget) that no call has returned.
    pending: Vec<Heard>,
    /// The last field: the directory is removed after the guests have ended.
    _directory: Directory,
}

/// The longest wait for a line of a guest.
const PATIENCE: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_millis(20);
const MIB: u64 = 1 << 20;

impl Lab {
    /// Starts two guests. Their text is `copies` times the shipped one.
    pub fn start(run: &Run<'_>, needs: Needs, copies: u64) -> Result<Self, StudyError> {
        let directory = Directory::new("guests")?;
        let mut libraries = BTreeSet::new();
        let mut archive = Archive::default();
        for (script, text) in [
            ("/init", include_str!("init.sh")),
            ("/bin/fence", include_str!("fence.sh")),
        ] {
            archive.program(Path::new(script), text.as_bytes());
        }
        let text = shipped_text();
        archive.file(Path::new("/bible"), &text);
        for place in ["/proc", "/sys", "/dev"] {
            archive.directory(Path::new(place));
        }
        program::add(&mut archive, &needs.busybox, "/bin/busybox", &mut libraries)?;
        program::add(&mut archive, &needs.outlive, "/bin/outlive", &mut libraries)?;
        program::add(&mut archive, &needs.lab, "/bin/outlive-lab", &mut libraries)?;
        let archive = archive.finish();
        let libraries: Vec<_> = libraries
            .iter()
            .map(|path| path.to_string_lossy())
            .collect();
        let text_size = copies * text.len() as u64;
        // The archive is in memory twice while it is unpacked.
        let memory = 256 + (2 * archive.len() as u64 + text_size) / MIB;
        let place = directory.path("archive");
        fs::write(&place, archive).map_err(StudyError::io("writing the files of the guests"))?;
        let shared = directory.path("shared");
        let size = (64 + 2 * text_size / MIB).next_power_of_two();
        File::create(&shared)
            .and_then(|file| file.set_len(size * MIB))
            .map_err(StudyError::io("making the memory that the guests share"))?;
        let machine = Machine {
            needs,
            directory: directory.path(""),
            archive: place,
            environment: format!("COPIES={copies} LD_LIBRARY_PATH={}", libraries.join(":")),
            memory,
            shared: (shared, size),
        };
        let (tell, heard) = channel();
        // One after the other: on few processors it takes longer to start both at once.
        let stays = Guest::start(run, &machine, STAYS, &tell)?;
        let goes = Guest::start(run, &machine, GOES, &tell)?;
        Ok(Self {
            stays,
            goes,
            machine,
            heard,
            tell,
            pending: Vec::new(),
            _directory: directory,
        })
    }

    /// Restarts the guest [`GOES`], which has ended.
    pub fn restart(&mut self, run: &Run<'_>) -> Result<(), StudyError> {
        self.goes = Guest::start(run, &self.machine, GOES, &self.tell)?;
        Ok(())
    }

    /// Waits for a line of a guest's programs for which `is_it` is true. A request of a fence
    /// command in the meantime is an error.
    pub fn hear(
        &mut self,
        run: &Run<'_>,
        what: &str,
        is_it: impl Fn(&Heard) -> bool,
    ) -> Result<Heard, StudyError> {
        self.listen(run, what, |heard| heard.port == Port::News && is_it(heard))
    }

    /// Waits for a request of the fence command in the guest [`STAYS`] about `host`.
    pub fn hear_fence(&mut self, run: &Run<'_>, host: u32) -> Result<Heard, StudyError> {
        let request = format!("fence {host} ");
        self.listen(run, "a fence command", |heard| {
            heard.port == Port::Fence && heard.guest == STAYS && heard.line.starts_with(&request)
        })
    }

    /// Returns whether there is a pending line for which `is_it` is true.
    pub fn has_heard(&mut self, is_it: impl Fn(&Heard) -> bool) -> bool {
        self.pending.extend(self.heard.try_iter());
        self.pending.iter().any(is_it)
    }

    /// Discards all lines so far.
    pub fn forget(&mut self) {
        self.pending.clear();
        self.heard.try_iter().for_each(drop);
    }

    fn listen(
        &mut self,
        run: &Run<'_>,
        what: &str,
        is_it: impl Fn(&Heard) -> bool,
    ) -> Result<Heard, StudyError> {
        let until = Instant::now() + PATIENCE;
        loop {
            run.go_on()?;
            if let Some(at) = self.pending.iter().position(&is_it) {
                return Ok(self.pending.remove(at));
            }
            let asks = |heard: &&Heard| heard.port == Port::Fence;
            if let Some(Heard { guest, line, .. }) = self.pending.iter().find(asks) {
                return Err(StudyError::void(format!(
                    "{guest} tries to fence a healthy host (`{line}`); {}",
                    self.said()
                )));
            }
            match self.heard.recv_timeout(INTERVAL) {
                Ok(heard) => self.pending.push(heard),
                Err(RecvTimeoutError::Timeout) if Instant::now() < until => {}
                Err(_) => {
                    return Err(StudyError::void(format!(
                        "{what} was not reported within {PATIENCE:?}; {}",
                        self.said()
                    )));
                }
            }
        }
    }

    /// Describes the last lines, for an error.
    fn said(&self) -> String {
        let last = self.pending.iter().rev().take(12).rev();
        let said = |heard: &Heard| format!("{}: {}", heard.guest, heard.line);
        let last: Vec<String> = last.map(said).collect();
        format!("the last output of the guests: {}", last.join(" / "))
    }
}
