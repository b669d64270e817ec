//! A connection to a Redis server over a Unix socket, with its protocol RESP2.

use crate::StudyError;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The longest time until the server sends something.
const PATIENCE: Duration = Duration::from_secs(30);

/// A reply of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A simple string, such as `OK`.
    Status(String),
    Integer(i64),
    /// The value of a key, if it exists.
    Bulk(Option<Vec<u8>>),
    Array(Vec<Reply>),
}

/// A connection. Commands are buffered until [`send`](Self::send).
pub struct Connection<S = UnixStream> {
    stream: S,
    commands: Vec<u8>,
    received: Vec<u8>,
    /// The part of `received` that is parsed.
    at: usize,
}

fn failed(what: impl std::fmt::Display) -> StudyError {
    StudyError::void(format!("Redis: {what}"))
}

impl Connection {
    /// Connects to the server's socket.
    pub fn open(socket: &Path) -> std::io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::over(stream))
    }
}

impl<S: Read + Write> Connection<S> {
    fn over(stream: S) -> Self {
        Self {
            stream,
            commands: Vec::new(),
            received: Vec::new(),
            at: 0,
        }
    }

    /// Appends a command.
    pub fn command(&mut self, words: &[&[u8]]) {
        // A write to a vector does not fail.
        let _ = write!(self.commands, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.commands, "${}\r\n", word.len());
            self.commands.extend_from_slice(word);
            self.commands.extend_from_slice(b"\r\n");
        }
    }

    /// Sends the commands.
    pub fn send(&mut self) -> Result<(), StudyError> {
        let sent = self.stream.write_all(&self.commands);
        self.commands.clear();
        sent.map_err(failed)
    }

    /// Receives the reply to the next command.
    ///
    /// # Errors
    /// If the server cannot be reached, or replies with an error.
    pub fn reply(&mut self) -> Result<Reply, StudyError> {
        let line = self.line()?;
        let (kind, rest) = line.split_at_checked(1).unwrap_or_default();
        let number = || {
            rest.parse::<i64>()
                .map_err(|_| failed(format!("reply {line:?}")))
        };
        match kind {
            "+" => Ok(Reply::Status(rest.to_owned())),
            ":" => Ok(Reply::Integer(number()?)),
            "$" => match usize::try_from(number()?) {
                Ok(bytes) => {
                    self.receive(bytes + 2)?;
                    let value = self.received[self.at..self.at + bytes].to_vec();
                    self.at += bytes + 2;
                    Ok(Reply::Bulk(Some(value)))
                }
                Err(_) => Ok(Reply::Bulk(None)),
            },
            "*" => {
                let replies = (0..number()?).map(|_| self.reply());
                Ok(Reply::Array(replies.collect::<Result<_, _>>()?))
            }
            _ => Err(failed(line)),
        }
    }

    /// Returns the next line without its end.
    fn line(&mut self) -> Result<String, StudyError> {
        let mut searched = 0;
        loop {
            let unread = &self.received[self.at..];
            let end = unread[searched..].windows(2).position(|two| two == b"\r\n");
            if let Some(end) = end {
                let end = searched + end;
                let line = String::from_utf8_lossy(&unread[..end]).into_owned();
                self.at += end + 2;
                return Ok(line);
            }
            searched = unread.len().saturating_sub(1);
            let bytes = unread.len() + 1;
            self.receive(bytes)?;
        }
    }

    /// Receives until at least `bytes` are not parsed.
    fn receive(&mut self, bytes: usize) -> Result<(), StudyError> {
        while self.received.len() - self.at < bytes {
            if self.at == self.received.len() {
                self.received.clear();
                self.at = 0;
            }
            let mut buffer = [0; 16 << 10];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(failed("the server has closed the connection")),
                Ok(read) => self.received.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A server whose replies arrive in pieces.
    struct Server {
        sent: Vec<u8>,
        pieces: VecDeque<Vec<u8>>,
    }

    impl Read for Server {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let piece = self.pieces.pop_front().unwrap_or_default();
            buffer[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    impl Write for Server {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.sent.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn connection(replies: &[u8], size: usize) -> Connection<Server> {
        Connection::over(Server {
            sent: Vec::new(),
            pieces: replies.chunks(size).map(<[u8]>::to_vec).collect(),
        })
    }

    #[test]
    fn replies_are_parsed_wherever_they_are_cut() {
        let replies = b"+OK\r\n:-17\r\n*3\r\n$4\r\na\r\nb\r\n$-1\r\n$0\r\n\r\n-ERR no\r\n:1\r\n";
        for size in 1..=replies.len() {
            let mut server = connection(replies, size);
            let mut reply = || server.reply();
            assert_eq!(reply().unwrap(), Reply::Status("OK".into()));
            assert_eq!(reply().unwrap(), Reply::Integer(-17));
            let values = [Some(b"a\r\nb".to_vec()), None, Some(Vec::new())];
            let values = values.map(Reply::Bulk).to_vec();
            assert_eq!(reply().unwrap(), Reply::Array(values));
            assert!(reply().unwrap_err().to_string().contains("ERR no"));
            assert_eq!(reply().unwrap(), Reply::Integer(1));
            let end = reply().unwrap_err().to_string();
            assert!(end.contains("has closed"), "{end}");
        }
    }

    #[test]
    fn commands_are_arrays_of_words() {
        let mut server = connection(b"", 1);
        server.command(&[b"SET", b"k", b"a\r\n"]);
        server.command(&[b"PING"]);
        server.send().unwrap();
        let expected = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na\r\n\r\n*1\r\n$4\r\nPING\r\n";
        assert_eq!(server.stream.sent, expected);
    }
}
