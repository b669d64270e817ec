//! The protocol between compute nodes keeps its promises, and its judges notice if it does not.
//!
//! Checks that take minutes are in the examples `coherence` and `mutants`.

use outlive_machine::protocol::{
    Cell, DirectoryEvent, DirectoryOperation, DirectoryState, NodeEvent, NodeState, ProtocolError,
    Tables,
};
use outlive_machine::search::{
    Claims, Explored, Mutant, Rules, SURVIVORS, Search, Shape, Suite, Violation, Walk, mutants,
};

fn mesi() -> Rules {
    Rules::strict(Tables::mesi())
}

fn search(nodes: usize, lines: usize, capacity: usize) -> Search {
    let shape = Shape {
        nodes,
        lines,
        capacity,
    };
    Search {
        shape,
        budget: None,
        symmetric: true,
        claims: Claims::All,
        most_states: 4_000_000,
    }
}

fn walk(seed: u64, steps: u64) -> Walk {
    Walk {
        shape: Shape {
            nodes: 8,
            lines: 4,
            capacity: 2,
        },
        claims: Claims::All,
        seed,
        steps,
    }
}

fn mutant(name: &str) -> Mutant {
    let found = mutants(Tables::mesi())
        .into_iter()
        .find(|mutant| mutant.name == name);
    found.unwrap_or_else(|| panic!("no mutant is called {name}"))
}

fn sound(search: Search) -> Explored {
    let explored = search
        .run(&mesi())
        .unwrap_or_else(|broken| panic!("{broken}"));
    assert!(explored.complete, "{explored:?}");
    explored
}

#[test]
fn two_nodes_and_a_line() {
    let explored = sound(search(2, 1, 1));
    assert!(
        explored.states > 3000 && explored.depth > 20,
        "{explored:?}"
    );
    // No node has the line; one reads it, has it alone, or has written it and not dropped it or
    // dropped it silently; both read it.
    assert!(explored.quiet >= 7, "{explored:?}");
}

#[test]
fn names_of_nodes_do_not_matter() {
    let alike = sound(search(2, 1, 1));
    let named = sound(Search {
        symmetric: false,
        ..search(2, 1, 1)
    });
    assert!(
        named.states > alike.states && named.states <= 2 * alike.states,
        "{alike:?} {named:?}"
    );
    assert_eq!(named.depth, alike.depth);
}

#[test]
fn three_nodes_and_a_line() {
    let explored = sound(search(3, 1, 1));
    assert!(explored.states > 100_000, "{explored:?}");
}

#[test]
fn two_lines_and_room_for_one() {
    let explored = sound(Search {
        budget: Some(3),
        ..search(2, 2, 1)
    });
    assert!(explored.states > 10_000, "{explored:?}");
}

#[test]
fn a_search_that_is_too_small_says_so() {
    let explored = Search {
        most_states: 100,
        ..search(2, 1, 1)
    }
    .run(&mesi())
    .unwrap();
    assert!(!explored.complete && explored.states == 100);
}

#[test]
fn eight_nodes_on_random_walks() {
    for seed in 0..4 {
        let walked = walk(seed, 250_000)
            .run(&mesi())
            .unwrap_or_else(|broken| panic!("seed {seed}\n{broken}"));
        assert!(
            walked.evictions > 5_000 && walked.deliveries > 100_000,
            "{walked:?}"
        );
        assert_eq!(walk(seed, 250_000).run(&mesi()), Ok(walked));
    }
}

#[test]
fn the_shortest_way_is_told() {
    let broken = mutant("node (M, Evict): does not wait for PutAck");
    let counterexample = search(2, 1, 1).run(&broken.rules).unwrap_err();
    let told: Vec<_> = counterexample
        .steps
        .iter()
        .map(|step| step.what.as_str())
        .collect();
    println!("{counterexample}");
    assert_eq!(told[0], "CN0 Store line 0");
    assert_eq!(told[1], "arrives: RdX CN0>dir0");
    assert!(
        counterexample.steps[1]
            .after
            .contains("GrantM(Last) dir0>CN0"),
        "{counterexample}"
    );
    assert!(told.len() <= 8, "{counterexample}");
}

#[test]
fn what_is_told_of_a_walk_ends_at_its_violation() {
    let broken = mutant("directory (OX, Relinquished): without WriteMemory");
    let first = walk(3, 1_000_000).run(&broken.rules).unwrap_err();
    let again = walk(3, 1_000_000).run(&broken.rules).unwrap_err();
    assert_eq!(first, again, "a seed tells one story");
    assert!(
        !first.steps.is_empty() && first.steps.len() <= 60,
        "{first}"
    );
}

#[test]
fn a_pair_without_a_row_is_named() {
    let mut rules = mesi();
    rules.tables.node.set(NodeState::IS, NodeEvent::Inv, None);
    let violation = search(2, 1, 1).run(&rules).unwrap_err().violation;
    let expected = ProtocolError::NodeUndefined {
        state: NodeState::IS,
        event: NodeEvent::Inv,
    };
    assert_eq!(violation, Violation::Protocol(expected));
}

/// A directory that asks again and again for a line that is gone: every state has a next one, and
/// none is at rest.
#[test]
fn messages_that_go_round_are_found() {
    let mut rules = mesi();
    let again = Cell::new([DirectoryOperation::RecallShared], DirectoryState::OS);
    rules
        .tables
        .directory
        .set(DirectoryState::OS, DirectoryEvent::Gone, Some(again));
    let found = search(2, 1, 1).run(&rules).unwrap_err();
    assert_eq!(found.violation, Violation::NoEnd, "{found}");
    assert!(!found.steps.is_empty());
    assert_eq!(
        walk(5, 100_000).run(&rules).unwrap_err().violation,
        Violation::NoEnd
    );
}

/// Every third mutant, by search; the example takes all of them, by both.
#[test]
fn mutants_are_noticed() {
    let suite = Suite {
        searches: vec![search(2, 1, 1), search(3, 1, 1)],
        walks: vec![walk(1, 100_000)],
    };
    let mutants = mutants(Tables::mesi());
    assert!(mutants.len() > 400, "{} mutants", mutants.len());
    for mutant in mutants.iter().step_by(3) {
        if SURVIVORS.iter().all(|(name, _)| *name != mutant.name) {
            assert!(suite.kill(mutant).is_dead(), "{} survives", mutant.name);
        }
    }
}

#[test]
fn survivors_survive() {
    let suite = Suite {
        searches: vec![search(2, 1, 1)],
        walks: vec![walk(1, 100_000)],
    };
    for (name, why) in SURVIVORS {
        let kill = suite.kill(&mutant(name));
        assert!(!kill.is_dead(), "{name} is dead ({kill:?}), though {why}");
    }
}
