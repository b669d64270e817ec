//! Memory from a segment: a buddy allocator for large blocks, slabs for small ones, reclamation.
