//! The requirements of guests that may be missing: QEMU, a kernel, a shell, and the program that
//! runs in them.

use crate::StudyError;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The environment variable that names a kernel for the guests.
const KERNEL: &str = "OUTLIVE_GUEST_KERNEL";

/// The programs and the kernel of a guest.
pub struct Needs {
    pub qemu: PathBuf,
    pub kernel: PathBuf,
    pub busybox: PathBuf,
    pub outlive: PathBuf,
    pub lab: PathBuf,
}

impl Needs {
    /// Finds them. `lab` is the path of `outlive-lab`, if this process is that command. The command
    /// `outlive` is looked for beside it.
    ///
    /// # Errors
    /// [`StudyError::Missing`], which names everything that is missing, and how to install it.
    pub fn find(lab: Option<&Path>) -> Result<Self, StudyError> {
        if !cfg!(target_arch = "x86_64") {
            let what = "a machine with x86-64 processors, which its guests have";
            return Err(StudyError::Missing { what: what.into() });
        }
        let outlive = lab.map(|lab| lab.with_file_name("outlive"));
        let outlive = outlive.filter(|it| it.is_file());
        let (qemu, kernel, busybox) = (on_path("qemu-system-x86_64"), kernel(), on_path("busybox"));
        let install = |packages| format!("(on Debian: apt-get install {packages})");
        let missing: Vec<String> = [
            (qemu.is_some(), "QEMU ", install("qemu-system-x86")),
            (
                kernel.is_some(),
                "a Linux kernel in /boot that this user can read, or one that OUTLIVE_GUEST_KERNEL names ",
                install("linux-image-cloud-amd64"),
            ),
            (busybox.is_some(), "busybox ", install("busybox-static")),
            (
                outlive.is_some(),
                "the command `outlive` beside `outlive-lab` ",
                "(cargo build --workspace)".into(),
            ),
        ]
        .into_iter()
        .filter(|(is_there, ..)| !is_there)
        .map(|(_, what, how)| format!("{what}{how}"))
        .collect();
        match (qemu, kernel, busybox, outlive, lab) {
            (Some(qemu), Some(kernel), Some(busybox), Some(outlive), Some(lab)) => Ok(Self {
                qemu,
                kernel,
                busybox,
                outlive,
                lab: lab.into(),
            }),
            _ => Err(StudyError::Missing {
                what: missing.join("; "),
            }),
        }
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let places = std::env::split_paths(&path).map(|directory| directory.join(program));
    { places }.find(|place| place.is_file())
}

/// Returns the named kernel; or one in /boot: preferably one for virtual machines, and the last by
/// name.
fn kernel() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(KERNEL) {
        return Some(named.into());
    }
    let all = fs::read_dir("/boot").ok()?.flatten();
    let named = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let kernels = all.filter(|entry| named(entry).starts_with("vmlinuz"));
    let readable = kernels.filter(|entry| File::open(entry.path()).is_ok());
    let best = readable.max_by_key(|entry| (named(entry).contains("cloud"), named(entry)));
    best.map(|entry| entry.path())
}
