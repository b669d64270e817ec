//! Protocols with one thing removed, and whether a suite detects them.

use std::fmt::Debug;

use super::explore::Search;
use super::random::Walk;
use super::violation::Violation;
use super::world::{Kind, Rules};
use crate::protocol::{Cell, DirectoryEvent, Name, NodeEvent, Table, Tables, ToDirectory, ToNode};

/// The kinds of mutations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutation {
    /// A row is removed. An event without a row is an error: a suite that reaches it detects this.
    Row,
    /// The effect of a row is removed: its event is accepted, and nothing happens.
    Transition,
    /// One action of a row is removed.
    Action,
    /// The change of state is removed: the row's actions are executed, and the state stays.
    Next,
    /// A distinction is removed: one event has the effect of another, in every state that has rows
    /// for both. A directory makes these distinctions by its record.
    Distinction,
    /// A wait is removed: the step that begins it also has the effect of the answer, and answers
    /// that come later are swallowed where they have no row.
    Wait,
}

/// A protocol with one mutation.
#[derive(Clone, Debug)]
pub struct Mutant<R = Rules> {
    /// The name of the mutation.
    pub name: String,
    /// The kind of the mutation.
    pub mutation: Mutation,
    /// The mutated protocol.
    pub rules: R,
}

/// The mutants of the MESI protocol that no check can detect, and the reasons.
pub const SURVIVORS: &[(&str, &str)] = &[
    (
        "node (I, Prefetch): ignored",
        "a prefetch is a hint: a node that ignores it is slower, but correct",
    ),
    (
        "node (S, Prefetch): ignored",
        "a prefetch is a hint: a node that ignores it is slower, but correct",
    ),
    (
        "directory: takes RdSAlone for RdS",
        "an owner that has dropped its line receives a recall, answers that the line is gone, and \
         is granted it: later, but correct",
    ),
    (
        "directory: takes RdXAlone for RdX",
        "an owner that has dropped its line receives a recall, answers that the line is gone, and \
         is granted it: later, but correct",
    ),
];

/// The searches and walks that try to detect a mutant.
#[derive(Clone, Debug)]
pub struct Suite {
    /// Searches, the small ones first.
    pub searches: Vec<Search>,
    /// Random walks.
    pub walks: Vec<Walk>,
}

/// The verdict of a suite on a mutant: the first violation found by a search, and by a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kill {
    /// By a search.
    pub search: Option<Violation>,
    /// By a walk.
    pub walk: Option<Violation>,
}

impl Kill {
    /// Returns whether a search or a walk has detected the mutant.
    pub fn is_dead(&self) -> bool {
        self.search.is_some() || self.walk.is_some()
    }
}

impl Suite {
    /// Runs the searches on the mutant until one detects it, and the walks likewise.
    pub fn kill(&self, mutant: &Mutant) -> Kill {
        let rules = &mutant.rules;
        Kill {
            search: self
                .searches
                .iter()
                .find_map(|search| search.run(rules).err())
                .map(|found| found.violation),
            walk: self
                .walks
                .iter()
                .find_map(|walk| walk.run(rules).err())
                .map(|found| found.violation),
        }
    }
}

/// Returns every mutant of the protocol: each row removed, transition ignored, action dropped,
/// change of state left out or wait left out, and events confused with one another.
///
/// ```
/// use outlive_machine::protocol::Tables;
/// use outlive_machine::search::{Claims, Mutation, Search, Shape, Suite, mutants};
///
/// let shape = Shape { nodes: 2, lines: 1, capacity: 1 };
/// let claims = Claims::Visible;
/// let search = Search { shape, budget: None, symmetric: true, claims, most_states: 100_000 };
/// let suite = Suite { searches: vec![search], walks: vec![] };
/// let name = "node (M, Evict): does not wait for PutAck";
/// let early = mutants(Tables::mesi()).into_iter().find(|mutant| mutant.name == name).expect("one of them");
/// assert_eq!(early.mutation, Mutation::Wait);
/// let why = suite.kill(&early).search.expect("it asks again, and is granted what memory has before the PutM");
/// assert_eq!(why.to_string(), "CN0 performs an access to line 0 on outdated contents");
/// ```
pub fn mutants(tables: &Tables) -> Vec<Mutant> {
    let node = |table, swallowed| Rules {
        tables: Tables {
            node: table,
            ..tables.clone()
        },
        swallowed,
    };
    let directory = |table, swallowed| Rules {
        tables: Tables {
            directory: table,
            ..tables.clone()
        },
        swallowed,
    };
    let mut mutants = of("node", &tables.node, node, node_answer);
    mutants.extend(of(
        "directory",
        &tables.directory,
        directory,
        directory_answer,
    ));
    mutants.extend(confusions(
        "directory",
        &tables.directory,
        &CONFUSIONS,
        |table| directory(table, &[]),
    ));
    mutants
}

/// Returns the mutants of a table that confuse two events, in every state that has rows for both.
pub(super) fn confusions<S: Name, E: Name, A: Copy, R>(
    who: &str,
    table: &Table<S, E, A>,
    pairs: &[(E, E)],
    rules: impl Fn(Table<S, E, A>) -> R,
) -> Vec<Mutant<R>> {
    let mutant = |&(event, taken_for): &(E, E)| {
        let mut confused = table.clone();
        for &state in S::ALL {
            if let (Some(_), Some(other)) =
                (confused.get(state, event), table.get(state, taken_for))
            {
                confused.set(state, event, Some(*other));
            }
        }
        Mutant {
            name: format!("{who}: takes {event:?} for {taken_for:?}"),
            mutation: Mutation::Distinction,
            rules: rules(confused),
        }
    };
    pairs.iter().map(mutant).collect()
}

/// The distinctions of the directory that its mutants do not make.
const CONFUSIONS: [(DirectoryEvent, DirectoryEvent); 10] = {
    use DirectoryEvent::{Ack, AckLast, PutM, PutMStale, RdS, RdSAlone, RdX, RdXAlone, Upgrade};
    [
        (RdS, RdSAlone),
        (RdSAlone, RdS),
        (RdX, RdXAlone),
        (RdXAlone, RdX),
        (RdX, Upgrade),
        (Upgrade, RdX),
        (Ack, AckLast),
        (AckLast, Ack),
        (PutM, PutMStale),
        (PutMStale, PutM),
    ]
};

/// Returns the messages that come too late if this event is acted upon before it happens. Only an
/// event that carries no contents can be acted upon early.
fn node_answer(event: NodeEvent) -> &'static [Kind] {
    match event {
        NodeEvent::PutAck => &[Kind::Down(ToNode::PutAck)],
        NodeEvent::GrantUpgrade => &[Kind::Down(ToNode::GrantUpgrade)],
        _ => &[],
    }
}

fn directory_answer(event: DirectoryEvent) -> &'static [Kind] {
    const RECALLED: &[Kind] = &[
        Kind::Up(ToDirectory::Gone),
        Kind::Up(ToDirectory::Relinquished(())),
        Kind::Up(ToDirectory::DowngradedClean),
        Kind::Up(ToDirectory::Downgraded(())),
    ];
    match event {
        DirectoryEvent::AckLast => &[Kind::Up(ToDirectory::Ack)],
        DirectoryEvent::Gone | DirectoryEvent::DowngradedClean => RECALLED,
        DirectoryEvent::Done => &[Kind::Up(ToDirectory::Done)],
        _ => &[],
    }
}

/// Returns the mutants of a table. `rules` makes a protocol of the mutated table and the messages
/// to swallow. `answer` returns the messages that come too late if an event is acted upon at once,
/// or none if it cannot be.
pub(super) fn of<S: Name, E: Name, A: Copy + PartialEq + Debug, K: 'static, R>(
    who: &str,
    table: &Table<S, E, A>,
    rules: impl Fn(Table<S, E, A>, &'static [K]) -> R,
    answer: impl Fn(E) -> &'static [K],
) -> Vec<Mutant<R>> {
    let mut mutants = Vec::new();
    let mut add = |mutation, (state, event): (S, E), lacks: String, cell, swallowed| {
        let mut left = table.clone();
        left.set(state, event, cell);
        if left != *table {
            let name = format!("{who} ({state:?}, {event:?}): {lacks}");
            mutants.push(Mutant {
                name,
                mutation,
                rules: rules(left, swallowed),
            });
        }
    };
    for (state, event, cell) in table.iter() {
        let pair = (state, event);
        let actions: Vec<A> = cell.actions().collect();
        add(Mutation::Row, pair, "no row".into(), None, &[]);
        add(
            Mutation::Transition,
            pair,
            "ignored".into(),
            Some(Cell::new([], state)),
            &[],
        );
        for dropped in 0..actions.len() {
            let kept = actions
                .iter()
                .enumerate()
                .filter(|(place, _)| *place != dropped)
                .map(|(_, action)| *action);
            let lacks = format!("without {:?}", actions[dropped]);
            add(
                Mutation::Action,
                pair,
                lacks,
                Some(Cell::new(kept, cell.next)),
                &[],
            );
        }
        add(
            Mutation::Next,
            pair,
            format!("stays {state:?}"),
            Some(Cell::new(actions.iter().copied(), state)),
            &[],
        );
        // Steps into a state that an answer ends, and steps that wait for one more of several
        // answers.
        for &ending in E::ALL.iter().filter(|&&ending| !answer(ending).is_empty()) {
            let Some(end) = table.get(cell.next, ending) else {
                continue;
            };
            let one_of_several =
                cell.next == state && actions.is_empty() && is_one_of(event, ending);
            if (cell.next != state || one_of_several) && end.next != cell.next {
                let at_once = Cell::new(actions.iter().copied().chain(end.actions()), end.next);
                let lacks = format!("does not wait for {ending:?}");
                add(Mutation::Wait, pair, lacks, Some(at_once), answer(ending));
            }
        }
    }
    mutants
}

/// Returns whether `event` is the same answer as `last`, with others to come. Compares names, since
/// the tables have different types of events.
fn is_one_of<E: Debug + PartialEq>(event: E, last: E) -> bool {
    event != last && format!("{event:?}Last") == format!("{last:?}")
}
