//! What is proven of the machine's configurations: whichever node dies whenever, nothing that was committed is lost; and what
//! does nothing against that loses it, so that it is known that the judge would see it.

use super::{Goal, Points, Report, Sweep, SweepError};
use crate::cluster::Workload;
use crate::description::{Description, Protocol};
use crate::engine::Time;
use crate::program::workloads::{self, Make};
use crate::program::{Neighbour, Recording, Scale};

/// A program on a machine of some configuration, to be swept.
#[derive(Clone, Copy, Debug)]
pub struct Proof {
    protocol: Protocol,
    program: Program,
}

#[derive(Clone, Copy, Debug)]
enum Program {
    /// Drawn, with locks and a barrier: the living end. One node dies, or two or three within one recovery or shortly after one
    /// another, or the second when the recovery from the first is over.
    Drawn { deaths: usize, apart: bool },
    /// A [workload](workloads::ALL), on which so many nodes die within one recovery or shortly after one another.
    Kernel(&'static str, Make, usize),
}

/// Workloads whose threads need nothing of each other to end. In the others some would wait for ever for what the dead were to
/// compute, or compute with what they have left half done, however well that is kept.
const END_ALONE: [&str; 2] = ["ycsb", "raytrace"];

/// How many programs are drawn.
const SEEDS: u64 = 20;

impl Proof {
    /// All: each configuration, with drawn programs and with each kernel; where the living can end, also with several deaths.
    pub fn all() -> Vec<Proof> {
        let drawn = [(1, false), (2, false), (2, true), (3, false)];
        let drawn = drawn.map(|(deaths, apart)| Program::Drawn { deaths, apart });
        let kernels = workloads::ALL.iter().flat_map(|(name, make)| {
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

    /// Its name: the configuration's and the program's.
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

    /// Whether nothing may be lost: not in write-back, which does nothing for that.
    pub fn protects(&self) -> bool {
        self.protocol != Protocol::WriteBack
    }

    /// Whether that is what must be found: nothing wrong; or, if nothing protects, that something was lost, and nothing else wrong.
    pub fn holds(&self, found: &Report) -> bool {
        match self.protects() {
            true => found.failed == 0,
            false => found.lost > 0 && found.failed == found.lost,
        }
    }

    /// Tries so many points, as the seed decides; `progress` is told how many more are done.
    ///
    /// # Errors
    /// If a machine cannot run its program to the end while nobody dies.
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
                // Each meets another machine, and in each configuration another one.
                let place = |known: &(&str, Make)| known.0 == name;
                let kernel = workloads::ALL.iter().position(place).unwrap_or_default();
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

    /// How far the living are to come. Where stores are lost, a lock may never be free again.
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

    /// Four nodes, or one more than replicas, with two cores each and caches of a few lines, so that all that can happen does. The seed decides how far messages
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

impl Report {
    /// Adds what another sweep has found.
    fn add(&mut self, other: Report) {
        self.points += other.points;
        self.events += other.events;
        self.recoveries += other.recoveries;
        self.stores += other.stores;
        self.restored += other.restored;
        self.given_up += other.given_up;
        self.failed += other.failed;
        self.lost += other.lost;
        self.failures.extend(other.failures);
        self.failures.truncate(super::sweep::MOST_KEPT);
    }
}
