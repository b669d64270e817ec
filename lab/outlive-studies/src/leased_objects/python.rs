//! The peers in Python: its shared memory, and Ray's object store (plasma).

use crate::scratch::fresh_path;
use crate::{Run, StudyError};
use serde::Deserialize;
use std::collections::HashMap;
use std::fs;
use std::process::{Command, Stdio};

const SCRIPT: &str = include_str!("../../peers/objects.py");
/// The environment variable that names a Python with Ray and numpy.
const PYTHON: &str = "OUTLIVE_RAY_PYTHON";

/// Times in nanoseconds.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Times {
    pub put: f64,
    pub get: f64,
}

/// The times of Python's stores, by the size of the objects.
#[derive(Debug, Deserialize)]
pub struct Found {
    pub shared_memory: HashMap<u64, Times>,
    pub plasma: Option<HashMap<u64, Times>>,
}

/// Runs the script; `None` without a Python.
pub fn measure(run: &Run<'_>, calls: u64, sizes: &[u64]) -> Result<Option<Found>, StudyError> {
    let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
    let path = fresh_path("objects.py");
    fs::write(&path, SCRIPT).map_err(StudyError::io("writing a script to /dev/shm"))?;
    run.go_on()?;
    let output = Command::new(&python)
        .arg(&path)
        .arg(calls.to_string())
        .args(sizes.iter().map(u64::to_string))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    let _ = fs::remove_file(&path);
    let Ok(output) = output else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    match serde_json::from_str(last) {
        Ok(found) => Ok(Some(found)),
        Err(error) => Err(StudyError::void(format!(
            "{python} does not measure its objects: {error}; {}",
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}
