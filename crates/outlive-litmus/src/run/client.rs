//! A client: a connection that is opened again after it was lost or cut.

use crate::driver::{Connection, Driver, DriverError};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A client with a connection.
pub(super) struct Client {
    driver: Arc<dyn Driver>,
    connection: Option<Box<dyn Connection>>,
    patience: Duration,
}

impl Client {
    pub(super) fn new(driver: &Arc<dyn Driver>, patience: Duration) -> Self {
        Self {
            driver: Arc::clone(driver),
            connection: None,
            patience,
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
            match self.driver.connect() {
                Err(_) if begin.elapsed() < self.patience => {
                    thread::sleep(Duration::from_millis(10));
                }
                result => return result,
            }
        }
    }

    /// Drops the connection. In the middle of a transaction, this simulates a crash of the client.
    pub(super) fn cut(&mut self) {
        self.connection = None;
    }
}
