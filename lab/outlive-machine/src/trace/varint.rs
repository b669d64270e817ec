//! Numbers with a variable number of bytes.

use super::Flaw;

/// Appends `value`: seven bits a byte, the low ones first; the high bit says that more follow.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Maps small differences of either sign to small numbers.
pub(super) const fn zigzag(difference: i64) -> u64 {
    ((difference << 1) ^ (difference >> 63)) as u64
}

/// Returns the difference that [`zigzag`] maps to `number`.
pub(super) const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Reads the contents of a block. `item` is the index of the current item, for error messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
    pub item: u32,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            at: 0,
            item: 0,
        }
    }

    pub fn wrong(&self, field: &'static str) -> Flaw {
        Flaw::Item {
            item: self.item,
            field,
        }
    }

    pub fn remains(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn byte(&mut self) -> Result<u8, Flaw> {
        let byte = *self
            .bytes
            .get(self.at)
            .ok_or(Flaw::Ends { item: self.item })?;
        self.at += 1;
        Ok(byte)
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], Flaw> {
        let ends = Flaw::Ends { item: self.item };
        let bytes = self.bytes[self.at..].get(..length).ok_or(ends)?;
        self.at += length;
        Ok(bytes)
    }

    /// Reads a number that [`put`] wrote. An encoding with more bytes than necessary is refused, so
    /// each number has one encoding.
    pub fn number(&mut self) -> Result<u64, Flaw> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits || (shift > 0 && byte == 0) {
                return Err(self.wrong("number"));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.wrong("number"))
    }

    pub fn small(&mut self, field: &'static str) -> Result<u32, Flaw> {
        u32::try_from(self.number()?).map_err(|_| self.wrong(field))
    }

    /// Reads `length` bytes, the low ones first; the rest is zero. Refuses superfluous bytes.
    pub fn value(&mut self, length: usize) -> Result<u64, Flaw> {
        let mut word = [0; 8];
        word[..length].copy_from_slice(self.take(length)?);
        if length > 1 && word[length - 1] == 0 {
            return Err(self.wrong("value"));
        }
        Ok(u64::from_le_bytes(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_read() {
        for value in [
            0,
            1,
            127,
            128,
            300,
            u64::from(u32::MAX),
            u64::MAX - 1,
            u64::MAX,
        ] {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            let mut reader = Reader::new(&bytes);
            assert_eq!((reader.number(), reader.remains()), (Ok(value), 0));
            assert_eq!(zigzag(unzigzag(value)), value);
        }
    }

    #[test]
    fn a_number_can_be_written_in_one_way_only() {
        for bytes in [
            &[0x80, 0][..],
            &[0xff; 10],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2],
        ] {
            assert!(Reader::new(bytes).number().is_err());
        }
    }
}
