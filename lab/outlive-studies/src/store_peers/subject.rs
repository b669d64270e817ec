//! A store under measurement: its files, its server processes and its client processes.

use super::Whose;
use super::client::{Client, Done, Order};
use super::ours::OurStore;
use super::requests::Load;
use crate::children::{Launcher, Part, Playing};
use crate::cost::Cost;
use crate::scratch::Directory;
use crate::{StudyError, clock};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

/// The longest time of an order. The slowest one fills a store that is not optimised.
const PATIENCE: Timespec = Timespec {
    tv_sec: 240,
    tv_nsec: 0,
};

/// A store. A drop kills its processes, clients first, and removes its files.
pub struct Subject<'a> {
    launcher: &'a Launcher,
    whose: Whose,
    load: Load,
    clients: Vec<Connected>,
    servers: Vec<Playing>,
    /// The change of the sum of all balances by all transactions so far.
    change: i64,
    _ours: Option<OurStore>,
    directory: Directory,
}

impl<'a> Subject<'a> {
    /// Starts the store and one client, and creates all accounts.
    pub fn start(launcher: &'a Launcher, whose: Whose, load: Load) -> Result<Self, StudyError> {
        let directory = Directory::new("store")?;
        let ours = match whose {
            Whose::Ours => Some(OurStore::create(directory.whole())?),
            _ => None,
        };
        let mut subject = Self {
            launcher,
            whose,
            load,
            clients: Vec::new(),
            servers: Vec::new(),
            change: 0,
            _ours: ours,
            directory,
        };
        subject.start_servers()?;
        subject.start_clients(1)?;
        subject.clients[0].order(Order::Fill)?;
        subject.clients[0].answer()?;
        Ok(subject)
    }

    fn start_servers(&mut self) -> Result<(), StudyError> {
        match self.whose {
            Whose::Ours => super::ours::start_servers(
                self.launcher,
                self.directory.whole(),
                self.load,
                &mut self.servers,
            ),
            #[cfg(feature = "databases")]
            Whose::Redis | Whose::RedisPipelined => {
                let server = super::redis::start_server(self.launcher, self.directory.whole())?;
                self.servers.push(server);
                super::redis::await_server(self.directory.whole(), &mut self.servers[0])
            }
            _ => Ok(()),
        }
    }

    fn start_clients(&mut self, count: usize) -> Result<(), StudyError> {
        while self.clients.len() < count {
            let client = Client {
                whose: self.whose,
                load: self.load,
                directory: self.directory.whole().to_owned(),
                number: self.clients.len() as u64,
            };
            self.clients.push(Connected::start(self.launcher, client)?);
        }
        Ok(())
    }

    /// Executes transactions in `clients` processes for about `length`. Returns the cost of one
    /// transaction: the time from one to the next, and the processor time of all processes.
    pub fn run(&mut self, clients: usize, length: Duration) -> Result<Cost, StudyError> {
        self.start_clients(clients)?;
        let cpu = self.cpu_seconds(clients)?;
        let nanos = length.as_nanos() as u64;
        for client in &mut self.clients[..clients] {
            client.order(Order::Run { nanos })?;
        }
        let (mut rate, mut transactions) = (0.0, 0);
        for client in &mut self.clients[..clients] {
            let done = client.answer()?;
            rate += done.transactions as f64 / (done.nanos as f64 * 1e-9);
            transactions += done.transactions;
            self.change += done.sum;
        }
        let cpu = self.cpu_seconds(clients)? - cpu;
        Ok(Cost {
            wall: 1.0 / rate,
            cpu: cpu / transactions as f64,
        })
    }

    fn cpu_seconds(&self, clients: usize) -> Result<f64, StudyError> {
        let clients = self.clients[..clients].iter().map(|it| &it.process);
        let seconds =
            { self.servers.iter().chain(clients) }.map(|it| clock::cpu_seconds_of(it.pid()));
        let sum: std::io::Result<f64> = seconds.sum();
        sum.map_err(StudyError::io("reading the processor time of a process"))
    }

    /// Checks that the sum of all balances is the initial one plus all changes.
    pub fn check(&mut self) -> Result<(), StudyError> {
        self.clients[0].order(Order::Sum)?;
        let found = self.clients[0].answer()?.sum;
        let expected = self.load.initial_sum() + self.change;
        if found != expected {
            return Err(StudyError::void(format!(
                "{} has lost or made money: all balances sum up to {found} cents instead of \
                 {expected}",
                self.whose.name()
            )));
        }
        Ok(())
    }
}

impl Drop for Subject<'_> {
    fn drop(&mut self) {
        // A server whose client is still running would be missed.
        self.clients.clear();
        self.servers.clear();
    }
}

/// A client process. A drop kills it.
struct Connected {
    process: Playing,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Connected {
    /// Starts a client, and waits until it has opened the store.
    fn start(launcher: &Launcher, client: Client) -> Result<Self, StudyError> {
        let mut command = launcher.command(&Part::StoreClient(client));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = launcher.start_command(&mut command)?;
        let (orders, answers) = process.take_pipes().expect("both are piped");
        let mut client = Self {
            process,
            orders,
            answers: BufReader::new(answers),
        };
        client.answer()?;
        Ok(client)
    }

    fn order(&mut self, order: Order) -> Result<(), StudyError> {
        let mut line = serde_json::to_string(&order).expect("an order is plain data");
        line.push('\n');
        match self.orders.write_all(line.as_bytes()) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.process.lost()),
        }
    }

    /// Waits for the answer to the last order.
    fn answer(&mut self) -> Result<Done, StudyError> {
        // Each order has one line, so nothing is buffered when this begins.
        let mut pipe = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        match poll(&mut pipe, Some(&PATIENCE)) {
            Ok(0) => {
                return Err(StudyError::Part {
                    what: format!("a client has not answered for {} s", PATIENCE.tv_sec),
                });
            }
            Ok(_) => {}
            Err(errno) => return Err(StudyError::io("waiting for a client")(errno.into())),
        }
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.map_err(StudyError::io("reading a client's answer"))? == 0 {
            return Err(self.process.lost());
        }
        let done: Result<Result<Done, String>, _> = serde_json::from_str(&line);
        match done {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(what)) => Err(StudyError::Part { what }),
            Err(error) => Err(StudyError::Part {
                what: format!("a client answers {line:?}: {error}"),
            }),
        }
    }
}
