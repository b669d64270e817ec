//! The proofs of Outlive, by subject. `outlive-lab prove` runs them.
//!
//! Each subject has up to three parts: the *fixture* (a small pod in which the operation runs), the
//! *sweeps* (the operation is killed after each of its instructions, and survivors recover) and the
//! *scenarios* (its threads interleave at every access, and any access may be a thread's last).
//! Each part lists broken variants that it must catch. They are made by weakening the memory under
//! the real code, or put together here from its steps: no product crate contains one.
//!
//! The engines are in [`outlive_prove`].

pub mod barrier;
mod cases;
pub mod heap;
pub mod killing;
pub mod locks;
pub mod membership;
pub mod memory_pool;
pub mod objects;
#[doc(hidden)]
pub mod pod;
pub mod reclaim;
pub mod store;
pub mod structures;
pub mod tasks;
pub mod wordcount;

#[doc(hidden)]
pub use outlive_tasks;

use outlive_prove::kill::Suite;
use outlive_prove::proof::Proof;

/// Returns every sweep.
pub fn sweeps() -> Suite {
    let mut suite = Suite::new();
    membership::sweeps::add_to(&mut suite);
    membership::joining::add_to(&mut suite);
    locks::sweeps::add_to(&mut suite);
    barrier::sweeps::add_to(&mut suite);
    heap::buddy_sweeps::add_to(&mut suite);
    heap::sweeps::add_to(&mut suite);
    reclaim::sweeps::add_to(&mut suite);
    structures::sweeps::add_to(&mut suite);
    objects::sweeps::add_to(&mut suite);
    store::sweeps::add_to(&mut suite);
    store::restoration_sweeps::add_to(&mut suite);
    memory_pool::sweeps::add_to(&mut suite);
    memory_pool::object_sweeps::add_to(&mut suite);
    memory_pool::move_sweeps::add_to(&mut suite);
    memory_pool::replica_sweeps::add_to(&mut suite);
    tasks::engine::sweeps::add_to(&mut suite);
    tasks::pool::sweeps::add_to(&mut suite);
    wordcount::sweeps::add_to(&mut suite);
    suite
}

/// Returns every scenario.
pub fn scenarios() -> Vec<Proof> {
    let mut all = locks::scenarios::all();
    all.extend(barrier::scenarios::all());
    all.extend(membership::scenarios::all());
    all.extend(membership::group_log::all());
    all.extend(heap::scenarios::all());
    all.extend(reclaim::scenarios::all());
    all.extend(structures::scenarios::all());
    all.extend(objects::scenarios::all());
    all.extend(store::scenarios::all());
    all.extend(memory_pool::scenarios::all());
    all.extend(memory_pool::object_scenarios::all());
    all.extend(memory_pool::move_scenarios::all());
    all.extend(memory_pool::replica_scenarios::all());
    all.extend(tasks::engine::scenarios::all());
    all.extend(tasks::pool::scenarios::all());
    all.extend(wordcount::scenarios::all());
    all
}
