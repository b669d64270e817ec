//! Supervision with real processes and threads that really die.
//!
//! Children are this test program itself, started again as the test `program` with a role in their
//! environment.

mod processes;
mod stage;
mod threads;
