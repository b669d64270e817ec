//! Threads with the part of the shared data that they alone use in their nodes' local memory.
//!
//! A program shares whole arrays, although one thread alone uses much of them. A run without time
//! determines which lines several threads touch; only these are shared memory to the machine.
//! Accesses to the others are [private](Op::PrivateLoad) to it, for their timing, and their values
//! are kept here.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::{Image, Next, Op, Order, Reference, ReferenceError, Synchronisation, Thread, Word};
use crate::line::Line;

/// Private addresses from here on stand for shared memory. Programs count their own from 0.
const SHARED: u64 = 1 << 50;

/// The lines that one thread alone touches, and their contents. All threads of a run share this.
#[derive(Clone, Debug)]
pub struct OwnLines(Rc<RefCell<Lines>>);

#[derive(Debug)]
struct Lines {
    /// For each line of shared memory its place in `own`, counted from 1; 0 if it is shared.
    places: Vec<u32>,
    own: Vec<Own>,
    strays: u64,
}

#[derive(Debug)]
struct Own {
    owner: u16,
    line: Line,
}

impl OwnLines {
    /// Runs these threads without time, to determine which lines several of them touch. A line that
    /// an atomic touches is shared.
    ///
    /// # Errors
    ///
    /// If the threads cannot all end.
    pub fn find<T: Thread>(
        image: &Image,
        synchronisation: &Synchronisation,
        threads: Vec<T>,
    ) -> Result<Self, ReferenceError> {
        let machine = Reference::new(image, synchronisation, threads, Order::Sequential, 1);
        let mut machine = machine.with_locks_of_others();
        machine.run()?;
        let mut places = vec![0; image.words.div_ceil(Word::PER_LINE) as usize];
        let mut own = Vec::new();
        for (line, owner) in machine.touched_by_one() {
            own.push(Own {
                owner,
                line: Line::default(),
            });
            places[line.0 as usize] = own.len() as u32;
        }
        let mut lines = Lines {
            places,
            own,
            strays: 0,
        };
        for (first, values) in &image.runs {
            for (word, value) in (first.0..).map(Word).zip(values) {
                if let Some(own) = lines.of(word) {
                    own.line[word.place()] = *value;
                }
            }
        }
        Ok(Self(Rc::new(RefCell::new(lines))))
    }

    /// Returns the contents of a word, if one thread alone touches its line.
    pub fn word(&self, word: Word) -> Option<u64> {
        let mut lines = self.0.borrow_mut();
        lines.of(word).map(|own| own.line[word.place()])
    }

    /// Returns the number of accesses to lines of other threads. They occur if the program runs in
    /// another order, in which several threads touch the line.
    pub fn strays(&self) -> u64 {
        self.0.borrow().strays
    }
}

impl Lines {
    fn of(&mut self, word: Word) -> Option<&mut Own> {
        let place = self.places[word.line().0 as usize] as usize;
        self.own.get_mut(place.wrapping_sub(1))
    }
}

/// A thread whose accesses to [lines of its own](OwnLines) are private to the machine. It behaves
/// like the thread in it.
///
/// A store to such a line takes effect at once, and a load gets its value when it begins. No other
/// thread accesses the line, except by a [stray](OwnLines::strays), which is ordered as the host
/// executes it. It has no `Clone`, because a clone would write to the lines of the original.
///
/// ```
/// use outlive_machine::program::{Image, Next, Op, OwnLines, Placed, Script, Synchronisation, Thread, Word};
///
/// // Both read word 0; word 8, of the next line, is the second thread's alone.
/// let scripts = || [vec![Op::Load(Word(0))], vec![Op::Load(Word(0)), Op::Store(Word(8), 7)]].map(Script::new);
/// let image = Image { words: 16, runs: vec![] };
/// let lines = OwnLines::find(&image, &Synchronisation::default(), scripts().into())?;
/// let [_, second] = scripts();
/// let mut placed = Placed::new(second, 1, &lines);
/// assert_eq!(placed.next(), Next::Op(Op::Load(Word(0))));
/// assert!(matches!(placed.next(), Next::Op(Op::PrivateStore(_))));
/// assert_eq!((lines.word(Word(8)), lines.word(Word(0)), lines.strays()), (Some(7), None, 0));
/// # Ok::<(), outlive_machine::program::ReferenceError>(())
/// ```
#[derive(Debug)]
pub struct Placed<T> {
    thread: T,
    number: u16,
    lines: OwnLines,
    /// The values to be delivered, in program order.
    due: VecDeque<Due>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// This value; the machine delivers none.
    Own(u64),
    /// The value that the machine delivers.
    Shared,
    /// This value, in place of the one that the machine delivers.
    Instead(u64),
}

impl<T: Thread> Placed<T> {
    /// Creates the thread of this number.
    pub fn new(thread: T, number: usize, lines: &OwnLines) -> Self {
        Self {
            thread,
            number: number as u16,
            lines: lines.clone(),
            due: VecDeque::new(),
        }
    }

    /// Updates a word of a line that one thread alone touches, and returns its old value.
    fn touch(&self, word: Word, update: impl FnOnce(u64) -> u64) -> Option<u64> {
        let mut lines = self.lines.0.borrow_mut();
        let own = lines.of(word)?;
        let stray = own.owner != self.number;
        let held = own.line[word.place()];
        own.line[word.place()] = update(held);
        lines.strays += u64::from(stray);
        Some(held)
    }
}

impl<T: Thread> Thread for Placed<T> {
    fn next(&mut self) -> Next {
        let next = self.thread.next();
        let address = |word: Word| SHARED + word.0 * 8;
        let Next::Op(op) = next else { return next };
        Next::Op(match op {
            Op::Load(word) => match self.touch(word, |held| held) {
                Some(value) => {
                    match self.due.is_empty() {
                        true => self.thread.deliver(value),
                        false => self.due.push_back(Due::Own(value)),
                    }
                    Op::PrivateLoad(address(word))
                }
                None => {
                    self.due.push_back(Due::Shared);
                    op
                }
            },
            // Outside shared lines, the first run had no atomic. It takes the time of any atomic.
            Op::Atomic(word, update) => {
                let held = self.touch(word, |held| update.apply(held));
                self.due.push_back(held.map_or(Due::Shared, Due::Instead));
                op
            }
            Op::Store(word, value) | Op::StorePart(word, value, _) => {
                match self.touch(word, |_| value) {
                    Some(_) => Op::PrivateStore(address(word)),
                    None => op,
                }
            }
            _ => op,
        })
    }

    fn deliver(&mut self, value: u64) {
        let value = match self.due.pop_front() {
            Some(Due::Instead(own)) => own,
            Some(Due::Shared) => value,
            other => panic!("{value} was delivered when {other:?} was due"),
        };
        self.thread.deliver(value);
        while let Some(&Due::Own(value)) = self.due.front() {
            self.due.pop_front();
            self.thread.deliver(value);
        }
    }
}
