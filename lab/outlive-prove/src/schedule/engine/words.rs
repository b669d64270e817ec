//! The words of a scenario. Each is accessed at one size throughout an execution.

/// The words met so far in one execution, numbered as they were met.
#[derive(Debug)]
pub(crate) struct Words {
    /// By byte of the memory: one more than the number of the word that covers it.
    covering: Vec<u16>,
    /// By word: its first byte and its size.
    spans: Vec<(u32, u8)>,
}

impl Words {
    pub(crate) fn new(size: u64) -> Self {
        Self {
            covering: vec![0; size as usize],
            spans: Vec::new(),
        }
    }

    /// Forgets all words, for the next execution.
    pub(crate) fn clear(&mut self) {
        for (start, size) in self.spans.drain(..) {
            self.covering[start as usize..][..size as usize].fill(0);
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.covering.len() as u64
    }

    /// Returns the number of the word of `size` bytes at `at`.
    pub(crate) fn locate(&mut self, at: u64, size: u8) -> Result<usize, String> {
        let end = at.checked_add(u64::from(size));
        if !at.is_multiple_of(u64::from(size)) || end.is_none_or(|end| end > self.size()) {
            return Err(format!(
                "an access of {size} bytes at offset {at:#x} is outside a memory of {} bytes, or not \
                 aligned",
                self.size()
            ));
        }
        let bytes = &mut self.covering[at as usize..][..size as usize];
        if let Some(&covered) = bytes.iter().find(|&&word| word != 0) {
            let word = usize::from(covered) - 1;
            let (start, was) = self.spans[word];
            if (u64::from(start), was) == (at, size) {
                return Ok(word);
            }
            return Err(format!(
                "an access of {size} bytes at offset {at:#x} overlaps the word of {was} bytes at \
                 {start:#x}: every access to a word must have the same size"
            ));
        }
        self.spans.push((at as u32, size));
        bytes.fill(u16::try_from(self.spans.len()).expect("fewer than 65,536 words in a scenario"));
        Ok(self.spans.len() - 1)
    }
}
