//! Workers started by launchers, as in `docs/launchers.md` and by the units in `docs/systemd`.
//! (`mpirun` is in `worker.rs`.)

mod support;

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::run::{Stage, wait_until};
use support::{Place, Running, command, outlive};

/// The document with the examples.
const LAUNCHERS: &str = include_str!("../../../docs/launchers.md");

/// The tasks of a job step as Slurm's `srun` starts them: the same command N times, each in its own
/// process group, with Slurm's variables in its environment, no input, and one output for all.
struct Step {
    tasks: Vec<Child>,
}

impl Step {
    fn start(tasks: u32, step: &[&str]) -> Self {
        let task = |rank: u32| {
            let mut task = Command::new(step[0]);
            let variables = [
                ("SLURM_JOB_ID", std::process::id()),
                ("SLURM_STEP_ID", 0),
                ("SLURM_NTASKS", tasks),
                ("SLURM_NPROCS", tasks),
                ("SLURM_NNODES", 1),
                ("SLURM_NODEID", 0),
                ("SLURM_PROCID", rank),
                ("SLURM_LOCALID", rank),
                ("SLURM_GTIDS", rank),
            ];
            task.envs(variables.map(|(name, value)| (name, value.to_string())));
            task.args(&step[1..]).stdin(Stdio::null());
            task.stdout(Stdio::piped()).stderr(Stdio::piped());
            task.process_group(0);
            task.spawn().unwrap()
        };
        let tasks = (0..tasks).map(task).collect();
        Self { tasks }
    }

    fn signal(&self, task: usize, signal: Signal) {
        // The child has not been reaped, so the pid is its own.
        let pid = Pid::from_raw(self.tasks[task].id() as i32).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Returns whether `task` catches SIGTERM by now.
    fn listens(&self, task: usize) -> bool {
        let status = format!("/proc/{}/status", self.tasks[task].id());
        let status = fs::read_to_string(status).unwrap();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:\t"));
        let caught = u64::from_str_radix(caught.unwrap(), 16).unwrap();
        caught & 1 << (Signal::TERM.as_raw() - 1) != 0
    }

    /// Returns the exit code of `task`, its standard output and its standard error.
    fn ended(&mut self, task: usize) -> (Option<i32>, String, String) {
        let child = &mut self.tasks[task];
        wait_until("the task ends", || child.try_wait().unwrap().is_some());
        let status = child.wait().unwrap();
        let read = |pipe: &mut dyn std::io::Read| std::io::read_to_string(pipe).unwrap();
        let said = read(&mut child.stdout.take().unwrap());
        let errors = read(&mut child.stderr.take().unwrap());
        let code = status.code().or(status.signal().map(|signal| -signal));
        (code, said, errors)
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        for task in &mut self.tasks {
            let _ = task.kill();
            let _ = task.wait();
        }
    }
}

#[test]
fn a_job_step_of_slurm_works_and_is_cancelled_in_part() {
    let stage = Stage::new("srun");
    let place = Place::new("srun");
    let rank = |output: &str, more: &[&str]| {
        let run = [
            "run",
            "pagerank",
            "rmat:13",
            "--hosts",
            "1",
            "--tolerance",
            "0",
        ];
        let how = ["--iterations", "3000", "--output", output];
        let all = run.iter().chain(&how).chain(more);
        all.map(|it| (*it).to_owned()).collect::<Vec<_>>()
    };
    let (alone, together) = (stage.path("alone"), stage.path("together"));
    outlive(rank(&alone, &[]).iter().map(|it| &**it)).succeeds();
    // The workers may come first: they wait. The example of the document, with this program and
    // another path.
    let example = LAUNCHERS
        .lines()
        .find(|line| line.trim().starts_with("sh -c 'exec outlive worker"));
    let example = example.expect("an example").trim();
    let script = example
        .strip_prefix("sh -c '")
        .unwrap()
        .strip_suffix('\'')
        .unwrap();
    let program = command([""; 0]).get_program().to_str().unwrap().to_owned();
    let there = place.path();
    let script = script
        .replace("exec outlive ", &format!("exec '{program}' "))
        .replace("/dev/shm/ranks-$SLURM_JOB_ID", there);
    assert!(
        script.contains(there) && script.contains(&program),
        "{script}"
    );
    let mut step = Step::start(4, &["sh", "-c", &script]);
    let together_run = rank(&together, &["--pod", there]);
    let mut run = Running::start(together_run.iter().map(|it| &**it));
    // Each is known by its rank. A task that has used the processor may still be about to join, so
    // the pool is asked which ones have joined.
    wait_until("all ranks work in the pool", || {
        let status = outlive(["pod", "status", there]);
        let ranks = ["rank-0", "rank-1", "rank-2", "rank-3"];
        status.code == Some(0)
            && ranks.iter().all(|it| status.output.contains(it))
            && status.output.contains("pool pagerank: 5 workers, ")
            && status.output.contains("BEHIND")
    });
    // One is out of memory; one is cancelled, in the way of Slurm.
    step.signal(0, Signal::KILL);
    step.signal(1, Signal::CONT);
    step.signal(1, Signal::TERM);
    assert_eq!(step.ended(0).0, Some(-9));
    let is_good = |(code, said, errors): (Option<i32>, String, String)| {
        assert!(
            code == Some(0) && said.contains("left in good order; "),
            "{code:?} {said}{errors}"
        );
    };
    is_good(step.ended(1));
    run.ends();
    is_good(step.ended(2));
    is_good(step.ended(3));
    let read = |path: &str| fs::read(path).unwrap();
    assert!(read(&alone) == read(&together));
}

#[test]
fn a_job_step_without_a_run_ends_after_its_patience() {
    let place = Place::new("srun-none");
    let program = command([""; 0]).get_program().to_str().unwrap().to_owned();
    let mut step = Step::start(
        2,
        &[&program, "worker", "--pod", place.path(), "--wait", "1"],
    );
    // Cancelled while it waits: at once.
    wait_until("the task listens", || step.listens(1));
    step.signal(1, Signal::TERM);
    for task in 0..2 {
        let (code, _, errors) = step.ended(task);
        assert!(
            code == Some(1) && errors.contains("nothing is there"),
            "{code:?} {errors}"
        );
    }
}

/// Returns the complaints of systemd about a unit, or nothing. `None` without systemd.
fn verified(unit: &Path) -> Option<String> {
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--generators=no"])
        .arg(unit)
        .output();
    let verify = verify.ok()?;
    let said = [verify.stdout, verify.stderr].concat();
    Some(String::from_utf8(said).unwrap())
}

#[test]
fn the_units_are_understood_by_systemd() {
    let stage = Stage::new("units");
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systemd");
    let units: Vec<PathBuf> = fs::read_dir(units)
        .unwrap()
        .map(|it| it.unwrap().path())
        .collect();
    assert_eq!(units.len(), 2);
    for unit in units {
        let text = fs::read_to_string(&unit).unwrap();
        let name = unit.file_name().unwrap().to_str().unwrap();
        // With the placeholder replaced by a program that exists.
        let (before, rest) = text.split_once("\nExecStart=").unwrap();
        let (_, arguments) = rest.split_once(' ').unwrap();
        let text = format!("{before}\nExecStart=/bin/true {arguments}");
        let good = PathBuf::from(stage.write(name, text.as_bytes()));
        let Some(said) = verified(&good) else {
            println!("skipped: there is no systemd-analyze here");
            return;
        };
        assert_eq!(said, "", "{name}");
        // systemd does report an error if there is one.
        let wrong = text
            .replace("KillMode=process", "KillMode=some")
            .replace("TimeoutStopSec=30s", "TimeoutStopSec=soon");
        assert_ne!(wrong, text);
        let bad = stage.write(&format!("wrong-{name}"), wrong.as_bytes());
        assert_ne!(verified(Path::new(&bad)).unwrap(), "", "{name}");
    }
}

/// The unit's command and flags exist: it gets as far as looking for the pod.
#[test]
fn the_command_of_the_unit_for_workers_is_understood() {
    let unit = include_str!("../../../docs/systemd/outlive-worker@.service");
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/outlive "));
    let place = Place::new("unit");
    let arguments: Vec<String> = { start.expect("a command").split(' ') }
        .map(|word| match word {
            "/dev/shm/my-pod" => place.path().into(),
            "60" => "0".into(),
            word => word.replace("%i", "1"),
        })
        .collect();
    outlive(arguments.iter().map(|it| &**it)).fails(1, "nothing is there");
}
