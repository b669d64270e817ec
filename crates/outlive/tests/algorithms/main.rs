//! The algorithms on private memory: the allocators, the structures, the locks, recovery, named
//! objects and the event log of groups, against models and under deaths at chosen accesses.

mod buddy;
mod object_world;
mod pod;
mod reclaim;
mod structures;

mod heap_buddy;
mod heap_buddy_cut;
mod heap_reclaim;
mod heap_revisit;
mod heap_slab;
mod membership_groups;
mod objects;
mod objects_name_lock;
mod recovery_cut;
mod structures_destroy;
mod structures_eras;
mod structures_group;
mod structures_map;
mod structures_model;
mod structures_threads;
mod sync_barrier;
mod sync_cut;
mod sync_threads;
