//! Locks that outlive their holders.
