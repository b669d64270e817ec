//! Crash proofs of the machine's configurations: whichever nodes die at whichever time, no
//! committed store is lost. A configuration that does not protect stores must lose some, which
//! shows that the judge detects losses.

use crate::{ALL, Make};
use outlive_machine::cluster::Workload;
use outlive_machine::crash::{Goal, Points, Report, Sweep, SweepError};
use outlive_machine::description::{Description, Protocol};
use outlive_machine::engine::Time;
use outlive_machine::program::{Neighbour, Recording, Scale};

/// A program on a machine of some configuration, to be swept.
#[derive(Clone, Copy, Debug)]
pub struct Proof {
    protocol: Protocol,
    program: Program,
}

#[derive(Clone, Copy, Debug)]
enum Program {
    /// A drawn program with locks and a barrier, in which the surviving threads end. One node dies,
    /// or two or three within one recovery or shortly after one another, or the second when the
    /// recovery from the first is over.
    Drawn { deaths: usize, apart: bool },
    /// A [kernel](ALL), on which this number of nodes die within one recovery or shortly after one
    /// another.
    Kernel(&'static str, Make, usize),
}

/// Workloads whose threads need nothing of each other to end. In the others, surviving threads
/// would wait forever for results of dead ones, or compute with the half-done results of dead ones,
/// however well the machine preserves those.
const END_ALONE: [&str; 2] = ["ycsb", "raytrace"];

/// The number of programs that are drawn.
const SEEDS: u64 = 20;

impl Proof {
    /// Returns all proofs: each configuration, with drawn programs and with each kernel; where the
    /// survivors can end, also with several deaths.
    pub fn all() -> Vec<Proof> {
        let drawn = [(1, false), (2, false), (2, true), (3, false)];
        let drawn = drawn.map(|(deaths, apart)| Program::Drawn { deaths, apart });
        let kernels = ALL.iter().flat_map(|(name, make)| {
            let most = if END_ALONE.contains(name) { 2 } else { 1 };
            (1..=most).map(|deaths| Program::Kernel(name, *make, deaths))
        });
        let programs: Vec<Program> = drawn.into_iter().chain(kernels).collect();
        Protocol::ALL
            .iter()
            .flat_map(|protocol| {
                programs.iter().map(move |program| Proof {
                    protocol: *protocol,
                    program: *program,
                })
            })
            .collect()
    }

    /// Returns the name: the configuration's and the program's.
    pub fn name(&self) -> String {
        let protocol = self.protocol.name();
        match self.program {
            Program::Drawn { deaths: 1, .. } => format!("{protocol} drawn"),
            Program::Drawn { deaths, apart } => {
                let apart = if apart { " apart" } else { "" };
                format!("{protocol} drawn, {deaths} deaths{apart}")
            }
            Program::Kernel(name, _, 1) => format!("{protocol} {name}"),
            Program::Kernel(name, _, deaths) => format!("{protocol} {name}, {deaths} deaths"),
        }
    }

    /// Returns whether stores are protected: in all configurations except write-back.
    pub fn protects(&self) -> bool {
        self.protocol != Protocol::WriteBack
    }

    /// Returns whether the report is the required one: no failure; or, if stores are not protected,
    /// some losses and no other failure.
    pub fn holds(&self, found: &Report) -> bool {
        match self.protects() {
            true => found.failed == 0,
            false => found.lost > 0 && found.failed == found.lost,
        }
    }

    /// Tries `points` points, drawn from the seed; passes `progress` the number of new results.
    ///
    /// # Errors
    /// If a machine cannot run its program to the end without deaths.
    pub fn run(
        &self,
        points: u64,
        seed: u64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Report, SweepError> {
        match self.program {
            Program::Drawn { deaths, apart } => {
                self.run_drawn((deaths, apart), points, seed, progress)
            }
            Program::Kernel(name, make, deaths) => {
                let workload = make(8, Scale::Test);
                let threads = || Workload {
                    threads: workload.threads(Recording::On),
                    image: workload.image().clone(),
                    synchronisation: workload.synchronisation().clone(),
                };
                // The machine varies with the kernel and with the configuration.
                let place = |known: &(&str, Make)| known.0 == name;
                let kernel = ALL.iter().position(place).unwrap_or_default();
                let number = seed + kernel as u64 + self.protocol as u64;
                let mut description = self.machine(number, deaths as u32 + 1);
                // A kernel is one program: all of its runs dump.
                let period = [3_000, 20_000, 60_000][number as usize % 3];
                description.logging_unit.dump_period = Time::from_nanos(period);
                let sweep = Sweep {
                    points: Points::Drawn(points),
                    deaths,
                    goal: self.goal(END_ALONE.contains(&name)),
                    ..Sweep::new(&description, seed)
                };
                sweep.run(&threads, progress)
            }
        }
    }

    /// The goal of the survivors. In configurations that lose stores, a lock may never be released.
    fn goal(&self, end_alone: bool) -> Goal {
        match self.protects() && end_alone {
            true => Goal::Finished,
            false => Goal::Recovered,
        }
    }

    fn run_drawn(
        &self,
        (deaths, apart): (usize, bool),
        points: u64,
        seed: u64,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Report, SweepError> {
        let mut whole = Report::default();
        let programs = SEEDS.min(points);
        for program in 0..programs {
            let seed = seed + program;
            let description = self.machine(seed, deaths as u32 + 1);
            let points = (program + 1) * points / programs - program * points / programs;
            let sweep = Sweep {
                points: Points::Drawn(points),
                deaths,
                apart,
                goal: self.goal(true),
                ..Sweep::new(&description, seed)
            };
            let lines = [2, 4, 7, 16][program as usize % 4];
            let threads = || {
                let (threads, image, synchronisation) = Neighbour::all(seed, 8, lines, 60);
                Workload {
                    threads,
                    image,
                    synchronisation,
                }
            };
            whole.add(sweep.run(&threads, progress)?);
        }
        Ok(whole)
    }

    /// Returns a machine of four nodes, or one more than replicas, with two cores each and caches
    /// of a few lines, so that all kinds of events happen. The seed decides how far messages
    /// overtake each other, and how often logs are dumped.
    fn machine(&self, seed: u64, replicas: u32) -> Description {
        let mut machine = Description::default();
        (machine.system.compute_nodes, machine.system.memory_nodes) = (replicas.max(3) + 1, 2);
        machine.system.cores_per_node = 2;
        for (cache, size, ways) in [
            (&mut machine.l1, 512, 2),
            (&mut machine.l2, 1024, 2),
            (&mut machine.l3, 4096, 4),
        ] {
            (cache.size.0, cache.ways) = (size, ways);
        }
        machine.logging_unit.sram_size.0 = 192;
        machine.logging_unit.replication_factor = replicas;
        let nanos = Time::from_nanos;
        machine.logging_unit.dump_period = nanos([3_000, 20_000, 2_500_000][seed as usize % 3]);
        let ours = &mut machine.ours;
        (ours.core.l1_misses, ours.core.store_buffer) = (4, 8);
        (ours.coherence.protocol, ours.coherence.write_back_buffer) = (self.protocol, 2);
        ours.fabric.reorder_bound = nanos([2, 50, 300][seed as usize / 3 % 3]);
        ours.memory.interleave.0 = 64;
        machine
    }
}
