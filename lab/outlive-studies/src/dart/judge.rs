//! The checker of histories.

use super::halves;
use crate::StudyError;
use crate::scratch::Directory;
use adya::{History, Opts, Valid, Workload};
use outlive_litmus::recording::Recording;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The time that the checker may spend on one component of its graph.
const SEARCH: Duration = Duration::from_secs(2);

/// A history in a file, which a drop removes.
pub struct Recorded {
    directory: Directory,
    pub recording: Recording,
}

impl Recorded {
    /// Begins a history.
    pub fn begin() -> Result<Self, StudyError> {
        let directory = Directory::new("history")?;
        let recording = Recording::create(&directory.path("edn")).map_err(StudyError::void_of)?;
        Ok(Self {
            directory,
            recording,
        })
    }

    /// Ends the history. Returns its text.
    pub fn end(self) -> Result<String, StudyError> {
        self.recording.finish().map_err(StudyError::void_of)?;
        let path: PathBuf = self.directory.path("edn");
        fs::read_to_string(path).map_err(StudyError::io("reading a history"))
    }
}

/// The judgement of a history.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// The names of the anomalies; none if the history satisfies the level.
    pub anomalies: Vec<String>,
    /// Whether the history alone proves that no serial order explains it.
    pub has_halves: bool,
    /// The time from the text to the judgement.
    pub seconds: f64,
    /// The number of completed transactions.
    pub transactions: u64,
    /// The time of the history's last operation.
    pub last: Duration,
}

/// Judges a history.
pub fn judge(text: &str) -> Result<Judged, StudyError> {
    let began = Instant::now();
    let history = History::from_edn(text).map_err(StudyError::void_of)?;
    let options = Opts {
        models: vec!["strict-serializable".into()],
        timeout: SEARCH,
        wfr_keys: true,
        linearizable_keys: true,
        ..Opts::default()
    };
    let report = adya::check(&history, Workload::RwRegister, &options);
    let seconds = began.elapsed().as_secs_f64();
    let nanos = history
        .ops
        .last()
        .and_then(|it| it.time)
        .unwrap_or_default();
    Ok(Judged {
        anomalies: match report.valid {
            Valid::False => report.anomaly_types,
            Valid::True | Valid::Unknown => Vec::new(),
        },
        has_halves: halves::are_seen(&history),
        seconds,
        transactions: history.ops.len() as u64 / 2,
        last: Duration::from_nanos(nanos.unsigned_abs()),
    })
}

/// Returns the judgement of the shortest beginning that is found wrong. `None` if the history is
/// not.
pub fn first_wrong(text: &str) -> Result<Option<Judged>, StudyError> {
    let whole = judge(text)?;
    if whole.anomalies.is_empty() {
        return Ok(None);
    }
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    // The first `right` lines are not wrong, the first `wrong` ones are.
    let (mut right, mut wrong) = (0, ends.len());
    let mut found = whole;
    while wrong - right > 1 {
        let middle = usize::midpoint(right, wrong);
        let judged = judge(&text[..ends[middle - 1]])?;
        if judged.anomalies.is_empty() {
            right = middle;
        } else {
            (wrong, found) = (middle, judged);
        }
    }
    Ok(Some(found))
}
