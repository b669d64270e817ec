//! Builds and records programs.

use outlive_machine::recorder::build;
use outlive_machine::trace::Trace;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A compiler, and a directory of the test's own, which is removed after it.
pub struct Workshop {
    directory: tempfile::TempDir,
    compiler: &'static str,
}

impl Workshop {
    /// Returns none if this compiler is not installed.
    pub fn new(compiler: &'static str) -> Option<Self> {
        if Command::new(compiler).arg("--version").output().is_err() {
            eprintln!(
                "SKIPPED: there is no compiler `{compiler}`, so nothing was recorded and nothing was shown"
            );
            return None;
        }
        Some(Self {
            directory: tempfile::tempdir().unwrap(),
            compiler,
        })
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    pub fn build(&self, source: &str, options: &[&str]) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let mut command: Vec<OsString> = vec![self.compiler.into()];
        command.extend(options.iter().map(OsString::from));
        command.extend([
            source.into(),
            "-o".into(),
            self.path("program").into(),
            "-lpthread".into(),
        ]);
        build(&command).unwrap();
    }

    /// Builds the program from one file with this text.
    pub fn small(&self, text: &str) {
        let source = self.path("small.c");
        std::fs::write(&source, text).unwrap();
        self.build(source.to_str().unwrap(), &["-O1"]);
    }

    /// Runs the recorded program, with a limit. Returns its exit status, and its output on standard
    /// error.
    pub fn run(&self, environment: &[(&str, &str)]) -> (ExitStatus, String) {
        let file = |name: &str| std::fs::File::create(self.path(name)).unwrap();
        let child = Command::new(self.path("program"))
            .current_dir(self.directory.path())
            .env("OUTLIVE_TRACE", self.path("trace"))
            .envs(environment.iter().copied())
            .stdout(file("said"))
            .stderr(file("complaints"))
            .spawn();
        let status = within_limit(child.unwrap());
        let complaints = std::fs::read_to_string(self.path("complaints")).unwrap();
        eprint!("{complaints}");
        (status, complaints)
    }

    /// Runs a program that succeeds. Returns its output and the trace.
    pub fn record(&self, environment: &[(&str, &str)]) -> (String, Trace) {
        let (status, _) = self.run(environment);
        assert!(status.success(), "{status}");
        let said = std::fs::read_to_string(self.path("said")).unwrap();
        (said, Trace::open(&self.path("trace")).unwrap())
    }
}

fn within_limit(mut child: Child) -> ExitStatus {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if begun.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the recorded program hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
