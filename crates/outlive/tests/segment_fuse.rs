//! A file on FUSE is refused as a segment: a small FUSE server in a mount namespace of its own
//! stands in for sshfs, or virtiofs without DAX. The other network filesystems are rows of the same
//! table (`src/segment/filesystem.rs`).

use outlive::segment::{CreateError, OpenError, Segment};
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Serves a directory with the file `pod`, in which files can be created and removed.
struct Server {
    device: File,
    has_created: Arc<AtomicBool>,
}

const ROOT: u64 = 1;
const POD: u64 = 2;
const CREATED: u64 = 3;

fn attributes(node: u64) -> Vec<u8> {
    let (mode, size) = match node {
        ROOT => (libc::S_IFDIR | 0o755, 0u64),
        _ => (libc::S_IFREG | 0o600, 1 << 20),
    };
    let mut bytes = Vec::new();
    for field in [node, size, size / 512, 0, 0, 0] {
        bytes.extend(field.to_ne_bytes());
    }
    for field in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0u32] {
        bytes.extend(field.to_ne_bytes());
    }
    bytes
}

/// An answer to LOOKUP: nothing in it stays valid.
fn entry(node: u64) -> Vec<u8> {
    let mut bytes = node.to_ne_bytes().to_vec();
    bytes.resize(40, 0);
    bytes.extend(attributes(node));
    bytes
}

impl Server {
    fn serve(mut self) {
        let mut request = vec![0; 1 << 20];
        // Ends when the filesystem is unmounted, with the namespace.
        while let Ok(length) = self.device.read(&mut request) {
            let request = &request[..length];
            let opcode = u32::from_ne_bytes(request[4..8].try_into().unwrap());
            let unique: [u8; 8] = request[8..16].try_into().unwrap();
            let node = u64::from_ne_bytes(request[16..24].try_into().unwrap());
            let (error, body) = match self.answer(opcode, node, &request[40..]) {
                Ok(Some(body)) => (0, body),
                Ok(None) => continue,
                Err(error) => (-error, Vec::new()),
            };
            let mut reply = (16 + body.len() as u32).to_ne_bytes().to_vec();
            reply.extend(error.to_ne_bytes());
            reply.extend(unique);
            reply.extend(body);
            let _ = self.device.write_all(&reply);
        }
    }

    /// The body of the answer, no answer, or an error: by the numbers of `linux/fuse.h`.
    fn answer(&self, opcode: u32, node: u64, body: &[u8]) -> Result<Option<Vec<u8>>, i32> {
        let opened = || vec![0; 16];
        Ok(Some(match opcode {
            // LOOKUP
            1 if body == b"pod\0" => entry(POD),
            1 if body == b"new\0" && self.has_created.load(Ordering::Relaxed) => entry(CREATED),
            1 => return Err(libc::ENOENT),
            // FORGET, INTERRUPT, BATCH_FORGET
            2 | 36 | 42 => return Ok(None),
            // GETATTR, SETATTR
            3 | 4 => [vec![0; 16], attributes(node)].concat(),
            // UNLINK
            10 => {
                self.has_created.store(false, Ordering::Relaxed);
                Vec::new()
            }
            // OPEN, OPENDIR
            14 | 27 => opened(),
            // READ: zeros; they would be refused as well, but for another reason.
            15 => vec![0; 4096],
            // WRITE
            16 => [&body[16..20], &[0; 4]].concat(),
            17 => vec![0; 80],               // STATFS
            18 | 25 | 29 | 34 => Vec::new(), // RELEASE, FLUSH, RELEASEDIR, ACCESS
            // INIT: protocol 7.31
            26 => {
                let mut init = [7u32, 31, 4096, 0, 0, 64 << 10, 1]
                    .map(u32::to_ne_bytes)
                    .concat();
                init.resize(64, 0);
                init
            }
            // CREATE
            35 => {
                self.has_created.store(true, Ordering::Relaxed);
                [entry(CREATED), opened()].concat()
            }
            _ => return Err(libc::ENOSYS),
        }))
    }
}

/// Mounts the server at `point`, for the calling thread alone. `None` if that is not possible here.
fn mount(point: &Path) -> Option<Arc<AtomicBool>> {
    let device = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .ok()?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0",
        device.as_raw_fd()
    );
    let (point, options) = (
        CString::new(point.to_str()?).ok()?,
        CString::new(options).ok()?,
    );
    let fuse = c"fuse".as_ptr();
    // SAFETY: all are strings that end in zero; the namespace is this thread's.
    let mounted = unsafe {
        let none = std::ptr::null();
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                none,
                c"/".as_ptr(),
                none,
                libc::MS_REC | libc::MS_PRIVATE,
                none.cast(),
            ) == 0
            && libc::mount(fuse, point.as_ptr(), fuse, 0, options.as_ptr().cast()) == 0
    };
    if !mounted {
        return None;
    }
    let has_created = Arc::new(AtomicBool::new(false));
    let server = Server {
        device,
        has_created: Arc::clone(&has_created),
    };
    std::thread::spawn(|| server.serve());
    Some(has_created)
}

#[test]
fn a_file_on_fuse_is_refused_when_it_is_opened_and_when_it_is_created() {
    let (done, ended) = channel();
    let tester = std::thread::spawn(move || {
        let point = tempfile::tempdir().unwrap();
        let Some(has_created) = mount(point.path()) else {
            println!("skipped: FUSE cannot be mounted here (needs root and /dev/fuse)");
            return done.send(()).unwrap();
        };
        let said = |why: String| {
            assert!(
                why.contains("it is on FUSE") && why.contains("/dev/shm"),
                "{why}"
            )
        };
        match Segment::open(point.path().join("pod")) {
            Err(OpenError::Unsuitable(why)) => said(why.to_string()),
            other => panic!("{other:?}"),
        }
        for (name, replace) in [("new", false), ("pod", true)] {
            let builder = Segment::builder().size(1 << 20).replace(replace);
            match builder.create(point.path().join(name)) {
                Err(CreateError::Unsuitable(why)) => said(why.to_string()),
                other => panic!("{other:?}"),
            }
        }
        assert!(
            !has_created.load(Ordering::Relaxed),
            "the new file was left behind"
        );
        // SAFETY: a string that ends in zero.
        unsafe {
            libc::umount2(
                CString::new(point.path().to_str().unwrap())
                    .unwrap()
                    .as_ptr(),
                libc::MNT_DETACH,
            )
        };
        done.send(()).unwrap();
    });
    // Dropped by a panic of the tester, too.
    if ended.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        panic!("not within {LIMIT:?}");
    }
    tester.join().unwrap();
}
