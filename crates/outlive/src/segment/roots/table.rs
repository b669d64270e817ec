//! One slot of the table of roots: its words, and the steps on them.

use super::{PublishPoint, Root, RootError};
use outlive_memory::{Memory, Offset, Ordering};

pub(super) const NAME_BYTES: usize = 64;
const DESCRIPTION_BYTES: usize = 224;
pub(super) const SLOT_BYTES: u64 = 768;

const STATE_AT: u64 = 0;
const CONTENTS_AT: u64 = 128;
const WORD_BYTES: u64 = 16;
/// Words of the contents: the name, four numbers, the description.
const NAME_WORDS: usize = NAME_BYTES / 8;
const DESCRIPTION_WORDS: usize = DESCRIPTION_BYTES / 8;
const WORDS: usize = NAME_WORDS + 4 + DESCRIPTION_WORDS;
const _: () = assert!(CONTENTS_AT + WORDS as u64 * WORD_BYTES == SLOT_BYTES);

/// The state of a slot, one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    version: u64,
    status: Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Empty = 0,
    Writing = 1,
    Published = 2,
}

impl State {
    const MOST_VERSION: u64 = u64::MAX >> 2;

    fn to_word(self) -> u64 {
        self.version << 2 | self.status as u64
    }

    fn from_word(word: u64) -> Option<Self> {
        let status = match word & 3 {
            0 => Status::Empty,
            1 => Status::Writing,
            2 => Status::Published,
            _ => return None,
        };
        let version = word >> 2;
        // A slot is empty until it is first claimed, and never again.
        let sound = (version == 0) == (status == Status::Empty);
        sound.then_some(Self { version, status })
    }
}

/// Returns a word of the contents: the value below, the version above.
fn tagged(version: u64, value: u64) -> u128 {
    u128::from(version) << 64 | u128::from(value)
}

/// The result of reading a slot.
#[derive(Debug)]
pub(super) enum Found {
    Root(Root),
    /// No root is published in it.
    Open(State),
}

/// The outcome of an attempt to publish in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Published,
    /// The claim was made and then overtaken by that of another publisher.
    Overtaken,
    /// The slot changed before it was claimed.
    Changed,
}

/// A slot of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<M: Memory> {
    memory: M,
    at: Offset,
    index: usize,
}

impl<M: Memory> Slot<M> {
    pub fn new(memory: M, table: Offset, index: usize) -> Self {
        Self {
            memory,
            at: table + index as u64 * SLOT_BYTES,
            index,
        }
    }

    pub fn at(self) -> Offset {
        self.at
    }

    fn state_at(self) -> Offset {
        self.at + STATE_AT
    }

    fn word_at(self, word: usize) -> Offset {
        self.at + CONTENTS_AT + word as u64 * WORD_BYTES
    }

    fn corrupt(self, at: Offset, what: &'static str) -> RootError {
        RootError::Corrupt {
            slot: self.index,
            at,
            what,
        }
    }

    fn state(self) -> Result<State, RootError> {
        // Acquire: a thread that sees "published" sees the contents, and the value that they name.
        let word: u64 = self.memory.load(self.state_at(), Ordering::Acquire);
        State::from_word(word).ok_or_else(|| self.corrupt(self.state_at(), "its state is invalid"))
    }

    /// Reads the slot.
    pub fn look(self) -> Result<Found, RootError> {
        let state = self.state()?;
        if state.status != Status::Published {
            return Ok(Found::Open(state));
        }
        // A root that a process acts on must not be lost with its publisher's caches.
        self.memory.persist(self.state_at(), 8);
        self.read(state.version).map(Found::Root)
    }

    fn read(self, version: u64) -> Result<Root, RootError> {
        let mut words = [0; WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            // Relaxed: the contents of a published slot do not change.
            let found: u128 = self.memory.load(self.word_at(index), Ordering::Relaxed);
            if (found >> 64) as u64 != version {
                let what = "a word has another version than the published one";
                return Err(self.corrupt(self.word_at(index), what));
            }
            *word = found as u64;
        }
        self.decode(&words)
    }

    /// Decodes and checks the root in these words.
    fn decode(self, words: &[u64; WORDS]) -> Result<Root, RootError> {
        let text = |words: &[u64]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let end = bytes.iter().position(|&byte| byte == 0);
            let (text, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            let sound = !text.is_empty() && rest.iter().all(|&byte| byte == 0);
            sound.then(|| String::from_utf8(text.to_vec()).ok())?
        };
        let (name, rest) = words.split_at(NAME_WORDS);
        let (numbers, description) = rest.split_at(4);
        let &[fingerprint, offset, size, align] = numbers else {
            unreachable!("split at four");
        };
        let word = |index| self.word_at(NAME_WORDS + index);
        let name =
            text(name).ok_or_else(|| self.corrupt(self.word_at(0), "its name is invalid"))?;
        let description =
            text(description).ok_or_else(|| self.corrupt(word(4), "its description is invalid"))?;
        if !align.is_power_of_two() {
            return Err(self.corrupt(word(3), "its alignment is not a power of two"));
        }
        let offset = Offset::checked(offset, size, align, self.memory.size())
            .map_err(|_| self.corrupt(word(1), "the value is outside the segment"))?;
        Ok(Root {
            name,
            description,
            fingerprint,
            offset,
            size,
            align,
        })
    }

    fn encode(root: &Root) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let text = |text: &str, words: &mut [u64]| {
            for (word, chunk) in words.iter_mut().zip(text.as_bytes().chunks(8)) {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                *word = u64::from_ne_bytes(bytes);
            }
        };
        let (name, rest) = words.split_at_mut(NAME_WORDS);
        let (numbers, description) = rest.split_at_mut(4);
        text(&root.name, name);
        numbers.copy_from_slice(&[root.fingerprint, root.offset.raw(), root.size, root.align]);
        text(&root.description, description);
        words
    }

    /// Tries to publish `root` here, after the state `seen` was read. A claim that does not change
    /// in `patience` polls is overtaken.
    pub fn take(self, seen: State, root: &Root, patience: u32) -> Result<Taken, RootError> {
        if seen.status == Status::Writing {
            for _ in 0..patience {
                self.memory.spin_hint();
                if self.state()? != seen {
                    return Ok(Taken::Changed);
                }
            }
        }
        if seen.version == State::MOST_VERSION {
            return Err(self.corrupt(self.state_at(), "its versions are exhausted"));
        }
        let mine = State {
            version: seen.version + 1,
            status: Status::Writing,
        };
        if !self.change(seen, mine) {
            return Ok(Taken::Changed);
        }
        self.memory.crash_point(PublishPoint::Claimed);
        if !self.fill(mine, root)? {
            return Ok(Taken::Overtaken);
        }
        self.memory.crash_point(PublishPoint::Filled);
        let published = State {
            status: Status::Published,
            ..mine
        };
        if !self.change(mine, published) {
            return Ok(Taken::Overtaken);
        }
        self.memory.crash_point(PublishPoint::Published);
        Ok(Taken::Published)
    }

    /// Changes the state, and persists it before any step that follows from it.
    fn change(self, from: State, to: State) -> bool {
        // Release: contents come before "published". Acquire, for a claim: the words of an earlier
        // claimer are overwritten, not raced with.
        let changed = self
            .memory
            .compare_exchange(
                self.state_at(),
                from.to_word(),
                to.to_word(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok();
        if changed {
            self.memory.persist(self.state_at(), 8);
        }
        changed
    }

    /// Writes the contents under the claim `mine`. `false` if it was overtaken.
    fn fill(self, mine: State, root: &Root) -> Result<bool, RootError> {
        for (index, value) in Self::encode(root).into_iter().enumerate() {
            let at = self.word_at(index);
            let new = tagged(mine.version, value);
            // Acquire: a thread that sees a word of a younger claim sees that claim in the state.
            let mut old: u128 = self.memory.load(at, Ordering::Acquire);
            loop {
                if (old >> 64) as u64 >= mine.version {
                    if self.state()? == mine {
                        return Err(
                            self.corrupt(at, "a word has a version that no publisher has claimed")
                        );
                    }
                    return Ok(false);
                }
                // Release: the claim comes before its words.
                let (success, failure) = (Ordering::Release, Ordering::Acquire);
                match self.memory.compare_exchange(at, old, new, success, failure) {
                    Ok(_) => break,
                    Err(now) => old = now,
                }
            }
        }
        self.memory
            .persist(self.word_at(0), WORDS as u64 * WORD_BYTES);
        Ok(true)
    }
}

#[cfg(test)]
impl<M: Memory> Slot<M> {
    /// Continues filling under the claim of `version`, as its owner does when it wakes.
    pub fn resume(self, version: u64, root: &Root) -> Result<bool, RootError> {
        let status = Status::Writing;
        self.fill(State { version, status }, root)
    }
}

/// Cuts a description to the length that a slot holds.
pub(super) fn cut(mut text: String) -> String {
    const MARK: &str = "…";
    if text.len() > DESCRIPTION_BYTES {
        let mut end = DESCRIPTION_BYTES - MARK.len();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(MARK);
    }
    text
}
