//! What the members of a pod have agreed on: written once, when the pod is created.

use super::fence::{CommandAgent, FenceAgent};
use core::time::Duration;
use outlive_memory::{Memory, Offset, Ordering};
use std::sync::Arc;

/// How a pod watches its members.
///
/// The defaults are for hosts that share one operating system, where deaths are told by the kernel and
/// silence means little: a debugger or SIGSTOP silences a host for as long as it likes.
/// [`Settings::real_hosts`] are the paper's (LUPIN §3.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How often every member process beats its host's heart.
    pub heartbeat: Duration,
    /// How often the fabric manager looks at the hearts.
    pub poll: Duration,
    /// For how long a host may be silent before it is suspected and fenced.
    pub suspicion: Duration,
    /// For how long a fence may take before the host is reported as a suspect that lives on.
    pub fence_timeout: Duration,
    /// The user whose processes may join.
    pub uid: u32,
    /// The program that fences hosts of other operating systems.
    pub fence_command: Option<String>,
    /// Every process that joins brings a [`FenceAgent`](super::FenceAgent) of its own for that. With neither,
    /// hosts of a second operating system are refused.
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

impl Settings {
    /// How many bytes they take in a segment.
    pub const BYTES: u64 = 512;
    /// The longest fence command, in bytes.
    pub const LONGEST_COMMAND: usize = 255;

    /// Hosts beat every 8 ms and the manager looks every 16 ms: for hosts that a manager can power-cycle.
    pub fn real_hosts() -> Self {
        Self {
            heartbeat: Duration::from_millis(8),
            poll: Duration::from_millis(16),
            suspicion: Duration::from_millis(16),
            ..Self::default()
        }
    }

    /// The fence command as an agent, if there is one.
    pub(crate) fn command_agent(&self) -> Option<Arc<dyn FenceAgent>> {
        let command = self.fence_command.clone()?;
        Some(Arc::new(CommandAgent {
            command,
            timeout: self.fence_timeout,
        }))
    }

    /// Writes them at `at`, once, before the segment is published.
    ///
    /// # Panics
    /// If the fence command is longer than [`LONGEST_COMMAND`](Self::LONGEST_COMMAND) bytes.
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
        let command = self.fence_command.as_deref().unwrap_or("").as_bytes();
        assert!(
            command.len() <= Self::LONGEST_COMMAND,
            "a fence command of {} bytes",
            command.len()
        );
        memory.store(at + 248, command.len() as u64, Ordering::Relaxed);
        memory.copy_in(at + 256, command);
        memory.persist(at, Self::BYTES);
    }

    /// Reads them from `at`. Nonsense (a corrupt segment) is brought into bounds: no interval is zero or
    /// longer than a day.
    pub(crate) fn read<M: Memory>(memory: M, at: Offset) -> Self {
        let word = |i: u64| memory.load::<u64>(at + i * 8, Ordering::Relaxed);
        let time = |i| Duration::from_micros(word(i).clamp(100, 86_400_000_000));
        let len =
            (memory.load::<u64>(at + 248, Ordering::Relaxed) as usize).min(Self::LONGEST_COMMAND);
        let mut command = vec![0; len];
        memory.copy_out(at + 256, &mut command);
        let command = String::from_utf8_lossy(&command).into_owned();
        Self {
            heartbeat: time(0),
            poll: time(1),
            suspicion: time(2),
            fence_timeout: time(3),
            uid: word(4) as u32,
            fence_command: (!command.is_empty()).then_some(command),
            fence_agents: word(5) != 0,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
