//! The flags that set how the hosts of a new pod watch one another, for all commands that create a
//! pod.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use outlive::membership::{FenceCommandDigest, Settings};
use std::time::Duration;

/// The settings by which the hosts of a new pod watch one another.
#[derive(Args, Debug)]
pub struct Watching {
    /// Interval of each host's heartbeat [default: 50ms]
    #[arg(long, value_parser = interval, value_name = "TIME")]
    heartbeat: Option<Duration>,
    /// Interval at which the fabric manager, one of the processes, polls the heartbeats [default:
    /// 100ms]
    #[arg(long, value_parser = interval, value_name = "TIME")]
    poll: Option<Duration>,
    /// Time for which a host may be silent before it is fenced [default: 2s]
    #[arg(long, value_parser = interval, value_name = "TIME")]
    suspicion: Option<Duration>,
    /// Use the intervals for separate machines that a command can power off: heartbeat 8ms, poll
    /// 16ms, suspicion 16ms or --suspicion
    #[arg(long, conflicts_with_all = ["heartbeat", "poll"])]
    real_hosts: bool,
    /// Command, with its arguments, that powers off a host which no process can kill. The host's id
    /// and name are appended. It must exit with 0 only if the host is off. Processes that join the
    /// pod later need the same one (--fence-command or OUTLIVE_FENCE_COMMAND)
    #[arg(long, value_name = "COMMAND", value_parser = NonEmptyStringValueParser::new())]
    fence_command: Option<String>,
}

/// The shortest and the longest interval that a pod keeps.
const INTERVALS: [Duration; 2] = [Duration::from_micros(100), Duration::from_secs(86_400)];

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write 8ms, 2s or 1m 30s"))?;
    if (INTERVALS[0]..=INTERVALS[1]).contains(&interval) {
        Ok(interval)
    } else {
        Err("an interval is at least 100us and at most a day".into())
    }
}

impl Watching {
    /// Returns the settings for a pod of this user.
    pub fn settings(&self) -> Settings {
        let defaults = if self.real_hosts {
            Settings::real_hosts()
        } else {
            Settings::default()
        };
        Settings {
            heartbeat: self.heartbeat.unwrap_or(defaults.heartbeat),
            poll: self.poll.unwrap_or(defaults.poll),
            suspicion: self.suspicion.unwrap_or(defaults.suspicion),
            uid: rustix::process::geteuid().as_raw(),
            fence_command: self.fence_command.as_deref().map(FenceCommandDigest::of),
            ..defaults
        }
    }

    /// Returns the fence command, if one was given.
    pub fn fence_command(&self) -> Option<&str> {
        self.fence_command.as_deref()
    }
}
