//! Who is alive: instances and their generations, and the right to write.

mod instance;
mod member;
mod state;

pub use instance::{Instance, InstanceId};
pub use member::Member;
pub use state::{Generations, Level, State, Status};
