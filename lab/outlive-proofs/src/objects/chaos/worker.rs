//! A worker. It finds the objects and the last request of its previous incarnation, and then works
//! until it is killed.

use super::contents::{Kind, Used, without_memory};
use super::ledger::{Note, Operation, What};
use super::names::{COMMON, Numbers, OWN, is_common, name, owner, staging};
use super::{BROKEN, INCARNATION, KEYS, SEED, TOTALS, WORKER, client_name};
use crate::killing::{pod_of_child, text};
use outlive::objects::{Client, LastRequest, Named, ObjectError, Objects};
use outlive::pod::{Pod, Session};
use outlive::structures::Map;
use outlive_prove::chaos::Broken;
use outlive_run::random::Random;

/// The maximal number of objects that a worker owns.
const MAX_OWN_OBJECTS: usize = 2;
/// A worker that is broken to lose objects loses one in one of this number of operations.
const LOSES_ONE_IN: u64 = 5000;

/// Works until it is killed, as a child does.
///
/// # Errors
/// If it cannot work, or finds a fault.
pub fn work() -> Result<(), String> {
    let path = pod_of_child().ok_or("this process is no child of a chaos run")?;
    let number = |name: &str| -> Result<u64, String> {
        let said = std::env::var(name).map_err(|error| format!("{name}: {error}"))?;
        said.parse().map_err(text)
    };
    let (worker, incarnation) = (number(WORKER)? as u32, number(INCARNATION)?);
    let broken = std::env::var(BROKEN).ok().map(|name| name.parse());
    let pod = Pod::open(path).map_err(text)?;
    let session = pod.session().map_err(text)?;
    let totals = session.map(TOTALS).map_err(text)?;
    let client = session.client(&client_name(worker)).map_err(text)?;
    let mut work = Work {
        session: &session,
        worker,
        broken: broken.transpose()?,
        random: Random::new(number(SEED)? ^ Numbers::new(worker, incarnation).take()),
        numbers: Numbers::new(worker, incarnation),
        totals,
        client,
        token: 1,
        own: Vec::new(),
        kept: None,
    };
    work.begin()?;
    loop {
        work.step()?;
    }
}

struct Work<'s> {
    session: &'s Session,
    worker: u32,
    broken: Option<Broken>,
    numbers: Numbers,
    random: Random,
    totals: Named<'s, Map<u64, u64>>,
    client: Client<'s>,
    /// The token of the next request.
    token: u64,
    /// The identities and names of its own objects.
    own: Vec<(u64, u32)>,
    /// An object that it continues to use, even after the object has lost its name.
    kept: Option<(u64, Used<'s>)>,
}

/// Returns `None` for an operation that had no effect, for a reason that is not a fault.
fn outcome<T>(result: Result<T, ObjectError>, may_be_lost: bool) -> Result<Option<T>, String> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(ObjectError::Exists { .. } | ObjectError::InUse { .. }) => Ok(None),
        Err(ObjectError::NotFound { .. }) if may_be_lost => Ok(None),
        Err(ObjectError::Heap(error)) => without_memory(error).map(|_| None),
        Err(error) => Err(error.to_string()),
    }
}

impl<'s> Work<'s> {
    fn objects(&self) -> Objects<'s> {
        self.session.objects()
    }

    fn one_of(&mut self, names: core::ops::Range<u32>) -> u32 {
        names.start + self.random.below(u64::from(names.end - names.start)) as u32
    }

    /// Notes an operation, carries it out, and notes the outcome.
    fn noted<T>(
        &self,
        (what, id, from, to): (What, u64, u32, u32),
        operation: impl FnOnce() -> Result<Option<T>, String>,
    ) -> Result<Option<T>, String> {
        Note::Begin(Operation { what, id, from, to }).append()?;
        let done = operation().map_err(|error| {
            format!(
                "worker {}: {} of {id:#x}: {error}",
                self.worker,
                what.name()
            )
        })?;
        Note::End(done.is_some()).append()?;
        Ok(done)
    }

    /// Finds the last request and the objects of the previous incarnation. The operations of that
    /// incarnation are settled, because the client could be opened.
    fn begin(&mut self) -> Result<(), String> {
        let last = self.client.last();
        let LastRequest { token, took_effect } = last.unwrap_or(LastRequest {
            token: 0,
            took_effect: true,
        });
        if self.broken == Some(Broken::Forgetful) {
            // A forgetful worker assumes that its last request had no effect.
            self.token = token.max(1);
        } else {
            self.token = token + u64::from(took_effect);
            Note::Last(token, took_effect).append()?;
        }
        for at in OWN.chain([staging(self.worker)]) {
            let Some(used) = Used::open(self.objects(), &name(at))? else {
                continue;
            };
            let (id, _) = used.read()?;
            if at == staging(self.worker) || owner(id) == self.worker {
                Note::Found(id, at).append()?;
                self.own.push((id, at));
            }
        }
        Note::FoundAll.append()?;
        match self
            .own
            .iter()
            .position(|(_, at)| *at == staging(self.worker))
        {
            Some(index) => self.remove_own(index, false),
            None => Ok(()),
        }
    }

    /// Carries out one operation.
    fn step(&mut self) -> Result<(), String> {
        if self.broken == Some(Broken::Loses) && self.random.below(LOSES_ONE_IN) == 0 {
            // The loss is not noted.
            if let Some((_, at)) = self.own.pop() {
                self.objects().unlink(&name(at)).map_err(text)?;
            }
        }
        let index = self.random.below(MAX_OWN_OBJECTS as u64) as usize;
        match self.random.below(100) {
            0..15 if self.own.len() < MAX_OWN_OBJECTS => self.create_own(),
            15..27 if index < self.own.len() => self.rename_own(index),
            27..36 if index < self.own.len() => {
                let only_if_unused = self.random.below(2) == 0;
                self.remove_own(index, only_if_unused)
            }
            36..50 => self.change_common(),
            50..75 => self.add(),
            75..80 => match self.kept.take() {
                Some((id, used)) => self.add_to(id, &used),
                None => Ok(()),
            },
            _ => self.count(),
        }
    }

    /// Creates an object. An object that has no identity yet is created under the staging name of
    /// the worker, filled, and published by renaming it.
    fn create_own(&mut self) -> Result<(), String> {
        let kind = self.random.below(Kind::ALL.len() as u64);
        let (id, objects) = (self.numbers.take(), self.objects());
        let is_staged = kind >= Kind::IDENTIFIED;
        let at = match is_staged {
            true => staging(self.worker),
            false => self.one_of(OWN),
        };
        let created = self.noted((What::Create, id, at, at), || {
            let created = Used::create(objects, Kind::ALL[kind as usize], &name(at), id);
            outcome(created, false)
        })?;
        let Some(used) = created else {
            return Ok(());
        };
        self.own.push((id, at));
        if !is_staged {
            return Ok(());
        }
        let index = self.own.len() - 1;
        if used.fill(id)? {
            drop(used);
            self.rename_own(index)?;
        }
        match self.own[index].1 == at {
            // The new name is taken, or the heap is full.
            true => self.remove_own(index, false),
            false => Ok(()),
        }
    }

    fn rename_own(&mut self, index: usize) -> Result<(), String> {
        let ((id, from), to) = (self.own[index], self.one_of(OWN));
        let objects = self.objects();
        let renamed = self.noted((What::Rename, id, from, to), || {
            outcome(objects.rename(&name(from), &name(to)), false)
        })?;
        if renamed.is_some() {
            self.own[index].1 = to;
        }
        Ok(())
    }

    fn remove_own(&mut self, index: usize, only_if_unused: bool) -> Result<(), String> {
        let ((id, from), objects) = (self.own[index], self.objects());
        let removed = self.noted((What::Remove, id, from, from), || {
            let removed = match only_if_unused {
                true => objects.remove(&name(from)),
                false => objects.unlink(&name(from)),
            };
            outcome(removed, false)
        })?;
        if removed.is_some() {
            self.own.swap_remove(index);
        }
        Ok(())
    }

    /// Creates, renames or removes an object that every worker may rename and remove.
    fn change_common(&mut self) -> Result<(), String> {
        let (from, to, objects) = (self.one_of(COMMON), self.one_of(COMMON), self.objects());
        let choice = self.random.below(4);
        if choice < 2 {
            let (id, kind) = (self.numbers.take(), self.random.below(Kind::IDENTIFIED));
            let created = self.noted((What::Create, id, to, to), || {
                let created = Used::create(objects, Kind::ALL[kind as usize], &name(to), id);
                outcome(created, false)
            })?;
            if created.is_some() && self.random.below(2) == 0 {
                self.kept = created.map(|used| (id, used));
            }
        } else if choice == 2 {
            self.noted((What::Rename, 0, from, to), || {
                outcome(objects.rename(&name(from), &name(to)), true)
            })?;
        } else {
            let only_if_unused = self.random.below(2) == 0;
            self.noted((What::Remove, 0, from, from), || {
                let removed = match only_if_unused {
                    true => objects.remove(&name(from)),
                    false => objects.unlink(&name(from)),
                };
                outcome(removed, true)
            })?;
        }
        Ok(())
    }

    /// Adds one to the object that currently has a random name.
    fn add(&mut self) -> Result<(), String> {
        let at = self.one_of(OWN.start..COMMON.end);
        let Some(used) = Used::open(self.objects(), &name(at))? else {
            return Ok(());
        };
        let (id, _) = used.read()?;
        if id == 0 {
            return Err(format!("the object `{}` has no identity", name(at)));
        }
        self.add_to(id, &used)?;
        if is_common(at) || self.random.below(2) == 0 {
            self.kept = Some((id, used));
        }
        Ok(())
    }

    fn add_to(&mut self, id: u64, used: &Used<'s>) -> Result<(), String> {
        let unique = self.numbers.take();
        self.noted((What::Add, id, 0, 0), || {
            Ok(used.add(unique)?.then_some(()))
        })?;
        match used.read()? {
            (same, _) if same == id => Ok(()),
            (other, _) => Err(format!(
                "the identity of an object in use changed from {id:#x} to {other:#x}"
            )),
        }
    }

    /// Adds one to a total by a request.
    fn count(&mut self) -> Result<(), String> {
        let token = self.token;
        let key = token % KEYS;
        let counted = self.noted((What::Count, token, 0, key as u32), || {
            let request = self.totals.request(&self.client, token);
            match request.upsert(&key, &1, |total| total + 1) {
                Ok(()) => Ok(Some(())),
                Err(error) => without_memory(error).map(|_| None),
            }
        })?;
        self.token += u64::from(counted.is_some());
        Ok(())
    }
}
