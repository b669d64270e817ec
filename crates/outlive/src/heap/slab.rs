//! Small objects: slabs of one size class, each owned by one instance.
