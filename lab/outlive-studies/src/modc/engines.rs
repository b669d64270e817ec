//! The files of other projects' engines: a directory in memory that contains the graph.

use super::Subject;
use crate::StudyError;
use crate::scratch::Directory;
use outlive_programs::pagerank::Ranks;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Deref;
use std::path::PathBuf;

/// A directory that contains the graph.
pub(super) struct Files(Directory);

impl Deref for Files {
    type Target = Directory;

    fn deref(&self) -> &Directory {
        &self.0
    }
}

impl Files {
    /// Creates a directory with the graph of `subject`, in the format of `peers/pagerank_mpi.c`.
    pub fn with_graph_of(subject: &Subject, what: &str) -> Result<Self, StudyError> {
        let files = Self(Directory::new(what)?);
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

    pub fn graph(&self) -> PathBuf {
        self.path("graph")
    }

    /// Checks the ranks that a program has written; fails unless they are the plain program's.
    pub fn expect_ranks(&self, subject: &Subject, who: &str) -> Result<(), StudyError> {
        let bytes = self.take("ranks")?;
        let (words, _) = bytes.as_chunks::<8>();
        let ranks = Ranks {
            ranks: words.iter().map(|word| f64::from_le_bytes(*word)).collect(),
            ..subject.expected.clone()
        };
        subject.expect(who, &ranks)
    }
}
