//! Persistence domains, and the instructions that write cache lines back.

use core::fmt;
use core::ptr::NonNull;

/// The stores that survive when a host and its caches die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PersistenceDomain {
    /// The platform flushes caches on failure (global persistent flush, eADR), or the hosts are
    /// processes of one machine, whose cache outlives them. Every store that was made survives.
    Flushed,
    /// A dead host's dirty cache lines may be lost, torn at 8 bytes, while the survivors' are not.
    /// Software writes lines back and drains before it publishes them.
    WriteBack,
}

impl fmt::Display for PersistenceDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flushed => "flushed",
            Self::WriteBack => "write-back",
        })
    }
}

/// The instruction by which this processor writes a cache line back, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBackInstruction {
    /// x86 `clwb`: writes back and may keep the line.
    Clwb,
    /// x86 `clflushopt`: writes back and evicts, without ordering among lines.
    Clflushopt,
    /// x86 `clflush`: writes back and evicts, one line after the other.
    Clflush,
    /// Arm `dc cvac`: cleans to the point of coherency.
    DcCvac,
}

impl WriteBackInstruction {
    /// Returns the instruction that this processor uses; `None` if none is known.
    pub fn detect() -> Option<Self> {
        arch::detect()
    }
}

/// Starts to write back the lines of `len` bytes at `start`.
///
/// # Safety
/// The bytes are mapped.
#[inline]
pub(crate) unsafe fn write_back_lines(start: NonNull<u8>, len: u64) {
    if len == 0 {
        return;
    }
    // SAFETY: the caller's promise, passed on.
    unsafe { arch::write_back(start.as_ptr() as usize, len as usize) }
}

/// Waits for this thread's write-backs, before any later store can be seen.
#[inline]
pub(crate) fn drain_write_backs() {
    arch::drain();
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use super::WriteBackInstruction;
    use core::arch::asm;
    use core::arch::x86_64::{__cpuid_count, _mm_clflush, _mm_sfence};
    use core::sync::atomic::{AtomicU8, Ordering};

    const LINE: usize = 64;
    /// 0: not detected yet; 1, 2, 3: clwb, clflushopt, clflush.
    static CHOICE: AtomicU8 = AtomicU8::new(0);

    #[cold]
    fn ask() -> u8 {
        #[allow(unused_unsafe, reason = "a safe function from Rust 1.94 on")]
        // SAFETY: every processor of this architecture has the instruction.
        let cpuid = |leaf| unsafe { __cpuid_count(leaf, 0) };
        let features = if cpuid(0).eax >= 7 { cpuid(7).ebx } else { 0 };
        let choice = match features {
            f if f & (1 << 24) != 0 => 1,
            f if f & (1 << 23) != 0 => 2,
            _ => 3,
        };
        // Relaxed: every thread gets the same answer, and nothing else is published by it.
        CHOICE.store(choice, Ordering::Relaxed);
        choice
    }

    #[inline]
    fn choice() -> u8 {
        match CHOICE.load(Ordering::Relaxed) {
            0 => ask(),
            choice => choice,
        }
    }

    pub fn detect() -> Option<WriteBackInstruction> {
        Some(match choice() {
            1 => WriteBackInstruction::Clwb,
            2 => WriteBackInstruction::Clflushopt,
            _ => WriteBackInstruction::Clflush,
        })
    }

    /// Writes back the cache lines of `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are mapped.
    #[inline]
    pub unsafe fn write_back(start: usize, len: usize) {
        let choice = choice();
        for line in ((start & !(LINE - 1))..start + len).step_by(LINE) {
            // SAFETY: the line is mapped; cpuid said that the instruction exists; none of them
            // changes what a load returns.
            unsafe {
                match choice {
                    1 => asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags)),
                    2 => asm!("clflushopt [{}]", in(reg) line, options(nostack, preserves_flags)),
                    _ => _mm_clflush(line as *const u8),
                }
            }
        }
    }

    #[inline]
    pub fn drain() {
        // SAFETY: sfence has been part of every x86-64.
        unsafe { _mm_sfence() }
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use super::WriteBackInstruction;
    use core::arch::asm;

    pub fn detect() -> Option<WriteBackInstruction> {
        Some(WriteBackInstruction::DcCvac)
    }

    /// Writes back the cache lines of `len` bytes at `start`.
    ///
    /// # Safety
    /// The bytes are mapped.
    #[inline]
    pub unsafe fn write_back(start: usize, len: usize) {
        let line = line_size();
        for at in ((start & !(line - 1))..start + len).step_by(line) {
            // SAFETY: the line is mapped; Linux lets user programs clean lines (SCTLR_EL1.UCI).
            unsafe { asm!("dc cvac, {}", in(reg) at, options(nostack, preserves_flags)) }
        }
    }

    #[inline]
    fn line_size() -> usize {
        let register: usize;
        // SAFETY: reading CTR_EL0 has no effect and is allowed (or emulated) for user programs.
        unsafe {
            asm!("mrs {}, ctr_el0", out(reg) register, options(nomem, nostack, preserves_flags))
        };
        4 << ((register >> 16) & 0xF)
    }

    #[inline]
    pub fn drain() {
        // SAFETY: a barrier; it has no other effect.
        unsafe { asm!("dsb osh", options(nostack, preserves_flags)) }
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    use super::WriteBackInstruction;

    pub fn detect() -> Option<WriteBackInstruction> {
        None
    }

    /// Panics: this processor has no known instruction.
    ///
    /// # Safety
    /// None is needed: it never returns.
    pub unsafe fn write_back(_start: usize, _len: usize) {
        // A segment in the write-back domain is never opened where `detect` answers `None`.
        unreachable!("no write-back instruction is known for this processor")
    }

    pub fn drain() {}
}
