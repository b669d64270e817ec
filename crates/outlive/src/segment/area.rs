//! The areas of a segment, each with its kind, and the choice of their places.
//!
//! Words that synchronise (generations, logs, locks, heads, bitmaps) are kept apart from bulk
//! payload, because current hardware may be coherent in a small part of its memory only. So every
//! area has a class, areas that synchronise come first in a segment, and all areas begin on pages
//! of their own.

use super::roots::Roots;
use super::superblock::SUPERBLOCK_BYTES;
use core::fmt;
use outlive_memory::{Native, Offset};

/// The contents of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AreaKind {
    /// The table of typed roots. Every segment has one; the builder makes it.
    Roots,
    /// The table of current generations.
    Generations,
    /// The records of instances.
    Instances,
    /// The words of the roles (fabric manager) that members take from one another.
    Roles,
    /// Control groups and their events.
    Groups,
    /// The logs, one for every instance id.
    Logs,
    /// The heap's metadata: trees, bitmaps, locks.
    HeapState,
    /// Heads and tables of structures that have a fixed place.
    Structures,
    /// Bulk payload.
    Payload,
    /// Another area; codes below [`FIRST_OTHER`](Self::FIRST_OTHER) are reserved for Outlive.
    Other(u32),
}

impl AreaKind {
    /// The smallest code that a program may use for areas of its own.
    pub const FIRST_OTHER: u32 = 256;

    /// Returns the number that stands for this kind in a superblock.
    pub const fn code(self) -> u32 {
        match self {
            Self::Roots => 1,
            Self::Generations => 2,
            Self::Instances => 3,
            Self::Roles => 4,
            Self::Groups => 5,
            Self::Logs => 6,
            Self::HeapState => 7,
            Self::Structures => 8,
            Self::Payload => 9,
            Self::Other(code) => code,
        }
    }

    /// Returns the kind with this number; `None` for 0, which is not a kind.
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => return None,
            1 => Self::Roots,
            2 => Self::Generations,
            3 => Self::Instances,
            4 => Self::Roles,
            5 => Self::Groups,
            6 => Self::Logs,
            7 => Self::HeapState,
            8 => Self::Structures,
            9 => Self::Payload,
            other => Self::Other(other),
        })
    }

    /// Returns the name that an area of this kind gets.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Roots => "roots",
            Self::Generations => "generations",
            Self::Instances => "instances",
            Self::Roles => "roles",
            Self::Groups => "groups",
            Self::Logs => "logs",
            Self::HeapState => "heap state",
            Self::Structures => "structures",
            Self::Payload => "payload",
            Self::Other(_) => "other",
        }
    }

    /// Returns the class that an area of this kind has: all but payload synchronises.
    pub const fn class(self) -> AreaClass {
        match self {
            Self::Payload => AreaClass::Payload,
            _ => AreaClass::Synchronises,
        }
    }
}

impl fmt::Display for AreaKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(code) => write!(f, "other {code}"),
            known => f.write_str(known.name()),
        }
    }
}

/// The requirement on the memory under an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AreaClass {
    /// Its words order the accesses of hosts: the memory must be coherent between them.
    Synchronises,
    /// Bulk payload, ordered by words in other areas.
    Payload,
}

impl AreaClass {
    pub(super) const fn code(self) -> u32 {
        match self {
            Self::Synchronises => 1,
            Self::Payload => 2,
        }
    }

    pub(super) const fn from_code(code: u32) -> Option<Self> {
        match code {
            1 => Some(Self::Synchronises),
            2 => Some(Self::Payload),
            _ => None,
        }
    }
}

impl fmt::Display for AreaClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Synchronises => "synchronises",
            Self::Payload => "payload",
        })
    }
}

/// The name of an area: at most 40 bytes of text, kept in place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AreaName([u8; Self::BYTES]);

impl AreaName {
    /// The maximum length of a name in bytes.
    pub const BYTES: usize = 40;

    /// Returns the name `text`; `None` if it is empty, too long or holds a zero byte.
    pub fn new(text: &str) -> Option<Self> {
        if text.is_empty() || text.len() > Self::BYTES || text.contains('\0') {
            return None;
        }
        let mut bytes = [0; Self::BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self(bytes))
    }

    /// Returns the name in these bytes, if they are a name padded with zeros.
    pub(super) fn from_bytes(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let end = bytes
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(Self::BYTES);
        let filled_up = bytes[end..].iter().all(|&byte| byte == 0);
        let text = core::str::from_utf8(&bytes[..end]).ok()?;
        if filled_up { Self::new(text) } else { None }
    }

    pub(super) fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        let end = self
            .0
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(Self::BYTES);
        core::str::from_utf8(&self.0[..end]).expect("checked when it was made")
    }
}

impl fmt::Display for AreaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for AreaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// A part of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The contents. A segment has at most one area of a kind.
    pub kind: AreaKind,
    /// The name in messages.
    pub name: AreaName,
    /// The requirement on the memory under the area.
    pub class: AreaClass,
    /// The start, aligned to 4096.
    pub offset: Offset,
    /// The size in bytes, a multiple of 4096.
    pub size: u64,
}

impl Area {
    /// Returns the byte after the last.
    pub fn end(&self) -> u64 {
        self.offset.byte() + self.size
    }
}

/// The requested size of an area.
#[derive(Clone, Copy, Debug)]
pub enum AreaSize {
    /// This number of bytes, rounded up to whole pages of 4096.
    Bytes(u64),
    /// The rest of the segment, at least one page. At most one area can request it.
    Rest,
    /// The bytes that describe the area that takes the rest.
    OfRest {
        /// The minimal size of the rest in bytes.
        least: u64,
        /// Returns the number of bytes that describe a rest of the given size. It never decreases.
        bytes: fn(u64) -> u64,
    },
}

impl From<u64> for AreaSize {
    fn from(bytes: u64) -> Self {
        Self::Bytes(bytes)
    }
}

/// The reason why no segment can have the requested areas.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A kind was requested twice, or the roots were, which the builder adds.
    #[error("the area `{0}` was requested twice (the builder adds `roots` itself)")]
    Twice(AreaKind),
    /// A program's own area has a code that is Outlive's.
    #[error(
        "the code {0} is reserved; a program's own areas have codes of at least {first}",
        first = AreaKind::FIRST_OTHER
    )]
    ReservedCode(u32),
    /// The name is empty, has more than 40 bytes or holds a zero byte.
    #[error("{0:?} cannot be the name of an area; a name has 1 to 40 bytes, none of them zero")]
    Name(String),
    /// An area of no bytes.
    #[error("the area `{0}` was requested with 0 bytes; request at least 1")]
    Empty(AreaKind),
    /// More areas than a superblock has places for.
    #[error("{wanted} areas were requested; a segment has at most {most}: combine some")]
    TooMany {
        /// The number of areas, including the roots.
        wanted: usize,
        /// The maximum number.
        most: usize,
    },
    /// There is no rest to describe.
    #[error(
        "the area `{0}` describes the rest of the segment, but no area requests the rest; add an \
         area with `AreaSize::Rest`"
    )]
    NoRest(AreaKind),
    /// Two areas request the rest.
    #[error("both `{0}` and `{1}` request the rest of the segment; only one area can")]
    TwoRests(AreaKind, AreaKind),
    /// Neither the request nor the medium has a size.
    #[error("the area `{0}` requests the rest of a segment whose size is not given; call size()")]
    NoSize(AreaKind),
    /// The areas need more than the segment has.
    #[error(
        "the areas need {needed} bytes ({} MiB), but the segment has {size} bytes; request at \
         least {needed} bytes",
        mebibytes(*needed)
    )]
    TooSmall {
        /// Bytes that the superblock and the areas take (one page for an area that takes the rest).
        needed: u64,
        /// The size of the segment.
        size: u64,
    },
    /// The size is more than an offset can name.
    #[error("{0} bytes were requested; a segment has at most {most}", most = Offset::SPAN)]
    TooLarge(u64),
}

/// Returns mebibytes for messages, rounded up so that a segment of this size is large enough.
fn mebibytes(bytes: u64) -> f64 {
    (bytes as f64 / (1 << 20) as f64 * 10.0).ceil() / 10.0
}

/// A requested area.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub kind: AreaKind,
    pub name: String,
    pub class: AreaClass,
    pub size: AreaSize,
}

/// The layout of a segment: its size and its areas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub size: u64,
    pub areas: Vec<Area>,
}

/// Rounds up to whole pages of 4096.
pub(super) fn pages(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(Native::GRANULE)
}

/// Chooses places for the roots and the requested areas in a segment of `size` bytes, or in the
/// smallest one that fits if no size is given. The roots come first, then areas that synchronise,
/// then payload, each class in the order requested.
pub(super) fn plan(
    size: Option<u64>,
    requests: &[Request],
    most: usize,
) -> Result<Plan, LayoutError> {
    let roots = Request {
        kind: AreaKind::Roots,
        name: AreaKind::Roots.name().into(),
        class: AreaClass::Synchronises,
        size: AreaSize::Bytes(Roots::<Native>::BYTES),
    };
    let (synchronise, payload): (Vec<_>, Vec<_>) = requests
        .iter()
        .partition(|request| request.class == AreaClass::Synchronises);
    let wanted: Vec<&Request> = core::iter::once(&roots)
        .chain(synchronise)
        .chain(payload)
        .collect();
    if wanted.len() > most {
        let wanted = wanted.len();
        return Err(LayoutError::TooMany { wanted, most });
    }

    let mut needed = SUPERBLOCK_BYTES;
    let mut rest: Option<AreaKind> = None;
    let (mut described, mut least) = (None, Native::GRANULE);
    for (index, request) in wanted.iter().enumerate() {
        let kind = request.kind;
        if wanted[..index]
            .iter()
            .any(|other| other.kind.code() == kind.code())
        {
            return Err(LayoutError::Twice(kind));
        }
        if let AreaKind::Other(code) = kind
            && code < AreaKind::FIRST_OTHER
        {
            return Err(LayoutError::ReservedCode(code));
        }
        match request.size {
            AreaSize::Bytes(0) => return Err(LayoutError::Empty(kind)),
            AreaSize::Bytes(bytes) => {
                needed = pages(bytes)
                    .and_then(|bytes| needed.checked_add(bytes))
                    .ok_or(LayoutError::TooLarge(bytes))?;
            }
            AreaSize::Rest => {
                if let Some(other) = rest.replace(kind) {
                    return Err(LayoutError::TwoRests(other, kind));
                }
            }
            AreaSize::OfRest { least: bytes, .. } => {
                least = pages(bytes).ok_or(LayoutError::TooLarge(bytes))?.max(least);
                described = Some(kind);
            }
        }
    }
    if let (Some(kind), None) = (described, rest) {
        return Err(LayoutError::NoRest(kind));
    }
    let fixed = needed;
    // The size of the segment with a rest of `bytes` bytes.
    let with_rest = |bytes: u64| {
        let describe = |sum: u64, request: &&Request| match request.size {
            AreaSize::OfRest { bytes: of, .. } => sum.checked_add(pages(of(bytes))?),
            _ => Some(sum),
        };
        wanted.iter().try_fold(fixed.checked_add(bytes)?, describe)
    };
    if rest.is_some() {
        needed = with_rest(least).ok_or(LayoutError::TooLarge(least))?;
    }
    let size = match (size, rest) {
        (Some(size), _) => pages(size).ok_or(LayoutError::TooLarge(size))?,
        (None, None) => needed,
        (None, Some(kind)) => return Err(LayoutError::NoSize(kind)),
    };
    if size > Offset::SPAN || needed > Offset::SPAN {
        return Err(LayoutError::TooLarge(size.max(needed)));
    }
    if needed > size {
        return Err(LayoutError::TooSmall { needed, size });
    }

    // The largest rest that fits, in pages: at least the minimum above, and less than the segment.
    let (mut fits, mut too_many) = (least / Native::GRANULE, size / Native::GRANULE);
    while too_many - fits > 1 {
        let middle = fits.midpoint(too_many);
        match with_rest(middle * Native::GRANULE) {
            Some(needed) if needed <= size => fits = middle,
            _ => too_many = middle,
        }
    }
    let left = fits * Native::GRANULE;

    let mut at = SUPERBLOCK_BYTES;
    let mut areas = Vec::with_capacity(wanted.len());
    for request in wanted {
        let bytes = match request.size {
            AreaSize::Bytes(bytes) => pages(bytes).expect("counted above"),
            AreaSize::Rest => left,
            AreaSize::OfRest { bytes, .. } => pages(bytes(left)).expect("counted above"),
        };
        areas.push(Area {
            kind: request.kind,
            name: AreaName::new(&request.name)
                .ok_or_else(|| LayoutError::Name(request.name.clone()))?,
            class: request.class,
            offset: Offset::new(at),
            size: bytes,
        });
        at += bytes;
    }
    Ok(Plan { size, areas })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(kind: AreaKind, size: AreaSize) -> Request {
        Request {
            kind,
            name: kind.name().into(),
            class: kind.class(),
            size,
        }
    }

    proptest! {
        #[test]
        fn a_plan_has_every_area_apart_and_inside(
            sizes in prop::collection::vec((1u64..100_000, any::<bool>()), 0..20),
            rest in any::<bool>(),
            size in prop::option::of(0u64..4_000_000),
        ) {
            let mut requests: Vec<Request> = sizes
                .iter()
                .enumerate()
                .map(|(index, &(bytes, payload))| Request {
                    class: if payload { AreaClass::Payload } else { AreaClass::Synchronises },
                    ..request(AreaKind::Other(256 + index as u32), AreaSize::Bytes(bytes))
                })
                .collect();
            if rest {
                requests.push(request(AreaKind::Payload, AreaSize::Rest));
            }
            match plan(size, &requests, 32) {
                Ok(plan) => {
                    prop_assert_eq!(plan.areas.len(), requests.len() + 1);
                    let mut at = SUPERBLOCK_BYTES;
                    for pair in plan.areas.windows(2) {
                        prop_assert!(pair[0].class == AreaClass::Synchronises
                            || pair[1].class == AreaClass::Payload);
                    }
                    for area in &plan.areas {
                        prop_assert_eq!(area.offset.byte(), at);
                        prop_assert!(area.size > 0 && area.size % 4096 == 0);
                        at = area.end();
                    }
                    prop_assert!(at <= plan.size);
                    prop_assert!(!rest || at == plan.size);
                    prop_assert!(size.is_none_or(|size| plan.size >= size && plan.size < size + 4096));
                }
                Err(LayoutError::NoSize(_)) => prop_assert!(rest && size.is_none()),
                Err(LayoutError::TooSmall { needed, size: found }) => prop_assert!(needed > found),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    proptest! {
        #[test]
        fn what_describes_the_rest_is_large_enough_for_it_and_wastes_little(size in 0u64..1 << 24) {
            let describe = AreaSize::OfRest { least: 16_384, bytes: |rest| 300 + rest / 50 };
            let requests = [request(AreaKind::HeapState, describe), request(AreaKind::Payload, AreaSize::Rest)];
            match plan(Some(size), &requests, 32) {
                Ok(plan) => {
                    let [.., state, rest] = &plan.areas[..] else { panic!("two areas at least") };
                    prop_assert!(rest.size >= 16_384 && state.size >= 300 + rest.size / 50);
                    prop_assert!(rest.end() <= plan.size && plan.size - rest.end() <= 4096);
                }
                Err(LayoutError::TooSmall { needed, size: found }) => prop_assert!(needed > found),
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }

    #[test]
    fn impossible_areas_are_refused_by_name() {
        let bytes = |kind| request(kind, AreaSize::Bytes(1));
        let plan = |requests: &[Request]| plan(Some(1 << 20), requests, 4).unwrap_err();
        let logs = bytes(AreaKind::Logs);
        assert_eq!(
            plan(&[logs.clone(), logs.clone()]),
            LayoutError::Twice(AreaKind::Logs)
        );
        assert_eq!(
            plan(&[bytes(AreaKind::Roots)]),
            LayoutError::Twice(AreaKind::Roots)
        );
        assert_eq!(
            plan(&[bytes(AreaKind::Other(255))]),
            LayoutError::ReservedCode(255)
        );
        assert_eq!(
            plan(&[request(AreaKind::Logs, AreaSize::Bytes(0))]),
            LayoutError::Empty(AreaKind::Logs)
        );
        assert_eq!(
            plan(&[
                request(AreaKind::Logs, AreaSize::Rest),
                request(AreaKind::Payload, AreaSize::Rest)
            ]),
            LayoutError::TwoRests(AreaKind::Logs, AreaKind::Payload)
        );
        let describe = AreaSize::OfRest {
            least: 1,
            bytes: |rest| rest,
        };
        assert_eq!(
            plan(&[request(AreaKind::HeapState, describe)]),
            LayoutError::NoRest(AreaKind::HeapState)
        );
        assert!(matches!(
            plan(&[request(AreaKind::Logs, AreaSize::Bytes(u64::MAX))]),
            LayoutError::TooLarge(_)
        ));
        let many: Vec<Request> = (256..260)
            .map(|code| bytes(AreaKind::Other(code)))
            .collect();
        assert_eq!(plan(&many), LayoutError::TooMany { wanted: 5, most: 4 });
        let unnamed = Request {
            name: String::new(),
            ..logs
        };
        assert_eq!(plan(&[unnamed]), LayoutError::Name(String::new()));
    }

    #[test]
    fn every_code_is_a_kind_and_comes_back() {
        for code in 1..1000 {
            assert_eq!(AreaKind::from_code(code).map(AreaKind::code), Some(code));
        }
        assert_eq!(AreaKind::from_code(0), None);
    }
}
