//! `outlive pod clean`: side files and cords of pods that no longer exist.

use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use clap::Args;
use outlive::host::{CordEntry, Linux, OsError, SideFileEntry};
use outlive::pod::Pod;
use serde::Serialize;
use std::collections::{HashMap, HashSet};
use std::io::ErrorKind;
use std::path::PathBuf;

/// Arguments of `outlive pod clean`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod clean\n  \
    outlive pod clean --remove\n  \
    outlive pod clean --remove --keep /dev/dax0.0\n\n\
    Every PID namespace that has members in a pod has a side file for the pod in /dev/shm, called \
    outlive.POD.BOOT.NAMESPACES, by which the kernel reports deaths. `outlive pod destroy` removes \
    it. If the pod's file is removed in another way (rm, a reboot of another machine), the side \
    file stays. This command lists the side files, the pods to which they belong, and whether they \
    are in use. It searches for pods in /dev/shm and in the directory of temporary files. Name \
    pods in other directories with --keep: otherwise their side files count as left over while no \
    process uses them. A side file that a process uses is never removed. The cords of hosts (empty \
    files called outlive.POD.cord.HOST.GENERATION.RANDOM, by which processes of other containers \
    kill a host) are listed and removed if neither their pod nor a side file of it was found.\n\n\
    JSON: an array of {path, pod (its identity), found (its path, or null), in_use (null if not \
    known), removed}.")]
pub struct Clean {
    /// Remove the side files of pods that were not found
    #[arg(long)]
    remove: bool,
    /// Paths of pods in other directories, whose side files are kept
    #[arg(long, value_name = "PATH", num_args = 1..)]
    keep: Vec<PathBuf>,
    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Kept {
    path: PathBuf,
    pod: String,
    /// The path where the pod was found.
    found: Option<PathBuf>,
    /// Whether a process uses it, if that is known.
    in_use: Option<bool>,
    removed: bool,
}

impl Clean {
    pub fn run(self) -> Result<(), Failure> {
        // Listed before the pods: otherwise a cord of a pod that is created now would seem to be
        // left over.
        let cords = Linux::cords()?;
        let pods = self.pods()?;
        let mut kept = Vec::new();
        for file in Linux::side_files()? {
            kept.push(self.treat(&file, pods.get(&file.pod))?);
        }
        let has_side_file: HashSet<u128> =
            Linux::side_files()?.iter().map(|file| file.pod).collect();
        for cord in cords {
            // The cords of an existing pod are in use, or its next members remove them.
            if !pods.contains_key(&cord.pod) && !has_side_file.contains(&cord.pod) {
                kept.push(self.treat_cord(cord));
            }
        }
        kept.sort_by(|a, b| a.path.cmp(&b.path));
        if self.json {
            return output::json(&kept);
        }
        let mut table = Table::new(["FILE", "POD", "STATE"]);
        for kept in &kept {
            let pod = match &kept.found {
                Some(path) => path.display().to_string(),
                // A process that uses it has the pod open, whose path was removed or is in another
                // directory.
                None if kept.in_use == Some(true) => "in another directory, or removed".into(),
                None => "not found".into(),
            };
            let state = match (kept.removed, kept.in_use, &kept.found) {
                (true, ..) => "removed",
                (_, Some(true), _) => "in use; stays",
                (_, None, _) => "not known whether it is in use",
                (_, Some(false), Some(_)) => "not in use; its pod exists",
                (_, Some(false), None) => "left over; --remove removes it",
            };
            table.row([kept.path.display().to_string(), pod, state.into()]);
        }
        if table.rows() == 0 {
            return output::line(
                "there are no side files of pods here, and no cords (files by which hosts are killed)",
            );
        }
        table.lines().try_for_each(output::line)
    }

    /// Reports, and on request removes, a cord without a pod and without a side file.
    fn treat_cord(&self, cord: CordEntry) -> Kept {
        Kept {
            removed: self.remove && std::fs::remove_file(&cord.path).is_ok(),
            path: cord.path,
            pod: format!("{:032x}", cord.pod),
            found: None,
            in_use: Some(false),
        }
    }

    fn treat(&self, file: &SideFileEntry, found: Option<&PathBuf>) -> Result<Kept, Failure> {
        let mut kept = Kept {
            path: file.path.clone(),
            pod: format!("{:032x}", file.pod),
            found: found.cloned(),
            in_use: file.is_in_use().ok(),
            removed: false,
        };
        if self.remove && found.is_none() {
            // The pod is looked for again under the file's lock: it may have been created since the
            // first look.
            let is_left_over = || self.pods().is_ok_and(|pods| !pods.contains_key(&file.pod));
            match file.remove_if(is_left_over) {
                // Another process may have removed it.
                Ok(removed) => {
                    kept.removed = removed || !file.path.exists();
                }
                Err(OsError::InUse { .. }) => kept.in_use = Some(true),
                // It belongs to another user. The others are cleaned.
                Err(OsError::Call { source, .. })
                    if source.kind() == ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(kept)
    }

    /// Returns the existing pods by their identity.
    fn pods(&self) -> Result<HashMap<u128, PathBuf>, Failure> {
        let shm = std::fs::read_dir("/dev/shm")
            .map_err(|error| Failure::new(format_args!("/dev/shm cannot be listed: {error}")))?;
        // Where a run creates its pod if /dev/shm is full.
        let elsewhere = std::fs::read_dir(std::env::temp_dir())
            .into_iter()
            .flatten();
        let mut pods: HashMap<_, _> = elsewhere
            .chain(shm)
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()))
            .filter_map(|entry| Some((Pod::number_at(entry.path())?, entry.path())))
            .collect();
        for path in &self.keep {
            let identity = Pod::number_at(path).ok_or_else(|| {
                Failure::new(format_args!(
                    "{}, named by --keep, is not a valid pod; nothing was removed: correct or omit \
                     the path",
                    path.display()
                ))
            })?;
            pods.insert(identity, path.clone());
        }
        Ok(pods)
    }
}
