//! Runs every study from end to end with the least work. No time is judged: these are not
//! measurements.
//!
//! The studies start this program again for their child processes, so it has its own main function.

use outlive_studies::{
    Effort, How, Launcher, Plan, Progress, Row, StudyError, Unfinished, chart, sheet, studies,
};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn main() {
    if let Some(played) = outlive_studies::play() {
        return played.expect("a part of a study");
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    for study in studies() {
        if wanted.is_empty() || wanted.iter().any(|name| study.name.contains(name)) {
            let started = Instant::now();
            runs_from_end_to_end(study);
            println!("study {} ... ok ({:.1?})", study.name, started.elapsed());
        }
    }
    if wanted.is_empty() {
        names_are_unique();
        a_study_that_is_told_to_stop_leaves_nothing();
        println!("stopping ... ok");
    }
}

fn plan() -> Plan {
    let launcher = Launcher::this_program([]).expect("this program");
    Plan::new(Effort::Tiny, launcher)
}

fn runs_from_end_to_end(study: &outlive_studies::Study) {
    let mut said = 0;
    let rows = study.run(&plan(), &mut |progress| {
        said += u32::from(matches!(progress, Progress::Begins(_)));
    });
    if let Err(Unfinished {
        error: StudyError::Missing { what },
        rows,
    }) = &rows
    {
        // This program is not the command that the study needs; `outlive-lab` tests it.
        assert!(["guests", "dart-compare"].contains(&study.name), "{what}");
        assert!(rows.is_empty(), "{what}");
        return;
    }
    let rows = rows.unwrap_or_else(|error| panic!("{}: {error}", study.name));
    assert!(said > 0, "{} says nothing while it runs", study.name);
    assert!(rows.len() > 1, "{} has no answer", study.name);
    rows.iter().for_each(is_sound);
    if rows.iter().all(|row| row.case.contains("(not measured:")) {
        return;
    }
    let sure = rows.iter().filter(|row| row.low.is_some()).count();
    assert!(sure > 0, "{} has no interval", study.name);
    if study.name.starts_with("pandora-") {
        rows.iter().for_each(is_counted_exactly);
    }
    if study.name.starts_with("recxl-") {
        rows.iter().for_each(is_not_judged);
    }
    assert!(sheet::table(&rows).lines().count() > rows.len());
    let svg = chart::svg(study.name, &rows).expect("a chart");
    assert!(svg.contains("</svg>"));
    assert_eq!(left_behind(), BTreeSet::new(), "{} left files", study.name);
    no_children(study.name);
}

fn is_sound(row: &Row) {
    let numbers = [row.ours, row.peer, row.ratio, row.low, row.high, row.paper];
    assert!(
        numbers.iter().flatten().all(|value| value.is_finite()),
        "{row:?}"
    );
    assert!(!row.case.is_empty() && !row.metric.is_empty() && !row.unit.is_empty());
    assert_eq!(row.goal.is_some(), row.holds.is_some(), "{row:?}");
    assert_eq!(row.low.is_some(), row.high.is_some(), "{row:?}");
    if row.case.contains("(not measured:") {
        let measured = [row.ours, row.peer, row.ratio, row.low, row.high];
        assert!(measured.iter().all(Option::is_none) && row.how.is_none());
    } else {
        assert_eq!(row.peer.is_some(), row.peer_name.is_some(), "{row:?}");
        assert!(row.paper.is_some() || row.how.is_some(), "{row:?}");
    }
    if let (Some(low), Some(high)) = (row.low, row.high) {
        assert!(low <= high, "{row:?}");
    }
}

/// Counts of verbs do not depend on the machine: they equal those that they are compared with.
fn is_counted_exactly(row: &Row) {
    if ["verbs", "round trips"].contains(&row.unit.as_str()) && row.ratio.is_some() {
        assert_eq!((row.ratio, row.holds), (Some(1.0), Some(true)), "{row:?}");
    }
}

/// Simulations are too short here to be judged, except for errors that must not occur in the
/// shortest run either.
fn is_not_judged(row: &Row) {
    if row.metric == "lines that do not hold the committed values, in all runs" {
        assert_eq!((row.ours, row.holds), (Some(0.0), Some(true)), "{row:?}");
        return;
    }
    assert_eq!(
        (row.goal, row.holds, &row.why),
        (None, None, &None),
        "{row:?}"
    );
    assert_ne!(row.how, Some(How::Measured), "{row:?}");
}

fn left_behind() -> BTreeSet<String> {
    let ours = format!("outlive-study-{}-", std::process::id());
    let files = std::fs::read_dir("/dev/shm").expect("/dev/shm");
    files
        .flatten()
        .map(|file| file.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains(&ours))
        .collect()
}

fn no_children(study: &str) {
    // SAFETY: asks for children that have ended, and reaps none.
    let answer = unsafe {
        let mut info = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
        libc::waitid(libc::P_ALL, 0, &mut info, options)
    };
    let error = std::io::Error::last_os_error();
    assert_eq!(answer, -1, "{study} has left {}", children());
    assert_eq!(error.raw_os_error(), Some(libc::ECHILD), "{study}: {error}");
    // Else orphans of later studies would become children.
    let adopts = rustix::process::child_subreaper().expect("Linux 3.4");
    assert_eq!(adopts, None, "{study} leaves this process a subreaper");
}

/// Describes the children of this process.
fn children() -> String {
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc");
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let mut all = Vec::new();
    for thread in threads.flatten() {
        for pid in read(format!("{}/children", thread.path().display())).split_whitespace() {
            let command = read(format!("/proc/{pid}/cmdline")).replace('\0', " ");
            all.push(format!(
                "`{command}`: {}",
                read(format!("/proc/{pid}/stat"))
            ));
        }
    }
    format!("{all:?}")
}

fn names_are_unique() {
    let names: BTreeSet<_> = studies().iter().map(|study| study.name).collect();
    assert_eq!(names.len(), studies().len());
}

fn a_study_that_is_told_to_stop_leaves_nothing() {
    for study in studies() {
        let plan = plan();
        plan.stop.store(true, Ordering::Relaxed);
        match study.run(&plan, &mut |_| ()) {
            Err(Unfinished {
                error: StudyError::Stopped,
                ..
            }) => {}
            other => panic!("{} was told to stop: {other:?}", study.name),
        }
        assert_eq!(left_behind(), BTreeSet::new(), "{} left files", study.name);
        no_children(study.name);
    }
}
