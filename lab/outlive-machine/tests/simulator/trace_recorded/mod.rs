//! Real programs, built, recorded and replayed: on a machine without time, memory ends up as it was
//! in the program itself.

mod corners;
mod ends;
mod signals;
mod workshop;

use outlive_machine::description::Description;
use outlive_machine::program::{self, Reference, Word};
use outlive_machine::recorder::{BuildError, Missing, build};
use outlive_machine::run::{Run, Subject, unwatched};
use outlive_machine::trace::{Event, Order, Parts, Replay, Trace};
use std::ffi::OsString;
use std::process::Command;
use workshop::Workshop;

/// Returns a machine that has replayed the trace.
fn replayed(
    trace: &Trace,
    replay: Replay,
    order: program::Order,
    seed: u64,
) -> Reference<impl program::Thread + use<>> {
    let threads = trace.threads(replay).unwrap();
    let synchronisation = trace.about().synchronisation();
    let mut machine = Reference::new(
        &trace.image().unwrap(),
        &synchronisation,
        threads,
        order,
        seed,
    )
    .with_limit(100_000_000);
    machine.run().unwrap();
    machine
}

/// Returns the words that differ from the program's output: number, as printed, as replayed.
fn differences<T: program::Thread>(said: &str, machine: &Reference<T>) -> Vec<(u64, u64, u64)> {
    let mut words = 0;
    let mut differences = Vec::new();
    for line in said.lines() {
        let (word, value) = line.split_once(' ').expect("a word and its value");
        let (word, value) = (word.parse().expect("shared"), value.parse().unwrap());
        let replayed = machine.word(Word(word));
        if replayed != value {
            differences.push((word, value, replayed));
        }
        words += 1;
    }
    assert!(words > 4, "the program printed {words} words");
    differences
}

const EXACT: Replay = Replay {
    order: Order::Recorded,
    parts: Parts::Exact,
};

fn is_the_same_again(workshop: &Workshop, environment: &[(&str, &str)]) -> Trace {
    let (said, trace) = workshop.record(environment);
    for seed in 0..3 {
        for order in [program::Order::Sequential, program::Order::TotalStore] {
            let machine = replayed(&trace, EXACT, order, seed);
            let found = differences(&said, &machine);
            assert!(found.is_empty(), "{order:?}, seed {seed}: {found:?}");
        }
        // In another order, the replay also comes to its end.
        replayed(&trace, Replay::default(), program::Order::TotalStore, seed);
    }
    trace
}

#[test]
fn a_program_of_c_ends_with_the_same_memory() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    for options in [&["-O3"][..], &["-O0"]] {
        workshop.build("tests/recorded/everything.c", options);
        let trace = is_the_same_again(&workshop, &[]);
        let survey = trace.survey().unwrap();
        // The thread that was created last has the slot of the first.
        assert_eq!(trace.about().threads, 4);
        assert_eq!(trace.about().barriers.len(), 1);
        assert!(
            !survey.in_parts.is_empty()
                && survey.total.locks >= 1600
                && survey.total.barriers == 80
        );
        is_the_same_again(
            &workshop,
            &[("OUTLIVE_RECORD", "roi"), ("OUTLIVE_GAP", "3.25")],
        );
        is_the_same_again(&workshop, &[("OUTLIVE_LOADS", "values")]);
    }
}

#[test]
fn a_program_of_cpp_ends_with_the_same_memory() {
    let Some(workshop) = Workshop::new("c++") else {
        return;
    };
    workshop.build("tests/recorded/threads.cpp", &["-O3"]);
    let trace = is_the_same_again(&workshop, &[]);
    assert_eq!(trace.about().threads, 4);
    // Memory that threads other than the first allocate can be private.
    workshop.record(&[("OUTLIVE_SHARED", "main")]);
}

#[test]
fn threads_of_c11_are_recorded_too() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.build("tests/recorded/c11.c", &["-O2", "-std=c11"]);
    let trace = is_the_same_again(&workshop, &[]);
    let total = trace.survey().unwrap().total;
    assert_eq!(
        (trace.about().threads, trace.about().conditions.len()),
        (4, 1)
    );
    // Each thread takes the lock in each round, and the gate at each meeting; some wait there.
    assert!(total.locks >= 4 * (200 + 4) && total.waits > 0, "{total:?}");
}

#[test]
fn nobody_spins_in_a_trace() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.build("tests/recorded/everything.c", &["-O3"]);
    let (_, trace) = workshop.record(&[]);
    for thread in 0..trace.about().threads {
        let mut last = None;
        let loads = trace.events(thread).map(Result::unwrap).filter(|event| {
            matches!(
                event,
                Event::Load { .. }
                    | Event::Store { .. }
                    | Event::StorePart { .. }
                    | Event::Atomic { .. }
            )
        });
        let mut longest = 0;
        let mut run = 0;
        for event in loads {
            run = if last == Some(event) { run + 1 } else { 0 };
            longest = longest.max(run);
            last = Some(event);
        }
        // A few in a row are in the program itself.
        assert!(
            longest <= 3,
            "thread {thread} does the same {longest} times on end"
        );
    }
}

/// As the barriers of PARSEC, which are on the stack of the first thread.
#[test]
fn nobody_spins_on_the_stack_of_another() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    let text = "#include <pthread.h>\n#include <unistd.h>\nlong x;\nstatic void *wait_for(void *flag) {\n    volatile int *go = \
                flag;\n    while (!*go)\n        ;\n    x = 1;\n    *go = 2;\n    return 0;\n}\nint main(void) {\n    volatile \
                int go = 0;\n    pthread_t other;\n    pthread_create(&other, 0, wait_for, (void *)&go);\n    \
                usleep(50000);\n    go = 1;\n    while (go != 2)\n        ;\n    pthread_join(other, 0);\n    \
                return x != 1;\n}\n";
    workshop.small(text);
    for _ in 0..5 {
        let (_, trace) = workshop.record(&[]);
        for thread in 0..2 {
            let events = trace.events(thread).map(Result::unwrap).count();
            assert!(events < 60, "thread {thread} has {events} events");
        }
        assert!(trace.about().spins);
        // The threads that waited wait again.
        let subject = Subject::trace_file(&workshop.path("trace"), Replay::default()).unwrap();
        let description = Description::default();
        let outcome = Run::new(&description, 1).of(&subject, &mut unwatched);
        assert!(outcome.unwrap().finished);
    }
}

#[test]
fn the_example_can_be_recorded() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.build("examples/heat.c", &["-O3"]);
    let plain = Command::new(workshop.path("program")).output().unwrap();
    let (said, trace) = workshop.record(&[("OUTLIVE_RECORD", "roi")]);
    assert_eq!(said, String::from_utf8(plain.stdout).unwrap());
    assert!(trace.about().region_only);
    let survey = trace.survey().unwrap();
    assert!(
        survey
            .threads
            .iter()
            .all(|thread| thread.stores > 1000 && thread.barriers > 0)
    );
    replayed(&trace, Replay::default(), program::Order::TotalStore, 1);
}

#[test]
fn a_program_that_dies_leaves_no_trace_that_is_read() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    let source = workshop.path("dies.c");
    std::fs::write(
        &source,
        "#include <stdlib.h>\nlong x;\nint main(void) { x = 1; abort(); }\n",
    )
    .unwrap();
    let program = workshop.path("dies");
    build(&[
        "cc".into(),
        source.into(),
        "-o".into(),
        program.clone().into(),
    ])
    .unwrap();
    let trace = workshop.path("trace");
    let status = Command::new(program)
        .env("OUTLIVE_TRACE", &trace)
        .status()
        .unwrap();
    assert!(!status.success());
    let error = Trace::open(&trace).unwrap_err().to_string();
    assert!(error.contains("did not reach its end"), "{error}");
}

#[test]
fn a_program_without_a_region_leaves_nothing_to_be_run() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.small("long x;\nint main(void) { x = 1; return 0; }\n");
    let run = || Subject::trace_file(&workshop.path("trace"), Replay::default());
    let (_, whole) = workshop.record(&[]);
    assert!(!whole.is_empty().unwrap() && run().is_ok());
    let (_, empty) = workshop.record(&[("OUTLIVE_RECORD", "roi")]);
    assert!(empty.is_empty().unwrap());
    let error = run().unwrap_err().to_string();
    assert!(
        error.contains("no operations") && error.contains("outlive_roi_begin"),
        "{error}"
    );
}

/// As programs do that continue after an error: the recorder's heap is mapped there, and the trace
/// has no such word.
#[test]
fn what_is_read_beyond_all_that_is_allocated_does_no_harm() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    let text = "#include <stdlib.h>\nlong x;\nint main(void) {\n    volatile char *some = malloc(100);\n    \
                x = some[1 << 20];\n    some[1 << 21] = 1;\n    return 0;\n}\n";
    workshop.small(text);
    let (_, trace) = workshop.record(&[]);
    assert!(!trace.is_empty().unwrap());
    let subject = Subject::trace_file(&workshop.path("trace"), Replay::default());
    subject.expect("every word is there");
}

#[test]
fn a_wrong_setting_is_refused() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.small("int main(void) { return 0; }\n");
    for (name, right) in [
        ("OUTLIVE_RECORD", ["all", "roi"]),
        ("OUTLIVE_LOADS", ["words", "values"]),
        ("OUTLIVE_SHARED", ["heap", "main"]),
        ("OUTLIVE_GAP", ["0", "3.5"]),
    ] {
        for value in right {
            workshop.record(&[(name, value)]);
        }
        let wrong = Command::new(workshop.path("program"))
            .env("OUTLIVE_TRACE", workshop.path("trace"))
            .env(name, "valeus")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&wrong.stderr);
        assert_eq!(wrong.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("{name} is `valeus`")), "{said}");
    }
}

#[test]
fn a_static_program_is_refused() {
    let error = build(&["cc".into(), "-static".into(), "a.c".into()]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cannot be recorded with `-static`"),
        "{error}"
    );
}

#[test]
fn objects_that_were_compiled_otherwise_are_told() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    let [main, part, object, program] =
        ["main.c", "part.c", "part.o", "program"].map(|name| workshop.path(name));
    std::fs::write(
        &main,
        "extern long part;\nint main(void) { return (int)part; }\n",
    )
    .unwrap();
    std::fs::write(&part, "long part;\n").unwrap();
    let compile: [OsString; 4] = ["-c".into(), part.into(), "-o".into(), object.clone().into()];
    let link = [
        "cc".into(),
        main.into(),
        object.clone().into(),
        "-o".into(),
        program.into(),
    ];
    assert!(
        Command::new("cc")
            .args(&compile)
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(build(&link).unwrap(), [Missing::Accesses(object)]);
    let recorded: Vec<_> = ["cc".into()].into_iter().chain(compile).collect();
    build(&recorded).unwrap();
    assert!(build(&link).unwrap().is_empty());
}

#[test]
fn who_waits_for_a_trace_that_cannot_be_written_sees_it() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    let text = "#include <stdlib.h>\n#include <stdio.h>\n#include <sys/wait.h>\n#include <unistd.h>\nlong x;\n\
                static void last(void) { printf(\" last\"); }\n\
                int main(int n, char **with) {\n    atexit(last);\n    x = 1;\n    printf(\"done\");\n    fflush(stdout);\n    \
                int status;\n    if (fork() == 0)\n        exit(0);\n    wait(&status);\n    \
                return n > 1 ? atoi(with[1]) : status;\n}\n";
    workshop.small(text);
    let ended = |code: &str, trace: &str| {
        let mut program = Command::new(workshop.path("program"));
        let ended = program.arg(code).env("OUTLIVE_TRACE", trace).output();
        let ended = ended.unwrap();
        // The program does its own work at its end, and so does its child.
        assert_eq!(String::from_utf8_lossy(&ended.stdout), "done last last");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.code(), said)
    };
    let (code, said) = ended("0", "/dev/full");
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("the trace /dev/full cannot be written"),
        "{said}"
    );
    assert_eq!(ended("3", "/dev/full").0, Some(3));
    assert_eq!(ended("0", "/dev/null"), (Some(0), String::new()));
}

#[test]
fn what_is_known_to_be_no_compiler_is_told_so() {
    for (command, hint) in [
        ("make", "make CC="),
        ("/usr/bin/cmake", "a script"),
        ("rustc", "gcc, clang"),
    ] {
        let error = build(&[command.into(), "a.c".into()]).unwrap_err();
        assert!(matches!(error, BuildError::NoCompiler { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains(command) && said.contains(hint), "{said}");
    }
}

#[test]
fn a_failing_compiler_is_an_error() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    let missing = workshop.path("missing.c");
    let error = build(&["cc".into(), missing.into()]).unwrap_err();
    assert!(matches!(error, BuildError::Failed { .. }), "{error}");
    let error = build(&["no-such-compiler-here".into(), "a.c".into()]).unwrap_err();
    assert!(matches!(error, BuildError::Start { .. }), "{error}");
}
