//! Runs several proofs at once, one on each processor.

use core::ops::ControlFlow;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;

/// An event of [`in_lanes`] about an item.
#[derive(Debug)]
pub enum Event<R> {
    /// Work on it begins.
    Begins,
    /// Work on it has ended, with this result.
    Ends(R),
}

/// Calls `work` for each of `items`, in order, on as many threads as the process may use
/// processors, and calls `tell` on this thread for each event as it occurs. After a
/// [`ControlFlow::Break`] no further work begins, `tell` is not called again, and this returns when
/// the work in progress has ended.
///
/// ```
/// use core::ops::ControlFlow;
/// use outlive_prove::{Event, in_lanes};
///
/// let mut sum = 0;
/// in_lanes(&[1, 2, 3], |number| number * number, |_, event| {
///     if let Event::Ends(square) = event {
///         sum += square;
///     }
///     ControlFlow::Continue(())
/// });
/// assert_eq!(sum, 14);
/// ```
///
/// # Panics
/// If `work` does, once all work in progress has ended; no other work begins then.
pub fn in_lanes<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
    mut tell: impl FnMut(usize, Event<R>) -> ControlFlow<()>,
) {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    // Relaxed: only the number counts; the items were there before the threads.
    let next = AtomicUsize::new(0);
    let (events, told) = mpsc::channel();
    let mut panicked = None;
    thread::scope(|scope| {
        for _ in 0..processors.min(items.len()) {
            let (events, next, work) = (events.clone(), &next, &work);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    // An error means that the receiver is gone.
                    if events.send((at, Ok(Event::Begins))).is_err() {
                        return;
                    }
                    let ended = catch_unwind(AssertUnwindSafe(|| work(item)));
                    let panicked = ended.is_err();
                    if events.send((at, ended.map(Event::Ends))).is_err() || panicked {
                        return;
                    }
                }
            });
        }
        drop(events);
        // Leaving the loop drops the receiver, which the threads notice.
        for (at, event) in told {
            match event {
                Ok(event) => {
                    if tell(at, event).is_break() {
                        break;
                    }
                }
                Err(payload) => {
                    panicked = Some(payload);
                    break;
                }
            }
        }
    });
    if let Some(payload) = panicked {
        resume_unwind(payload);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_begins_and_ends_once() {
        let items: Vec<usize> = (0..100).collect();
        let mut seen = vec![(0, 0); items.len()];
        in_lanes(
            &items,
            |item| item * 2,
            |at, event| {
                match event {
                    Event::Begins => seen[at].0 += 1,
                    Event::Ends(twice) => {
                        assert_eq!((twice, seen[at].0), (at * 2, 1));
                        seen[at].1 += 1;
                    }
                }
                ControlFlow::Continue(())
            },
        );
        assert!(seen.iter().all(|&one| one == (1, 1)));
    }

    #[test]
    #[should_panic(expected = "the seventh")]
    fn a_panic_ends_it_and_is_passed_on() {
        let begun = AtomicUsize::new(0);
        let work = |_: &()| {
            assert!(begun.fetch_add(1, Ordering::Relaxed) != 6, "the seventh");
        };
        in_lanes(&[(); 10_000], work, |_, _| ControlFlow::Continue(()));
    }

    #[test]
    fn a_break_ends_it() {
        let begun = AtomicUsize::new(0);
        let mut told = 0;
        in_lanes(
            &[(); 10_000],
            |()| begun.fetch_add(1, Ordering::Relaxed),
            |_, _| {
                told += 1;
                match told {
                    5 => ControlFlow::Break(()),
                    _ => ControlFlow::Continue(()),
                }
            },
        );
        assert_eq!(told, 5);
    }
}
