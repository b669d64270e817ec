//! A child dies after its n-th instruction, for every n; a survivor recovers.
