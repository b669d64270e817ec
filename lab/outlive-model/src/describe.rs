//! The steps of a counterexample in words.

use crate::flight::{Actor, Verb};
use crate::history::Answer;
use crate::model::{Action, Commit};
use crate::scenarios::Operation;
use crate::state::{COMPUTE_SERVERS, Contents, OBJECTS, State, Step, Tx};
use stateright::Path;

/// Describes the steps of a path.
pub fn path(model: &Commit, path: Path<State, Action>) -> Vec<String> {
    let all = path.into_vec();
    let mut steps = Vec::new();
    for (pair, number) in all.windows(2).zip(1..) {
        if let [(before, Some(action)), (after, _)] = pair {
            let mut text = format!("{number:2}. {}", step(model, before, *action));
            for change in changes(model, before, after) {
                text.push_str("; ");
                text.push_str(&change);
            }
            steps.push(text);
        }
    }
    steps
}

/// The name of an object.
fn name(object: impl Into<usize>) -> &'static str {
    ["X", "Y"][object.into()]
}

/// A word of a latch.
fn holder(tx: Tx) -> String {
    match tx {
        0 => "free".to_owned(),
        tx => format!("T{tx}"),
    }
}

fn actor(actor: Actor) -> String {
    match actor {
        Actor::Compute(of) => format!("C{of}"),
        Actor::Recoverer(of) => format!("the recoverer of C{of}"),
        Actor::Ghost(of) => format!("an abandoned connection for C{of}"),
    }
}

/// A transaction with its operations.
fn transaction(model: &Commit, tx: Tx) -> String {
    let operations = model.operations(tx).iter().map(|it| match it {
        Operation::Read(object) => format!("read {}", name(*object)),
        Operation::Put(object) => format!("write {}", name(*object)),
        Operation::Delete(object) => format!("delete {}", name(*object)),
    });
    format!("T{tx} ({})", operations.collect::<Vec<_>>().join(", "))
}

fn contents(it: Contents) -> String {
    let value = match it.value {
        [a, b] if a == b => format!("value T{a}"),
        [a, b] => format!("value T{a}|T{b}"),
    };
    format!("version {}, {value}", it.version.0)
}

fn step(model: &Commit, state: &State, action: Action) -> String {
    let running = |of: u8| format!("T{}", model.running(state, of.into()));
    match action {
        Action::Begin(of) => {
            let tx = model.running(state, of.into()) + 1;
            format!("C{of} begins {}", transaction(model, tx))
        }
        Action::Enter(of) => format!("C{of} registers the commit of {}", running(of)),
        Action::React(of) => {
            format!(
                "C{of} looks up the owners of the latches that {} met",
                running(of)
            )
        }
        Action::Acknowledge(of) => format!("C{of} acknowledges {}", running(of)),
        Action::Effect { actor, server } => verb(state, actor, server),
        Action::Break {
            actor: owner,
            server,
            takes_effect,
        } => {
            let broken = format!("the connection of {} to M{server} breaks", actor(owner));
            match takes_effect {
                true => format!("{}; {broken}", verb(state, owner, server)),
                false => broken,
            }
        }
        Action::Die(of) => format!("C{of} dies"),
        Action::Recover(of) => format!("a recoverer begins the recovery of C{of}"),
        Action::MarkFailed(of) => format!("the recoverer marks C{of} as failed"),
        Action::RecovererDies(of) => format!("the recoverer of C{of} dies"),
        Action::MemoryDies { server } => format!("memory server M{server} dies"),
        Action::Lose { server } => format!("M{server} is recorded as lost: epoch 1 begins"),
    }
}

fn verb(state: &State, of: Actor, server: u8) -> String {
    let Some(posted) = state.flight.first(of, server) else {
        return String::new();
    };
    let memory = &state.memory[usize::from(server)];
    let replica = |object: u8| memory.replicas[usize::from(object)];
    let latch = |object: u8| match replica(object).latch {
        0 => "free".to_owned(),
        tx => format!("held by T{tx}"),
    };
    let version = |object: u8| replica(object).contents.version.0;
    let what = match posted.verb {
        Verb::ReadHead(it) | Verb::ReadHeadAgain(it) => format!(
            "READ latch and version of {}: {}, version {}",
            name(it),
            latch(it),
            version(it)
        ),
        Verb::ReadValue(it) => format!(
            "READ value of {}: T{}",
            name(it),
            replica(it).contents.value[0]
        ),
        Verb::ReadContents(it) => format!("READ {}: {}", name(it), contents(replica(it).contents)),
        Verb::ReadLatch(it) => format!("READ latch of {}: {}", name(it), latch(it)),
        Verb::ReadVersion(it) => format!("READ version of {}: {}", name(it), version(it)),
        Verb::Swap { object, from, to } => {
            let result = match replica(object).latch == from {
                true => "swapped".to_owned(),
                false => latch(object),
            };
            let (from, to) = (holder(from), holder(to));
            format!(
                "CAS latch of {} from {from} to {to}: {result}",
                name(object)
            )
        }
        Verb::Release { object, .. } => format!("WRITE latch of {}: free", name(object)),
        Verb::WriteWord {
            object,
            word,
            value,
        } => {
            format!(
                "WRITE word {word} of the value of {}: T{value}",
                name(object)
            )
        }
        Verb::WriteValue { object, value } => {
            format!("WRITE value of {}: T{}", name(object), value[0])
        }
        Verb::WriteVersion { object, version } => {
            format!("WRITE version of {}: {}", name(object), version.0)
        }
        Verb::ReadLog => match memory.logs[of.of()] {
            None => "READ log: empty".to_owned(),
            Some(entry) => match entry.decision {
                None => format!("READ log: T{}", entry.tx),
                Some(decision) => format!("READ log: T{}, {decision:?}", entry.tx),
            },
        },
        Verb::BeginLog(tx) => format!("WRITE log of T{tx}, the first part"),
        Verb::WriteLog(entry) => {
            let logged = (0..OBJECTS).filter_map(|it| {
                let logged = entry.objects[it]?;
                let (old, new) = (logged.old.version.0, logged.new.0);
                Some(format!("{} {old} to {new}", name(it)))
            });
            let logged = logged.collect::<Vec<_>>().join(", ");
            let decision = entry
                .decision
                .map_or(String::new(), |it| format!(", {it:?}"));
            format!(
                "WRITE log of T{}, the last part: {logged}{decision}",
                entry.tx
            )
        }
        Verb::Truncate => "WRITE log: none".to_owned(),
    };
    format!("{}, on M{server}: {what}", actor(of))
}

/// The decisions of coordinators that a step contains.
fn changes(model: &Commit, before: &State, after: &State) -> Vec<String> {
    let mut all = Vec::new();
    for of in 0..COMPUTE_SERVERS {
        let tx = model.running(after, of);
        let (was, is) = (before.computes[of].step, after.computes[of].step);
        let aborts = |it: Step| matches!(it, Step::Releasing | Step::RemovingLog);
        if aborts(is) && !aborts(was) {
            all.push(format!("T{tx} aborts"));
        }
        if is == Step::Writing && was != Step::Writing {
            all.push(format!("T{tx} is logged, and writes"));
        }
        let answer = |state: &State| state.history.answers[usize::from(tx)];
        if answer(after) == Answer::Aborted && answer(before) != Answer::Aborted {
            all.push(format!("the client of T{tx} learns of the abort"));
        }
        let decided = |state: &State| state.recoveries[of].entry.and_then(|it| it.decision);
        if let (None, Some(decision)) = (decided(before), decided(after)) {
            let tx = after.recoveries[of].entry.map_or(0, |it| it.tx);
            all.push(format!(
                "T{tx} goes {}",
                format!("{decision:?}").to_lowercase()
            ));
        }
    }
    all
}
