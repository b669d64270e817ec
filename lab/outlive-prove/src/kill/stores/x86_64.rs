//! Decodes instructions of x86-64.

use super::Reach;
use crate::kill::child::Registers;
use core::ops::Range;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory,
    InstructionInfoOptions, Mnemonic, OpAccess, Register, UsedMemory,
};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The maximum length of an instruction in bytes.
const LONGEST: usize = 15;

/// The maximum size in bytes of an area to which a processor's state is saved; the decoder does not
/// give the actual size.
const SAVE_AREA: u64 = 16 << 10;

/// The flag with which string instructions go down.
const DIRECTION: u64 = 1 << 10;

/// Decodes instructions of children that were forked from the same process: they have the same code
/// at the same addresses.
pub(in crate::kill) struct Stores {
    decoded: HashMap<u64, Instruction>,
    factory: InstructionInfoFactory,
}

impl Stores {
    pub(in crate::kill) fn new() -> Self {
        Self {
            decoded: HashMap::new(),
            factory: InstructionInfoFactory::new(),
        }
    }

    /// Returns where in `memory`, a range of addresses that starts with a word, the child `pid` may
    /// store by its next instruction.
    pub(in crate::kill) fn next(
        &mut self,
        pid: u32,
        registers: &Registers,
        memory: &Range<u64>,
    ) -> Reach {
        let at = registers.instruction();
        let instruction = self.decoded.entry(at).or_insert_with(|| decode(pid, at));
        let instruction = *instruction;
        // The kernel may store anywhere that it was asked to.
        let enters_kernel = matches!(
            instruction.mnemonic(),
            Mnemonic::Syscall | Mnemonic::Sysenter
        ) || instruction.flow_control() == FlowControl::Interrupt;
        if instruction.is_invalid() || enters_kernel {
            return Reach::Anywhere;
        }
        let options = InstructionInfoOptions::NO_REGISTER_USAGE;
        let info = self.factory.info_options(&instruction, options);
        let stores = info.used_memory().iter().filter(|used| is_store(used));
        let mut reach: Option<Range<u64>> = None;
        for store in stores {
            let Some(bytes) = bytes_of(store, &instruction, registers) else {
                return Reach::Anywhere;
            };
            if bytes.start >= memory.end || bytes.end <= memory.start {
                continue;
            }
            let (start, end) = (bytes.start.max(memory.start), bytes.end.min(memory.end));
            let so_far = reach.unwrap_or(start..end);
            reach = Some(so_far.start.min(start)..so_far.end.max(end));
        }
        reach.map_or(Reach::Nowhere, |bytes| {
            let word = |address: u64| ((address - memory.start) / 8) as usize;
            Reach::Words(word(bytes.start)..word(bytes.end - 1) + 1)
        })
    }
}

/// Returns the instruction at an address of the child, or an invalid one if it cannot be read.
fn decode(pid: u32, at: u64) -> Instruction {
    let mut bytes = [0; LONGEST];
    let memory = File::open(format!("/proc/{pid}/mem"));
    let read = memory.and_then(|memory| memory.read_at(&mut bytes, at));
    let bytes = &bytes[..read.unwrap_or(0)];
    Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode()
}

fn is_store(used: &UsedMemory) -> bool {
    let reads = matches!(
        used.access(),
        OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
    );
    !reads
}

/// Returns the addresses that `store` may change; `None` if they are unknown.
fn bytes_of(
    store: &UsedMemory,
    instruction: &Instruction,
    registers: &Registers,
) -> Option<Range<u64>> {
    if store.vsib_size() != 0 {
        return None;
    }
    let start = store.virtual_address(0, |register, _, _| value_of(register, registers))?;
    let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    let size = if repeats && instruction.is_string_instruction() {
        if registers.0.eflags & DIRECTION != 0 {
            return None;
        }
        let element = instruction.memory_size().size() as u64;
        element.checked_mul(registers.0.rcx)?
    } else {
        match store.memory_size().size() as u64 {
            0 => SAVE_AREA,
            size => size,
        }
    };
    Some(start..start.checked_add(size)?)
}

fn value_of(register: Register, registers: &Registers) -> Option<u64> {
    let r = &registers.0;
    let value = match register.full_register() {
        Register::RAX => r.rax,
        Register::RBX => r.rbx,
        Register::RCX => r.rcx,
        Register::RDX => r.rdx,
        Register::RSI => r.rsi,
        Register::RDI => r.rdi,
        Register::RBP => r.rbp,
        Register::RSP => r.rsp,
        Register::R8 => r.r8,
        Register::R9 => r.r9,
        Register::R10 => r.r10,
        Register::R11 => r.r11,
        Register::R12 => r.r12,
        Register::R13 => r.r13,
        Register::R14 => r.r14,
        Register::R15 => r.r15,
        Register::FS => r.fs_base,
        Register::GS => r.gs_base,
        // The others start at 0.
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    };
    Some(match register.size() {
        4 => value as u32 as u64,
        _ => value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns where `code` may store in the memory from 0x10000 to 0x20000, if rdi is `rdi` and
    /// rcx 4.
    fn reach(code: &[u8], rdi: u64) -> Reach {
        let mut code = code.to_vec();
        code.resize(LONGEST, 0x90);
        // SAFETY: all zero is a valid value for a struct of integers.
        let mut registers = Registers(unsafe { core::mem::zeroed() });
        registers.0.rip = code.as_ptr().addr() as u64;
        registers.0.rdi = rdi;
        registers.0.rsp = 0x7000;
        registers.0.rcx = 4;
        registers.0.fs_base = 0x18000;
        Stores::new().next(std::process::id(), &registers, &(0x10000..0x20000))
    }

    #[test]
    fn stores_are_told_with_the_words_that_they_change() {
        // mov [rdi+8], rax
        let store = [0x48, 0x89, 0x47, 0x08];
        assert_eq!(reach(&store, 0x10000), Reach::Words(1..2));
        assert_eq!(reach(&store, 0x10004), Reach::Words(1..3));
        assert_eq!(reach(&store, 0xfff4), Reach::Words(0..1));
        assert_eq!(reach(&store, 0x20000), Reach::Nowhere);
        // mov rax, [rdi+8]
        assert_eq!(reach(&[0x48, 0x8b, 0x47, 0x08], 0x10000), Reach::Nowhere);
        // lock cmpxchg16b [rdi]
        let wide = [0xf0, 0x48, 0x0f, 0xc7, 0x0f];
        assert_eq!(reach(&wide, 0x10010), Reach::Words(2..4));
        // lock xadd [rdi], eax, by 32-bit address
        let narrow = [0x67, 0xf0, 0x0f, 0xc1, 0x07];
        assert_eq!(reach(&narrow, 0x1_0001_0000), Reach::Words(0..1));
        // mov fs:[0], eax
        let local = [0x64, 0x89, 0x04, 0x25, 0, 0, 0, 0];
        assert_eq!(reach(&local, 0), Reach::Words(0x1000..0x1001));
        // push rax; call +0
        assert_eq!(reach(&[0x50], 0x10000), Reach::Nowhere);
        assert_eq!(reach(&[0xe8, 0, 0, 0, 0], 0x10000), Reach::Nowhere);
        // vmovdqu [rdi], ymm0
        let vector = [0xc5, 0xfe, 0x7f, 0x07];
        assert_eq!(reach(&vector, 0x10020), Reach::Words(4..8));
    }

    #[test]
    fn string_instructions_store_as_far_as_they_count() {
        // rep movsq, rep stosb
        assert_eq!(reach(&[0xf3, 0x48, 0xa5], 0x10000), Reach::Words(0..4));
        assert_eq!(reach(&[0xf3, 0xaa], 0x10008), Reach::Words(1..2));
        assert_eq!(reach(&[0xf3, 0xaa], 0x20000), Reach::Nowhere);
    }

    #[test]
    fn what_is_in_doubt_may_store_anywhere() {
        // syscall; int3; an invalid one
        assert_eq!(reach(&[0x0f, 0x05], 0), Reach::Anywhere);
        assert_eq!(reach(&[0xcc], 0), Reach::Anywhere);
        assert_eq!(reach(&[0x06], 0), Reach::Anywhere);
        // xsavec [rdi], of a size that depends on the processor
        let save = [0x0f, 0xc7, 0x27];
        assert_eq!(reach(&save, 0x1f000), Reach::Words(0x1e00..0x2000));
        assert_eq!(reach(&save, 0x8000), Reach::Nowhere);
        // vpscatterdd [rdi+zmm1]{k1}, zmm0
        let scatter = [0x62, 0xf2, 0x7d, 0x49, 0xa0, 0x04, 0x0f];
        assert_eq!(reach(&scatter, 0), Reach::Anywhere);
    }
}
