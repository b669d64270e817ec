//! Crashes of the store by commands of the user.

use super::choice::shell_quoted;
use super::shell::execute;
use crate::failure::Failure;
use clap::Args;
use outlive_litmus::run::{Outage, Outages, Survival};
use serde::Serialize;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The number of kills during each test, unless the user gives one.
const KILLS_PER_TEST: u64 = 1;
/// The longest time in seconds of a command, unless the user gives one.
const COMMAND_SECONDS: u64 = 60;

/// The commands that crash a store.
#[derive(Args, Debug)]
pub struct Commands {
    /// Shell command that starts the store before the tests; it returns when the store runs
    #[arg(long, value_name = "COMMAND")]
    start: Option<String>,
    /// Shell command that kills the store; it returns when the store no longer runs
    #[arg(long, value_name = "COMMAND", requires = "recover")]
    kill: Option<String>,
    /// Shell command that starts the store after a kill
    #[arg(long, value_name = "COMMAND", requires = "kill")]
    recover: Option<String>,
    /// Number of kills of the store during each test
    #[arg(long, value_name = "N", default_value_t = KILLS_PER_TEST, requires = "kill",
          value_parser = clap::value_parser!(u64).range(0..=10_000))]
    kills_per_test: u64,
    /// Longest time in seconds of each of these commands; it is then killed with its process group
    #[arg(long, value_name = "N", default_value_t = COMMAND_SECONDS,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    command_seconds: u64,
}

impl Commands {
    /// Starts the store, if a command for that was given. The command is killed when `stop` is set.
    pub fn start(&self, stop: &AtomicBool) -> Result<(), Failure> {
        match &self.start {
            Some(command) => {
                execute("--start", command, self.limit(), Some(stop)).map_err(Failure::new)
            }
            None => Ok(()),
        }
    }

    fn limit(&self) -> Duration {
        Duration::from_secs(self.command_seconds)
    }

    /// Executes a command of a kill. It is not stopped by an interruption, so that the store runs
    /// when the table of the tests is removed.
    fn execute(&self, option: &str, command: Option<&String>) -> Result<(), String> {
        let command = command.map_or("", String::as_str);
        execute(option, command, self.limit(), None)
    }

    /// Returns the arguments that repeat the commands, each after a space.
    pub fn repeated(&self) -> String {
        let commands = [
            ("--start", &self.start),
            ("--kill", &self.kill),
            ("--recover", &self.recover),
        ];
        let given = commands.into_iter().filter_map(|(option, command)| {
            let command = shell_quoted(command.as_ref()?);
            Some(format!(" {option} {command}"))
        });
        let mut arguments: String = given.collect();
        if self.have_kills() && self.kills_per_test != KILLS_PER_TEST {
            arguments += &format!(" --kills-per-test {}", self.kills_per_test);
        }
        if self.command_seconds != COMMAND_SECONDS {
            arguments += &format!(" --command-seconds {}", self.command_seconds);
        }
        arguments
    }

    /// Returns whether the store is killed.
    pub fn have_kills(&self) -> bool {
        self.kill.is_some()
    }

    /// Returns the kills during each test, if the store is killed.
    pub fn outages(&self) -> Option<Outages<'_>> {
        let outages = Outages {
            outage: self,
            each: self.kills_per_test,
        };
        (self.have_kills() && outages.each > 0).then_some(outages)
    }
}

impl Outage for Commands {
    fn kill(&self) -> Result<(), String> {
        self.execute("--kill", self.kill.as_ref())
    }

    fn recover(&self) -> Result<(), String> {
        self.execute("--recover", self.recover.as_ref())
    }
}

/// The result of the kills as JSON.
#[derive(Debug, Serialize)]
pub struct Survived {
    kills: u64,
    acknowledged: u64,
    unknown: u64,
    lost: Option<Lost>,
    blocked: Option<String>,
}

#[derive(Debug, Serialize)]
struct Lost {
    kill: u64,
    acknowledged: i64,
    begun: i64,
    read: Option<i64>,
}

impl From<&Survival> for Survived {
    fn from(it: &Survival) -> Self {
        Self {
            kills: it.kills,
            acknowledged: it.acknowledged,
            unknown: it.unknown,
            lost: it.lost.map(|lost| Lost {
                kill: lost.kill,
                acknowledged: lost.acknowledged,
                begun: lost.begun,
                read: lost.read,
            }),
            blocked: it.blocked.clone(),
        }
    }
}

/// Returns the line that says whether acknowledged writes survived.
pub fn line(it: &Survival) -> String {
    let writes = format!(
        "{} kills, {} acknowledged writes",
        it.kills, it.acknowledged
    );
    if let Some(lost) = &it.lost {
        let read = lost.read.map_or("absent".into(), |it| it.to_string());
        format!(
            "store: {writes}; after kill {} an object had the value {read}, and the write of {} was \
             acknowledged (the write of {} had begun)",
            lost.kill, lost.acknowledged, lost.begun
        )
    } else if let Some(reason) = &it.blocked {
        format!("store: {writes}; {reason}")
    } else {
        format!("store: {writes}, all visible after the recoveries")
    }
}
