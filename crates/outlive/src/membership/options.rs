//! The options with which a process joins a pod: host, id, names, and fence command.

use super::fence::{CommandAgent, FenceAgent};
use super::{FenceCommandDigest, InstanceId, JoinError, NothingHeld, Obligations, Settings};
use core::fmt;
use std::sync::Arc;

/// The options with which a process joins a pod.
#[derive(Clone)]
pub struct ProcessOptions {
    /// `None`: a host of its own.
    pub(super) host: Option<InstanceId>,
    pub(super) host_name: String,
    pub(super) id: Option<InstanceId>,
    pub(super) name: String,
    pub(super) fence_agent: Option<Arc<dyn FenceAgent>>,
    pub(super) fence_command: Option<String>,
    pub(super) obligations: Arc<dyn Obligations>,
    pub(super) adopt_copy: bool,
}

impl fmt::Debug for ProcessOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessOptions")
            .field("host", &self.host)
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ProcessOptions {
    /// Joins as a process of the host `host`: an id, stable over the host's restarts, that an
    /// administrator gave it (LUPIN §3.1). Hosts of one machine are groups of processes.
    pub fn on_host(host: InstanceId) -> Self {
        Self {
            host: Some(host),
            host_name: format!("host {host}"),
            ..Self::on_own_host()
        }
    }

    /// Joins as the only process of a host of its own, under any free id. If the process is
    /// stopped, it alone is fenced. Because hosts are watched as a whole, it also does not hide
    /// that another process is stopped.
    pub fn on_own_host() -> Self {
        Self {
            host: None,
            host_name: String::new(),
            id: None,
            name: String::new(),
            fence_agent: None,
            fence_command: None,
            obligations: Arc::new(NothingHeld),
            adopt_copy: false,
        }
    }

    /// Joins even if the pod's file is a copy of the one in which the pod was created. The copy
    /// becomes a pod of its own, in which the original's members count as dead. The original is not
    /// accessed, and none of its members is killed. A file in a snapshot of a filesystem is not
    /// recognised as a copy, and stays the same pod: copy it out of the snapshot first.
    pub fn adopt_copy(mut self, adopt: bool) -> Self {
        self.adopt_copy = adopt;
        self
    }

    pub(crate) fn adopts_copy(&self) -> bool {
        self.adopt_copy
    }

    /// Sets the display name of the host, which the fence command also receives.
    pub fn host_name(mut self, name: impl Into<String>) -> Self {
        self.host_name = name.into();
        self
    }

    /// Sets the id, the same after every restart. Without it, any free id is taken.
    pub fn id(mut self, id: InstanceId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the display name of the process.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the agent by which this process, as manager, fences hosts of other operating systems.
    pub fn fence_agent(mut self, agent: Arc<dyn FenceAgent>) -> Self {
        self.fence_agent = Some(agent);
        self
    }

    /// Sets the pod's fence command: a program and its arguments, split at white space, without a
    /// shell. It gets the host's id and name as its last arguments, and must exit with 0 only when
    /// the host is certainly off. Without this option, a process that joins a pod with a fence
    /// command takes the command from the environment variable
    /// [`FENCE_COMMAND`](Self::FENCE_COMMAND). The command is never read from the pod, which keeps
    /// a [digest](super::FenceCommandDigest) of it.
    pub fn fence_command(mut self, command: impl Into<String>) -> Self {
        self.fence_command = Some(command.into());
        self
    }

    /// The environment variable with the fence command of a process that has no such option.
    pub const FENCE_COMMAND: &'static str = "OUTLIVE_FENCE_COMMAND";

    /// Returns the agent by which this process fences, under the pod's settings.
    pub(super) fn agent(
        &self,
        settings: &Settings,
    ) -> Result<Option<Arc<dyn FenceAgent>>, JoinError> {
        let refused = |why| Err(JoinError::FenceCommand { why });
        let from_environment = || std::env::var(Self::FENCE_COMMAND).ok();
        let command = match (&self.fence_command, settings.fence_command) {
            (Some(_), None) => {
                return refused(
                    "the pod was created without one; omit it, or create the pod with it",
                );
            }
            (None, None) => None,
            (given, Some(_)) => given.clone().or_else(from_environment),
        };
        match (command, settings.fence_command, &self.fence_agent) {
            (Some(command), Some(digest), _) if FenceCommandDigest::of(&command) != digest => {
                refused(
                    "it differs from the command that the pod was created with; give the same \
                     command",
                )
            }
            (_, _, Some(agent)) => Ok(Some(Arc::clone(agent))),
            (Some(command), ..) => Ok(Some(Arc::new(CommandAgent {
                command,
                timeout: settings.fence_timeout,
            }))),
            (None, Some(_), None) => refused(
                "the pod was created with one, which every process must give: by --fence-command \
                 (`ProcessOptions::fence_command`) or in the environment variable \
                 OUTLIVE_FENCE_COMMAND",
            ),
            (None, None, None) => Ok(None),
        }
    }

    /// Sets the obligations of the layers above to the instances of this process.
    /// [`Pod::join`](crate::pod::Pod::join) calls this.
    pub fn obligations(mut self, obligations: Arc<dyn Obligations>) -> Self {
        self.obligations = obligations;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Extent, Instance, Tables};
    use super::*;
    use outlive_memory::{Memory, Native, PersistenceDomain};

    struct Agent;

    impl FenceAgent for Agent {
        fn fence(&self, _: Instance, _: &str) -> Result<(), String> {
            Ok(())
        }
    }

    fn options(command: Option<&str>) -> ProcessOptions {
        let options = ProcessOptions::on_host(0);
        match command {
            Some(command) => options.fence_command(command),
            None => options,
        }
    }

    fn settings(command: Option<&str>) -> Settings {
        Settings {
            fence_command: command.map(FenceCommandDigest::of),
            ..Settings::default()
        }
    }

    fn refusal(own: Option<&str>, pods: Option<&str>) -> &'static str {
        match options(own).agent(&settings(pods)) {
            Err(JoinError::FenceCommand { why }) => why,
            other => panic!("{own:?} in a pod with {pods:?}: {:?}", other.map(|_| ())),
        }
    }

    #[test]
    fn a_fence_command_is_the_one_that_the_pod_was_created_with() {
        let missing = refusal(None, Some("/bin/off now"));
        assert!(missing.contains("--fence-command") && missing.contains("OUTLIVE_FENCE_COMMAND"));
        assert!(
            refusal(Some("/bin/off"), Some("/bin/off now")).contains("differs from the command")
        );
        assert!(refusal(Some("/bin/off"), None).contains("without one"));
        let agent = |own, pods| options(own).agent(&settings(pods)).expect("it fits");
        assert!(agent(Some("/bin/off now"), Some("/bin/off now")).is_some());
        assert!(agent(None, None).is_none());
        // An agent of the process replaces a missing command, but not a wrong one.
        let with_agent = |own| options(own).fence_agent(Arc::new(Agent));
        assert!(with_agent(None).agent(&settings(Some("/bin/off"))).is_ok());
        let wrong = with_agent(Some("/bin/on")).agent(&settings(Some("/bin/off")));
        assert!(matches!(wrong, Err(JoinError::FenceCommand { .. })));
    }

    #[test]
    fn what_stands_in_the_segment_is_never_run() {
        let extent = Extent {
            ids: 8,
            groups: 1,
            events: 8,
            log_bytes: 0,
        };
        let (places, size) = extent.lay_out();
        let memory = Native::leaked(size, PersistenceDomain::Flushed);
        let tables = Tables::new(memory, extent, places);
        tables.initialise(&settings(None));
        let at = tables.settings_at();
        for word in 0..Settings::BYTES / 8 {
            for value in [1, 9, u64::MAX, u64::from_ne_bytes(*b"/bin/rm ")] {
                memory.store(at + word * 8, value, outlive_memory::Ordering::Relaxed);
                // Either no program is run, or the process does not join.
                let agent = options(None).agent(&tables.settings());
                assert!(
                    matches!(agent, Ok(None) | Err(_)),
                    "word {word}: {value:#x}"
                );
                let other = options(Some("/bin/off")).agent(&tables.settings());
                assert!(other.is_err(), "word {word}: {value:#x}");
            }
        }
    }
}
