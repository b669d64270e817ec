//! Simulated time and events: discrete events in whole picoseconds, in one total order.
//!
//! A machine is anything that implements [`Machine`]: it has a type of events, which are small
//! plain values, and one function that handles an event and schedules others. The event names the
//! part that it is for, and the machine calls that part, so dispatch is static. A [`Simulation`] is
//! a machine together with the [`EventQueue`] that gives it time. It can be cloned in the middle of
//! a run, and both copies continue identically: a crash study forks it at each crash point.
//!
//! Events are handled in the order of their times, and at equal times in the order in which they
//! were scheduled. Nothing else decides (no address, no hash, no clock), so a run repeats to the
//! byte.
//!
//! ```
//! use outlive_machine::engine::{EventQueue, Machine, Simulation, Time};
//!
//! /// Two players return a ball, each in its own time.
//! #[derive(Clone)]
//! struct Rally {
//!     returns: [u64; 2],
//! }
//!
//! #[derive(Clone, Copy)]
//! enum Event {
//!     BallAt(usize),
//! }
//!
//! impl Machine for Rally {
//!     type Event = Event;
//!     fn handle(&mut self, _now: Time, event: Event, queue: &mut EventQueue<Event>) {
//!         let Event::BallAt(player) = event;
//!         self.returns[player] += 1;
//!         queue.schedule([Time::from_nanos(3), Time::from_nanos(4)][player], Event::BallAt(1 - player));
//!     }
//! }
//!
//! let mut rally = Simulation::new(Rally { returns: [0; 2] });
//! rally.queue_mut().schedule(Time::ZERO, Event::BallAt(0));
//! rally.run_until(Time::from_nanos(70)); // ten rounds of 7 ns, and the ball that comes at 70 ns
//! let fork = rally.clone();
//! assert_eq!(rally.machine().returns, [11, 10]);
//! assert_eq!(fork.now(), Time::from_nanos(70));
//! ```

mod clock;
mod decimal;
mod divisor;
mod prefetch;
mod queue;
mod random;
mod simulation;
mod time;

pub(crate) use clock::greatest_common_divisor;
pub use clock::{Clock, Frequency};
pub(crate) use decimal::write_decimal;
pub(crate) use divisor::Divisor;
pub(crate) use prefetch::prefetch;
pub use queue::EventQueue;
pub use random::Random;
pub use simulation::{Machine, Simulation};
pub use time::Time;
