//! A proof that no serial order explains a history, for which no order of versions is needed.

use adya::History;
use adya::history::{Id, Mop, OpType, ReadValue};
use std::collections::{BTreeMap, HashMap};

/// Returns whether a committed transaction that only reads saw an object from each of two
/// transactions that both wrote both objects. In a serial order it would see both from the later
/// one, or from one after that.
pub fn are_seen(history: &History) -> bool {
    let mut writers: HashMap<(Id, Id), usize> = HashMap::new();
    let mut written: Vec<BTreeMap<Id, Id>> = Vec::with_capacity(history.ops.len());
    for (number, operation) in history.ops.iter().enumerate() {
        let mut last = BTreeMap::new();
        if matches!(operation.kind, OpType::Ok | OpType::Info) {
            for mop in &operation.value {
                if let Mop::Write { key, value } = *mop {
                    last.insert(key, value);
                }
            }
        }
        writers.extend(last.iter().map(|(key, value)| ((*key, *value), number)));
        written.push(last);
    }
    let committed = history.ops.iter().filter(|it| it.kind == OpType::Ok);
    { committed.filter(|it| it.value.iter().all(|it| matches!(it, Mop::Read { .. }))) }.any(|it| {
        let read = |mop: &Mop| match mop {
            Mop::Read {
                key,
                value: ReadValue::Scalar(value),
            } => Some((*key, *writers.get(&(*key, *value))?)),
            _ => None,
        };
        let reads: Vec<(Id, usize)> = it.value.iter().filter_map(read).collect();
        let is_half = |(x, a): &(Id, usize), (y, b): &(Id, usize)| {
            a != b && written[*a].contains_key(y) && written[*b].contains_key(x)
        };
        reads
            .iter()
            .any(|one| reads.iter().any(|other| is_half(one, other)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(read: &str) -> History {
        let writer = |process, value| {
            let value = format!("[[:w 1 {value}] [:w 2 {value}]]");
            format!(
                "{{:type :invoke, :process {process}, :f :txn, :value {value}}}\n\
                     {{:type :ok, :process {process}, :f :txn, :value {value}}}\n"
            )
        };
        let text = writer(0, 5) + &writer(1, 6) + &writer(2, 7);
        let read = format!(
            "{{:type :invoke, :process 3, :f :txn, :value []}}\n\
                            {{:type :ok, :process 3, :f :txn, :value [{read}]}}\n"
        );
        History::from_edn(&(text + &read)).unwrap()
    }

    #[test]
    fn halves_are_told_from_whole_transactions() {
        assert!(are_seen(&history("[:r 1 5] [:r 2 6]")));
        assert!(are_seen(&history("[:r 2 7] [:r 1 5]")));
        assert!(!are_seen(&history("[:r 1 6] [:r 2 6]")));
        assert!(!are_seen(&history("[:r 1 nil] [:r 2 6]")));
        assert!(!are_seen(&history("[:r 1 6] [:r 2 8]")));
    }
}
