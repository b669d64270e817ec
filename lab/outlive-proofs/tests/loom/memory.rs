//! A memory with some words that are loom's atomics: the very code that runs on native memory runs
//! over it.
//!
//! Loom runs its threads one at a time, in this operating system's thread. So the words that are
//! not *modelled* may be in native memory: they are each thread's own. A word of 128 bits, which
//! loom does not have, is modelled by the number of its value: equal values have one number, so
//! loads, stores and compare-and-swaps of numbers are those of values.

use loom::sync::atomic::{AtomicU64, AtomicUsize, fence};
use outlive_memory::{Memory, Native, Offset, Ordering, PersistenceDomain, Word};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// A handle on the memory.
#[derive(Clone, Copy, Debug)]
pub struct Modelled(Native);

/// Ranges of offsets, and the size of a word there in bytes.
pub type Place = (Range<u64>, u64);

enum Cell {
    Narrow(AtomicU64),
    /// The number of a value.
    Wide(AtomicUsize),
}

struct Cells {
    cells: BTreeMap<u64, Cell>,
    values: RefCell<Vec<u128>>,
}

thread_local! {
    static CELLS: RefCell<Option<Rc<Cells>>> = const { RefCell::new(None) };
}

impl Cells {
    fn number_of(&self, value: u128) -> usize {
        let mut values = self.values.borrow_mut();
        values
            .iter()
            .position(|other| *other == value)
            .unwrap_or_else(|| {
                values.push(value);
                values.len() - 1
            })
    }

    fn value(&self, number: usize) -> u128 {
        self.values.borrow()[number]
    }
}

/// The cells of the word at `at`, if it is modelled now.
fn modelled(at: Offset) -> Option<Rc<Cells>> {
    // Cloned: the other threads of the model look here while an access waits for its turn.
    CELLS
        .with_borrow(|cells| cells.clone())
        .filter(|cells| cells.cells.contains_key(&at.raw()))
}

/// Keeps the words modelled while it lives: from before threads are spawned until they are joined.
pub struct Model(Modelled);

impl Drop for Model {
    fn drop(&mut self) {
        let cells = CELLS.take().expect("a model");
        if std::thread::panicking() {
            return;
        }
        let native = self.0.0;
        for (at, cell) in &cells.cells {
            let at = Offset::new(*at);
            // All other threads are joined, so the last value is the only one that can be read.
            match cell {
                Cell::Narrow(word) => {
                    native.store(at, word.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                Cell::Wide(word) => {
                    let value = cells.value(word.load(Ordering::Relaxed));
                    native.store(at, value, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Modelled {
    /// Returns zeroed memory that stays until the process ends.
    pub fn leaked(size: u64) -> Self {
        Self(Native::leaked(size, PersistenceDomain::Flushed))
    }

    /// Returns the contents of the memory.
    pub fn image(self) -> Vec<u8> {
        let mut image = vec![0; self.0.size() as usize];
        self.0.copy_out(Offset::new(0), &mut image);
        image
    }

    /// Restores contents that [`image`](Self::image) returned.
    pub fn restore(self, image: &[u8]) {
        self.0.copy_in(Offset::new(0), image);
    }

    /// Lets loom model the words at `places`. Called within a model.
    pub fn model(self, places: &[Place]) -> Model {
        let cells = Cells {
            cells: BTreeMap::new(),
            values: RefCell::default(),
        };
        let mut made = BTreeMap::new();
        for (places, size) in places {
            for at in places.clone().step_by(*size as usize) {
                let word = Offset::new(at);
                let cell = match size {
                    8 => Cell::Narrow(AtomicU64::new(self.0.load::<u64>(word, Ordering::Relaxed))),
                    16 => {
                        let value = self.0.load::<u128>(word, Ordering::Relaxed);
                        Cell::Wide(AtomicUsize::new(cells.number_of(value)))
                    }
                    _ => panic!("words of 8 or 16 bytes"),
                };
                made.insert(at, cell);
            }
        }
        let cells = Rc::new(Cells {
            cells: made,
            ..cells
        });
        let before = CELLS.replace(Some(cells));
        // Left by a model that failed; loom's objects must not be dropped outside their own
        // execution.
        std::mem::forget(before);
        Model(self)
    }

    /// Replaces the value by one that is made from it, in one atomic step.
    fn update<W: Word>(
        self,
        at: Offset,
        order: Ordering,
        native: impl FnOnce(Native) -> W,
        narrow: impl FnOnce(&AtomicU64) -> u64,
        wide: impl Fn(u128) -> u128,
    ) -> W {
        let Some(cells) = modelled(at) else {
            return native(self.0);
        };
        match &cells.cells[&at.raw()] {
            Cell::Narrow(word) => {
                assert_eq!(W::SIZE, 8, "a word of 8 bytes at {at}");
                W::from_bits(narrow(word).into())
            }
            Cell::Wide(word) => {
                assert_eq!(W::SIZE, 16, "a word of 16 bytes at {at}");
                let mut number = word.load(Ordering::Relaxed);
                loop {
                    let value = cells.value(number);
                    let new = cells.number_of(wide(value));
                    match word.compare_exchange(number, new, order, Ordering::Relaxed) {
                        Ok(_) => return W::from_bits(value),
                        Err(other) => number = other,
                    }
                }
            }
        }
    }
}

// SAFETY: size and domain are those of the native memory beneath, which never change, and so are
// the places of words.
unsafe impl Memory for Modelled {
    fn size(self) -> u64 {
        self.0.size()
    }

    fn domain(self) -> PersistenceDomain {
        self.0.domain()
    }

    fn load<W: Word>(self, at: Offset, order: Ordering) -> W {
        let Some(cells) = modelled(at) else {
            return self.0.load(at, order);
        };
        match &cells.cells[&at.raw()] {
            Cell::Narrow(word) => {
                assert_eq!(W::SIZE, 8, "a word of 8 bytes at {at}");
                W::from_bits(word.load(order).into())
            }
            Cell::Wide(word) => {
                assert_eq!(W::SIZE, 16, "a word of 16 bytes at {at}");
                W::from_bits(cells.value(word.load(order)))
            }
        }
    }

    fn store<W: Word>(self, at: Offset, value: W, order: Ordering) {
        let Some(cells) = modelled(at) else {
            return self.0.store(at, value, order);
        };
        match &cells.cells[&at.raw()] {
            Cell::Narrow(word) => {
                assert_eq!(W::SIZE, 8, "a word of 8 bytes at {at}");
                word.store(value.to_bits() as u64, order);
            }
            Cell::Wide(word) => {
                assert_eq!(W::SIZE, 16, "a word of 16 bytes at {at}");
                word.store(cells.number_of(value.to_bits()), order);
            }
        }
    }

    fn exchange<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        let bits = value.to_bits();
        self.update(
            at,
            order,
            |native| native.exchange(at, value, order),
            |word| word.swap(bits as u64, order),
            |_| bits,
        )
    }

    fn compare_exchange<W: Word>(
        self,
        at: Offset,
        current: W,
        new: W,
        success: Ordering,
        failure: Ordering,
    ) -> Result<W, W> {
        let Some(cells) = modelled(at) else {
            return self.0.compare_exchange(at, current, new, success, failure);
        };
        let (current, new) = (current.to_bits(), new.to_bits());
        match &cells.cells[&at.raw()] {
            Cell::Narrow(word) => {
                assert_eq!(W::SIZE, 8, "a word of 8 bytes at {at}");
                word.compare_exchange(current as u64, new as u64, success, failure)
                    .map(|value| W::from_bits(value.into()))
                    .map_err(|value| W::from_bits(value.into()))
            }
            Cell::Wide(word) => {
                assert_eq!(W::SIZE, 16, "a word of 16 bytes at {at}");
                let (current, new) = (cells.number_of(current), cells.number_of(new));
                let value = |number| W::from_bits(cells.value(number));
                word.compare_exchange(current, new, success, failure)
                    .map(value)
                    .map_err(value)
            }
        }
    }

    fn fetch_add<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        let bits = value.to_bits();
        self.update(
            at,
            order,
            |native| native.fetch_add(at, value, order),
            |word| word.fetch_add(bits as u64, order),
            |before| before.wrapping_add(bits),
        )
    }

    fn fetch_and<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        let bits = value.to_bits();
        self.update(
            at,
            order,
            |native| native.fetch_and(at, value, order),
            |word| word.fetch_and(bits as u64, order),
            |before| before & bits,
        )
    }

    fn fetch_or<W: Word>(self, at: Offset, value: W, order: Ordering) -> W {
        let bits = value.to_bits();
        self.update(
            at,
            order,
            |native| native.fetch_or(at, value, order),
            |word| word.fetch_or(bits as u64, order),
            |before| before | bits,
        )
    }

    fn copy_in(self, at: Offset, from: &[u8]) {
        self.0.copy_in(at, from);
    }

    fn copy_out(self, at: Offset, into: &mut [u8]) {
        self.0.copy_out(at, into);
    }

    fn write_back(self, _: Offset, _: u64) {}

    fn drain(self) {}

    fn fence(self, order: Ordering) {
        // Outside of a model there is one thread.
        if CELLS.with_borrow(Option::is_some) {
            fence(order);
        }
    }

    fn spin_hint(self) {
        loom::thread::yield_now();
    }
}
