//! The kinds of filesystems, and whether a segment can lie in a file of each; calls on files that a
//! filter may refuse.
//!
//! A segment needs mappings that are coherent between all processes that map the file. Membership
//! additionally needs locks that all of them see, or the knowledge that they do not
//! ([`Segment::has_one_kernel`](super::Segment::has_one_kernel)).
//!
//! * On a network or cluster filesystem each machine maps a page cache of its own: two machines
//!   write to two copies. Its locks may be those of a machine or of the cluster, and survive or
//!   lose their holder by rules of their own. It is refused.
//! * On FUSE a user process fills the page cache. It may serve files of another machine, and its
//!   death turns accesses into SIGBUS. It is refused, unless the file is mapped directly (DAX):
//!   then the mapping is memory that its server provides. So virtiofs with DAX (the mapping is the
//!   host's page cache) and famfs are accepted, as memory that several kernels can map; virtiofs
//!   without DAX is refused.
//! * A filesystem that is not in the table is accepted as memory that several kernels may map.

use super::error::Unsuitable;
use rustix::fs::{
    AtFlags, CWD, Mode, StatxAttributes, StatxFlags, fchmod, fstat, fstatfs, linkat, statx,
};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

pub(super) const TMPFS: u64 = 0x0102_1994;
pub(super) const RAMFS: u64 = 0x8584_58f6;
pub(super) const HUGETLBFS: u64 = 0x9584_58f6;
const FUSE: u64 = 0x6573_5546;

/// The guarantees for mappings and locks of a filesystem's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One kernel at a time mounts it, from memory or disks of its own.
    Local,
    /// A file shares its pages, and not its locks, with the file below it.
    Overlay,
    /// Mappings of several machines are not coherent.
    Remote,
}

/// Numbers of statfs(2), from `linux/magic.h` and, for filesystems outside of the kernel, from
/// coreutils' `stat`.
const TABLE: [(u64, &str, Kind); 35] = [
    (TMPFS, "tmpfs", Kind::Local),
    (RAMFS, "ramfs", Kind::Local),
    (HUGETLBFS, "hugetlbfs", Kind::Local),
    (0xef53, "ext4", Kind::Local),
    (0x5846_5342, "XFS", Kind::Local),
    (0x9123_683e, "Btrfs", Kind::Local),
    (0xf2f5_2010, "F2FS", Kind::Local),
    (0x2fc1_2fc1, "ZFS", Kind::Local),
    (0xca45_1a4e, "bcachefs", Kind::Local),
    (0x794c_7630, "overlayfs", Kind::Overlay),
    (0x6969, "NFS", Kind::Remote),
    (0x517b, "SMB", Kind::Remote),
    (0xff53_4d42, "CIFS", Kind::Remote),
    (0xfe53_4d42, "SMB", Kind::Remote),
    (0x564c, "NCP", Kind::Remote),
    (0x0102_1997, "9p", Kind::Remote),
    (FUSE, "FUSE", Kind::Remote),
    (0x00c3_6400, "Ceph", Kind::Remote),
    (0x5346_414f, "AFS", Kind::Remote),
    (0x6b41_4653, "AFS", Kind::Remote),
    (0x7375_7245, "Coda", Kind::Remote),
    (0x0116_1970, "GFS2", Kind::Remote),
    (0x7461_636f, "OCFS2", Kind::Remote),
    (0x0bd0_0bd0, "Lustre", Kind::Remote),
    (0x4750_4653, "GPFS", Kind::Remote),
    (0x1983_0326, "BeeGFS", Kind::Remote),
    (0x2003_0528, "OrangeFS", Kind::Remote),
    (0xaad7_aaea, "PanFS", Kind::Remote),
    (0x6163_6673, "ACFS", Kind::Remote),
    (0xbeef_dead, "StorNext", Kind::Remote),
    (0x0131_11a8, "IBRIX", Kind::Remote),
    (0xa501_fcf5, "VxFS", Kind::Remote),
    (0xbacb_acbc, "VMware shared folders", Kind::Remote),
    (0x786f_4256, "VirtualBox shared folders", Kind::Remote),
    (0x7c7c_6673, "Parallels shared folders", Kind::Remote),
];

fn find(magic: u64) -> Option<(&'static str, Kind)> {
    let row = TABLE.iter().find(|(other, ..)| *other == magic);
    row.map(|(_, name, kind)| (*name, *kind))
}

/// Returns whether a file on the filesystem `magic` can be mapped by one kernel at a time only.
pub(super) fn is_local(magic: u64) -> bool {
    matches!(find(magic), Some((_, Kind::Local)))
}

/// Returns whether the inode number of a file on the filesystem `magic` distinguishes it from its
/// copies. (A file of an overlay has the number of the file below it.)
pub(super) fn has_inodes(magic: u64) -> bool {
    matches!(find(magic), Some((_, Kind::Local | Kind::Overlay)))
}

/// Returns whether a mapping of a file in `directory` keeps the locks and leases of the description
/// that was mapped. (On an overlay the mapping is of the file below.) `true` if it is not known.
pub(crate) fn mapping_keeps_locks(directory: &Path) -> bool {
    let found = rustix::fs::statfs(directory).map(|found| u64::from(found.f_type as u32));
    !found.is_ok_and(|magic| matches!(find(magic), Some((_, Kind::Overlay))))
}

/// Does the same as [`mapping_keeps_locks`], for an open file.
pub(crate) fn file_keeps_locks(file: &File) -> Result<bool, Errno> {
    Ok(!matches!(find(filesystem(file)?), Some((_, Kind::Overlay))))
}

/// Returns the kernel's number for the kind of filesystem that `file` is on.
pub(super) fn filesystem(file: &File) -> Result<u64, Errno> {
    // The field's type differs between processors; the numbers have 32 bits.
    Ok(u64::from(fstatfs(file)?.f_type as u32))
}

/// Returns whether this process may call linkat(2), which a seccomp filter may refuse.
pub(crate) fn can_link() -> bool {
    // An empty name is refused before anything is done.
    let answer = linkat(CWD, "", CWD, "", AtFlags::empty());
    !matches!(answer, Err(Errno::PERM | Errno::NOSYS))
}

/// Gives `file` the permissions `mode`. Ignores that a filter refuses fchmod(2) if the file has
/// these permissions already.
pub(crate) fn set_mode(file: impl AsFd, mode: u32) -> Result<(), Errno> {
    match fchmod(&file, Mode::from_raw_mode(mode)) {
        Err(Errno::PERM | Errno::NOSYS) if fstat(&file)?.st_mode & 0o777 == mode => Ok(()),
        set => set,
    }
}

/// Returns the word that identifies the file; `None` for a device.
pub(crate) fn file_word(metadata: &Metadata) -> Option<u128> {
    if !metadata.is_file() {
        return None;
    }
    // On filesystems without a time of birth only the inode counts.
    let born = metadata.created().ok();
    let born = born.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |time| time.as_nanos() as u64);
    Some(u128::from(metadata.ino()) << 64 | u128::from(born)).filter(|&word| word != 0)
}

/// Returns whether `recorded` identifies the same file as `own`, which this process has read. A
/// time of birth that the recorder could not read matches any; so does one that this process cannot
/// read, unless it is that the filesystem has none.
pub(crate) fn is_same_file(recorded: u128, own: u128) -> bool {
    let born = |word: u128| word as u64;
    recorded >> 64 == own >> 64
        && (born(recorded) == born(own)
            || born(recorded) == 0
            || born(own) == 0 && !can_read_births())
}

/// Returns whether this process may call statx(2), which a seccomp filter may refuse.
fn can_read_births() -> bool {
    statx(CWD, ".", AtFlags::empty(), StatxFlags::BTIME).is_ok()
}

/// Returns an error for a file whose mappings are not coherent between the processes that can map
/// it.
pub(super) fn refuse_remote(file: &File, path: &Path) -> Result<(), Unsuitable> {
    let unknown = |error| Unsuitable::new(path, format!("its filesystem is not known: {error}"));
    let magic = filesystem(file).map_err(unknown)?;
    let is_direct = magic == FUSE
        && statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::empty())
            .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::DAX));
    match why_not(magic) {
        Some(why) if !is_direct => Err(Unsuitable::new(path, why)),
        _ => Ok(()),
    }
}

/// Returns the reason why a file on the filesystem `magic` cannot hold a segment.
fn why_not(magic: u64) -> Option<String> {
    let (name, Kind::Remote) = find(magic)? else {
        return None;
    };
    Some(format!(
        "it is on {name}, whose mappings are not coherent between machines and whose locks do \
         not prove the death of a process; \
         use a file in /dev/shm for processes of one machine, or a DAX device for several machines"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_time_of_birth_is_not_one_that_has_it() {
        let word = |inode: u128, born: u128| inode << 64 | born;
        assert!(is_same_file(word(12, 7), word(12, 7)));
        assert!(!is_same_file(word(12, 7), word(13, 7)));
        assert!(!is_same_file(word(12, 7), word(12, 8)));
        // The recorder may not have been able to read it; this process can.
        assert!(is_same_file(word(12, 0), word(12, 7)));
        assert!(can_read_births());
        assert!(!is_same_file(word(12, 7), word(12, 0)));
    }

    #[test]
    fn every_filesystem_has_one_row_and_network_filesystems_are_refused_by_name() {
        for (at, (magic, name, kind)) in TABLE.iter().enumerate() {
            assert!(
                TABLE[..at].iter().all(|(other, ..)| other != magic),
                "{name}"
            );
            let why = why_not(*magic);
            assert_eq!(why.is_some(), *kind == Kind::Remote, "{name}");
            assert!(why.is_none_or(|why| why.contains(name) && why.contains("/dev/shm")));
        }
        let (nfs, ext4, overlay, proc) = (0x6969, 0xef53, 0x794c_7630, 0x9fa0);
        assert!(why_not(nfs).is_some() && !is_local(nfs) && !has_inodes(nfs));
        assert!(is_local(ext4) && has_inodes(ext4));
        assert!(!is_local(overlay) && has_inodes(overlay) && why_not(overlay).is_none());
        assert!(!is_local(proc) && !has_inodes(proc) && why_not(proc).is_none());
    }
}
