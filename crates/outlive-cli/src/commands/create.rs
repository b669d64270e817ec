//! `outlive pod create`.

use super::Which;
use super::watching::Watching;
use crate::amount::{self, Bytes};
use crate::failure::Failure;
use crate::output;
use clap::{Args, ValueEnum};
use humantime::format_duration;
use indicatif::{ProgressBar, ProgressStyle};
use outlive::membership::Generations;
use outlive::memory::PersistenceDomain;
use outlive::pod::{Pod, PodOptions};
use outlive::segment::HugePages;
use serde::Serialize;
use std::path::Path;

/// Arguments of `outlive pod create`. The settings are stored in the pod, and all members use them.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    outlive pod create /dev/shm/demo\n  \
    outlive pod create /dev/shm/big --size 8G --ids 1024 --huge transparent --prefault\n  \
    outlive pod create /dev/dax0.0 --size 16G --real-hosts --fence-command /usr/local/sbin/power-off\n\n\
    The default heartbeat intervals are for hosts on one operating system, whose kernel reports \
    deaths; --real-hosts sets those for hosts on several machines.")]
pub struct Create {
    #[command(flatten)]
    which: Which,
    /// Size of the whole pod with its tables: bytes, or a whole number with K, M, G or T
    #[arg(long, default_value = "64M", value_parser = amount::size)]
    size: u64,
    /// Maximum number of live hosts, processes and threads, all together; each takes about 9 KiB
    #[arg(long, default_value_t = 256,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(Generations::<outlive::memory::Native>::MOST)))]
    ids: u32,
    /// Maximum number of groups whose members receive one another's events, in addition to the
    /// group of all members; not related to the control groups of Linux
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    groups: u32,
    /// Permissions of the new file, octal; users that can open it can join and destroy the pod. The
    /// group and others need both read and write, or neither
    #[arg(long, default_value = "600", value_parser = amount::mode)]
    mode: u32,
    /// Create no heap: the programs that use the pod manage its payload themselves
    #[arg(long)]
    without_heap: bool,
    /// Persistence domain: whether writes in the caches of a failed host survive
    #[arg(long, value_enum, default_value_t = Domain::Flushed)]
    domain: Domain,
    /// Touch all pages now, so that members do not wait for them later
    #[arg(long)]
    prefault: bool,
    /// Kind of pages to request
    #[arg(long, value_enum, default_value_t = Huge::Off)]
    huge: Huge,
    #[command(flatten)]
    watching: Watching,
    /// Overwrite the contents of a device, or an earlier pod in a file that exists; they are lost
    #[arg(long)]
    replace: bool,
    /// Print what was created as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Domain {
    /// Caches survive their host, or are flushed when it fails
    Flushed,
    /// Cache lines that were not written back are lost with their host; refused so far, because the
    /// algorithms are not proven for it
    WriteBack,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Huge {
    /// The kernel's default pages
    Off,
    /// Huge pages where the kernel provides them
    Transparent,
    /// Huge pages that the administrator has reserved, for a file on a hugetlbfs mount
    Reserved,
}

/// The created pod, for JSON.
#[derive(Serialize)]
struct Created<'a> {
    path: &'a Path,
    uuid: String,
    size: u64,
    payload: u64,
    /// The part of the payload that the heap has, in bytes.
    heap: Option<u64>,
    ids: u32,
    groups: u32,
    domain: String,
    pages: String,
}

impl Create {
    pub fn run(self) -> Result<(), Failure> {
        let path = self.which.path();
        if path.to_str().is_some_and(|path| path.starts_with("memfd:")) {
            return Err(Failure::Usage(
                "a memfd exists only as long as the process that creates it, and this command \
                 would end immediately; name a file in /dev/shm"
                    .into(),
            ));
        }
        let bar = self.prefault.then(bar);
        let mut options = PodOptions::new()
            .size(self.size)
            .ids(self.ids)
            .groups(self.groups)
            .mode(self.mode)
            .huge_pages(self.huge.into())
            .replace(self.replace)
            .settings(self.watching.settings())
            .segment(|segment| segment.domain(self.domain.into()));
        if let Some(bar) = &bar {
            options = options.prefault(|done, all| {
                bar.set_length(all);
                bar.set_position(done);
            });
        }
        if self.without_heap {
            options = options.without_heap();
        }
        let created = Pod::create(path, options);
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        self.tell(&created?)
    }

    fn tell(&self, pod: &Pod) -> Result<(), Failure> {
        let segment = pod.segment();
        let created = Created {
            path: self.which.path(),
            uuid: segment.uuid().to_string(),
            size: segment.size(),
            payload: pod.payload().map_or(0, |payload| payload.size),
            heap: pod.heap().map(|heap| heap.buddy().bytes()),
            ids: self.ids,
            groups: self.groups,
            domain: segment.domain().to_string(),
            pages: segment.pages().to_string(),
        };
        if self.json {
            return output::json(&created);
        }
        let settings = pod.settings();
        output::line(format_args!(
            "created the pod {}\n  \
             {} in all, {} {}; {} domain, {}\n  \
             {} ids, {} control groups\n  \
             heartbeats every {}, checked every {}; a host without one for {} is suspected",
            created.path.display(),
            Bytes(created.size),
            Bytes(created.payload),
            match created.heap {
                Some(_) => "of heap",
                None => "for programs, without a heap",
            },
            created.domain,
            created.pages,
            created.ids,
            created.groups,
            format_duration(settings.heartbeat),
            format_duration(settings.poll),
            format_duration(settings.suspicion),
        ))
    }
}

impl From<Domain> for PersistenceDomain {
    fn from(domain: Domain) -> Self {
        match domain {
            Domain::Flushed => Self::Flushed,
            Domain::WriteBack => Self::WriteBack,
        }
    }
}

impl From<Huge> for HugePages {
    fn from(huge: Huge) -> Self {
        match huge {
            Huge::Off => Self::Off,
            Huge::Transparent => Self::Transparent,
            Huge::Reserved => Self::Reserved,
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template(
        "touching pages {wide_bar} {binary_bytes}/{binary_total_bytes} {eta}",
    );
    let bar = ProgressBar::new(0);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
