//! The context of a task: access to its pool and to names, and operations to spawn.

use crate::functions::array::{Array, Element};
use crate::functions::registry::{Call, Definition, Registry, TaskError};
use crate::store::jobs::SUBMIT;
use crate::store::jobs::{Record, Submission, name_key, result_key};
use crate::store::layout::{Hand, Layout};
use crate::store::names::{Data, Output, Ports};
use crate::store::task_ports::{give_named_ports, give_ports};
use crate::{EngineError, Running, Spec, Task};
use core::cell::{Cell, OnceCell, RefCell};
use core::fmt;
use outlive::heap::buddy::AllocateError;
use outlive::heap::{LocalHeap, Pinned};
use outlive::membership::Member;
use outlive::memory::{Native, Offset};

/// The operations by which a context spawns.
pub(crate) trait Spawn {
    fn spawn(&mut self, run: &mut Running, spec: &Spec<'_>) -> Result<Task, EngineError>;
    fn number(&self) -> u32;
}

impl Spawn for crate::Engine<'_> {
    #[inline]
    fn spawn(&mut self, run: &mut Running, spec: &Spec<'_>) -> Result<Task, EngineError> {
        crate::Engine::spawn(self, run, spec)
    }

    fn number(&self) -> u32 {
        crate::Engine::number(self)
    }
}

/// The context in which a task runs.
///
/// All effects that a task has through its context become valid atomically, when the task is
/// completed: spawned tasks, data written under names, created jobs. If the task fails or its
/// worker dies, none of them become visible, and the task is re-executed.
pub struct Context<'c> {
    pub(crate) layout: Layout,
    pub(crate) hand: Hand<'c>,
    pub(crate) registry: &'c Registry,
    pub(crate) definition: &'static Definition,
    pub(crate) engine: RefCell<&'c mut (dyn Spawn + 'c)>,
    pub(crate) run: RefCell<&'c mut Running>,
    /// Whether an operation failed, so that the task must not take effect.
    pub(crate) broken: Cell<bool>,
    /// Whether a child with ports was spawned.
    pub(crate) ported: Cell<bool>,
    /// Set by the first access to data: data that the task reads stays until it ends.
    pub(crate) pin: OnceCell<Pinned<'c>>,
    /// The size in bytes of an allocation that failed.
    pub(crate) wanted: Cell<Option<u64>>,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.definition.name())
    }
}

impl<'c> Context<'c> {
    /// Returns the task's name.
    pub fn name(&self) -> &'static str {
        self.definition.name()
    }

    /// Returns the number of earlier attempts of the task.
    pub fn attempt(&self) -> u8 {
        self.run.borrow().attempt()
    }

    /// Returns the number of the worker that runs the task: that of its slot in the pool, below
    /// [`capacity`](crate::WorkerPool::capacity). A slot has one owner at a time. Its next owner
    /// sees all effects of the last one on the pod, and the log of a dead owner is settled.
    pub fn worker(&self) -> u32 {
        self.engine.borrow().number()
    }

    fn record(&self) -> Record {
        let job = self.run.borrow().job();
        Record::at(self.layout.memory, Offset::from_raw(job))
    }

    /// Returns the name of the task's job.
    pub fn job(&self) -> String {
        String::from_utf8_lossy(&self.record().name()).into_owned()
    }

    /// Returns the worker's heap handle, for structures that the program keeps in the pod. A task's
    /// operations on them take effect immediately, and may be repeated.
    pub fn heap(&self) -> &LocalHeap<'_> {
        self.hand.heap
    }

    /// Returns the worker's member.
    pub fn member(&self) -> &Member {
        self.hand.heap.member()
    }

    /// Returns the pod's memory.
    pub fn memory(&self) -> Native {
        self.layout.memory
    }

    /// Spawns a task of the same job. It runs once this task is completed and all its inputs exist.
    ///
    /// # Errors
    /// If there is no memory. A task that ignores this error fails nevertheless.
    #[inline]
    pub fn spawn(&self, call: Call) -> Result<(), TaskError> {
        let Some(function) = self.registry.number(call.definition()) else {
            return Err(self.broken(format_args!(
                "the pool has no task `{}`",
                call.definition().name()
            )));
        };
        self.spawn_number(function, call.arguments(), &call.reads, &call.writes)
    }

    fn spawn_number(
        &self,
        function: u32,
        arguments: &[u8],
        reads: &[String],
        writes: &[String],
    ) -> Result<(), TaskError> {
        let (mut engine, mut run) = (self.engine.borrow_mut(), self.run.borrow_mut());
        let job = run.job();
        let spec = Spec {
            job,
            ..Spec::new(function, arguments)
        };
        let child = match engine.spawn(&mut run, &spec) {
            Ok(child) => child,
            Err(error) => {
                if let EngineError::Allocate(error) = &error {
                    self.note_wanted(error);
                }
                return Err(self.broken(error));
            }
        };
        if reads.is_empty() && writes.is_empty() {
            return Ok(());
        }
        self.ported.set(true);
        let keys = |names: &[String]| names.iter().map(|name| name_key(name)).collect::<Vec<_>>();
        let (reads, writes) = (keys(reads), keys(writes));
        let given = give_named_ports(self.layout, self.hand, child, &reads, &writes);
        self.room(given)
            .inspect_err(|_| self.broken.set(true))
            .map_err(TaskError::from)
    }

    /// Records the size of an allocation that failed.
    fn room<T>(&self, had: Result<T, EngineError>) -> Result<T, EngineError> {
        if let Err(EngineError::Allocate(error)) = &had {
            self.note_wanted(error);
        }
        had
    }

    fn note_wanted(&self, error: &AllocateError) {
        self.wanted.set(error.asked().or(self.wanted.get()));
    }

    fn broken(&self, why: impl fmt::Display) -> TaskError {
        self.broken.set(true);
        TaskError::new(why)
    }

    /// Creates the job `name` with the root `call`. It depends on the job of this task: its root
    /// runs when that job is complete.
    ///
    /// # Errors
    /// If there is no memory, or `call` is not a task of the pool. If another job has the name,
    /// this task's job fails.
    pub fn spawn_job(&self, name: &str, call: Call) -> Result<(), TaskError> {
        let Some(function) = self.registry.number(call.definition()) else {
            let name = call.definition().name();
            return Err(self.broken(format_args!("the pool has no task `{name}`")));
        };
        let keys = |names: &[String]| names.iter().map(|name| name_key(name)).collect::<Vec<_>>();
        let submission = Submission {
            name: name.as_bytes(),
            function,
            arguments: call.arguments(),
            reads: &keys(&call.reads),
            writes: &keys(&call.writes),
            after: &[self.record().at],
        };
        submission.check().map_err(|error| self.broken(error))?;
        let mut arguments = (name.len() as u64).to_ne_bytes().to_vec();
        arguments.extend_from_slice(name.as_bytes());
        arguments.extend_from_slice(&submission.to_bytes());
        self.spawn_number(SUBMIT, &arguments, &[], &[])
    }

    /// Returns the data of `name`. A task that declares to [read](Call::reads) it starts when the
    /// data exists. The data stays until the task ends, even if it is
    /// [removed](crate::WorkerPool::remove_data).
    ///
    /// # Errors
    /// If the data does not exist.
    pub fn input(&self, name: &str) -> Result<Data, TaskError> {
        let heap = self.hand.heap;
        let pin = self.pin.get_or_init(|| heap.pin());
        let data = self.layout.names.read(heap, pin, &name_key(name));
        data.ok_or_else(|| {
            TaskError::new(format_args!(
                "the input `{name}` does not exist; a task that waits for it declares it by \
                 `.reads(\"{name}\")`"
            ))
        })
    }

    /// Returns the data of `name` as a value.
    ///
    /// # Errors
    /// Returns the errors of [`input`](Self::input), and an error if the data has another size.
    pub fn input_of<T: bytemuck::Pod>(&self, name: &str) -> Result<T, TaskError> {
        let bytes = self.input(name)?.to_vec();
        bytemuck::try_pod_read_unaligned(&bytes).map_err(|_| {
            let (have, want) = (bytes.len(), size_of::<T>());
            TaskError::new(format_args!(
                "the input `{name}` has {have} bytes, not {want}"
            ))
        })
    }

    /// Returns the array `name`.
    ///
    /// # Errors
    /// Returns the errors of [`input`](Self::input), and an error if the size of the data is not a
    /// multiple of the element's.
    pub fn array<T: Element>(&self, name: &str) -> Result<Array<T>, TaskError> {
        let data = self.input(name)?;
        Array::of(self.layout.memory, data).ok_or_else(|| not_an_array::<T>(name, data))
    }

    /// Returns this task's ports. Creates ports for a result if it has none.
    fn ports(&self) -> Result<Ports, TaskError> {
        let task = self.run.borrow().task();
        if task.inputs() == 0 {
            self.ported.set(true);
            self.room(give_ports(self.hand, task, &[], &[Offset::from_raw(0)]))?;
        }
        Ok(Ports::at(
            self.layout.memory,
            Offset::from_raw(task.inputs()),
        ))
    }

    fn port(&self, name: &str) -> Result<Output<Native>, TaskError> {
        let undeclared = || {
            TaskError::new(format_args!(
                "the task was spawned without the output `{name}`; declare it by \
                 `.writes(\"{name}\")`"
            ))
        };
        if self.run.borrow().task().inputs() == 0 {
            return Err(undeclared());
        }
        let cell = self.layout.names.find(self.hand.heap, &name_key(name));
        let cell = cell.ok_or_else(undeclared)?;
        let is = |output: &Output<Native>| {
            output
                .cell()
                .is_some_and(|other| other.offset() == cell.offset())
        };
        let output = self.ports()?.outputs().find(is).ok_or_else(undeclared)?;
        output.clear(self.hand.heap)?;
        Ok(output)
    }

    /// Writes `bytes` under `name`, which the task was spawned to [write](Call::writes). Other
    /// tasks see the data when this task is completed. The first task to write a name binds it;
    /// data of later ones is dropped.
    ///
    /// # Errors
    /// If the task was not spawned to write that name, or there is no memory.
    pub fn output(&self, name: &str, bytes: &[u8]) -> Result<(), TaskError> {
        let written = self.port(name)?.write(self.hand.heap, bytes);
        Ok(self.room(written.map_err(EngineError::from))?)
    }

    /// Writes a value under `name`.
    ///
    /// # Errors
    /// Returns the errors of [`output`](Self::output).
    pub fn output_of<T: bytemuck::Pod>(&self, name: &str, value: &T) -> Result<(), TaskError> {
        self.output(name, bytemuck::bytes_of(value))
    }

    /// Creates an array of `len` elements under `name`, with arbitrary values at first. The tasks
    /// that this task spawns fill it; they find it by [`array`](Self::array).
    ///
    /// # Errors
    /// Returns the errors of [`output`](Self::output).
    pub fn output_array<T: Element>(&self, name: &str, len: usize) -> Result<Array<T>, TaskError> {
        let bytes = (len * size_of::<T>()) as u64;
        let data = self.port(name)?.allocate(self.hand.heap, bytes);
        let data = self.room(data.map_err(EngineError::from))?;
        Array::of(self.layout.memory, data).ok_or_else(|| not_an_array::<T>(name, data))
    }

    /// Writes the result of the job, which [`Job::wait`](crate::Job::wait) returns. The first task
    /// of the job that writes a result determines it.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn result(&self, bytes: &[u8]) -> Result<(), TaskError> {
        let key = result_key(&self.record().name());
        let cell = self.layout.names.cell(self.hand.heap, &key);
        let cell = self.room(cell.map_err(EngineError::from))?;
        // The last output is for the result.
        let Some(output) = self.ports()?.outputs().last() else {
            return Err(TaskError::new(
                "a task's ports are damaged; run `outlive pod check`",
            ));
        };
        output.clear(self.hand.heap)?;
        output.set_cell(cell);
        let written = output.write(self.hand.heap, bytes);
        Ok(self.room(written.map_err(EngineError::from))?)
    }

    /// Writes a value as the result of the job.
    ///
    /// # Errors
    /// Returns the errors of [`result`](Self::result).
    pub fn result_of<T: bytemuck::Pod>(&self, value: &T) -> Result<(), TaskError> {
        self.result(bytemuck::bytes_of(value))
    }
}

fn not_an_array<T: Element>(name: &str, data: Data) -> TaskError {
    let (bytes, size) = (data.len(), size_of::<T>());
    TaskError::new(format_args!(
        "`{name}` has {bytes} bytes, which is not an array of elements of {size} bytes"
    ))
}
