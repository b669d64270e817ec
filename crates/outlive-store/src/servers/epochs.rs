//! Epochs: the changes of the replicas, in order, and the commits that are under way.
//!
//! The configuration lists these changes: the lost memory servers, and the steps of
//! [restorations](super::restoration). An *epoch* is a length of this list. All compute servers
//! therefore agree on the replicas of each object in an epoch, and on its primary: the first
//! replica that is complete and not lost.
//!
//! A compute server uses the primaries of an epoch only after the epoch is *settled*: no commit of
//! an earlier epoch is under way. A commit registers its epoch in the coordinator's word of its log
//! area, and then ends as an abort if the epoch is over. The word of a dead compute server remains
//! until its logs are recovered, so a settled epoch has no logged transaction of an earlier one
//! that is not decided.
//!
//! # Memory ordering
//!
//! A commit stores its word and then loads the list; a compute server that begins an epoch loads
//! the list and then the words. A SeqCst fence separates the two steps on both sides, so either the
//! commit finds the loss, or the other server finds the commit.

use super::configuration::Configuration;
use super::entries::{MemoryEntry, Phase};
use super::places::NEVER;
use super::sizes::CHANGES;
use crate::protocol::{LastCommit, Outcome};
use crate::tables::TransactionId;
use crate::verbs::ServerId;
use outlive::membership::Instance;
use outlive::memory::{Memory, Offset, Ordering};

/// The number of bytes of a coordinator's words: a cache line, so that threads do not share lines.
///
/// ```text
/// 0  the epoch of the commit that is under way, + 1; 0 if there is none
/// 1  the last attempt that began its commit
/// 2  the last attempt that was committed; 0 if none
/// ```
pub(super) const COMMIT_BYTES: u64 = 64;
const BEGUN: u64 = 8;
const COMMITTED: u64 = 16;

/// Returns the number before that of the first attempt of each coordinator of `owner`.
///
/// The next owners of the process id are other instances, and begin elsewhere: consecutive
/// generations of an instance are more than a billion apart. The attempts of two instances may be
/// closer by chance, so an owner may repeat the number of an earlier one's attempt. Only a CAS that
/// was posted for that attempt and is delayed until then could mistake one for the other.
pub(super) fn attempt_before(owner: Instance) -> u32 {
    let generation = owner.generation.wrapping_mul(0x9E37_79B9);
    generation.wrapping_add(owner.id.wrapping_mul(0x85EB_CA6B))
}

/// The word of a step is its number plus this. That of a lost server is its number plus 1.
const STEP: u64 = 1 << 16;

impl<M: Memory> Configuration<M> {
    fn change_at(self, epoch: u64) -> Offset {
        self.at + CHANGES + epoch * 8
    }

    /// Returns the epoch: the number of losses and of steps of restorations.
    pub fn epoch(self) -> u64 {
        let most = self.sizes.changes();
        (0..most).find(|it| !self.is_over(*it)).unwrap_or(most)
    }

    /// Returns whether another epoch has begun after `epoch`.
    #[inline]
    pub fn is_over(self, epoch: u64) -> bool {
        epoch < self.sizes.changes() && self.load(self.change_at(epoch)) != 0
    }

    fn changes(self, epoch: u64) -> impl Iterator<Item = u64> {
        let words =
            (0..epoch.min(self.sizes.changes())).map(move |it| self.load(self.change_at(it)));
        words.take_while(|word| *word != 0)
    }

    /// Returns the memory servers that are lost in `epoch`.
    pub fn lost(self, epoch: u64) -> impl Iterator<Item = ServerId> {
        let losses = self.changes(epoch).filter(|word| *word < STEP);
        losses.map(|word| ServerId(word as u16 - 1))
    }

    /// Returns the number of steps of restorations in `epoch`.
    pub fn steps(self, epoch: u64) -> u8 {
        let steps = self.changes(epoch).filter(|word| *word > STEP);
        // They are appended in order.
        steps.last().map_or(0, |word| (word - STEP) as u8)
    }

    pub(super) fn is_lost(self, server: ServerId) -> bool {
        self.lost(u64::MAX).any(|it| it == server)
    }

    /// Appends a word to the list of changes, once. Returns `false` if the list is full.
    fn append(self, word: u64) -> bool {
        (0..self.sizes.changes()).any(|epoch| {
            // AcqRel: a server that finds the change sees what its author did before: the end of
            // the lost server's liveness, or the places of a step.
            let order = (Ordering::AcqRel, Ordering::Acquire);
            let at = self.change_at(epoch);
            let appended = { self.memory }.compare_exchange(at, 0, word, order.0, order.1);
            appended.is_ok() || appended == Err(word)
        })
    }

    /// Appends a server, which is not live any more, to the list of changes, once.
    pub(super) fn lose(self, server: ServerId) {
        // A restoration leaves enough of the list for the losses of all servers.
        if !self.append(u64::from(server.0) + 1) {
            tracing::error!(%server, "the list of changes is full");
        }
    }

    /// Appends the step with this number to the list of changes, once. The caller has the claim of
    /// the restoration, and all steps before are in the list.
    pub(super) fn append_step(self, step: u8) {
        self.append(STEP + u64::from(step));
    }

    /// Returns whether the list has space for the two steps of another restoration, for the second
    /// step of the one that is under way, and for the losses of all servers.
    pub(super) fn can_restore(self) -> bool {
        let epoch = self.epoch();
        let left = u64::from(self.sizes.memory_servers) - self.lost(epoch).count() as u64;
        let steps = self.steps(epoch);
        let new = steps % 2 + 2;
        epoch + u64::from(new) + left <= self.sizes.changes() && steps < NEVER - new
    }

    /// Returns whether a new memory server can take the place of one that is lost, and the lost
    /// replicas can be restored: the numbers of servers and the list of changes are limited.
    pub fn can_replace_memory(self) -> bool {
        let is_free = |id| {
            let entry = self.memory_server(id);
            entry.is_some_and(|it| it.phase == Phase::Free && it.owner.is_none())
                && !self.is_named(id)
                && !self.is_lost(id)
        };
        self.can_restore() && self.server_ids().any(is_free)
    }

    /// Records the loss of a server that has left, if a table or a log area names it.
    pub(super) fn lose_if_named(self, server: ServerId) {
        // The fence follows the end of the server's liveness. A server that names it checks its
        // liveness afterwards.
        self.memory.fence(Ordering::SeqCst);
        if self.is_named(server) {
            self.lose(server);
        }
    }

    /// Records the losses of servers that a table or a log area names now, and that left before.
    pub(super) fn lose_if_gone(self, named: &[MemoryEntry]) {
        self.memory.fence(Ordering::SeqCst);
        for entry in named {
            // A place at an earlier incarnation does not exist, and its number may be that of a
            // live server.
            let now = self.memory_server(entry.id);
            let now = now.filter(|now| now.incarnation == entry.incarnation);
            if now.is_some_and(|now| now.phase != Phase::Live) {
                self.lose(entry.id);
            }
        }
    }

    fn commit_at(self, area: u16, coordinator: u16) -> Offset {
        let index = u64::from(area) * u64::from(self.sizes.coordinators) + u64::from(coordinator);
        self.at + self.sizes.commits_at() + index * COMMIT_BYTES
    }

    /// Registers a commit in `epoch`. `area` is the log area of the compute server. Returns
    /// `false`, and registers nothing, if the epoch is over.
    pub fn enter_commit(self, area: u16, transaction: TransactionId, epoch: u64) -> bool {
        let (memory, at) = (self.memory, self.commit_at(area, transaction.coordinator()));
        memory.store(at + BEGUN, transaction.to_word(), Ordering::Release);
        memory.store(at, epoch + 1, Ordering::Release);
        // See the module's memory ordering.
        memory.fence(Ordering::SeqCst);
        let is_over = self.is_over(epoch);
        if is_over {
            self.leave_commit(area, transaction, false);
        }
        !is_over
    }

    /// Ends the registration of a commit, and records whether the transaction was committed. Its
    /// log entry is decided, and all its WRITEs to values and versions have taken effect.
    pub fn leave_commit(self, area: u16, transaction: TransactionId, is_committed: bool) {
        let (memory, at) = (self.memory, self.commit_at(area, transaction.coordinator()));
        if is_committed {
            memory.store(at + COMMITTED, transaction.to_word(), Ordering::Release);
        }
        // Release: a server that finds the word sees the effects of the commit.
        memory.store(at, 0u64, Ordering::Release);
    }

    /// Prepares the words of a log area for the compute server `owner` with process id `process`.
    pub(super) fn begin_commits(self, area: u16, owner: Instance, process: u16) {
        for coordinator in 0..self.sizes.coordinators {
            let at = self.commit_at(area, coordinator);
            let before = TransactionId::new(process, coordinator, attempt_before(owner));
            self.memory
                .store(at + BEGUN, before.to_word(), Ordering::Release);
            self.memory.store(at + COMMITTED, 0u64, Ordering::Release);
        }
    }

    /// Ends the registrations of all commits of a log area, whose logs are recovered.
    pub(super) fn end_commits(self, area: u16) {
        for coordinator in 0..self.sizes.coordinators {
            self.memory
                .store(self.commit_at(area, coordinator), 0u64, Ordering::Release);
        }
    }

    /// Returns the last attempt of a coordinator that began its commit, if the logs of `process`
    /// are not recovered.
    pub fn begun(self, process: u16, coordinator: u16) -> Option<TransactionId> {
        let area = self.log_area_of(process)?;
        TransactionId::from_word(self.load(self.commit_at(area, coordinator) + BEGUN))
    }

    /// Records that the transaction of a dead compute server is rolled forward. Its log area is
    /// being recovered.
    pub fn record_commit(self, transaction: TransactionId) {
        let (process, coordinator) = (transaction.process(), transaction.coordinator());
        if let Some(area) = self.log_area_of(process) {
            let at = self.commit_at(area, coordinator) + COMMITTED;
            // The entry of an earlier commit may be the newest one that is left.
            let last = TransactionId::from_word(self.load(at));
            if last.is_none_or(|last| transaction.follows(last)) {
                self.memory
                    .store(at, transaction.to_word(), Ordering::Release);
            }
        }
    }

    /// Returns the outcome of an attempt of a transaction of the compute server `server`, which has
    /// left or failed, or is live. The outcome of the last commit that a coordinator began is known
    /// until another compute server receives the log area.
    pub fn outcome(self, server: Instance, attempt: TransactionId) -> Outcome {
        self.known_outcome(server, attempt)
            .unwrap_or(Outcome::Unknown)
    }

    fn known_outcome(self, server: Instance, attempt: TransactionId) -> Option<Outcome> {
        let coordinator = attempt.coordinator();
        let mut areas = 0..self.sizes.log_areas;
        let area = areas.find(|area| self.last_user(*area) == Some(server))?;
        if coordinator >= self.sizes.coordinators {
            return None;
        }
        // This is read first: if the server has failed or left, its outcomes are recorded.
        let is_over = self.log_owner(area).is_none() || self.is_failed(attempt.process(), server);
        let at = self.commit_at(area, coordinator);
        let last = LastCommit {
            committed: TransactionId::from_word(self.load(at + COMMITTED)),
            begun: TransactionId::from_word(self.load(at + BEGUN))?,
        };
        // If a word is the next user's, so is this one: see `claim_log_area`.
        let is_same = self.last_user(area) == Some(server);
        is_same.then(|| last.outcome(attempt, is_over))
    }

    /// Returns whether `area` has a commit of an epoch before `epoch`.
    fn delays(self, area: u16, epoch: u64) -> bool {
        let words = (0..self.sizes.coordinators).map(|it| self.load(self.commit_at(area, it)));
        // A word is the epoch + 1.
        { words }.any(|word| (1..=epoch).contains(&word))
    }

    /// Returns whether the primaries of `epoch` may be used. The caller has found the epoch in the
    /// list.
    pub fn is_settled(self, epoch: u64) -> bool {
        // See the module's memory ordering.
        self.memory.fence(Ordering::SeqCst);
        (0..self.sizes.log_areas).all(|area| !self.delays(area, epoch))
    }

    /// Returns the commits of an epoch before `epoch`, with their processes, except those of dead
    /// servers whose logs a survivor is recovering.
    pub(super) fn stragglers(self, epoch: u64) -> impl Iterator<Item = (Instance, TransactionId)> {
        let areas = (0..self.sizes.log_areas).filter(move |area| self.delays(*area, epoch));
        let users = areas.filter_map(move |area| Some((area, self.log_user(area)?)));
        users.flat_map(move |(area, user)| {
            let lines = (0..self.sizes.coordinators).map(move |it| self.commit_at(area, it));
            let late = lines.filter(move |at| (1..=epoch).contains(&self.load(*at)));
            late.filter_map(move |at| {
                Some((user, TransactionId::from_word(self.load(at + BEGUN))?))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Protocol;
    use crate::servers::Sizes;
    use outlive::memory::{Native, PersistenceDomain};

    fn configuration(memory_servers: u16) -> Configuration<Native> {
        let sizes = Sizes {
            replicas: 2,
            memory_servers,
            process_ids: 1,
            tables: 0,
            log_areas: 0,
            coordinators: 0,
            log_slot_bytes: 0,
            protocol: Protocol::Pandora,
        };
        let bytes = sizes.bytes().next_multiple_of(4096);
        let memory = Native::leaked(bytes + 4096, PersistenceDomain::Flushed);
        Configuration::create(memory, Offset::new(4096), sizes, false)
    }

    #[test]
    fn the_list_has_space_for_the_end_of_each_restoration_and_for_all_losses() {
        for memory_servers in 1..=9 {
            let configuration = configuration(memory_servers);
            let mut step = 0;
            while configuration.can_restore() {
                step += 1;
                configuration.append_step(step);
            }
            assert_eq!(
                step % 2,
                1,
                "another one is not possible once the last one has begun"
            );
            configuration.append_step(step + 1);
            assert_eq!(configuration.steps(configuration.epoch()), step + 1);
            let ids = 0..memory_servers;
            ids.clone().for_each(|id| configuration.lose(ServerId(id)));
            let lost = configuration.lost(configuration.epoch());
            assert_eq!(lost.count(), ids.count(), "{memory_servers} servers");
        }
    }

    #[test]
    fn a_store_has_127_restorations_at_most() {
        let configuration = configuration(256);
        let mut restorations = 0;
        while configuration.can_restore() {
            restorations += 1;
            configuration.append_step(2 * restorations - 1);
            configuration.append_step(2 * restorations);
        }
        assert_eq!(restorations, 127);
    }
}
