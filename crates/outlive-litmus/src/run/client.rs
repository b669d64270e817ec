//! A client: a connection that is opened again after it was lost or cut.

use crate::driver::{Connection, Driver, DriverError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A client with a connection.
pub(super) struct Client {
    driver: Arc<dyn Driver>,
    connection: Option<Box<dyn Connection>>,
    patience: Duration,
    losses: Arc<AtomicU64>,
}

impl Client {
    /// Returns a client without a connection. It counts in `losses` the connections that it loses,
    /// and those that cannot be opened.
    pub(super) fn new(
        driver: &Arc<dyn Driver>,
        patience: Duration,
        losses: &Arc<AtomicU64>,
    ) -> Self {
        Self {
            driver: Arc::clone(driver),
            connection: None,
            patience,
            losses: Arc::clone(losses),
        }
    }

    /// Returns the connection. If there is none, opens one, and repeats this for
    /// [`Options::patience`](super::Options::patience): a store that recovers may refuse
    /// connections.
    pub(super) fn connection(&mut self) -> Result<&mut dyn Connection, DriverError> {
        let connection = match self.connection.take() {
            Some(open) => open,
            None => self.open()?,
        };
        Ok(self.connection.insert(connection).as_mut())
    }

    fn open(&self) -> Result<Box<dyn Connection>, DriverError> {
        let begin = Instant::now();
        loop {
            let opened = self.driver.connect();
            if opened.is_err() {
                self.losses.fetch_add(1, Ordering::Relaxed);
            }
            match opened {
                Err(_) if begin.elapsed() < self.patience => {
                    thread::sleep(Duration::from_millis(10));
                }
                result => return result,
            }
        }
    }

    /// Drops the connection, which the store has closed.
    pub(super) fn lose(&mut self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
        self.cut();
    }

    /// Drops the connection. In the middle of a transaction, this simulates a crash of the client.
    pub(super) fn cut(&mut self) {
        self.connection = None;
    }
}
