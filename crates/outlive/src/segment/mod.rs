//! One mapped region of shared memory: backends, superblock, areas, typed roots.
