//! Whether a history can happen in time.

use super::history::{Event, History, Version};
use super::orders::Relation;

/// Returns whether points in time exist for the begins, events and ends of all transactions: events
/// lie between the begin and the end of their transaction, a read follows the write that it sees
/// and precedes a later event of its transaction on the same object, and transactions overlap
/// unless a real-time edge is between them.
///
/// Program order between different objects is left open.
pub(super) fn is_possible(history: &History) -> bool {
    let lengths = history.transactions.iter().map(|it| it.events.len());
    let starts: Vec<usize> = { lengths }
        .scan(0, |next, length| {
            *next += length + 2;
            Some(*next - length - 2)
        })
        .collect();
    let event = |transaction: usize, at: usize| starts[transaction] + 1 + at;
    let end =
        |transaction: usize| event(transaction, history.transactions[transaction].events.len());
    let all = history.transactions.len();
    let mut before = Relation::new(end(all - 1) + 1);
    for transaction in 0..all {
        before.add(starts[transaction], end(transaction));
        for other in (0..all).filter(|&it| it != transaction) {
            match history.real_time.contains(&(transaction, other)) {
                true => before.add(end(transaction), starts[other]),
                false => before.add(starts[other], end(transaction)),
            }
        }
        let events = &history.transactions[transaction].events;
        for (at, it) in events.iter().enumerate() {
            before.add(starts[transaction], event(transaction, at));
            before.add(event(transaction, at), end(transaction));
            let later = events.iter().enumerate().skip(at + 1);
            for (later, _) in later.filter(|(_, other)| other.object() == it.object()) {
                before.add(event(transaction, at), event(transaction, later));
            }
            if let Event::Read { object, version } = it
                && let Version::Written {
                    transaction: writer,
                    ..
                } = *version
            {
                let is_it =
                    |it: &Event| matches!(it, Event::Write { object: of, .. } if of == object);
                let events = &history.transactions[writer].events;
                let write = events
                    .iter()
                    .position(is_it)
                    .expect("the write of a version");
                before.add(event(writer, write), event(transaction, at));
            }
        }
    }
    before.is_acyclic()
}
