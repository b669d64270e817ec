//! Any bytes are a trace whose numbers can be relied on, or are refused, and it takes no more
//! memory than its blocks let it.
//!
//! Each input is tried as it is, and again as the contents of a block in an otherwise valid trace,
//! because a fuzzer does not get past the checksums by itself. The first four bytes choose the
//! block.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive_machine::program::{Next, Op, Thread};
use outlive_machine::trace::{Replay, Trace, TraceError};

fn check(bytes: Vec<u8>) -> Result<(), TraceError> {
    let trace = Trace::from_bytes(bytes)?;
    let words = trace.about().words;
    let mut end = 0;
    for (word, run) in trace.image()?.runs {
        assert!(word.0 >= end);
        end = word.0 + run.len() as u64;
        assert!(end <= words);
    }
    let synchronisation = trace.about().synchronisation();
    for mut thread in trace.threads(Replay::default())? {
        loop {
            match thread.next() {
                Next::Op(Op::Load(word) | Op::Store(word, _) | Op::Atomic(word, _)) => {
                    assert!(word.0 < words)
                }
                Next::Op(Op::Lock(lock) | Op::Unlock(lock)) => {
                    assert!((lock.0 as usize) < synchronisation.locks.len());
                }
                Next::Op(Op::Await(count, _) | Op::Advance(count)) => {
                    assert!(count.0 < synchronisation.event_counts)
                }
                Next::Op(_) => {}
                Next::Waits => panic!("a trace waits for nothing"),
                Next::Ended => break,
            }
        }
    }
    Ok(())
}

fn block(kind: u8, deflated: bool, items: u32, plain: u32, contents: &[u8]) -> Vec<u8> {
    let mut block = b"TBLK".to_vec();
    block.extend([kind, u8::from(deflated), 0, 0, 0, 0, 0, 0]);
    for number in [contents.len() as u32, plain, items, 0] {
        block.extend(number.to_le_bytes());
    }
    let mut sum = crc32fast::Hasher::new();
    sum.update(&block);
    sum.update(contents);
    block.extend(sum.finalize().to_le_bytes());
    block.extend(contents);
    block
}

fuzz_target!(|bytes: &[u8]| {
    let _ = check(bytes.to_vec());
    let Some((&[kind, items, plain_low, plain_high], contents)) = bytes.split_first_chunk() else {
        return;
    };
    let deflated = kind & 0x80 != 0;
    let plain = if deflated {
        u32::from_le_bytes([plain_low, plain_high, 0, 0])
    } else {
        contents.len() as u32
    };
    // 4096 words; one thread; no flags; two event counts; two locks, the first with an order; a
    // condition variable; a barrier of one thread; no texts.
    let about = b"\x80\x20\x01\x00\x02\x00\x01\x02\x40\x01\x48\x00\x01\x50\x01\x58\x01\x00";
    let mut whole = b"OutTrace\x01\0\0\0\0\0\0\0".to_vec();
    let mut places = Vec::new();
    let about = block(1, false, 1, about.len() as u32, about);
    let forged = block(kind & 3, deflated, items.into(), plain, contents);
    // Another block that tells about the trace is put together with the first: so it stands alone.
    let blocks = if kind & 3 == 1 {
        vec![forged]
    } else {
        vec![about, forged]
    };
    for block in &blocks {
        places.extend((whole.len() as u64).to_le_bytes());
        places.extend([0, 0, 0, 0, block[4], 0, 0, 0]);
        whole.extend(block);
    }
    places.extend((whole.len() as u64).to_le_bytes());
    places.extend((blocks.len() as u64).to_le_bytes());
    let sum = crc32fast::hash(&places);
    whole.extend(places);
    whole.extend(sum.to_le_bytes());
    whole.extend([0; 4]);
    whole.extend(b"ecarTtuO");
    let _ = check(whole);
});
