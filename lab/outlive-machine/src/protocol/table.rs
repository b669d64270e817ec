//! Tables of transitions: for each pair of state and event, the actions and the next state, or
//! nothing.
//!
//! A controller is written as [`Row`]s, one line each. A [`Table`] is those rows laid out for
//! lookup. It is a value: a protocol with more conditions (replication, dead nodes) is a table with
//! more rows, and mutation tests of a protocol remove rows to test its judges.

use std::fmt::Debug;
use std::marker::PhantomData;

/// The name of a row or a column: an enumeration whose values are numbered from zero.
pub trait Name: Copy + Eq + Debug + 'static {
    /// All values, by rising number.
    const ALL: &'static [Self];

    /// Returns the number of this value: `ALL[self.number()] == self`.
    fn number(self) -> usize;
}

/// Declares enumerations of plain variants that can name rows or columns.
macro_rules! names {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[doc = $about:literal])+ $variant:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[doc = $about])+ $variant,)* }

        impl $name {
            /// Returns its meaning, for people.
            pub const fn about(self) -> &'static str {
                match self { $($name::$variant => concat!($($about),+).trim_ascii(),)* }
            }
        }

        impl $crate::protocol::Name for $name {
            const ALL: &'static [$name] = &[$($name::$variant,)*];

            fn number(self) -> usize {
                self as usize
            }
        }
    };
}
pub(crate) use names;

/// One transition as a row of source code.
#[derive(Clone, Copy, Debug)]
pub struct Row<S, E, A: 'static> {
    /// In this state
    pub state: S,
    /// this happens:
    pub event: E,
    /// this is done, in order,
    pub actions: &'static [A],
    /// and this state comes next.
    pub next: S,
}

/// Makes a row, in one line.
pub(crate) const fn row<S, E, A>(state: S, event: E, actions: &'static [A], next: S) -> Row<S, E, A>
where
    S: Copy,
    E: Copy,
{
    Row {
        state,
        event,
        actions,
        next,
    }
}

/// The maximum number of actions in a cell.
const CELL_ACTIONS: usize = 8;

/// The transition of one pair of state and event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell<S, A> {
    actions: [Option<A>; CELL_ACTIONS],
    /// The next state.
    pub next: S,
}

impl<S: Copy, A: Copy> Cell<S, A> {
    /// Makes a cell of these actions and this next state.
    ///
    /// # Panics
    /// If there are more than eight actions.
    pub fn new(actions: impl IntoIterator<Item = A>, next: S) -> Cell<S, A> {
        let mut cell = Cell {
            actions: [None; CELL_ACTIONS],
            next,
        };
        for (place, action) in actions.into_iter().enumerate() {
            cell.actions[place] = Some(action);
        }
        cell
    }

    /// Returns the actions, in order.
    pub fn actions(&self) -> impl Iterator<Item = A> + '_ {
        self.actions.iter().map_while(|action| *action)
    }
}

/// A controller's transitions.
///
/// ```
/// use outlive_machine::protocol::{NodeEvent, NodeState, Tables};
///
/// let tables = Tables::mesi();
/// let cell = tables.node.get(NodeState::S, NodeEvent::Inv).expect("a reader can be invalidated");
/// assert_eq!(cell.next, NodeState::I);
/// assert!(tables.node.get(NodeState::M, NodeEvent::Inv).is_none(), "a writer is recalled, never invalidated");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table<S, E, A> {
    cells: Vec<Option<Cell<S, A>>>,
    events: PhantomData<E>,
}

impl<S: Name, E: Name, A: Copy> Table<S, E, A> {
    /// Makes the table of these rows.
    ///
    /// # Panics
    /// If two rows are about the same pair.
    pub fn new(rows: &[Row<S, E, A>]) -> Table<S, E, A> {
        let mut table = Table {
            cells: vec![None; S::ALL.len() * E::ALL.len()],
            events: PhantomData,
        };
        for row in rows {
            let twice = table.set(
                row.state,
                row.event,
                Some(Cell::new(row.actions.iter().copied(), row.next)),
            );
            assert!(
                twice.is_none(),
                "two rows for {:?} in {:?}",
                row.event,
                row.state
            );
        }
        table
    }

    /// Returns the transition of the pair; `None` if it is impossible.
    #[inline]
    pub fn get(&self, state: S, event: E) -> Option<&Cell<S, A>> {
        self.cells[state.number() * E::ALL.len() + event.number()].as_ref()
    }

    /// Replaces the cell of a pair, and returns the old one.
    pub fn set(&mut self, state: S, event: E, cell: Option<Cell<S, A>>) -> Option<Cell<S, A>> {
        std::mem::replace(
            &mut self.cells[state.number() * E::ALL.len() + event.number()],
            cell,
        )
    }

    /// Returns all transitions, by state and then by event.
    pub fn iter(&self) -> impl Iterator<Item = (S, E, &Cell<S, A>)> {
        self.cells.iter().enumerate().filter_map(|(place, cell)| {
            let (state, event) = (S::ALL[place / E::ALL.len()], E::ALL[place % E::ALL.len()]);
            cell.as_ref().map(|cell| (state, event, cell))
        })
    }
}
