//! The two memories that the engine can run a scenario on.

use super::access::{Access, Answer};
use super::views::Views;
use outlive_memory::Ordering;

/// What an access finds, by one of the models.
#[derive(Debug)]
pub(crate) enum Model {
    /// Release and acquire.
    Views(Views),
}

impl Model {
    pub(crate) fn clear(&mut self) {
        match self {
            Self::Views(views) => views.clear(),
        }
    }

    pub(crate) fn ways(
        &mut self,
        actor: usize,
        word: usize,
        access: &Access,
        after: Option<u64>,
        into: &mut Vec<u16>,
    ) {
        match self {
            Self::Views(views) => views.ways(actor, word, access, after, into),
        }
    }

    pub(crate) fn access(
        &mut self,
        actor: usize,
        word: usize,
        access: &Access,
        way: u16,
        step: u32,
    ) -> Answer {
        match self {
            Self::Views(views) => views.access(actor, word, access, way, step),
        }
    }

    pub(crate) fn fence(&mut self, actor: usize, order: Ordering) {
        match self {
            Self::Views(views) => views.fence(actor, order),
        }
    }

    pub(crate) fn follow(&mut self, from: usize, to: usize) {
        match self {
            Self::Views(views) => views.follow(from, to),
        }
    }

    pub(crate) fn know_all(&mut self, actor: usize) {
        match self {
            Self::Views(views) => views.know_all(actor),
        }
    }

    pub(crate) fn stamp(&self, actor: usize, word: usize) -> u64 {
        match self {
            Self::Views(views) => views.stamp(actor, word),
        }
    }

    pub(crate) fn news(&self, word: usize, stamp: u64, value: u128) -> bool {
        match self {
            Self::Views(views) => views.news(word, stamp, value),
        }
    }

    pub(crate) fn writer(&self, word: usize, way: u16) -> u32 {
        match self {
            Self::Views(views) => views.writer(word, way),
        }
    }

    /// Whether it matters when exactly a host dies, and not only after which of its stores.
    pub(crate) fn deaths_are_timed(&self) -> bool {
        match self {
            Self::Views(_) => false,
        }
    }

    /// The bytes that one access can affect start at a multiple of this.
    pub(crate) fn grain(&self) -> u64 {
        match self {
            Self::Views(_) => 1,
        }
    }
}
