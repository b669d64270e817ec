//! The operations on structures that recovery may find running: kinds, arguments and crash points.

use crate::recovery::OperationKind;
use crate::recovery::kinds::{CoreOperation, PendingAllocation};
use outlive_memory::crash_points;

/// Creates a structure. Arguments: the header, the cell.
pub(super) const CREATE: OperationKind = CoreOperation::CreateStructure.kind();
/// Inserts a node. Arguments: the structure, the node.
pub(super) const INSERT: OperationKind = CoreOperation::InsertNode.kind();
/// Removes a node. Arguments: the structure, the node. Note: its value's word.
pub(super) const REMOVE: OperationKind = CoreOperation::RemoveNode.kind();
/// Replaces a value. Arguments: the structure, the node, the new block. Note: the old value's word.
pub(super) const REPLACE: OperationKind = CoreOperation::ReplaceValue.kind();
/// Opens a group of buckets. Arguments: the structure, the first of them. Note: the current bucket,
/// once the group is claimed.
pub(super) const OPEN_BUCKETS: OperationKind = CoreOperation::OpenBuckets.kind();
/// Adds a page to the directory. Arguments: the structure, the link to it, the page.
pub(super) const ADD_PAGE: OperationKind = CoreOperation::AddPage.kind();

/// The pending-allocation cell of nodes, value blocks and headers.
pub(super) const BLOCK_CELL: u64 = PendingAllocation::StructureBlock as u64;
/// The pending-allocation cell of pages of the directory.
pub(super) const PAGE_CELL: u64 = PendingAllocation::DirectoryPage as u64;

crash_points! {
    /// The crash points of the creation of a structure.
    pub enum CreatePoint for "structure.create" {
        /// The header is written.
        Filled,
        /// The cell leads to the header.
        Published,
        /// The pending-allocation cell is cleared.
        Released,
    }
}

crash_points! {
    /// The crash points of an insertion.
    pub enum InsertPoint for "structure.insert" {
        /// The node is written, but not reachable.
        Filled,
        /// The node is linked: the insertion took effect.
        Linked,
        /// The pending-allocation cell is cleared.
        Released,
    }
}

crash_points! {
    /// The crash points of a removal.
    pub enum RemovePoint for "structure.remove" {
        /// The value is noted; nothing has happened.
        Noted,
        /// The node is sealed: the removal took effect.
        Sealed,
        /// The node is marked: no other node is linked behind it any more.
        Marked,
        /// The node is no longer reachable.
        Unlinked,
        /// The block of the node's last value is retired.
        ValueRetired,
        /// The node is retired.
        Retired,
    }
}

crash_points! {
    /// The crash points of a replacement of a value.
    pub enum ReplacePoint for "structure.replace" {
        /// The new block is written, but not reachable.
        Filled,
        /// The old value is noted, and its block is marked as seen.
        Noted,
        /// The new value is in place: the replacement took effect.
        Replaced,
        /// The pending-allocation cell is cleared.
        Released,
        /// The old block is retired.
        Retired,
    }
}

crash_points! {
    /// The crash points of the opening of a group of buckets.
    pub enum OpenBucketsPoint for "map.open_buckets" {
        /// The group is claimed.
        Claimed,
        /// The next bucket is noted; those before it are open.
        Noted,
        /// The bucket leads to its future successor.
        Aimed,
        /// The bucket is linked into the list.
        Linked,
        /// The bucket is open.
        Opened,
    }
}

crash_points! {
    /// The crash points of the growth of the directory.
    pub enum AddPagePoint for "map.add_page" {
        /// The page is written, but not reachable.
        Filled,
        /// The page is linked.
        Linked,
        /// The pending-allocation cell is cleared.
        Released,
    }
}

crash_points! {
    /// The crash points of the doubling of the number of buckets.
    pub enum DoublePoint for "map.double" {
        /// The number of buckets is doubled.
        Doubled,
    }
}
