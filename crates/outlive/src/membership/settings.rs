//! The settings of a pod: written once, when the pod is created.

use core::fmt;
use core::time::Duration;
use outlive_memory::{Memory, Offset, Ordering};
use sha2::{Digest, Sha256};

/// The SHA-256 of a fence command, by which the members of a pod notice that their commands differ.
///
/// The command itself is not stored in the pod, to which every user of the pod may write: each
/// process brings it ([`ProcessOptions::fence_command`](super::ProcessOptions::fence_command)).
///
/// ```
/// use outlive::membership::FenceCommandDigest;
/// let digest = FenceCommandDigest::of("/usr/sbin/power-off");
/// assert_eq!(digest.to_string().len(), 64);
/// assert_ne!(digest, FenceCommandDigest::of("/usr/sbin/power-on"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FenceCommandDigest([u8; 32]);

impl FenceCommandDigest {
    /// Returns the digest of `command`: a program and its arguments.
    pub fn of(command: &str) -> Self {
        Self(Sha256::digest(command.as_bytes()).into())
    }
}

impl fmt::Display for FenceCommandDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for FenceCommandDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FenceCommandDigest({self})")
    }
}

/// The settings with which a pod watches its members.
///
/// The defaults are for hosts that share one operating system. Its kernel reports deaths, and a
/// silent host may only be stopped, by a debugger or SIGSTOP. [`Settings::real_hosts`] has the
/// intervals of LUPIN (section 3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The time between two heartbeats of a host, sent by its process on watch. (The other
    /// processes of the host beat more rarely.)
    pub heartbeat: Duration,
    /// The time between two polls of the heartbeats by the fabric manager.
    pub poll: Duration,
    /// The time for which a host may be silent before it is suspected and fenced.
    pub suspicion: Duration,
    /// The time that a fence may take before the host is reported as a suspect that lives on.
    pub fence_timeout: Duration,
    /// The user that created the pod, in the user namespace of that process. A process of another
    /// user (or one that does not own the pod's file) joins only if it could be killed by a cord or
    /// fenced by an agent.
    pub uid: u32,
    /// The digest of the command that fences hosts which no process here can kill. Every process
    /// that joins brings the command.
    pub fence_command: Option<FenceCommandDigest>,
    /// Whether every process that joins brings a [`FenceAgent`](super::FenceAgent) of its own,
    /// which fences the hosts that no process on its operating system can kill. With neither a
    /// command nor agents, a process is refused while the pod has a host whose death could not be
    /// proved from the process's operating system.
    pub fence_agents: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(50),
            poll: Duration::from_millis(100),
            suspicion: Duration::from_secs(2),
            fence_timeout: Duration::from_secs(5),
            uid: 0,
            fence_command: None,
            fence_agents: false,
        }
    }
}

/// The offsets of the flag that there is a fence command, and of its digest.
const COMMAND: u64 = 248;
const DIGEST: u64 = 256;

impl Settings {
    /// The size of the settings in a segment, in bytes.
    pub const BYTES: u64 = 512;

    /// Returns settings for hosts that a manager can power-cycle: hosts beat every 8 ms and the
    /// manager polls every 16 ms.
    pub fn real_hosts() -> Self {
        Self {
            heartbeat: Duration::from_millis(8),
            poll: Duration::from_millis(16),
            suspicion: Duration::from_millis(16),
            ..Self::default()
        }
    }

    /// Writes the settings at `at`, once, before the segment is published.
    pub(crate) fn write<M: Memory>(&self, memory: M, at: Offset) {
        let words = [
            micros(self.heartbeat),
            micros(self.poll),
            micros(self.suspicion),
            micros(self.fence_timeout),
            self.uid.into(),
            self.fence_agents.into(),
        ];
        for (i, word) in words.into_iter().enumerate() {
            memory.store(at + i as u64 * 8, word, Ordering::Relaxed);
        }
        memory.store(
            at + COMMAND,
            u64::from(self.fence_command.is_some()),
            Ordering::Relaxed,
        );
        if let Some(FenceCommandDigest(digest)) = &self.fence_command {
            memory.copy_in(at + DIGEST, digest);
        }
        memory.persist(at, Self::BYTES);
    }

    /// Reads the settings from `at`. Values of a corrupt segment are clamped: no interval is zero
    /// or longer than a day.
    pub(crate) fn read<M: Memory>(memory: M, at: Offset) -> Self {
        let word = |i: u64| memory.load::<u64>(at + i * 8, Ordering::Relaxed);
        let time = |i| Duration::from_micros(word(i).clamp(100, 86_400_000_000));
        let mut digest = [0; 32];
        memory.copy_out(at + DIGEST, &mut digest);
        let has_command = memory.load::<u64>(at + COMMAND, Ordering::Relaxed) != 0;
        Self {
            heartbeat: time(0),
            poll: time(1),
            suspicion: time(2),
            fence_timeout: time(3),
            uid: word(4) as u32,
            fence_command: has_command.then_some(FenceCommandDigest(digest)),
            fence_agents: word(5) != 0,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
