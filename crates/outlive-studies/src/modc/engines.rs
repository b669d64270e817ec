//! Engines that are not ours: a directory for their files in memory, with the graph in it, and programs that are timed.

use super::{Cost, Subject};
use crate::{StudyError, clock, scratch};
use outlive_workloads::pagerank::Ranks;
use rustix::process::{Signal, set_parent_process_death_signal};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

/// A directory in /dev/shm. It goes with all that is in it when this is dropped.
pub(super) struct Files {
    directory: PathBuf,
}

impl Files {
    /// One with the graph of `subject` in it, as `peers/pagerank_mpi.c` says.
    pub fn with_graph_of(subject: &Subject, what: &str) -> Result<Self, StudyError> {
        let directory = scratch::fresh_path(what);
        fs::create_dir(&directory).map_err(StudyError::io("making a directory in /dev/shm"))?;
        let files = Self { directory };
        let written = files.write_graph(subject);
        written.map_err(StudyError::io("writing the graph to /dev/shm"))?;
        Ok(files)
    }

    fn write_graph(&self, subject: &Subject) -> std::io::Result<()> {
        let graph = &subject.graph;
        let mut file = BufWriter::with_capacity(1 << 20, File::create(self.graph())?);
        file.write_all(b"outlgrp1")?;
        let sizes = [u64::from(graph.vertices()), graph.edges()];
        for word in sizes.iter().chain(graph.begins()) {
            file.write_all(&word.to_le_bytes())?;
        }
        for word in graph.sources().iter().chain(graph.all_leaving()) {
            file.write_all(&word.to_le_bytes())?;
        }
        file.flush()
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn graph(&self) -> PathBuf {
        self.path("graph")
    }

    /// The lines of what a program has reported, which is removed.
    pub fn report(&self) -> Result<String, StudyError> {
        let path = self.path("report");
        let text = fs::read_to_string(&path).unwrap_or_default();
        self.remove(&["report"])?;
        Ok(text)
    }

    /// The ranks that a program has written; fails unless they are the plain program's.
    pub fn expect_ranks(&self, subject: &Subject, who: &str) -> Result<(), StudyError> {
        let bytes = fs::read(self.path("ranks")).map_err(StudyError::io("reading ranks"))?;
        let (words, _) = bytes.as_chunks::<8>();
        let ranks = Ranks {
            ranks: words.iter().map(|word| f64::from_le_bytes(*word)).collect(),
            ..subject.expected.clone()
        };
        subject.expect(who, &ranks)?;
        self.remove(&["ranks"])
    }

    /// Removes files, should they be there.
    pub fn remove(&self, names: &[&str]) -> Result<(), StudyError> {
        for name in names {
            match fs::remove_file(self.path(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(StudyError::io("removing what a run has left")(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Nobody can be told here.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// What became of a program.
pub(super) struct Ended {
    pub status: ExitStatus,
    /// From its start to its end, with its children.
    pub cost: Cost,
    /// What it said on standard error.
    pub said: String,
}

impl Ended {
    /// Why there is no result.
    pub fn void(&self, who: &str) -> StudyError {
        let said: Vec<&str> = self
            .said
            .lines()
            .filter(|line| !line.trim().is_empty())
            .collect();
        let said = said[said.len().saturating_sub(12)..].join("; ");
        StudyError::void(format!("{who} ended with {}: {said}", self.status))
    }
}

/// Runs a program to its end. It dies with this thread, and is not interrupted by a terminal's Ctrl-C.
pub(super) fn timed(command: &mut Command) -> Result<Ended, StudyError> {
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let dies_with_us = || Ok(set_parent_process_death_signal(Some(Signal::TERM))?);
    // SAFETY: one system call, between fork and exec.
    unsafe { command.pre_exec(dies_with_us) };
    let (began, cpu) = (Instant::now(), clock::children_cpu_seconds());
    let output = command.output();
    let output = output.map_err(StudyError::io(format!("starting {program}")))?;
    let cost = Cost {
        wall: began.elapsed().as_secs_f64(),
        cpu: clock::children_cpu_seconds() - cpu,
    };
    Ok(Ended {
        status: output.status,
        cost,
        said: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
