//! Detection of a virtual machine with atomic instructions that are not atomic for other machines.
//!
//! QEMU's emulator (TCG) translates the atomic instructions of a guest that can never have a second
//! processor into plain ones, which the guest cannot notice. Another machine that shares the memory
//! can: its exchanges and those of the guest interleave. The guest cannot measure that, however
//! many threads access a word, because one processor runs them one after another. But the emulator
//! gives its name, and the guest knows how many processors it can have. So such a machine is
//! refused the memory of PCI devices, which is how machines share memory.
//!
//! Some cases cannot be known from one machine, and are not refused: an emulator that runs all its
//! processors on one thread (`-accel tcg,thread=single`) or hides its name, devices that lose
//! atomics on the way (QEMU's own CXL device does), and faults of the *other* machine. Only a test
//! between the two machines shows these.

use std::fs;

/// The name that TCG reports as the hypervisor of this machine.
const TCG: [u8; 12] = *b"TCGTCGTCGTCG";

/// Returns the reason why atomics on shared device memory cannot be trusted here, if one is known.
pub(super) fn distrust(sys: &std::path::Path) -> Option<String> {
    let possible = fs::read_to_string(sys.join("devices/system/cpu/possible"));
    why_not(hypervisor(), possible.as_deref().unwrap_or_default())
}

/// `possible`: the processors that this machine can ever have, as the kernel lists them.
fn why_not(hypervisor: Option<[u8; 12]>, possible: &str) -> Option<String> {
    (hypervisor == Some(TCG) && possible.trim() == "0").then(|| {
        "this virtual machine is emulated (QEMU's TCG) and has one processor, so its atomic instructions are \
         not atomic for the other machines; start it with -smp 2 or more, or with KVM"
            .into()
    })
}

/// Returns the name of the hypervisor, if this is a virtual machine and reports one.
#[cfg(target_arch = "x86_64")]
fn hypervisor() -> Option<[u8; 12]> {
    use core::arch::x86_64::__cpuid;
    // Leaf 1, bit 31 of ECX: there is a hypervisor, and leaf 0x40000000 is its own.
    #[allow(unused_unsafe, reason = "a safe function from Rust 1.94 on")]
    // SAFETY: every processor of this architecture has the instruction.
    let cpuid = |leaf| unsafe { __cpuid(leaf) };
    if cpuid(1).ecx >> 31 == 0 {
        return None;
    }
    let leaf = cpuid(0x4000_0000);
    let mut name = [0; 12];
    for (part, register) in name.chunks_exact_mut(4).zip([leaf.ebx, leaf.ecx, leaf.edx]) {
        part.copy_from_slice(&register.to_le_bytes());
    }
    Some(name)
}

/// Only x86-64 reports a name.
#[cfg(not(target_arch = "x86_64"))]
fn hypervisor() -> Option<[u8; 12]> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_machine_with_one_processor_is_distrusted() {
        assert!(why_not(Some(TCG), "0\n").is_some());
        assert_eq!(why_not(Some(TCG), "0-1\n"), None);
        assert_eq!(why_not(Some(*b"KVMKVMKVM\0\0\0"), "0\n"), None);
        assert_eq!(why_not(None, "0\n"), None);
        // The check of this machine itself runs without harm.
        let _ = distrust(std::path::Path::new("/sys"));
    }
}
