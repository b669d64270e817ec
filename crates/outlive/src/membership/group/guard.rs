//! Guards of groups: they protect against mistakes, not against malice (for that, there is the
//! file's mode).

use outlive_memory::{Memory, Offset, Ordering};
use sha2::{Digest, Sha256};

/// The requirements of a group for a joining member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The required user.
    pub uid: Option<u32>,
    /// The required group of users.
    pub gid: Option<u32>,
    /// The required secret. The segment holds a salted SHA-256 of it.
    pub secret: Option<Vec<u8>>,
}

/// The credentials of a joining member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The effective user of the process.
    pub uid: u32,
    /// The effective group of the process.
    pub gid: u32,
    /// The secret, if the group may require one.
    pub secret: Option<Vec<u8>>,
}

const ASKS_UID: u64 = 1;
const ASKS_GID: u64 = 2;
const ASKS_SECRET: u64 = 4;

fn digest(salt: u128, secret: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(salt.to_le_bytes());
    hash.update(secret);
    hash.finalize().into()
}

impl Guard {
    /// Writes the guard into the group's slot at `at`, which only its creator accesses yet.
    pub(super) fn write<M: Memory>(&self, memory: M, at: Offset) {
        let mut asks = 0;
        let mut who = 0u64;
        if let Some(uid) = self.uid {
            asks |= ASKS_UID;
            who |= u64::from(uid);
        }
        if let Some(gid) = self.gid {
            asks |= ASKS_GID;
            who |= u64::from(gid) << 32;
        }
        if let Some(secret) = &self.secret {
            asks |= ASKS_SECRET;
            let salt = uuid::Uuid::new_v4().as_u128();
            memory.store(at + 96, salt as u64, Ordering::Relaxed);
            memory.store(at + 104, (salt >> 64) as u64, Ordering::Relaxed);
            memory.copy_in(at + 112, &digest(salt, secret));
        }
        memory.store(at + 8, who, Ordering::Relaxed);
        memory.store(at + 16, asks, Ordering::Relaxed);
    }

    /// Checks `shown` against the guard in the ready slot at `at`.
    pub(super) fn check<M: Memory>(
        memory: M,
        at: Offset,
        shown: &Credentials,
    ) -> Result<(), &'static str> {
        let load = |i: u64| memory.load::<u64>(at + i, Ordering::Relaxed);
        let (who, asks) = (load(8), load(16));
        if asks & ASKS_UID != 0 && who as u32 != shown.uid {
            return Err("it is restricted to another user");
        }
        if asks & ASKS_GID != 0 && (who >> 32) as u32 != shown.gid {
            return Err("it is restricted to another group of users");
        }
        if asks & ASKS_SECRET != 0 {
            let Some(secret) = &shown.secret else {
                return Err("it requires a secret, but none was given");
            };
            let salt = u128::from(load(96)) | u128::from(load(104)) << 64;
            let mut expected = [0; 32];
            memory.copy_out(at + 112, &mut expected);
            if digest(salt, secret) != expected {
                return Err("the secret is wrong");
            }
        }
        Ok(())
    }
}
