//! The other side of the protocol: a program that answers requests with a [`Driver`].

use super::protocol::{Answer, Hello, Request, VERSION, Value};
use crate::driver::{Connection, Driver, DriverError, StepError};
use std::io::{self, BufRead, Write};

/// Answers requests for the store of `driver`, until the end of `input`: one connection, in a
/// process of its own. A tester that starts the process with [`exec`](super) can kill it between
/// any two steps.
///
/// ```
/// # #[cfg(feature = "sqlite")] {
/// # use outlive_litmus::driver::exec;
/// # let directory = tempfile::tempdir()?;
/// # let target = format!("sqlite:{}/db", directory.path().display());
/// let driver = outlive_litmus::driver::open(&target)?;
/// let requests = r#"{"do":"hello","version":1}
/// {"do":"create"}
/// {"do":"begin"}
/// {"do":"read","key":7}
/// "#;
/// let mut answers = Vec::new();
/// exec::serve(&*driver, requests.as_bytes(), &mut answers)?;
/// assert!(String::from_utf8(answers)?.ends_with("{\"ok\":null}\n{\"ok\":null}\n{\"ok\":null}\n"));
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If `input` or `output` fails.
pub fn serve(driver: &dyn Driver, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    let mut client = Client {
        driver,
        connection: None,
    };
    for line in input.lines() {
        let answer = match serde_json::from_str(&line?) {
            Ok(request) => client.answer(request),
            Err(error) => Answer::Error(format!("the request is not understood: {error}")),
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        output.write_all(&line)?;
        output.flush()?;
    }
    Ok(())
}

struct Client<'d> {
    driver: &'d dyn Driver,
    connection: Option<Box<dyn Connection>>,
}

impl Client<'_> {
    fn answer(&mut self, request: Request) -> Answer {
        let done = |result: Result<(), DriverError>| match result {
            Ok(()) => Answer::Ok(Value::Nothing),
            Err(error) => Answer::Error(error.to_string()),
        };
        let step = match request {
            Request::Hello { version: VERSION } => {
                return Answer::Ok(Value::Hello(Hello::from(self.driver.capabilities())));
            }
            Request::Hello { version } => {
                return Answer::Error(format!(
                    "the tester has version {version} of the protocol, and this program {VERSION}"
                ));
            }
            Request::Create => return done(self.driver.create()),
            Request::Set { objects } => return done(self.driver.set(&objects)),
            Request::Destroy => return done(self.driver.destroy()),
            step => step,
        };
        match self.step(step) {
            Ok(value) => Answer::Ok(value),
            Err(error) => {
                if matches!(error, StepError::Lost(_)) {
                    self.connection = None;
                }
                error.into()
            }
        }
    }

    fn step(&mut self, step: Request) -> Result<Value, StepError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let connected = self.driver.connect();
                none.insert(connected.map_err(|error| StepError::Lost(error.to_string()))?)
            }
        };
        let number = |number| Value::Number(number);
        match step {
            Request::Read { key } => {
                return Ok(connection.read(key)?.map_or(Value::Nothing, number));
            }
            Request::Count { from, to } => {
                let counted = connection.count(from..to)?;
                return Ok(number(counted.try_into().unwrap_or(i64::MAX)));
            }
            Request::Write { key, value } => connection.write(key, value),
            Request::Insert { key, value } => connection.insert(key, value),
            Request::Delete { key } => connection.delete(key),
            Request::Commit => connection.commit(),
            Request::Abort => connection.abort(),
            Request::Begin => connection.begin(),
            Request::Hello { .. } | Request::Create | Request::Set { .. } | Request::Destroy => {
                unreachable!("they are not steps")
            }
        }?;
        Ok(Value::Nothing)
    }
}
