//! The operations that dead instances are found in: their kinds, arguments and crash points.

use crate::recovery::OperationKind;
use outlive_memory::crash_points;

/// Makes a structure. Arguments: the header, the cell.
pub(super) const CREATE: OperationKind = OperationKind::new(0x200);
/// Inserts a node. Arguments: the structure, the node.
pub(super) const INSERT: OperationKind = OperationKind::new(0x201);
/// Removes a node. Arguments: the structure, the node. Note: its value's word.
pub(super) const REMOVE: OperationKind = OperationKind::new(0x202);
/// Replaces a value. Arguments: the structure, the node, the new block. Note: the old value's word.
pub(super) const REPLACE: OperationKind = OperationKind::new(0x203);
/// Opens a group of buckets. Arguments: the structure, the first of them. Note: the one that it is at, once the group
/// is claimed.
pub(super) const OPEN_BUCKETS: OperationKind = OperationKind::new(0x204);
/// Adds a page to the directory. Arguments: the structure, the link to it, the page.
pub(super) const ADD_PAGE: OperationKind = OperationKind::new(0x205);

/// The hand that nodes, value blocks and headers are allocated into.
pub(super) const BLOCK_HAND: u64 = 0;
/// The hand that pages of the directory are allocated into.
pub(super) const PAGE_HAND: u64 = 1;

crash_points! {
    /// Where the making of a structure may be cut short.
    pub enum CreatePoint for "structure.create" {
        /// The header is written.
        Filled,
        /// The cell leads to it.
        Published,
        /// The hand is empty.
        Released,
    }
}

crash_points! {
    /// Where an insertion may be cut short.
    pub enum InsertPoint for "structure.insert" {
        /// The node is written; nobody can reach it.
        Filled,
        /// It is linked: the insertion took effect.
        Linked,
        /// The hand is empty.
        Released,
    }
}

crash_points! {
    /// Where a removal may be cut short.
    pub enum RemovePoint for "structure.remove" {
        /// The value is noted; nothing has happened.
        Noted,
        /// The node is sealed: the removal took effect.
        Sealed,
        /// It is marked: nothing is linked behind it any more.
        Marked,
        /// Nobody can reach it any more.
        Unlinked,
        /// Its last value's block is retired.
        ValueRetired,
        /// It is retired.
        Retired,
    }
}

crash_points! {
    /// Where a replacement of a value may be cut short.
    pub enum ReplacePoint for "structure.replace" {
        /// The new block is written; nobody can reach it.
        Filled,
        /// The old value is noted, and its block says that it was seen.
        Noted,
        /// The new value is in place: the replacement took effect.
        Replaced,
        /// The hand is empty.
        Released,
        /// The old block is retired.
        Retired,
    }
}

crash_points! {
    /// Where the opening of a group of buckets may be cut short.
    pub enum OpenBucketsPoint for "map.open_buckets" {
        /// The group is claimed.
        Claimed,
        /// The next bucket is noted; those before it are open.
        Noted,
        /// The bucket leads to what will follow it.
        Aimed,
        /// It is linked into the list.
        Linked,
        /// It is open.
        Opened,
    }
}

crash_points! {
    /// Where the growth of the directory may be cut short.
    pub enum AddPagePoint for "map.add_page" {
        /// The page is written; nobody can reach it.
        Filled,
        /// It is linked.
        Linked,
        /// The hand is empty.
        Released,
    }
}

crash_points! {
    /// Where the doubling of the number of buckets may be cut short.
    pub enum DoublePoint for "map.double" {
        /// There are twice as many.
        Doubled,
    }
}
