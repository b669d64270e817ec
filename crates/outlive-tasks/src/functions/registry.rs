//! The tasks of a program: named functions, with the same number in every process of a pool.
//!
//! [`task!`](crate::task) makes a task of a function, and the linker collects all tasks of a
//! program ([`Registry::collected`]). Shared memory contains a task's *number*, its position among
//! the sorted names, which is the same for all programs with the same set of tasks. A pool keeps
//! the set's text beside its fingerprint, so that a program with another set is refused by an error
//! that names the difference, and does not crash in a wrong function.
//!
//! Arguments are plain data, copied into the task's descriptor. A function that is re-executed gets
//! the same ones.

use crate::functions::context::Context;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;
use xxhash_rust::xxh3::xxh3_64;

/// The result of a task function.
pub type TaskResult = Result<(), TaskError>;

/// The reason why a task failed. Any error is converted to one by `?`.
///
/// The task is retried, up to the pool's limit; then its job fails with this message. If the worker
/// is [not able](Self::unable) to run it, other workers try first.
pub struct TaskError {
    message: String,
    unable: bool,
}

impl TaskError {
    /// Returns an error with this message.
    pub fn new(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            unable: false,
        }
    }

    /// Returns an error with a reason that only concerns this worker or its host: for example, it
    /// cannot open a file that other workers can read. The worker leaves the pool with
    /// [`PoolError::Unable`](crate::PoolError::Unable), and the task to other workers. If there are
    /// none, this is an ordinary error.
    ///
    /// ```
    /// use outlive_tasks::TaskError;
    /// let error = std::fs::read("/no/such/file").map_err(TaskError::unable).unwrap_err();
    /// assert!(error.is_unable() && error.message().starts_with("No such file"));
    /// ```
    pub fn unable(message: impl fmt::Display) -> Self {
        Self {
            unable: true,
            ..Self::new(message)
        }
    }

    /// Returns whether the reason only concerns this worker.
    pub fn is_unable(&self) -> bool {
        self.unable
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }
}

// Not an `Error` itself, so that all errors can become one.
impl<E: core::error::Error> From<E> for TaskError {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // An error that already shows its source is not repeated.
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        Self::new(message)
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The function that runs a task, given its context and its packed arguments.
pub type Run = fn(&Context<'_>, &[u8]) -> TaskResult;

/// A task function, as [`task!`](crate::task) describes it.
#[derive(Debug)]
pub struct Definition {
    name: &'static str,
    signature: &'static str,
    bytes: usize,
    run: Run,
    show: fn(&[u8]) -> String,
    /// A guess of its number: that in the registry that was last asked.
    number: AtomicU32,
}

impl Definition {
    /// Describes the task `name`, with arguments of the types in `signature` and `bytes` bytes in
    /// total.
    pub const fn new(
        name: &'static str,
        signature: &'static str,
        bytes: usize,
        run: Run,
        show: fn(&[u8]) -> String,
    ) -> Self {
        Self {
            name,
            signature,
            bytes,
            run,
            show,
            number: AtomicU32::new(0),
        }
    }

    /// Returns the function's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Runs it.
    pub(crate) fn run(&self, context: &Context<'_>, arguments: &[u8]) -> TaskResult {
        (self.run)(context, arguments)
    }

    /// Returns its arguments as text; as bytes if they have the wrong size.
    pub fn show(&self, arguments: &[u8]) -> String {
        if arguments.len() == self.bytes {
            (self.show)(arguments)
        } else {
            format!("{arguments:02x?}")
        }
    }

    fn line(&self) -> String {
        let signature = self.signature.trim_end_matches(", ");
        format!("{}({signature}) [{}]", self.name, self.bytes)
    }
}

/// The item that [`task!`](crate::task) passes to the linker.
#[doc(hidden)]
pub struct Collected(pub &'static Definition);

inventory::collect!(Collected);

/// A task with its arguments, to be spawned or submitted. The function with the task's name returns
/// one.
#[derive(Clone)]
pub struct Call {
    definition: &'static Definition,
    arguments: Packed,
    pub(crate) reads: Vec<String>,
    pub(crate) writes: Vec<String>,
}

impl Call {
    /// Returns a call of `definition` with arguments of its types.
    #[doc(hidden)]
    #[inline]
    pub fn new(definition: &'static Definition, arguments: Packed) -> Self {
        Self {
            definition,
            arguments,
            reads: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Declares that the task reads the data of `name`. It does not run before that data is there.
    #[must_use]
    pub fn reads(mut self, name: impl Into<String>) -> Self {
        self.reads.push(name.into());
        self
    }

    /// Declares that the task, or a task that it spawns, writes the data of `name`.
    #[must_use]
    pub fn writes(mut self, name: impl Into<String>) -> Self {
        self.writes.push(name.into());
        self
    }

    /// Returns the task.
    pub fn definition(&self) -> &'static Definition {
        self.definition
    }

    /// Returns the packed arguments.
    #[inline]
    pub fn arguments(&self) -> &[u8] {
        self.arguments.bytes()
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.definition.show(self.arguments());
        write!(f, "{}({shown})", self.definition.name)
    }
}

/// The number of bytes of arguments that need no allocation.
const SHORT: usize = 64;

/// Arguments, packed for a descriptor.
#[derive(Clone)]
#[doc(hidden)]
pub struct Packed {
    short: [u8; SHORT],
    len: usize,
    long: Vec<u8>,
}

impl Default for Packed {
    fn default() -> Self {
        Self::new()
    }
}

impl Packed {
    /// Returns an empty list of arguments.
    #[inline]
    pub fn new() -> Self {
        Self {
            short: [0; SHORT],
            len: 0,
            long: Vec::new(),
        }
    }

    /// Appends an argument.
    #[inline]
    pub fn push(&mut self, argument: &impl bytemuck::Pod) {
        let bytes = bytemuck::bytes_of(argument);
        if self.long.is_empty() {
            if let Some(free) = self.short.get_mut(self.len..self.len + bytes.len()) {
                free.copy_from_slice(bytes);
                self.len += bytes.len();
                return;
            }
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(bytes);
        self.len = self.long.len();
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        if self.long.is_empty() {
            &self.short[..self.len]
        } else {
            &self.long
        }
    }
}

/// Unpacks the next argument, and removes it from `bytes`.
///
/// # Errors
/// If there are too few bytes: the descriptor is damaged.
#[doc(hidden)]
#[inline]
pub fn unpack<A: bytemuck::Pod>(bytes: &mut &[u8]) -> Result<A, TaskError> {
    let size = size_of::<A>();
    let Some((first, rest)) = bytes.split_at_checked(size) else {
        let have = bytes.len();
        return Err(TaskError::new(format_args!(
            "its arguments are damaged: {have} bytes instead of {size}; run `outlive pod check`"
        )));
    };
    *bytes = rest;
    Ok(bytemuck::pod_read_unaligned(first))
}

/// Defines tasks, each by a function.
///
/// A task has a context, then arguments: plain data (`bytemuck::Pod`) that can be shown (`Debug`).
/// It is idempotent: with the same arguments and inputs it does the same, since it may be begun
/// more than once. Its body returns a [`TaskResult`]. The function that the macro defines under the
/// task's name does not run the body: it returns the [`Call`] to be spawned or submitted.
///
/// ```
/// use outlive_tasks::task;
///
/// task! {
///     /// Says hello, a number of times.
///     pub fn greet(context, times: u32, from: u64) {
///         for _ in 0..times {
///             println!("{} greets from {from}", context.name());
///         }
///         Ok(())
///     }
/// }
///
/// let call = greet(3, 7);
/// assert_eq!(format!("{call:?}").rsplit("::").next(), Some("greet(times: 3, from: 7)"));
/// ```
#[macro_export]
macro_rules! task {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident($context:ident $(, $argument:ident: $type:ty)* $(,)?) $body:block
    )+) => {$(
        $(#[$meta])*
        $vis fn $name($($argument: $type),*) -> $crate::Call {
            // Items have no hygiene. In a block of their own, and with names that no program uses,
            // they hide no argument, and no item that the task's body uses.
            let definition: &'static $crate::registry::Definition = {
                fn __outlive_task_run(
                    $context: &$crate::Context<'_>,
                    arguments: &[u8],
                ) -> $crate::TaskResult {
                    #[allow(unused_mut, unused_variables)]
                    let mut arguments = arguments;
                    $(let $argument: $type = $crate::registry::unpack(&mut arguments)?;)*
                    let _ = $context;
                    $body
                }
                fn __outlive_task_show(arguments: &[u8]) -> ::std::string::String {
                    #[allow(unused_mut, unused_variables)]
                    let mut arguments = arguments;
                    #[allow(unused_mut)]
                    let mut shown = ::std::vec::Vec::<::std::string::String>::new();
                    $(if let ::core::result::Result::Ok(value) =
                        $crate::registry::unpack::<$type>(&mut arguments)
                    {
                        shown.push(::std::format!(
                            ::core::concat!(::core::stringify!($argument), ": {:?}"),
                            value
                        ));
                    })*
                    shown.join(", ")
                }
                static __OUTLIVE_TASK: $crate::registry::Definition = $crate::registry::Definition::new(
                    ::core::concat!(::core::module_path!(), "::", ::core::stringify!($name)),
                    ::core::concat!($(::core::stringify!($argument), ": ", ::core::stringify!($type), ", "),*),
                    0 $(+ ::core::mem::size_of::<$type>())*,
                    __outlive_task_run,
                    __outlive_task_show,
                );
                $crate::inventory::submit! { $crate::registry::Collected(&__OUTLIVE_TASK) }
                &__OUTLIVE_TASK
            };
            #[allow(unused_mut)]
            let mut packed = $crate::registry::Packed::new();
            $(packed.push(&$argument);)*
            $crate::Call::new(definition, packed)
        }
    )+};
}

/// A set of task functions, each with a number.
#[derive(Debug)]
pub struct Registry {
    /// Sorted by name.
    definitions: Vec<&'static Definition>,
    text: String,
}

/// The error that two tasks have the same name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two tasks have the name `{name}`; rename one, because a name identifies a task")]
pub struct SameName {
    /// The name that both tasks have.
    pub name: &'static str,
}

impl Registry {
    /// Returns the registry of these tasks.
    ///
    /// # Errors
    /// If two have the same name.
    pub fn of(
        definitions: impl IntoIterator<Item = &'static Definition>,
    ) -> Result<Self, SameName> {
        let mut definitions: Vec<_> = definitions.into_iter().collect();
        definitions.sort_by_key(|definition| definition.name);
        let twice = definitions
            .windows(2)
            .find(|two| two[0].name == two[1].name);
        if let Some(two) = twice {
            return Err(SameName { name: two[0].name });
        }
        let lines: Vec<_> = definitions.iter().map(|one| one.line()).collect();
        Ok(Self {
            definitions,
            text: lines.join("\n"),
        })
    }

    /// Returns the registry of all tasks of this program.
    ///
    /// # Panics
    /// If two have the same name, which a program cannot resolve at run time.
    pub fn collected() -> &'static Self {
        static ALL: OnceLock<Registry> = OnceLock::new();
        ALL.get_or_init(|| {
            let all = inventory::iter::<Collected>().map(|collected| collected.0);
            Self::of(all).unwrap_or_else(|same| panic!("{same}"))
        })
    }

    /// Returns the number of `definition`; `None` if it is not one of these tasks.
    #[inline]
    pub fn number(&self, definition: &'static Definition) -> Option<u32> {
        // Relaxed: a guess.
        let guess = definition.number.load(Ordering::Relaxed);
        let guessed = self.definitions.get(guess as usize);
        if guessed.is_some_and(|&guessed| core::ptr::eq(guessed, definition)) {
            return Some(guess);
        }
        let found = self
            .definitions
            .iter()
            .position(|&one| core::ptr::eq(one, definition))?;
        definition.number.store(found as u32, Ordering::Relaxed);
        Some(found as u32)
    }

    /// Returns the task with this number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&'static Definition> {
        self.definitions.get(number as usize).copied()
    }

    /// Returns the number of tasks.
    pub fn len(&self) -> usize {
        self.definitions.len()
    }

    /// Returns whether the set has no tasks.
    pub fn is_empty(&self) -> bool {
        self.definitions.is_empty()
    }

    /// Returns the text that a pool keeps: a line for each task.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns a hash of the text: different sets have different ones, except by accident.
    pub fn fingerprint(&self) -> u64 {
        xxh3_64(self.text.as_bytes())
    }

    /// Describes the difference between this set and the one that a pool keeps, as text.
    pub fn difference(&self, pools: &str) -> String {
        let missing = |of: &str, from: &str| -> Vec<String> {
            let has = |line: &str| from.lines().any(|other| other == line);
            of.lines()
                .filter(|line| !has(line))
                .map(|line| format!("`{}`", line.rsplit_once(" [").map_or(line, |parts| parts.0)))
                .collect()
        };
        let (added, absent) = (missing(&self.text, pools), missing(pools, &self.text));
        let mut parts = Vec::new();
        if !absent.is_empty() {
            parts.push(format!("the program lacks {}", absent.join(", ")));
        }
        if !added.is_empty() {
            parts.push(format!(
                "the program has {}, which the pool lacks",
                added.join(", ")
            ));
        }
        parts.join("; ")
    }
}

#[cfg(test)]
mod tests;
