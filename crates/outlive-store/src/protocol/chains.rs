//! Chains of buckets: an extra bucket joins a chain in which all slots are in use, and leaves it
//! when none of its own slots is in use any more.
//!
//! The header of a partition has the number of extra buckets that were ever in a chain, and names
//! the first of those that have left theirs. These are a list: each names the next one in the word
//! that names the next of its chain otherwise.
//!
//! * Each extra bucket that was ever in a chain is in exactly one chain, and has a slot in use; or
//!   it is in the list, and has none.
//! * A bucket moves as a part of the insertion or deletion that needs it. The move writes the
//!   header, the bucket, and the bucket before it in the chain. These are latched, validated,
//!   logged and undone as all objects are. A death at any verb therefore leaves the whole move or
//!   no part of it, and the index needs no recovery of its own.
//! * All moves in a partition latch its header, so two of them conflict.
//!
//! # Walks along a chain
//!
//! A chain is read without latches. A bucket may therefore leave it in the middle of a walk, which
//! then continues in the list or in another chain, and may even return to a bucket. No result
//! relies on such a walk alone:
//!
//! * A key that was found is confirmed by its slot. Slots do not move, so a cached address of a
//!   slot in a bucket that has moved is a wrong hint, as that of a deleted key is.
//! * The absence of a key, an insertion, and a deletion that moves a bucket rely on each bucket of
//!   the walk, up to the last one that they need. The bucket before the one that has moved has
//!   another version now, so their validation fails.
//! * An error that a walk seems to have found is returned only after a validation.
//!
//! Tests: `tests/transactions.rs`; proofs: `lab/outlive-proofs/src/store/transactions/chains.rs`
//! and `Chain` in `transaction_sweeps.rs`.

use super::Abort;
use super::index::Home;
use super::transaction::Transaction;
use super::view::Member;
use crate::tables::{BUCKET_WORDS, Bucket, HEADER_WORDS, Header};

/// Notices that a walk along a chain has returned to a bucket (Brent's algorithm): compares each
/// bucket with one of an earlier step, which is replaced after 1, 2, 4, … steps.
pub(super) struct Walk {
    earlier: u32,
    steps: u32,
    most: u32,
}

impl Walk {
    /// Begins a walk at `bucket`.
    pub fn from(bucket: u32) -> Self {
        Self {
            earlier: bucket,
            steps: 0,
            most: 1,
        }
    }

    /// Advances the walk to `next`. Returns whether a cycle was detected: `next` is a bucket that
    /// the walk has visited before. Every cycle is detected after some steps.
    pub fn returns_to(&mut self, next: u32) -> bool {
        if next == self.earlier {
            return true;
        }
        self.steps += 1;
        if self.steps == self.most {
            (self.earlier, self.steps) = (next, 0);
            self.most = self.most.saturating_mul(2);
        }
        false
    }
}

impl<V: Member> Transaction<V> {
    /// Appends an extra bucket to the chain that ends with `last`: the first one of the list, or
    /// one that was never in a chain. Returns its number.
    ///
    /// # Errors
    /// [`Abort::TableFull`] if there is none.
    pub(super) async fn extend(&mut self, home: Home, last: u32) -> Result<u32, Abort> {
        let geometry = home.geometry;
        let header = self.latch(home.header(), HEADER_WORDS).await?;
        let words = Header(&self.sets.words[self.sets.writes[header].new_value.clone()]);
        let (used, free) = (words.used(), words.free());
        let bucket = match free {
            Some(bucket) if !(geometry.main..geometry.buckets()).contains(&bucket) => {
                return Err(home.damaged(last, "a list names a bucket that does not exist"));
            }
            Some(bucket) => {
                let index = self.latch(home.bucket(bucket), BUCKET_WORDS).await?;
                let words = self.rewrite(index, true);
                if !Bucket(words).is_empty() {
                    return Err(home.damaged(bucket, "a bucket is in use, and in a list"));
                }
                let next = core::mem::take(&mut words[0]);
                self.rewrite(header, true)[1] = next;
                bucket
            }
            None if used < u64::from(geometry.extra) => {
                self.rewrite(header, true)[0] = used + 1;
                geometry.main + used as u32
            }
            None => {
                // The chain may have free slots: buckets may have moved while it was read.
                self.validate().await?;
                return Err(Abort::TableFull { table: home.table });
            }
        };
        let index = self.latch(home.bucket(last), BUCKET_WORDS).await?;
        self.rewrite(index, true)[0] = u64::from(bucket) + 1;
        Ok(bucket)
    }

    /// Moves an extra bucket from its chain to the list. It is latched, and has no slot in use in
    /// this attempt.
    pub(super) async fn unlink(&mut self, home: Home, bucket: u32) -> Result<(), Abort> {
        let before = self.before(home, bucket).await?;
        let before = self.latch(home.bucket(before), BUCKET_WORDS).await?;
        let header = self.latch(home.header(), HEADER_WORDS).await?;
        let index = self.latch(home.bucket(bucket), BUCKET_WORDS).await?;
        let first = &mut self.rewrite(header, true)[1];
        let second = core::mem::replace(first, u64::from(bucket) + 1);
        let next = core::mem::replace(&mut self.rewrite(index, false)[0], second);
        self.rewrite(before, true)[0] = next;
        Ok(())
    }

    /// Returns the bucket before `bucket` in its chain. Adds the buckets up to there to the read
    /// set.
    async fn before(&mut self, home: Home, bucket: u32) -> Result<u32, Abort> {
        let mut before = home.bucket;
        let mut walk = Walk::from(before);
        loop {
            let object = home.bucket(before);
            let seen = self.load(object, BUCKET_WORDS).await?;
            let next = Bucket(&self.sets.words[seen.1.clone()]).next();
            if self.worker.policy().validates_chains {
                self.keep(object, seen);
            }
            match next {
                Some(next) if next == bucket => return Ok(before),
                Some(next) if next < home.geometry.buckets() && !walk.returns_to(next) => {
                    before = next;
                }
                _ => {
                    // Buckets may have moved during the walk.
                    self.validate().await?;
                    return Err(home.damaged(bucket, "a bucket is not in the chain of its keys"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of steps after which a walk stops that goes from each bucket to the next
    /// one and, after `last`, to `first`.
    fn steps(first: u32, last: u32) -> u32 {
        let (mut bucket, mut walk) = (0, Walk::from(0));
        for steps in 1.. {
            let next = if bucket == last { first } else { bucket + 1 };
            if walk.returns_to(next) {
                return steps;
            }
            bucket = next;
        }
        unreachable!("the walk has a cycle")
    }

    #[test]
    fn a_walk_notices_each_cycle_and_no_other_chain() {
        for last in 0..200 {
            for first in 0..=last {
                let (tail, cycle) = (first, last - first + 1);
                assert!(steps(first, last) <= 2 * tail.max(cycle) + 2 * cycle);
            }
        }
        let mut walk = Walk::from(0);
        assert!((1..10_000).all(|bucket| !walk.returns_to(bucket)));
    }
}
