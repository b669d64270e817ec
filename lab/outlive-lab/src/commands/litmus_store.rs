//! `outlive-lab litmus-store`: a compute server of a store, with faults, as a child process of the
//! litmus tests.

mod crashes;
mod flaws;
mod links;

pub use crashes::Point;
pub use flaws::{by_name, name};

use crate::failure::Failure;
use clap::Args;
use crashes::Crashes;
use links::Links;
use outlive_cli::store_driver::StoreDriver;
use outlive_litmus::driver::{Capabilities, Connection, Driver, DriverError, Key, exec};
use outlive_store::protocol::Flaw;
use outlive_store::servers::Store;
use outlive_store::verbs::Link;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Arguments of `outlive-lab litmus-store`.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  \
    outlive store create /dev/shm/flawed --protocol ford\n  \
    outlive store memory /dev/shm/flawed &\n  \
    outlive store memory /dev/shm/flawed &\n  \
    outlive litmus run 'exec:exec outlive-lab litmus-store /dev/shm/flawed --flaw covert-latches' \
    litmus-2\n\n\
    The process joins the store as a compute server, behind emulated links to the memory servers, \
    and answers the requests of docs/litmus-driver.md. At a crash point it kills itself with \
    SIGKILL, so the tester sees that the process has ended. The process that prepares the objects \
    has no crash points.\n\n\
    An unknown flaw is refused with the names of all. The store's protocol is that with which it \
    was created.")]
pub struct LitmusStore {
    /// The path of the store
    path: PathBuf,
    /// The unsound choice of the protocol, of FORD's bugs or another one
    #[arg(long, value_name = "NAME", value_parser = by_name)]
    flaw: Option<Flaw>,
    /// Round-trip time of the emulated links
    #[arg(long, value_name = "TIME", default_value = "50us",
        value_parser = humantime::parse_duration)]
    round_trip: Duration,
    /// Maximum of a random delay of each request on the emulated links
    #[arg(long, value_name = "TIME", default_value = "200us",
        value_parser = humantime::parse_duration)]
    jitter: Duration,
    /// Maximum of a random delay between two verbs of a request
    #[arg(long, value_name = "TIME", default_value = "0s",
        value_parser = humantime::parse_duration)]
    spread: Duration,
    /// A verb before which the process may kill itself; may be repeated
    #[arg(long, value_enum, value_name = "POINT")]
    crash: Vec<Point>,
    /// The process kills itself before one in N of these verbs, at random
    #[arg(long, value_name = "N", default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..))]
    crash_one_in: u32,
    /// Append the name of the point to this file before each crash
    #[arg(long, value_name = "FILE")]
    crash_record: Option<PathBuf>,
    /// Seed of the crashes and delays; those of each process of a store also depend on its number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of keys for which the table is created
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    keys: u32,
}

impl LitmusStore {
    pub fn run(self) -> Result<(), Failure> {
        links::sleep_exactly();
        let store = Store::open(&self.path)?;
        if let Some(flaw) = self.flaw {
            store.set_policy(flaw.policy());
        }
        let link = Link {
            round_trip: self.round_trip,
            jitter: self.jitter,
            ..Link::default()
        };
        store.set_recovery_link(Some(link));
        let compute = store.join_compute()?;
        let is_client = Arc::new(AtomicBool::new(false));
        let instance = u64::from(compute.instance().generation) << 16;
        let seed = self.seed << 40 ^ instance ^ u64::from(compute.id().get());
        let (points, one_in, spread) = (self.crash, self.crash_one_in, self.spread);
        let record = self.crash_record;
        let target = format!("outlive-store:{}", self.path.display());
        let driver = StoreDriver::new(&target, compute, self.keys, {
            let is_client = Arc::clone(&is_client);
            move |compute| {
                // Relaxed: the same thread has set it.
                let is_armed = is_client.load(Ordering::Relaxed);
                let points: &[Point] = if is_armed { &points } else { &[] };
                let crashes = Crashes::new(compute.store(), points, one_in, seed);
                let crashes = crashes.recorded_in(record.clone());
                compute.worker_over(Links::new(link, spread, Rc::new(crashes), seed))
            }
        });
        let server = Server { driver, is_client };
        let (input, output) = (io::stdin().lock(), io::stdout().lock());
        Ok(exec::serve(&server, input, output)?)
    }
}

/// The driver of the process. Only connections have crash points: the process that prepares objects
/// has none.
struct Server {
    driver: StoreDriver<Links>,
    is_client: Arc<AtomicBool>,
}

impl Driver for Server {
    fn capabilities(&self) -> Capabilities {
        self.driver.capabilities()
    }

    fn create(&self) -> Result<(), DriverError> {
        self.driver.create()
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        self.driver.set(objects)
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        self.is_client.store(true, Ordering::Relaxed);
        self.driver.connect()
    }

    fn destroy(&self) -> Result<(), DriverError> {
        self.driver.destroy()
    }
}
