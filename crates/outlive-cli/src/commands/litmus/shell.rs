//! Shell commands of the user, with a time limit.

use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The interval at which the end of a command is checked.
const INTERVAL: Duration = Duration::from_millis(5);

/// Executes the command of an option, and waits for its end. A command that does not end within
/// `limit`, or before `stop` is set, is killed with all processes of its group.
///
/// The group is the command's own, so an interruption from the terminal does not end a store that
/// the command has started in the background.
///
/// # Errors
/// The reason why the command cannot be started, its failure, or that it was killed.
pub fn execute(
    option: &str,
    command: &str,
    limit: Duration,
    stop: Option<&AtomicBool>,
) -> Result<(), String> {
    let mut shell = Command::new("sh");
    // Standard output is for the report.
    let shell = shell
        .arg("-c")
        .arg(command)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .process_group(0);
    let problem = |problem: String| Err(format!("the command of {option} {problem}: {command}"));
    let mut child = match shell.spawn() {
        Ok(child) => child,
        Err(error) => return problem(format!("cannot be started: {error}")),
    };
    let is_stopped = || stop.is_some_and(|it| it.load(Ordering::Relaxed));
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return ended(status).or_else(problem),
            Err(error) => return problem(format!("cannot be waited for: {error}")),
            Ok(None) if is_stopped() => {
                kill(child);
                return problem("was interrupted, and killed".into());
            }
            Ok(None) if begin.elapsed() >= limit => {
                kill(child);
                return problem(format!(
                    "did not end within {} s (--command-seconds), and was killed with its process \
                     group; a command has to end, and a store that it starts has to run in the \
                     background (`&`)",
                    limit.as_secs()
                ));
            }
            Ok(None) => thread::sleep(INTERVAL),
        }
    }
}

fn ended(status: ExitStatus) -> Result<(), String> {
    match status.success() {
        true => Ok(()),
        false => Err(format!("failed ({status})")),
    }
}

/// Kills a command, which is not reaped yet, with its group.
fn kill(mut child: Child) {
    // Until the child is reaped, its process id is that of its group and of no other one.
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let _ = child.wait();
}
