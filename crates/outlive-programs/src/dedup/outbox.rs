//! A buffer of output until its reader has space, so that the driver never waits for a reader
//! longer than the run continues.

use std::io::{self, ErrorKind, Write};

/// The approximate number of bytes that are buffered before they are written.
const ENOUGH: usize = 1 << 16;

/// Accepts all writes immediately, and buffers them until they are [sent](Self::send) on.
#[derive(Debug)]
pub(super) struct Outbox<W> {
    to: W,
    kept: Vec<u8>,
}

/// Whether everything was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    All,
    /// Not everything, and the rest is not needed any more.
    Not,
}

impl<W: Write> Outbox<W> {
    pub fn new(to: W) -> Self {
        Self {
            to,
            kept: Vec::new(),
        }
    }

    /// Returns whether enough is buffered to be sent.
    pub fn is_full(&self) -> bool {
        self.kept.len() >= ENOUGH
    }

    /// Sends the buffer on. A full receiver may return [`WouldBlock`](ErrorKind::WouldBlock) after
    /// a moment; the write is then retried for as long as `goes_on` returns true.
    ///
    /// # Errors
    /// The errors of the receiver.
    pub fn send(&mut self, goes_on: &dyn Fn() -> bool) -> io::Result<Sent> {
        let mut sent = 0;
        let all = loop {
            if sent == self.kept.len() {
                break self.to.flush().map(|()| Sent::All);
            }
            match self.to.write(&self.kept[sent..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(more) => sent += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !goes_on() {
                        break Ok(Sent::Not);
                    }
                }
                Err(error) => break Err(error),
            }
        };
        self.kept.drain(..sent);
        all
    }
}

impl<W> Write for Outbox<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.kept.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Takes 10 bytes at a time, then refuses `refuses` times for lack of space.
    struct Slow {
        taken: Vec<u8>,
        refuses: u32,
        left: u32,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.left > 0 {
                self.left -= 1;
                return Err(ErrorKind::WouldBlock.into());
            }
            self.left = self.refuses;
            let some = &bytes[..bytes.len().min(10)];
            self.taken.extend_from_slice(some);
            Ok(some.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn outbox(refuses: u32) -> Outbox<Slow> {
        Outbox::new(Slow {
            taken: Vec::new(),
            refuses,
            left: 0,
        })
    }

    #[test]
    fn a_slow_receiver_gets_all_in_order() {
        let mut outbox = outbox(3);
        let bytes: Vec<u8> = (0..=255).collect();
        outbox.write_all(&bytes[..100]).unwrap();
        outbox.write_all(&bytes[100..]).unwrap();
        assert!(outbox.to.taken.is_empty());
        assert_eq!(outbox.send(&|| true).unwrap(), Sent::All);
        assert_eq!(outbox.to.taken, bytes);
    }

    #[test]
    fn what_is_not_sent_is_kept_until_it_is() {
        let mut outbox = outbox(1);
        let bytes: Vec<u8> = (0..=255).collect();
        outbox.write_all(&bytes).unwrap();
        let asked = Cell::new(0);
        let twice = || asked.replace(asked.get() + 1) < 2;
        assert_eq!(outbox.send(&twice).unwrap(), Sent::Not);
        assert_eq!((&outbox.to.taken[..], asked.get()), (&bytes[..30], 3));
        assert_eq!(outbox.send(&|| true).unwrap(), Sent::All);
        assert_eq!(outbox.to.taken, bytes);
    }
}
