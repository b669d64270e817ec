//! Redis over a Unix socket, without persistence. Each transaction is one command or one Lua
//! script, which the server executes without interruption.
//!
//! An account is the balance alone, an integer that Redis changes in place: the number of its
//! changes would make it a string that each script takes apart.

use super::client::Bank;
use super::requests::{Load, Request, Workload};
use super::resp::{Connection, Reply};
use crate::StudyError;
use crate::children::{Launcher, Playing};
use outlive_store::workloads::{SmallBankKind, SmallBankRequest};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "redis-server";
/// The longest time until the server accepts connections.
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of accounts that a command reads or writes when all are.
const AT_ONCE: u64 = 500;

fn socket(directory: &Path) -> PathBuf {
    directory.join("socket")
}

/// Fails if there is no server to start.
pub fn require() -> Result<(), StudyError> {
    let found = Command::new(PROGRAM)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match found {
        Ok(status) if status.success() => Ok(()),
        _ => Err(StudyError::Missing {
            what: format!(
                "{PROGRAM} (on Debian: redis-server), because of its feature `databases`"
            ),
        }),
    }
}

/// Starts a server, which listens at a socket in `directory` only.
pub fn start_server(launcher: &Launcher, directory: &Path) -> Result<Playing, StudyError> {
    let mut command = Command::new(PROGRAM);
    command
        .args(["--port", "0", "--save", "", "--appendonly", "no"])
        .args(["--daemonize", "no", "--databases", "1"])
        .args(["--unixsocketperm", "700", "--unixsocket"])
        .arg(socket(directory))
        .arg("--dir")
        .arg(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let dies_with_us = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: the closure makes one system call between fork and exec.
    unsafe { command.pre_exec(dies_with_us) };
    launcher.start_command(&mut command)
}

/// Waits until the server accepts connections.
pub fn await_server(directory: &Path, server: &mut Playing) -> Result<(), StudyError> {
    let begin = Instant::now();
    while let Err(error) = Connection::open(&socket(directory)) {
        if let Some(status) = server.ended() {
            let what = format!("{PROGRAM} ended with {status}");
            return Err(StudyError::Part { what });
        }
        if begin.elapsed() > PATIENCE {
            return Err(StudyError::io(format!("connecting to {PROGRAM}"))(error));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// The scripts, each of which returns the change of the sum of all balances.
const SCRIPTS: [&str; 5] = [
    TRANSFER,
    AMALGAMATE,
    SEND_PAYMENT,
    TRANSACT_SAVINGS,
    WRITE_CHECK,
];
const TRANSFER: &str = "redis.call('DECRBY', KEYS[1], ARGV[1]) \
    redis.call('INCRBY', KEYS[2], ARGV[1]) return 0";
const AMALGAMATE: &str = "local sum = redis.call('GETSET', KEYS[1], '0') \
    + redis.call('GETSET', KEYS[2], '0') redis.call('INCRBY', KEYS[3], sum) return 0";
const SEND_PAYMENT: &str = "if tonumber(redis.call('GET', KEYS[1])) >= tonumber(ARGV[1]) then \
    redis.call('DECRBY', KEYS[1], ARGV[1]) redis.call('INCRBY', KEYS[2], ARGV[1]) end return 0";
const TRANSACT_SAVINGS: &str = "if redis.call('GET', KEYS[1]) + ARGV[1] < 0 then return 0 end \
    redis.call('INCRBY', KEYS[1], ARGV[1]) return tonumber(ARGV[1])";
const WRITE_CHECK: &str = "local taken = tonumber(ARGV[1]) \
    if redis.call('GET', KEYS[1]) + redis.call('GET', KEYS[2]) < taken then \
    taken = taken + 100 end redis.call('DECRBY', KEYS[2], taken) return -taken";

struct Redis {
    connection: Connection,
    /// The name under which the server has stored each script.
    scripts: Vec<Vec<u8>>,
    load: Load,
    /// The number of transactions that are sent together.
    pipelined: usize,
}

/// Connects to the server in `directory`.
pub fn open(directory: &Path, load: Load, pipelined: usize) -> Result<Box<dyn Bank>, StudyError> {
    let opened = Connection::open(&socket(directory));
    let mut connection = opened.map_err(StudyError::io(format!("connecting to {PROGRAM}")))?;
    let mut scripts = Vec::new();
    for script in SCRIPTS {
        connection.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        connection.send()?;
        match connection.reply()? {
            Reply::Bulk(Some(name)) => scripts.push(name),
            other => return Err(unexpected(&other)),
        }
    }
    Ok(Box::new(Redis {
        connection,
        scripts,
        load,
        pipelined,
    }))
}

fn unexpected(reply: &Reply) -> StudyError {
    StudyError::void(format!("Redis: unexpected reply {reply:?}"))
}

/// A short text on the stack: a key, or a number.
struct Word {
    bytes: [u8; 24],
    length: usize,
}

impl Word {
    fn new(text: std::fmt::Arguments<'_>) -> Self {
        let mut bytes = [0; 24];
        let mut rest = &mut bytes[..];
        rest.write_fmt(text)
            .expect("a number and a letter are shorter");
        let length = 24 - rest.len();
        Self { bytes, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

fn checking(key: u64) -> Word {
    Word::new(format_args!("c{key}"))
}

fn savings(key: u64) -> Word {
    Word::new(format_args!("s{key}"))
}

impl Redis {
    fn script(&mut self, script: &str, keys: &[Word], amount: i64) {
        let number = SCRIPTS.iter().position(|it| *it == script);
        let name = &self.scripts[number.expect("one of the scripts")];
        let count = Word::new(format_args!("{}", keys.len()));
        let amount = Word::new(format_args!("{amount}"));
        let mut words: [&[u8]; 7] = [&[]; 7];
        words[..3].copy_from_slice(&[b"EVALSHA", name, count.bytes()]);
        for (word, key) in words[3..].iter_mut().zip(keys) {
            *word = key.bytes();
        }
        words[3 + keys.len()] = amount.bytes();
        self.connection.command(&words[..4 + keys.len()]);
    }

    /// Appends the command of a transaction.
    fn request(&mut self, request: &Request) {
        let SmallBankRequest {
            kind,
            one,
            other,
            amount,
        } = match *request {
            Request::Transfer { from, to, amount } => {
                return self.script(TRANSFER, &[checking(from), checking(to)], amount);
            }
            Request::SmallBank(it) => it,
        };
        match kind {
            SmallBankKind::Amalgamate => {
                let keys = [savings(one), checking(one), checking(other)];
                self.script(AMALGAMATE, &keys, 0);
            }
            SmallBankKind::Balance => {
                let keys = [savings(one), checking(one)];
                let [savings, checking] = keys.each_ref().map(Word::bytes);
                self.connection.command(&[b"MGET", savings, checking]);
            }
            SmallBankKind::DepositChecking => {
                let (key, amount) = (checking(one), Word::new(format_args!("{amount}")));
                self.connection
                    .command(&[b"INCRBY", key.bytes(), amount.bytes()]);
            }
            SmallBankKind::SendPayment => {
                self.script(SEND_PAYMENT, &[checking(one), checking(other)], amount);
            }
            SmallBankKind::TransactSavings => {
                self.script(TRANSACT_SAVINGS, &[savings(one)], amount);
            }
            SmallBankKind::WriteCheck => {
                self.script(WRITE_CHECK, &[savings(one), checking(one)], amount);
            }
        }
    }

    /// Receives the reply to a transaction. Returns the change of the sum of all balances.
    fn change(&mut self, request: &Request) -> Result<i64, StudyError> {
        let kind = match request {
            Request::SmallBank(it) => Some(it.kind),
            Request::Transfer { .. } => None,
        };
        match (self.connection.reply()?, request) {
            (Reply::Array(values), _) if kind == Some(SmallBankKind::Balance) => {
                match values
                    .iter()
                    .all(|value| matches!(value, Reply::Bulk(Some(_))))
                {
                    true => Ok(0),
                    false => Err(unexpected(&Reply::Array(values))),
                }
            }
            // The reply is the balance.
            (Reply::Integer(_), Request::SmallBank(it))
                if it.kind == SmallBankKind::DepositChecking =>
            {
                Ok(it.amount)
            }
            (Reply::Integer(change), _) => Ok(change),
            (other, _) => Err(unexpected(&other)),
        }
    }

    /// Sends one command for each group of accounts, and passes the replies to `use_reply`.
    fn for_all(
        &mut self,
        command: &[u8],
        has_values: bool,
        mut use_reply: impl FnMut(Reply) -> Result<(), StudyError>,
    ) -> Result<(), StudyError> {
        let initial = Word::new(format_args!("{}", Load::INITIAL));
        let tables: &[fn(u64) -> Word] = match self.load.workload {
            Workload::Transfers => &[checking],
            Workload::SmallBank => &[checking, savings],
        };
        for table in tables {
            for first in (0..self.load.keys).step_by(AT_ONCE as usize) {
                let keys: Vec<Word> = (first..(first + AT_ONCE).min(self.load.keys))
                    .map(table)
                    .collect();
                let mut words = vec![command];
                for key in &keys {
                    words.push(key.bytes());
                    words.extend(has_values.then(|| initial.bytes()));
                }
                self.connection.command(&words);
                self.connection.send()?;
                use_reply(self.connection.reply()?)?;
            }
        }
        Ok(())
    }
}

impl Bank for Redis {
    fn fill(&mut self) -> Result<(), StudyError> {
        self.for_all(b"MSET", true, |reply| match reply {
            Reply::Status(_) => Ok(()),
            other => Err(unexpected(&other)),
        })
    }

    fn execute(&mut self, requests: &[Request]) -> Result<i64, StudyError> {
        let mut change = 0;
        for together in requests.chunks(self.pipelined) {
            together.iter().for_each(|request| self.request(request));
            self.connection.send()?;
            for request in together {
                change += self.change(request)?;
            }
        }
        Ok(change)
    }

    fn sum(&mut self) -> Result<i64, StudyError> {
        let mut sum = 0;
        self.for_all(b"MGET", false, |reply| {
            let Reply::Array(values) = reply else {
                return Err(unexpected(&reply));
            };
            for value in values {
                let balance = match &value {
                    Reply::Bulk(Some(digits)) => str::from_utf8(digits).ok(),
                    _ => None,
                };
                let balance = balance.and_then(|it| it.parse::<i64>().ok());
                sum += balance.ok_or_else(|| unexpected(&value))?;
            }
            Ok(())
        })?;
        Ok(sum)
    }
}
