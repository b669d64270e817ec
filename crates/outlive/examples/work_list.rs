//! Counts primes piece by piece, each piece exactly once: run `work_list POD WORKER PIECES` as
//! worker 1, 2, 3 ... in several terminals. Kill any worker, and start it again with the same
//! number.

use outlive::pod::{Pod, PodOptions};
use outlive::structures::InsertError;

fn is_prime(n: &u64) -> bool {
    *n > 1 && !(2..=n.isqrt()).any(|d| n.is_multiple_of(d))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, worker, pieces] = &arguments[..] else {
        return Err("usage: work_list POD WORKER PIECES".into());
    };
    let (worker, pieces) = (worker.parse()?, pieces.parse()?);
    let pod = Pod::open_or_create(path, PodOptions::new())?;
    let session = pod.session()?;
    let me = session.client(&format!("worker {worker}"))?;
    let results = session.map::<u64, [u64; 2]>("results")?; // piece: its primes, its worker
    let totals = session.map::<u64, [u64; 2]>("totals")?; // worker: its pieces, their primes
    let taken = session.counter("taken")?;
    // First the piece during which this worker died, then new pieces, then pieces of dead workers.
    let begun = me.last().map(|last| last.token / 2);
    let new = std::iter::from_fn(|| Some(taken.add(1)).filter(|piece| *piece < pieces));
    for piece in begun.into_iter().chain(new).chain(0..pieces) {
        let (store, credit) = (2 * piece, 2 * piece + 1); // the tokens of two requests
        if !results.contains(&piece) {
            let primes = (10 * piece..10 * piece + 10).filter(is_prime).count() as u64;
            let request = results.request(&me, store);
            // If another worker has stored the result already, the other worker is credited.
            if let Err(InsertError::Heap(error)) = request.insert(&piece, &[primes, worker]) {
                return Err(error.into());
            }
        }
        // This worker has stored the result, before a death or just now, and has not been credited.
        let last = me.last().map(|last| (last.token, last.took_effect));
        if [Some((store, true)), Some((credit, false))].contains(&last) {
            let [primes, _] = results.get(&piece).ok_or("a result was removed")?;
            let request = totals.request(&me, credit);
            request.upsert(&worker, &[1, primes], |[n, sum]| [n + 1, sum + primes])?;
            println!("{piece}"); // the acknowledgement
        }
    }
    let primes: u64 = results.iter().map(|(_, [primes, _])| primes).sum();
    println!("{} pieces, {primes} primes", results.iter().count());
    Ok(())
}
