//! Any bytes in a table of roots are roots that lie inside the segment, or are refused; publishing
//! over them ends.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive::memory::{Memory, Native, Offset, PersistenceDomain};
use outlive::segment::Roots;
use std::sync::OnceLock;

const SIZE: u64 = 128 << 10;
const TABLE: Offset = Offset::new(4096);

fuzz_target!(|bytes: &[u8]| {
    static MEMORY: OnceLock<Native> = OnceLock::new();
    let memory = *MEMORY.get_or_init(|| Native::leaked(SIZE, PersistenceDomain::Flushed));
    let mut table = vec![0; Roots::<Native>::BYTES as usize];
    let len = bytes.len().min(table.len());
    table[..len].copy_from_slice(&bytes[..len]);
    memory.copy_in(TABLE, &table);

    let roots = Roots::new(memory, TABLE);
    let violations = roots.check();
    match roots.list() {
        Ok(list) => {
            for root in list {
                assert!(root.offset.byte() + root.size <= SIZE);
            }
        }
        Err(_) => assert!(!violations.is_empty()),
    }
    let _ = roots.find::<u64>("root");
    if let Ok(place) = roots.publish::<u64>("root", Offset::new(64 << 10)) {
        assert_eq!(roots.find::<u64>("root"), Ok(Some(place)));
    }
});
