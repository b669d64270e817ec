//! Caches are lost: every set of lines that may be missing is tried.
