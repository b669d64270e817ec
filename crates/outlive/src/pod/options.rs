//! The options of a new pod.

use super::PodError;
use crate::membership::{Extent, Settings};
use crate::recovery::Logs;
use crate::segment::{Area, HugePages, Segment, SegmentBuilder};
use core::fmt;
use outlive_memory::Native;

/// The options of a new pod.
///
/// ```
/// use outlive::pod::PodOptions;
/// let options = PodOptions::new().size(64 << 20).ids(128).groups(4);
/// ```
#[derive(Debug)]
#[must_use = "options create nothing until Pod::create() is called"]
pub struct PodOptions<'a> {
    pub(super) segment: SegmentBuilder<'a>,
    pub(super) extent: Extent,
    pub(super) settings: Settings,
    pub(super) heap: bool,
    pub(super) structures: Option<Structures<'a>>,
}

/// The area of a program's tables.
pub(super) struct Structures<'a> {
    pub bytes: u64,
    /// Writes the first contents.
    pub write: Box<dyn FnOnce(Native, Area) + 'a>,
}

impl fmt::Debug for Structures<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Structures({} bytes)", self.bytes)
    }
}

impl Default for PodOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> PodOptions<'a> {
    /// Returns the options of a pod of 64 MiB with 256 ids and 8 groups, for hosts on one operating
    /// system, of the user that creates it.
    pub fn new() -> Self {
        Self {
            segment: Segment::builder().size(64 << 20),
            extent: Extent {
                ids: 256,
                groups: 8,
                events: 1024,
                log_bytes: Logs::<Native>::STRIDE,
            },
            settings: Settings {
                uid: rustix::process::geteuid().as_raw(),
                ..Settings::default()
            },
            heap: true,
            structures: None,
        }
    }

    /// Sets the size in bytes.
    pub fn size(self, bytes: u64) -> Self {
        self.segment(|segment| segment.size(bytes))
    }

    /// Sets the maximum number of hosts, processes and threads at one time; each costs about 9 KiB.
    pub fn ids(mut self, ids: u32) -> Self {
        self.extent.ids = ids;
        self
    }

    /// Sets the maximum number of control groups, in addition to the pod's own.
    pub fn groups(mut self, groups: u32) -> Self {
        self.extent.groups = groups.saturating_add(1);
        self
    }

    /// Sets the number of events that each group keeps for members that lag.
    pub fn events(mut self, events: u32) -> Self {
        self.extent.events = events;
        self
    }

    /// Leaves the payload zeroed, for a program that divides it by itself. Without this option, a
    /// [heap](crate::heap) has all of it.
    pub fn without_heap(mut self) -> Self {
        self.heap = false;
        self
    }

    /// Adds an [area](crate::segment::AreaKind::Structures) of `bytes` bytes for tables of the
    /// program at a fixed place, and writes their first contents with `write`, before any process
    /// can open the pod. The area is zeroed before.
    pub fn structures(mut self, bytes: u64, write: impl FnOnce(Native, Area) + 'a) -> Self {
        let write = Box::new(write);
        self.structures = Some(Structures { bytes, write });
        self
    }

    /// Sets how members watch one another, and the conditions for joining.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the permissions of a new file. Default: 0600.
    pub fn mode(self, mode: u32) -> Self {
        self.segment(|segment| segment.mode(mode))
    }

    /// Sets the pages to ask for.
    pub fn huge_pages(self, huge: HugePages) -> Self {
        self.segment(|segment| segment.huge_pages(huge))
    }

    /// Touches all pages at creation; `progress` gets the bytes done and the total bytes.
    pub fn prefault(self, progress: impl FnMut(u64, u64) + 'a) -> Self {
        self.segment(|segment| segment.prefault(progress))
    }

    /// Allows creation over the contents of a device, or of a file prepared for the pod.
    pub fn replace(self, replace: bool) -> Self {
        self.segment(|segment| segment.replace(replace))
    }

    /// Refuses a pod that no segment can hold, before anything is created.
    pub(super) fn refuse_the_impossible(&self) -> Result<(), PodError> {
        let asked = [
            ("number of ids", u64::from(self.extent.ids), 1, 1 << 16),
            (
                "number of groups",
                u64::from(self.extent.groups),
                1,
                1 << 12,
            ),
            (
                "number of events",
                u64::from(self.extent.events),
                1,
                1 << 20,
            ),
        ];
        for (what, asked, least, most) in asked {
            if !(least..=most).contains(&asked) {
                return Err(PodError::Impossible {
                    what,
                    asked,
                    least,
                    most,
                });
            }
        }
        let (heartbeat, suspicion) = (self.settings.heartbeat, self.settings.suspicion);
        if suspicion < heartbeat * 2 {
            return Err(PodError::Impatient {
                heartbeat,
                suspicion,
            });
        }
        Ok(())
    }

    /// Changes any other option of the segment.
    pub fn segment(
        mut self,
        change: impl FnOnce(SegmentBuilder<'a>) -> SegmentBuilder<'a>,
    ) -> Self {
        self.segment = change(self.segment);
        self
    }
}
