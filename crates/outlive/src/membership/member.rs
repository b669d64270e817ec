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
/// Every operation that changes shared state takes a `&Member`. A `Member` cannot leave its thread,
/// because the kernel reports the death of *this* thread ([contract 1](crate)). When it is dropped,
/// the thread leaves the pod in good order.
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
    /// Acts as `instance`, for the proofs and for programs with a membership of their own. `log` is
    /// the offset of the id's log; `bells`, if any, are the wake-up futexes on which waiters sleep.
    ///
    /// # Safety
    /// `instance` is current, no other thread acts as it, and its generation is raised only after
    /// this thread can no longer write.
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

    /// Sets the function that is called when the member is dropped.
    pub(crate) fn on_leave(mut self, leave: impl FnOnce(&Self) + 'static) -> Self {
        self.on_leave = Some(Box::new(leave));
        self
    }

    /// Sets the obligations of the layers above.
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

    /// Returns the obligations of the layers above, if they are a `T`.
    pub(crate) fn owed<T: Obligations>(&self) -> Option<&T> {
        let obligations: &dyn Any = self.obligations.as_deref()?;
        obligations.downcast_ref()
    }

    /// Returns the memory that this member may write to.
    #[inline(always)]
    pub fn memory(&self) -> M {
        self.memory
    }

    /// Returns the instance that this member acts as.
    #[inline(always)]
    pub fn instance(&self) -> Instance {
        self.instance
    }

    /// Returns the table of generations, which decides which members are dead.
    #[inline(always)]
    pub fn generations(&self) -> Generations<M> {
        self.generations
    }

    /// Returns the offset of this id's log (LUPIN §3.5: "a log in a known location"). `recovery`
    /// defines its format.
    #[inline(always)]
    pub fn log(&self) -> Offset {
        self.log
    }

    /// Returns the wake-up futexes of the members on this operating system, if there are any.
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
