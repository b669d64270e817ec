//! Crash points: names for the steps of an operation at which a sweep kills the thread.

use core::fmt::Debug;

/// The crash points of one recoverable operation: an enum with a variant for each step after which
/// a death leaves a state that recovery treats differently.
///
/// An operation passes its points by [`Memory::crash_point`](crate::Memory::crash_point). On native
/// memory a point executes no instruction. The proofs' memories count the points they kill at, and
/// a test fails while a declared point has not been covered.
///
/// Declare one with [`crash_points!`](crate::crash_points).
pub trait CrashPoint: Copy + Debug + Eq + 'static {
    /// The operation, as `pod check` and the proofs print it: `"tatas.lock"`.
    const OPERATION: &'static str;
    /// Every point, in the order in which the operation passes them.
    const ALL: &'static [Self];
    /// Returns the index of this point in [`ALL`](Self::ALL).
    fn index(self) -> usize;
    /// Returns the name of this point, as declared.
    fn name(self) -> &'static str;
}

/// Declares the crash points of an operation.
///
/// ```
/// outlive_memory::crash_points! {
///     /// The crash points of a push.
///     pub enum PushPoint for "stack.push" {
///         /// The node is written, and not reachable.
///         Written,
///         /// The node is reachable; the operation took effect.
///         Linked,
///     }
/// }
/// use outlive_memory::CrashPoint;
/// assert_eq!(PushPoint::ALL.len(), 2);
/// assert_eq!(PushPoint::Linked.name(), "Linked");
/// ```
#[macro_export]
macro_rules! crash_points {
    ($(#[$meta:meta])* $vis:vis enum $name:ident for $operation:literal {
        $($(#[$point_meta:meta])* $point:ident),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name { $($(#[$point_meta])* $point),+ }

        impl $crate::CrashPoint for $name {
            const OPERATION: &'static str = $operation;
            const ALL: &'static [Self] = &[$(Self::$point),+];
            fn index(self) -> usize { self as usize }
            fn name(self) -> &'static str {
                match self { $(Self::$point => stringify!($point)),+ }
            }
        }
    };
}
