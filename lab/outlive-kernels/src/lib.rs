//! The kernels of the simulated machines: parallel algorithms on simulated memory, with
//! checked results.
//!
//! Each kernel follows a program that is used to measure such machines. Its file says which parts
//! it takes from that program, which it leaves out, and how its instructions are counted. Its
//! parameters are a plain struct, `at` a [`Scale`] or chosen freely; `workload` makes the kernel
//! for a number of threads.
//!
//! The module [`crash`] has the proofs that crash the machine while each kernel runs on it.
//!
//! ```
//! use outlive_kernels::Ycsb;
//! use outlive_machine::program::{Recording, Reference, Scale};
//!
//! let few = Ycsb { accesses: 20, ..Ycsb::at(Scale::Test) }.workload(2);
//! let mut machine = Reference::of(&few, Recording::Off, 1);
//! machine.run()?;
//! few.check(&|word| machine.word(word))?;
//!
//! assert!(outlive_kernels::by_name("ycsb", 4, Scale::Test).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod barnes;
mod bodies;
mod bodytrack;
#[cfg(test)]
mod broken;
mod canneal;
mod clusters;
mod combining;
pub mod crash;
mod fluid;
mod ocean;
mod private;
mod raytrace;
mod streamcluster;
mod vector;
mod ycsb;

pub use barnes::Barnes;
pub use bodytrack::Bodytrack;
pub use canneal::Canneal;
pub use fluid::Fluidanimate;
pub use ocean::{Ocean, Partitions};
pub use raytrace::Raytrace;
pub use streamcluster::Streamcluster;
pub use ycsb::Ycsb;

use outlive_machine::program::{Scale, Workload};

/// Makes a workload for a number of threads.
pub type Make = fn(usize, Scale) -> Workload;

/// All workloads: their names and constructors.
pub const ALL: &[(&str, Make)] = &[
    ("ycsb", |threads, scale| Ycsb::at(scale).workload(threads)),
    ("ocean-cp", |threads, scale| {
        Ocean::at(Partitions::Contiguous, scale).workload(threads)
    }),
    ("ocean-ncp", |threads, scale| {
        Ocean::at(Partitions::NonContiguous, scale).workload(threads)
    }),
    ("barnes", |threads, scale| {
        Barnes::at(scale).workload(threads)
    }),
    ("streamcluster", |threads, scale| {
        Streamcluster::at(scale).workload(threads)
    }),
    ("raytrace", |threads, scale| {
        Raytrace::at(scale).workload(threads)
    }),
    ("canneal", |threads, scale| {
        Canneal::at(scale).workload(threads)
    }),
    ("fluidanimate", |threads, scale| {
        Fluidanimate::at(scale).workload(threads)
    }),
    ("bodytrack", |threads, scale| {
        Bodytrack::at(scale).workload(threads)
    }),
];

/// Returns the workload of this name.
pub fn by_name(name: &str, threads: usize, scale: Scale) -> Option<Workload> {
    let (_, make) = ALL.iter().find(|(known, _)| *known == name)?;
    Some(make(threads, scale))
}

/// Returns the workload name that is close to `name`, if one is. `name` is not a workload.
pub fn near(name: &str) -> Option<&'static str> {
    let names: Vec<&'static str> = ALL.iter().map(|(known, _)| *known).collect();
    outlive_machine::near::near(name, &names)
}
