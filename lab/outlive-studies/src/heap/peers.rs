//! The peers in shared memory, behind a few functions in C++ and C (`peers/`).
//!
//! Their files are named after the stage's pod. The leader of the stage removes them.

use super::turnover::{Blocks, IN_USE};
use crate::stage::{Bench, CELLS_EACH};
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::Mutex;

/// The memory of each peer in bytes, of which it uses as much as it needs.
const SIZE: usize = 64 << 20;
/// The maximum number of threads that have cells in a pool.
const WORKERS: u64 = 64;

unsafe extern "C" {
    fn outlive_boost_open(name: *const c_char, size: usize) -> *mut c_void;
    fn outlive_boost_allocate(segment: *mut c_void, bytes: usize) -> *mut c_void;
    fn outlive_boost_free(segment: *mut c_void, block: *mut c_void);
    fn outlive_boost_close(segment: *mut c_void);
    fn outlive_boost_remove(name: *const c_char);
    fn outlive_pmemobj_load() -> c_int;
    fn outlive_pmemobj_create(path: *const c_char, size: usize) -> *mut c_void;
    fn outlive_pmemobj_close(pool: *mut c_void);
    fn outlive_pmemobj_cells(pool: *mut c_void, count: usize) -> *mut c_void;
    fn outlive_pmemobj_allocate(
        pool: *mut c_void,
        cells: *mut c_void,
        cell: usize,
        bytes: usize,
    ) -> c_int;
    fn outlive_pmemobj_free(cells: *mut c_void, cell: usize);
}

fn named(pod: &str, what: &str) -> CString {
    CString::new(format!("{pod}-{what}")).expect("a path without a zero in it")
}

/// Returns the name of Boost's segment for a pod. It has no directory: that of all such segments is
/// the pod's.
fn boost_name(pod: &str) -> CString {
    named(pod.rsplit('/').next().unwrap_or(pod), "boost")
}

/// Boost.Interprocess's managed_shared_memory, opened by each worker.
pub struct Boost {
    segment: *mut c_void,
    places: Vec<Cell<*mut c_void>>,
}

impl Boost {
    pub fn of(bench: &Bench) -> Self {
        let name = boost_name(bench.pod());
        // SAFETY: a zero-terminated string.
        let segment = unsafe { outlive_boost_open(name.as_ptr(), SIZE) };
        assert!(!segment.is_null(), "managed_shared_memory opens");
        let places = vec![Cell::new(std::ptr::null_mut()); IN_USE as usize];
        Self { segment, places }
    }
}

impl Drop for Boost {
    fn drop(&mut self) {
        // SAFETY: opened in `of`, closed once.
        unsafe { outlive_boost_close(self.segment) };
    }
}

impl Blocks for Boost {
    #[inline(always)]
    fn allocate(&self, place: u64, bytes: u64) {
        // SAFETY: an open segment.
        let block = unsafe { outlive_boost_allocate(self.segment, bytes as usize) };
        assert!(!block.is_null(), "there is free space");
        self.places[place as usize].set(block);
    }

    #[inline(always)]
    fn free(&self, place: u64, _: u64) {
        let block = self.places[place as usize].get();
        // SAFETY: allocated from this segment, and freed once.
        unsafe { outlive_boost_free(self.segment, block) };
    }
}

/// A pool of libpmemobj, which only one process at a time can open, for all threads of the process.
pub struct Pmemobj {
    pool: *mut c_void,
    cells: *mut c_void,
    first: u64,
}

/// The open pool, and the pod that it belongs to.
struct Open {
    pod: String,
    pool: *mut c_void,
    cells: *mut c_void,
}

// SAFETY: several threads may use a pool of libpmemobj; each cell belongs to one thread.
unsafe impl Send for Open {}

static OPEN: Mutex<Option<Open>> = Mutex::new(None);

impl Pmemobj {
    pub fn of(bench: &Bench) -> Self {
        let mut open = OPEN.lock().expect("no thread panicked while it held this");
        let open = open.get_or_insert_with(|| Open::new(bench.pod()));
        assert_eq!(open.pod, bench.pod(), "one stage at a time");
        Self {
            pool: open.pool,
            cells: open.cells,
            first: bench.index() * CELLS_EACH,
        }
    }
}

impl Open {
    fn new(pod: &str) -> Self {
        // SAFETY: at this time other threads access the environment only by the standard library.
        unsafe {
            // libpmemobj must take /dev/shm for persistent memory that needs no flush, as our pods
            // do.
            std::env::set_var("PMEM_IS_PMEM_FORCE", "1");
            std::env::set_var("PMEM_NO_FLUSH", "1");
        }
        let path = named(pod, "pmemobj");
        // SAFETY: a zero-terminated string; the pool is open before it is asked for cells.
        unsafe {
            assert_eq!(outlive_pmemobj_load(), 0, "libpmemobj.so.1 is there");
            let pool = outlive_pmemobj_create(path.as_ptr(), SIZE);
            assert!(!pool.is_null(), "a pool of libpmemobj is created");
            let cells = outlive_pmemobj_cells(pool, (WORKERS * CELLS_EACH) as usize);
            let pod = pod.to_owned();
            Self { pod, pool, cells }
        }
    }
}

impl Blocks for Pmemobj {
    #[inline(always)]
    fn allocate(&self, place: u64, bytes: u64) {
        let cell = (self.first + place) as usize;
        // SAFETY: an open pool, and a cell of this worker.
        let failed =
            unsafe { outlive_pmemobj_allocate(self.pool, self.cells, cell, bytes as usize) };
        assert_eq!(failed, 0, "there is free space");
    }

    #[inline(always)]
    fn free(&self, place: u64, _: u64) {
        // SAFETY: a cell of this worker that names a block.
        unsafe { outlive_pmemobj_free(self.cells, (self.first + place) as usize) };
    }
}

/// The peers' files beside a pod. The leader drops this when no worker uses them any more; the drop
/// removes them.
pub struct Beside {
    boost: CString,
    pmemobj: CString,
}

impl Beside {
    pub fn pod(pod: &str) -> Self {
        Self {
            boost: boost_name(pod),
            pmemobj: named(pod, "pmemobj"),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Ok(mut open) = OPEN.lock()
            && let Some(open) = open.take()
        {
            // SAFETY: opened once, and no longer used: the stage's rounds are over.
            unsafe { outlive_pmemobj_close(open.pool) };
        }
        // SAFETY: a zero-terminated string.
        unsafe { outlive_boost_remove(self.boost.as_ptr()) };
        remove(&self.pmemobj);
    }
}

fn remove(path: &CStr) {
    use std::os::unix::ffi::OsStrExt;
    // The file need not exist.
    let _ = std::fs::remove_file(std::ffi::OsStr::from_bytes(path.to_bytes()));
}
