//! `lupin-table1`: the read latency of this machine's memory, and its bandwidth with three reads to
//! a write (LUPIN's Table 1). It measures local memory and every other memory node, be it another
//! socket's or a CXL module's.
//!
//! *Latency*: one thread follows a chain of lines in random order through much more memory than the
//! caches hold; each load depends on the one before. Huge pages are requested, so that TLB misses
//! are rare. *Bandwidth*: every core reads two streams and overwrites a third with ordinary stores,
//! which read the line as well: three lines read, one written.
//!
//! The paper measured with Intel's Memory Latency Checker. It gives its CXL module relative to
//! local memory only (at its maker's request), and a NUMA machine in absolute numbers.

use crate::row::Row;
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError, clock, machine};
use outlive_run::random::Random;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeSet;
use std::fs;
use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::Barrier;

pub const STUDY: Study = Study {
    name: "lupin-table1",
    about: "latency and bandwidth of this machine's memories (LUPIN Table 1)",
    body: study,
};

const LINE: usize = 64;
const MIB: usize = 1 << 20;

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let size = run.effort().of(4 * MIB, 256 * MIB, 1024 * MIB);
    let rounds = run.effort().of(2, 9, 25);
    let nodes = Nodes::of_this_machine();
    let _here = nodes.near.map(Pinned::to).transpose()?;
    let near = measure(run, "local memory", nodes.near, size, rounds)?;
    run.answer([
        near.latency_row("local memory").paper(73.0),
        near.bandwidth_row("local memory").paper(147.0),
        Row::paper_alone(
            "local memory (a virtual machine does not report its number of channels)",
            "bandwidth of a channel",
            "GB/s",
            18.4,
        ),
    ]);
    for node in &nodes.far {
        let case = format!("memory node {node}, from node {}", nodes.near.unwrap_or(0));
        let far = measure(run, &case, Some(*node), size, rounds)?;
        let ratio = |metric: &str, far: &[f64], near: &[f64], paper| {
            let ratios: Vec<f64> = far.iter().zip(near).map(|(far, near)| far / near).collect();
            Row::new(&case, metric, "of local memory's")
                .ours_within(median_estimate(&ratios))
                .paper(paper)
        };
        run.answer([
            far.latency_row(&case).paper(192.0),
            far.bandwidth_row(&case).paper(47.0),
            ratio("read latency, relative", &far.latency, &near.latency, 2.63),
            ratio("bandwidth, relative", &far.bandwidth, &near.bandwidth, 0.32),
        ]);
    }
    let numa = if nodes.far.is_empty() {
        "another node's memory (this machine has one node)"
    } else {
        "another socket's memory, the paper's Ice Lake"
    };
    let cxl = if nodes.has_cxl {
        "CXL memory, the paper's module (this machine's stands above if it is a memory node)"
    } else {
        "CXL memory (this machine has none)"
    };
    let mut papers = Vec::new();
    if nodes.far.is_empty() {
        papers.extend([
            Row::paper_alone(numa, "read latency", "ns", 192.0),
            Row::paper_alone(numa, "bandwidth", "GB/s", 47.0),
        ]);
    }
    let of = "of local memory's";
    papers.extend([
        Row::paper_alone(numa, "bandwidth of a channel", "GB/s", 5.9),
        Row::paper_alone(numa, "read latency, relative", of, 2.63),
        Row::paper_alone(numa, "bandwidth, relative", of, 0.32),
        Row::paper_alone(cxl, "read latency, relative", of, 2.3),
        Row::paper_alone(cxl, "bandwidth, relative", of, 0.072),
        Row::paper_alone(cxl, "bandwidth of a channel, relative", of, 0.58),
    ]);
    run.answer(papers);
    Ok(())
}

/// The memory nodes of this machine.
struct Nodes {
    /// The node that this process runs on; `None` if the kernel knows of no nodes.
    near: Option<u32>,
    /// The other nodes that have memory.
    far: Vec<u32>,
    has_cxl: bool,
}

impl Nodes {
    fn of_this_machine() -> Self {
        let list = |name| {
            let path = format!("/sys/devices/system/node/{name}");
            parse_list(&fs::read_to_string(path).unwrap_or_default())
        };
        let with_memory = list("has_memory");
        let near = list("has_cpu").intersection(&with_memory).next().copied();
        let cxl = fs::read_dir("/sys/bus/cxl/devices");
        Self {
            near,
            far: with_memory
                .into_iter()
                .filter(|node| Some(*node) != near)
                .collect(),
            has_cxl: cxl.is_ok_and(|mut devices| devices.next().is_some()),
        }
    }
}

/// Parses a list in the kernel's format: `0-1,4`.
fn parse_list(text: &str) -> BTreeSet<u32> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

struct Measured {
    /// Nanoseconds per load, one value per round.
    latency: Vec<f64>,
    /// Gigabytes per second of all cores together, one value per round.
    bandwidth: Vec<f64>,
}

impl Measured {
    fn latency_row(&self, case: &str) -> Row {
        Row::new(case, "read latency", "ns").ours_within(median_estimate(&self.latency))
    }

    fn bandwidth_row(&self, case: &str) -> Row {
        let metric = format!(
            "bandwidth, three reads to a write, {} cores",
            machine::cores()
        );
        Row::new(case, metric, "GB/s").ours_within(median_estimate(&self.bandwidth))
    }
}

fn measure(
    run: &Run<'_>,
    case: &str,
    node: Option<u32>,
    size: usize,
    rounds: usize,
) -> Result<Measured, StudyError> {
    run.begin(case);
    let mut buffer = Buffer::on(node, size)?;
    let chain = Chain::through(&mut buffer);
    let loads = run.effort().of(1_000, 1_000_000, 4_000_000);
    let mut latency = Vec::new();
    for _ in 0..rounds {
        run.go_on()?;
        latency.push(chain.follow(loads));
    }
    drop(buffer);
    let mut bandwidth = Vec::new();
    for _ in 0..rounds {
        run.go_on()?;
        bandwidth.push(stream(node, size / 4)?);
    }
    Ok(Measured { latency, bandwidth })
}

/// Keeps the calling thread on the processors of one node, so that its loads always take the same
/// path.
struct Pinned {
    before: CpuSet,
}

impl Pinned {
    fn to(node: u32) -> Result<Self, StudyError> {
        let list = format!("/sys/devices/system/node/node{node}/cpulist");
        let before = sched_getaffinity(None)
            .map_err(|errno| StudyError::io("asking for the processors")(errno.into()))?;
        let mut here = CpuSet::new();
        for cpu in parse_list(&fs::read_to_string(list).unwrap_or_default()) {
            if before.is_set(cpu as usize) {
                here.set(cpu as usize);
            }
        }
        if here.count() > 0 {
            sched_setaffinity(None, &here)
                .map_err(|errno| StudyError::io("choosing processors")(errno.into()))?;
        }
        Ok(Self { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Restores the previous affinity.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Private memory on one node.
struct Buffer {
    base: NonNull<u8>,
    size: usize,
}

impl Buffer {
    /// Maps and touches `size` bytes on `node`.
    fn on(node: Option<u32>, size: usize) -> Result<Self, StudyError> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at an address of the kernel's choice.
        let base =
            unsafe { mmap_anonymous(core::ptr::null_mut(), size, access, MapFlags::PRIVATE) };
        let base = base.map_err(|errno| StudyError::io("mapping memory")(errno.into()))?;
        let base = NonNull::new(base.cast()).expect("a mapping is not null");
        let buffer = Self { base, size };
        // SAFETY: the mapping is ours; advice changes no content. A kernel without huge pages
        // refuses it, and small pages suffice.
        let _ = unsafe { madvise(base.as_ptr().cast(), size, Advice::LinuxHugepage) };
        if let Some(node) = node {
            bind(&buffer, node)?;
        }
        for at in (0..size).step_by(4096) {
            // SAFETY: inside the mapping, which no other code uses.
            unsafe { base.as_ptr().add(at).write_volatile(1) };
        }
        Ok(buffer)
    }
}

/// Binds `buffer` to `node`; fails if that is not possible.
fn bind(buffer: &Buffer, node: u32) -> Result<(), StudyError> {
    const MPOL_BIND: libc::c_int = 2;
    let mut mask = [0u64; 16];
    let word = mask.get_mut(node as usize / 64);
    *word.ok_or_else(|| StudyError::void(format!("node {node} is beyond the known nodes")))? |=
        1 << (node % 64);
    // SAFETY: the mapping is ours, and the mask lives across the call.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            buffer.base.as_ptr(),
            buffer.size,
            MPOL_BIND,
            mask.as_ptr(),
            64 * mask.len(),
            0,
        )
    };
    if answer == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.raw_os_error() {
        // A container that forbids the call, or a kernel without nodes: node 0 is all memory.
        Some(libc::EPERM | libc::ENOSYS) if node == 0 => Ok(()),
        _ => Err(StudyError::io(format!("binding memory to node {node}"))(
            error,
        )),
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: mapped in `on`, and no longer used.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.size) };
    }
}

/// Lines of a buffer, each with the number of the next, in one random cycle through all of them.
struct Chain<'a> {
    buffer: &'a mut Buffer,
}

impl<'a> Chain<'a> {
    fn through(buffer: &'a mut Buffer) -> Self {
        let lines = buffer.size / LINE;
        // Sattolo's shuffle makes one cycle of all lines.
        let mut next: Vec<u32> = (0..lines as u32).collect();
        let mut random = Random::new(42);
        for line in (1..lines).rev() {
            next.swap(line, random.below(line as u64) as usize);
        }
        for (line, next) in next.iter().enumerate() {
            let at = line * LINE;
            // SAFETY: inside the mapping and aligned; no other code uses it.
            unsafe {
                buffer
                    .base
                    .as_ptr()
                    .add(at)
                    .cast::<u64>()
                    .write(u64::from(*next))
            };
        }
        Self { buffer }
    }

    /// Returns the mean time of `loads` loads in nanoseconds.
    fn follow(&self, loads: u64) -> f64 {
        let base = self.buffer.base.as_ptr();
        let mut line = 0u64;
        let start = clock::now();
        for _ in 0..loads {
            // SAFETY: each line holds the number of a line.
            line = unsafe { base.add(line as usize * LINE).cast::<u64>().read_volatile() };
        }
        black_box(line);
        (clock::now() - start) as f64 / loads as f64
    }
}

/// Returns the GB/s that all cores together move, each with three buffers of `size` bytes.
fn stream(node: Option<u32>, size: usize) -> Result<f64, StudyError> {
    let cores = machine::cores();
    let barrier = Barrier::new(cores);
    let spans: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores)
            .map(|_| scope.spawn(|| one_stream(node, size, &barrier)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread that streams"))
            .collect::<Result<_, StudyError>>()
    })?;
    let start = spans.iter().map(|span| span.0).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.1).max().unwrap_or(1);
    // Two lines read, one read in order to be written, and one written.
    let moved = 4 * size * cores;
    Ok(moved as f64 / (end - start) as f64)
}

fn one_stream(node: Option<u32>, size: usize, barrier: &Barrier) -> Result<(u64, u64), StudyError> {
    let buffers = [(); 3].map(|()| Buffer::on(node, size));
    // Every thread reaches the barrier, even after a failure.
    barrier.wait();
    let [left, right, sum] = buffers;
    let (left, right, sum) = (left?, right?, sum?);
    let words = size / 8;
    // SAFETY: three mappings of `size` bytes that no other code uses, aligned and initialised.
    let (left, right, sum) = unsafe {
        (
            std::slice::from_raw_parts(left.base.as_ptr().cast::<u64>(), words),
            std::slice::from_raw_parts(right.base.as_ptr().cast::<u64>(), words),
            std::slice::from_raw_parts_mut(sum.base.as_ptr().cast::<u64>(), words),
        )
    };
    let start = clock::now();
    for ((sum, left), right) in sum.iter_mut().zip(left).zip(right) {
        *sum = left.wrapping_add(*right);
    }
    black_box(sum);
    Ok((start, clock::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel_are_understood() {
        let nodes = |text| parse_list(text).into_iter().collect::<Vec<_>>();
        assert_eq!(nodes("0-1,4\n"), [0, 1, 4]);
        assert_eq!(nodes("0\n"), [0]);
        assert!(nodes("\n").is_empty());
    }

    #[test]
    fn the_chain_is_one_circle_through_all_lines() {
        let mut buffer = Buffer::on(None, 64 * LINE).unwrap();
        let chain = Chain::through(&mut buffer);
        let mut seen = BTreeSet::new();
        let mut line = 0u64;
        for _ in 0..64 {
            assert!(seen.insert(line), "line {line} came twice");
            // SAFETY: as in `follow`.
            line = unsafe {
                let base = chain.buffer.base.as_ptr();
                base.add(line as usize * LINE).cast::<u64>().read()
            };
        }
        assert_eq!((line, seen.len()), (0, 64));
    }
}
