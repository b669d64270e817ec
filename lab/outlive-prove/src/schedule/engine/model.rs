//! The two memories that the engine can run a scenario on.

use super::access::{Access, Answer};
use super::views::Views;
use crate::explore::caches::Caches;
use outlive_memory::Ordering;

/// The memory model that decides the result of an access.
#[derive(Debug)]
pub(crate) enum Model {
    /// Release and acquire; nothing is lost.
    Views(Views),
    /// Sequential consistency; a host's caches die with it.
    Caches(Caches),
}

impl Model {
    pub(crate) fn clear(&mut self) {
        match self {
            Self::Views(views) => views.clear(),
            Self::Caches(caches) => caches.clear(),
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
            Self::Caches(_) => into.push(0),
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
            Self::Caches(caches) => caches.access(actor, word, access),
        }
    }

    pub(crate) fn fence(&mut self, actor: usize, order: Ordering) {
        match self {
            Self::Views(views) => views.fence(actor, order),
            Self::Caches(_) => {}
        }
    }

    pub(crate) fn follow(&mut self, from: usize, to: usize) {
        match self {
            Self::Views(views) => views.follow(from, to),
            Self::Caches(_) => {}
        }
    }

    pub(crate) fn know_all(&mut self, actor: usize) {
        match self {
            Self::Views(views) => views.know_all(actor),
            Self::Caches(_) => {}
        }
    }

    pub(crate) fn stamp(&self, actor: usize, word: usize) -> u64 {
        match self {
            Self::Views(views) => views.stamp(actor, word),
            Self::Caches(_) => 0,
        }
    }

    pub(crate) fn news(&self, word: usize, stamp: u64, value: u128) -> bool {
        match self {
            Self::Views(views) => views.news(word, stamp, value),
            Self::Caches(caches) => caches.value(word) != value,
        }
    }

    pub(crate) fn writer(&self, word: usize, way: u16) -> u32 {
        match self {
            Self::Views(views) => views.writer(word, way),
            Self::Caches(_) => 0,
        }
    }

    /// Marks all stores so far as having reached memory.
    pub(crate) fn settle(&mut self) {
        if let Self::Caches(caches) = self {
            caches.settle();
        }
    }

    pub(crate) fn write_back(&mut self, actor: usize, at: u64, len: u64) {
        if let Self::Caches(caches) = self {
            caches.write_back(actor, at, len);
        }
    }

    pub(crate) fn drain(&mut self, actor: usize) {
        if let Self::Caches(caches) = self {
            caches.drain(actor);
        }
    }

    /// Returns whether a drain by the actor would change what a host's death loses.
    pub(crate) fn drains(&self, actor: usize) -> bool {
        matches!(self, Self::Caches(caches) if caches.drains(actor))
    }

    /// Returns the number of images of the memory that the death of a host may leave; at least one.
    pub(crate) fn images(&mut self, host: usize) -> u16 {
        match self {
            Self::Views(_) => 1,
            Self::Caches(caches) => caches.images(host),
        }
    }

    /// Loses a host's caches in one of the ways; returns the lost values, as lines of a trace.
    pub(crate) fn lose(&mut self, host: usize, image: u16) -> Vec<String> {
        match self {
            Self::Views(_) => Vec::new(),
            Self::Caches(caches) => caches.lose(host, image),
        }
    }

    /// Returns the number of different images left by deaths, and whether all possible ones were
    /// tried.
    pub(crate) fn images_seen(&self) -> (u64, bool) {
        match self {
            Self::Views(_) => (0, true),
            Self::Caches(caches) => caches.images_seen(),
        }
    }

    /// Returns whether the exact moment of a host's death matters, not only its last store.
    pub(crate) fn deaths_are_timed(&self) -> bool {
        matches!(self, Self::Caches(_))
    }

    /// Returns the granularity in bytes of an access's effects: they start at a multiple of it.
    pub(crate) fn grain(&self) -> u64 {
        match self {
            Self::Views(_) => 1,
            Self::Caches(_) => crate::explore::caches::LINE,
        }
    }
}
