//! Release and acquire as an operational model: histories of messages, and the views of threads.
//!
//! Each word has its modification order, a list of *messages*. A *view* gives for each word the
//! oldest message that may still be read. A thread has three views: `current`, which bounds its
//! loads; `acquired`, which its loads have seen but only an acquire fence makes current; and
//! `released`, which its last release fence covers. A message carries a view too: the writer's
//! current one for a release, the `released` one otherwise, joined, for a read-modify-write, with
//! that of the message it replaced (so read-modify-writes continue a release sequence, as in C++20,
//! and nothing else does).
//!
//! * A load reads any message that its view allows; a compare-and-swap that fails, too.
//! * A store goes anywhere in the modification order that is newer than the thread's view, though
//!   never between a read-modify-write and the message it replaced. A sequentially consistent one
//!   goes to the end.
//! * A read-modify-write replaces the newest message.
//! * Fences: acquire makes `acquired` current; release sets `released`; a sequentially consistent
//!   one does both and joins with a view that all of them share.
//! * A sequentially consistent store adds itself to that shared view; such a load respects it.
//!
//! Not modelled, so bugs that need it are not found: a load that takes effect after a later store
//! (load buffering; a promise in the terms of Kang et al., POPL '17, whose views these are); a
//! read-modify-write that replaces an older message; a sequentially consistent access that others
//! see after a later relaxed one. The model is not known to be stronger than C++20 in any other
//! way. Weaker: sequentially consistent loads do not order one another beyond the stores they read.

use super::access::{Access, Act, Answer, acquires, releases};
use outlive_memory::Ordering;
use std::rc::Rc;

/// The gap between the stamps of two messages of a word, for stores that are placed there later.
const GAP: u64 = 1 << 32;

/// By word the oldest message that may be read; words beyond the end have all messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct View(Vec<u64>);

impl View {
    fn get(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    fn raise(&mut self, word: usize, stamp: u64) {
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] = self.0[word].max(stamp);
    }

    fn join(&mut self, other: &View) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, others) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*others);
        }
    }
}

#[derive(Clone, Debug)]
struct Message {
    stamp: u64,
    value: u128,
    /// The view that an acquire load of the message joins; `None` for an empty one.
    view: Option<Rc<View>>,
    /// Whether it must follow the message before it without a gap.
    replaces: bool,
    /// The access that wrote it, for traces.
    step: u32,
}

#[derive(Clone, Debug, Default)]
struct ThreadViews {
    current: View,
    acquired: View,
    released: View,
}

/// The memory of one execution.
#[derive(Debug)]
pub(crate) struct Views {
    words: Vec<Vec<Message>>,
    actors: Vec<ThreadViews>,
    agreed: View,
    history: usize,
}

impl Views {
    pub(crate) fn new(actors: usize, history: usize) -> Self {
        Self {
            words: Vec::new(),
            actors: vec![ThreadViews::default(); actors],
            agreed: View::default(),
            history,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.agreed = View::default();
        self.actors.fill(ThreadViews::default());
    }

    fn word(&mut self, word: usize) -> &mut Vec<Message> {
        while self.words.len() <= word {
            let zero = Message {
                stamp: 0,
                value: 0,
                view: None,
                replaces: false,
                step: 0,
            };
            self.words.push(vec![zero]);
        }
        &mut self.words[word]
    }

    /// Returns the number of messages that a load may choose among, the newest first. `after` is a
    /// stamp that the load must exceed.
    fn readable(
        &mut self,
        actor: usize,
        word: usize,
        order: Ordering,
        after: Option<u64>,
    ) -> usize {
        let mut floor = self.actors[actor].current.get(word);
        if order == Ordering::SeqCst {
            floor = floor.max(self.agreed.get(word));
        }
        let history = self.history;
        let messages = self.word(word);
        let count = messages
            .iter()
            .rev()
            .take(history)
            .take_while(|m| m.stamp >= floor)
            .count();
        match after {
            Some(after) => messages
                .iter()
                .rev()
                .take(count)
                .take_while(|m| m.stamp > after)
                .count()
                .max(1),
            None => count,
        }
    }

    /// Returns the ways of an access, as codes, the strongest first: read the newest, append.
    pub(crate) fn ways(
        &mut self,
        actor: usize,
        word: usize,
        access: &Access,
        after: Option<u64>,
        into: &mut Vec<u16>,
    ) {
        into.push(0);
        match access.act {
            Act::Load => {
                let count = self.readable(actor, word, access.order, after);
                into.extend(1..count as u16);
            }
            Act::CompareExchange {
                expected, failure, ..
            } => {
                let count = self.readable(actor, word, failure, after);
                let messages = &self.words[word];
                let fails =
                    |&code: &u16| messages[messages.len() - 1 - code as usize].value != expected;
                into.extend((1..count as u16).filter(fails));
            }
            Act::Store(_) if access.order != Ordering::SeqCst => {
                let floor = self.actors[actor].current.get(word);
                let messages = self.word(word);
                let newer = messages.iter().rev().take_while(|m| m.stamp > floor);
                into.extend(
                    newer
                        .enumerate()
                        .filter(|(_, m)| !m.replaces)
                        .map(|(i, _)| i as u16 + 1),
                );
            }
            _ => {}
        }
    }

    /// Makes the access in the given way.
    pub(crate) fn access(
        &mut self,
        actor: usize,
        word: usize,
        access: &Access,
        way: u16,
        step: u32,
    ) -> Answer {
        self.word(word);
        if let Act::Store(value) = access.act {
            self.store(actor, word, value, access.order, way as usize, step);
            return Answer {
                value,
                swapped: true,
            };
        }
        let newest = self.words[word].len() - 1;
        let found = &self.words[word][newest - way as usize];
        let new = if way == 0 {
            access.replaces(found.value)
        } else {
            None
        };
        let order = match access.act {
            Act::CompareExchange { failure, .. } if new.is_none() => failure,
            _ => access.order,
        };
        let (value, stamp, view) = (found.value, found.stamp, found.view.clone());
        let thread = &mut self.actors[actor];
        thread.current.raise(word, stamp);
        thread.acquired.raise(word, stamp);
        if let Some(view) = &view {
            thread.acquired.join(view);
            if acquires(order) {
                thread.current.join(view);
            }
        }
        if let Some(new) = new {
            self.append(actor, word, new, order, view, step);
        }
        Answer {
            value,
            swapped: new.is_some(),
        }
    }

    fn append(
        &mut self,
        actor: usize,
        word: usize,
        value: u128,
        order: Ordering,
        replaced: Option<Rc<View>>,
        step: u32,
    ) {
        let stamp = self.words[word].last().expect("a first message").stamp + GAP;
        let mut view = self.written(actor, word, stamp, order);
        if let Some(replaced) = replaced {
            match &mut view {
                Some(view) => Rc::make_mut(view).join(&replaced),
                None => view = Some(replaced),
            }
        }
        self.words[word].push(Message {
            stamp,
            value,
            view,
            replaces: true,
            step,
        });
    }

    fn store(
        &mut self,
        actor: usize,
        word: usize,
        value: u128,
        order: Ordering,
        before: usize,
        step: u32,
    ) {
        let messages = &self.words[word];
        let place = messages.len() - before;
        let last = messages[place - 1].stamp;
        let stamp = match messages.get(place) {
            None => last + GAP,
            Some(next) => last + (next.stamp - last) / 2,
        };
        assert!(stamp > last, "no space between two messages");
        let view = self.written(actor, word, stamp, order);
        self.words[word].insert(
            place,
            Message {
                stamp,
                value,
                view,
                replaces: false,
                step,
            },
        );
    }

    /// Records that the actor wrote the message `stamp`; returns the view that the message carries.
    fn written(
        &mut self,
        actor: usize,
        word: usize,
        stamp: u64,
        order: Ordering,
    ) -> Option<Rc<View>> {
        let thread = &mut self.actors[actor];
        thread.current.raise(word, stamp);
        thread.acquired.raise(word, stamp);
        if order == Ordering::SeqCst {
            self.agreed.raise(word, stamp);
        }
        let view = if releases(order) {
            &thread.current
        } else {
            &thread.released
        };
        (!view.0.is_empty()).then(|| Rc::new(view.clone()))
    }

    pub(crate) fn fence(&mut self, actor: usize, order: Ordering) {
        let thread = &mut self.actors[actor];
        if acquires(order) {
            thread.current = thread.acquired.clone();
        }
        if order == Ordering::SeqCst {
            thread.current.join(&self.agreed);
            thread.acquired.join(&self.agreed);
            self.agreed = thread.current.clone();
        }
        if releases(order) {
            thread.released = thread.current.clone();
        }
    }

    /// Makes `to` happen after everything that `from` did so far.
    pub(crate) fn follow(&mut self, from: usize, to: usize) {
        let known = self.actors[from].acquired.clone();
        self.actors[to].current.join(&known);
        self.actors[to].acquired.join(&known);
    }

    /// Makes the actor happen after everything.
    pub(crate) fn know_all(&mut self, actor: usize) {
        for (word, messages) in self.words.iter().enumerate() {
            let stamp = messages.last().expect("a first message").stamp;
            self.actors[actor].current.raise(word, stamp);
            self.actors[actor].acquired.raise(word, stamp);
        }
    }

    /// Returns the stamp of the message that the actor last read or wrote at `word`.
    pub(crate) fn stamp(&self, actor: usize, word: usize) -> u64 {
        self.actors[actor].current.get(word)
    }

    /// Returns whether `word` has had another value since `stamp`.
    pub(crate) fn news(&self, word: usize, stamp: u64, value: u128) -> bool {
        self.words[word]
            .iter()
            .rev()
            .take_while(|m| m.stamp > stamp)
            .any(|m| m.value != value)
    }

    /// Returns the access that wrote the message `way` from the newest, for traces.
    pub(crate) fn writer(&self, word: usize, way: u16) -> u32 {
        let messages = self.words.get(word).map_or(&[][..], |messages| messages);
        // A word that was not accessed yet has its initial value.
        let read = messages.len().checked_sub(1 + way as usize);
        read.map_or(0, |read| messages[read].step)
    }
}
