//! The right to write.

use super::{Generations, Instance, Obligations, Records};
use crate::host::Bells;
use core::any::Any;
use core::fmt;
use core::marker::PhantomData;
use outlive_memory::{Memory, Native, Offset};
use std::sync::Arc;

type OnLeave<M> = Box<dyn FnOnce(&Member<M>)>;

/// A live thread of a pod: the right to write to it.
///
/// Every operation that changes shared state asks for a `&Member`. It cannot leave its thread, because
/// the death of *this* thread is what the kernel tells ([contract 1](crate)); when it is dropped, the
/// thread leaves the pod in good order.
pub struct Member<M: Memory = Native> {
    memory: M,
    generations: Generations<M>,
    instance: Instance,
    log: Offset,
    bells: Option<&'static dyn Bells>,
    on_leave: Option<OnLeave<M>>,
    obligations: Option<Arc<dyn Obligations>>,
    records: Option<Records<M>>,
    not_send: PhantomData<*mut ()>,
}

impl<M: Memory> Member<M> {
    /// Acts as `instance`, for the proofs and for whoever brings a membership of their own. `log` is the
    /// place of the id's log; `bells`, where there are any, are how waiters sleep.
    ///
    /// # Safety
    /// `instance` is current, nobody else acts as it, and its generation is raised only after this
    /// thread can no longer write.
    pub unsafe fn assume(
        memory: M,
        generations: Generations<M>,
        instance: Instance,
        log: Offset,
        bells: Option<&'static dyn Bells>,
    ) -> Self {
        Self {
            memory,
            generations,
            instance,
            log,
            bells,
            on_leave: None,
            obligations: None,
            records: None,
            not_send: PhantomData,
        }
    }

    /// What is done when the member is dropped.
    pub(crate) fn on_leave(mut self, leave: impl FnOnce(&Self) + 'static) -> Self {
        self.on_leave = Some(Box::new(leave));
        self
    }

    /// What the rooms above owe it.
    pub(crate) fn with_obligations(mut self, obligations: Arc<dyn Obligations>) -> Self {
        self.obligations = Some(obligations);
        self
    }

    /// Gives this member access to the records of all incarnations.
    pub(crate) fn with_records(mut self, records: Records<M>) -> Self {
        self.records = Some(records);
        self
    }

    /// Returns the records of all incarnations; `None` if this member was [assumed](Self::assume).
    pub fn records(&self) -> Option<Records<M>> {
        self.records
    }

    /// Whatever it is that the rooms above owe it, if they called it a `T`.
    pub(crate) fn owed<T: Obligations>(&self) -> Option<&T> {
        let obligations: &dyn Any = self.obligations.as_deref()?;
        obligations.downcast_ref()
    }

    /// The memory that this member may write to.
    #[inline(always)]
    pub fn memory(&self) -> M {
        self.memory
    }

    /// Which instance this is.
    #[inline(always)]
    pub fn instance(&self) -> Instance {
        self.instance
    }

    /// The table that says who is dead.
    #[inline(always)]
    pub fn generations(&self) -> Generations<M> {
        self.generations
    }

    /// Where this id's log is (LUPIN §3.5: "a log in a known location"). Its format is the business of
    /// the room `recovery`.
    #[inline(always)]
    pub fn log(&self) -> Offset {
        self.log
    }

    /// The bells by which members on this operating system wake one another, if there are any.
    #[inline(always)]
    pub fn bells(&self) -> Option<&'static dyn Bells> {
        self.bells
    }
}

impl<M: Memory> Drop for Member<M> {
    fn drop(&mut self) {
        if let Some(leave) = self.on_leave.take() {
            leave(self);
        }
    }
}

impl<M: Memory> fmt::Debug for Member<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({})", self.instance)
    }
}
