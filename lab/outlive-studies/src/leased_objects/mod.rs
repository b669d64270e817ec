//! `leased-objects`: put and get of objects of a memory pool.
//!
//! A get leases an object by its name, reads its first byte in place, and gives the lease back. The
//! peers are a file in /dev/shm for each object, which a get opens and maps; Python's shared
//! memory, which does the same; and Ray's object store (plasma), whose objects have a process that
//! serves them. Python's empty call is subtracted. A put copies the bytes; it is compared with a
//! copy to memory that was touched before.

mod python;

use crate::paired::{Comparison, Paired};
use crate::row::{Goal, Row};
use crate::scratch::fresh_path;
use crate::statistics::median_estimate;
use crate::{Run, Study, StudyError};
use outlive_pool::{ObjectStore, Placement, Pool, PoolOptions, Server};
use python::Times;
use rustix::fs::{Mode, OFlags, ftruncate, open, unlink};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::time::Instant;

pub const STUDY: Study = Study {
    name: "leased-objects",
    about: "objects of a memory pool by name: put, and get in place",
    body: study,
};

const SIZES: [(u64, &str); 3] = [(4 << 10, "4 KB"), (1 << 20, "1 MB"), (64 << 20, "64 MB")];

fn void(error: impl std::fmt::Display) -> StudyError {
    StudyError::void(error.to_string())
}

/// A pool with one server in this process, which takes no part in the accesses.
struct Scratch {
    // Dropped in this order.
    objects: ObjectStore,
    _server: Server,
    path: PathBuf,
}

impl Scratch {
    fn new(slice_bytes: u64, bytes: u64, objects: u32) -> Result<Self, StudyError> {
        let path = fresh_path("leased");
        let options = PoolOptions::new().slice_bytes(slice_bytes).objects(objects);
        let pool = Pool::create(&path, options).map_err(void)?;
        let server = pool.serve(bytes, 0).map_err(void)?;
        let objects = { pool.join() }.and_then(|client| client.objects());
        Ok(Self {
            objects: objects.map_err(void)?,
            _server: server,
            path,
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A drop cannot report an error.
        let _ = Pool::destroy(&self.path);
    }
}

/// Returns the nanoseconds that one of `count` calls takes.
fn each(
    count: u64,
    mut call: impl FnMut(u64) -> Result<(), StudyError>,
) -> Result<f64, StudyError> {
    let started = Instant::now();
    for index in 0..count {
        call(black_box(index))?;
    }
    Ok(started.elapsed().as_nanos() as f64 / count as f64)
}

fn get(objects: &ObjectStore, name: &str) -> Result<(), StudyError> {
    let object = objects.get(name).map_err(void)?;
    black_box(object.chunk(0).map_err(void)?[0]);
    Ok(())
}

fn study(run: &mut Run<'_>) -> Result<(), StudyError> {
    let calls = run.effort().of(20, 20_000, 100_000);
    let rounds = run.effort().of(2, 11, 31);
    let sizes = &SIZES[..run.effort().of(2, 3, 3)];
    let mut ours = Vec::new();
    for (bytes, size) in sizes {
        run.begin(&format!("objects of {size}"));
        ours.push(of_size(run, *bytes, size, (calls, rounds))?);
    }
    among_many(run, run.effort().of(50, 10_000, 10_000), calls, rounds)?;
    run.begin("Python");
    let sizes: Vec<_> = sizes.iter().map(|(bytes, _)| *bytes).collect();
    beside_python(run, &sizes, &ours, run.effort().of(5, 200, 1000))
}

/// Measures objects of one size beside files, and returns the times of ours.
fn of_size(
    run: &mut Run<'_>,
    bytes: u64,
    size: &str,
    (calls, rounds): (u64, usize),
) -> Result<Times, StudyError> {
    let scratch = Scratch::new(bytes.min(2 << 20), 3 * bytes, 64)?;
    let (objects, data) = (&scratch.objects, vec![7; bytes as usize]);
    let file = fresh_path("leased-file");
    objects.put("object", &data, Placement::Any).map_err(void)?;
    File::put(&file, &data)?;
    let gets = Paired::measure(
        run,
        rounds,
        || each(calls, |_| get(objects, "object")),
        || each((calls / 10).max(1), |_| File::get(&file, bytes as usize)),
    );
    let _ = unlink(&file);
    let gets = gets?;
    let case = format!("an object of {size}");
    let is_bar = bytes == 1 << 20;
    let row = Row::new(&case, "time of a get and its end", "ns");
    let row = row.ours_within(median_estimate(&gets.ours));
    let row = match is_bar {
        true => row.goal(Goal::ours_at_most(1000.0)),
        false => row,
    };
    let comparison = |metric, peer, goal| Comparison {
        case: &case,
        metric,
        unit: "ns",
        peer,
        paper: None,
        goal,
    };
    let beside = comparison("time of a get", "a file in /dev/shm", None).rows(&gets);
    run.answer([row].into_iter().chain(beside));
    // So many calls that a round takes some milliseconds.
    let puts = (calls * (4 << 10) / bytes / 16).max(1);
    let mut copy = vec![1; bytes as usize];
    let put = Paired::measure(
        run,
        rounds,
        || {
            each(puts, |index| {
                let name = if index % 2 == 0 { "even" } else { "odd" };
                objects.put(name, &data, Placement::Any).map_err(void)?;
                objects.delete(name).map_err(void)
            })
        },
        || {
            each(puts, |_| {
                black_box(&mut copy).copy_from_slice(black_box(&data));
                Ok(())
            })
        },
    )?;
    let goal = (bytes == 64 << 20).then(|| Goal::ratio_at_most(1.0 / 0.9));
    let metric = "time of a put and a deletion";
    run.answer(comparison(metric, "a copy to memory in use", goal).rows(&put));
    Ok(Times {
        put: median_estimate(&put.ours).value,
        get: median_estimate(&gets.ours).value,
    })
}

/// Measures a get of one of many objects.
fn among_many(run: &mut Run<'_>, names: u64, calls: u64, rounds: usize) -> Result<(), StudyError> {
    run.begin(&format!("one of {names} objects"));
    let scratch = Scratch::new(4 << 10, names << 12, names as u32)?;
    let all: Vec<String> = (0..names).map(|name| format!("object {name}")).collect();
    for name in &all {
        { scratch.objects.put(name, &[1; 4096], Placement::Any) }.map_err(void)?;
    }
    let mut took = Vec::new();
    for _ in 0..rounds {
        run.go_on()?;
        took.push(each(calls, |index| {
            get(&scratch.objects, &all[(index * 7919 % names) as usize])
        })?);
    }
    let case = format!("one of {names} objects of 4 KB");
    let row = Row::new(case, "time of a get and its end", "ns");
    run.answer([row.ours_within(median_estimate(&took))]);
    Ok(())
}

/// Compares the times of ours with those of Python's stores, which are measured once.
fn beside_python(
    run: &mut Run<'_>,
    sizes: &[u64],
    ours: &[Times],
    calls: u64,
) -> Result<(), StudyError> {
    let Some(found) = python::measure(run, calls, sizes)? else {
        let row = Row::new(
            "Python (not measured: there is none)",
            "time of a get",
            "ns",
        );
        run.answer([Row { how: None, ..row }]);
        return Ok(());
    };
    let mut rows = Vec::new();
    for (number, bytes) in sizes.iter().enumerate() {
        let case = format!("an object of {}", SIZES[number].1);
        let peers = [
            ("Python's shared memory", Some(&found.shared_memory)),
            ("Ray's object store", found.plasma.as_ref()),
        ];
        for (peer, times) in peers {
            let Some(times) = times.and_then(|times| times.get(bytes)) else {
                continue;
            };
            for (metric, ours, peers) in [
                ("time of a get", ours[number].get, times.get),
                ("time of a put", ours[number].put, times.put),
            ] {
                rows.push(Row::new(&case, metric, "ns").ours(ours).peer(peer, peers));
            }
        }
    }
    if found.plasma.is_none() {
        let row = Row::new(
            "Ray (not measured: no Python with it)",
            "time of a get",
            "ns",
        );
        rows.push(Row { how: None, ..row });
    }
    run.answer(rows);
    Ok(())
}

/// An object in a file of its own.
struct File;

impl File {
    fn put(path: &Path, data: &[u8]) -> Result<(), StudyError> {
        let failed = |errno: rustix::io::Errno| StudyError::io("writing a file")(errno.into());
        let flags = OFlags::CREATE | OFlags::RDWR;
        let file = open(path, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        ftruncate(&file, data.len() as u64).map_err(failed)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file of this process, of this size.
        unsafe {
            let at = mmap(
                null_mut(),
                data.len(),
                protection,
                MapFlags::SHARED,
                &file,
                0,
            );
            let at = at.map_err(failed)?;
            at.cast::<u8>()
                .copy_from_nonoverlapping(data.as_ptr(), data.len());
            munmap(at, data.len()).map_err(failed)
        }
    }

    fn get(path: &Path, len: usize) -> Result<(), StudyError> {
        let failed = |errno: rustix::io::Errno| StudyError::io("mapping a file")(errno.into());
        let file = open(path, OFlags::RDONLY, Mode::empty()).map_err(failed)?;
        // SAFETY: a new mapping of a file of this process, which has this size.
        unsafe {
            let at = mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0);
            let at = at.map_err(failed)?;
            black_box(at.cast::<u8>().read_volatile());
            munmap(at, len).map_err(failed)
        }
    }
}
