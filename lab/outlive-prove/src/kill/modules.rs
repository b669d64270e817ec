//! Names for instructions, in the form that `addr2line` takes.

/// The mappings of this process's binaries.
#[derive(Debug)]
pub(super) struct Modules {
    /// Start, end, the address to which offset 0 of its file would be mapped, name.
    ranges: Vec<(u64, u64, u64, String)>,
}

impl Modules {
    /// Reads the mappings from `/proc/self/maps`; empty if that cannot be read.
    pub(super) fn of_this_process() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mut ranges: Vec<(u64, u64, u64, String)> = Vec::new();
        for line in maps.lines() {
            // 55d0-55d9 r-xp 00002000 fe:00 1234   /path/name
            let mut fields = line.split_ascii_whitespace();
            let (Some(range), Some(_), Some(offset)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let Some((start, end)) = range.split_once('-') else {
                continue;
            };
            let [start, end, offset] =
                [start, end, offset].map(|hex| u64::from_str_radix(hex, 16).unwrap_or(0));
            let name = fields.nth(2).unwrap_or("").rsplit('/').next().unwrap_or("");
            let base = match ranges.iter().find(|(.., known)| known == name) {
                Some((_, _, base, _)) if !name.is_empty() => *base,
                _ => start - offset.min(start),
            };
            ranges.push((start, end, base, name.to_owned()));
        }
        Self { ranges }
    }

    /// Returns whether an address is in the binary that contains this function.
    pub(super) fn is_own(&self, address: u64) -> bool {
        let name = |address: u64| {
            let mut ranges = self.ranges.iter();
            let range = ranges.find(|(start, end, ..)| (*start..*end).contains(&address));
            range.map(|(.., name)| name)
        };
        name(address).is_some() && name(address) == name(Self::of_this_process as *const () as u64)
    }

    /// Returns `binary+0x1a2b3c` for an address in the binary.
    pub(super) fn name(&self, address: u64) -> String {
        let range = |(start, end, ..): &&(u64, u64, u64, String)| (*start..*end).contains(&address);
        match self.ranges.iter().find(range) {
            Some((_, _, base, name)) if !name.is_empty() => format!("{name}+{:#x}", address - base),
            _ => format!("{address:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_not_this_binary() {
        let modules = Modules::of_this_process();
        assert!(modules.is_own(Modules::name as *const () as u64));
        assert!(!modules.is_own(libc::malloc as *const () as u64));
        assert!(!modules.is_own(0));
    }
}
