//! What a dead instance began is finished or undone: logs and the claim on them.
