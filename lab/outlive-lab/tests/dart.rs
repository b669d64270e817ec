//! The study `dart-compare`, whose store has processes of this command, with the least work.

use outlive_studies::{Effort, Launcher, Plan, Row, studies};
use std::collections::BTreeSet;

/// Returns the files of this process's studies.
fn left_behind() -> BTreeSet<String> {
    let ours = format!("outlive-study-{}-", std::process::id());
    let files = std::fs::read_dir("/dev/shm").unwrap().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(&ours)).collect()
}

#[test]
fn litmus_tests_and_a_checker_of_histories_judge_one_store() {
    let study = studies().iter().find(|it| it.name == "dart-compare");
    let plan = Plan {
        lab: Some(env!("CARGO_BIN_EXE_outlive-lab").into()),
        ..Plan::new(Effort::Tiny, Launcher::this_program([]).unwrap())
    };
    let rows = study.unwrap().run(&plan, &mut |_| ()).unwrap();
    let row = |case: &str, metric: &str| -> &Row {
        let mut rows = rows.iter();
        let found = rows.find(|it| it.case.starts_with(case) && it.metric == metric);
        found.unwrap_or_else(|| panic!("{case}, {metric}: {rows:#?}"))
    };
    let sound = row("no bug, ", "anomalies found");
    assert_eq!(
        (sound.ours, sound.peer),
        (Some(0.0), Some(0.0)),
        "{sound:#?}"
    );
    let wrong = row(
        "the bug covert-latches: litmus-2, the same run",
        "runs found wrong",
    );
    assert_eq!(
        (wrong.ours, wrong.peer),
        (Some(1.0), Some(1.0)),
        "{wrong:#?}"
    );
    // No time is judged.
    for case in ["assertions are evaluated", "recorded in a file"] {
        let case = format!("litmus-2, its transactions {case}");
        let cost = row(&case, "processor time of a transaction");
        assert!(cost.ratio > Some(0.0), "{cost:#?}");
    }
    assert_eq!(left_behind(), BTreeSet::new());
}
