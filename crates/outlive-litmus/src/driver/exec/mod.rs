//! A store behind the standard input and output of child processes: `exec:COMMAND`.
//!
//! COMMAND is executed by `sh`, once for each connection and once for the preparation of objects.
//! Each request is a line of JSON on the child's standard input, which the child answers by a line
//! on its standard output. `docs/litmus-driver.md` describes the protocol, and
//! `examples/dict_store.py` is a store in Python. Standard error is that of the tester.
//!
//! If a child ends, prints anything but one answer, or does not answer within the time limit, it is
//! killed and its connection is lost. When a connection is dropped, the child is killed with its
//! process group, as if the client had died at this step. A child can also be killed within a
//! commit.

mod process;
mod protocol;
mod serve;

pub use serve::serve;

use super::target::Scheme;
use super::{Capabilities, Connection, Driver, DriverError, Key, StepError};
use process::{Process, shown};
use protocol::{Answer, Hello, MAX_OBJECTS, Request, VERSION, Value};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The scheme `exec`.
pub const SCHEME: Scheme = Scheme {
    name: "exec",
    form: "exec:COMMAND",
    about: "a program that answers requests on its standard input (docs/litmus-driver.md)",
    open: |_, command| Ok(Box::new(Exec::start(command, Exec::TIME_LIMIT)?)),
};

/// A store behind child processes.
#[derive(Debug)]
pub struct Exec {
    command: String,
    limit: Duration,
    capabilities: Capabilities,
    /// The child that prepares objects.
    control: Mutex<Option<Process>>,
}

impl Exec {
    /// The time limit of an answer, for targets that are opened from text.
    pub const TIME_LIMIT: Duration = Duration::from_secs(10);

    /// Starts `command` as a child. An answer that does not arrive within `limit` is an error.
    ///
    /// # Errors
    /// If the child cannot be started, or does not speak the protocol.
    pub fn start(command: &str, limit: Duration) -> Result<Self, DriverError> {
        let (process, capabilities) = greeted(command, limit)?;
        Ok(Self {
            command: command.into(),
            limit,
            capabilities,
            control: Mutex::new(Some(process)),
        })
    }

    fn error(&self, problem: String) -> DriverError {
        DriverError::new(format!("exec:{}", self.command), problem)
    }

    /// Executes a request in the child that prepares objects. If that child has died, with the
    /// store's server for example, another one is started.
    fn control(&self, request: &Request) -> Result<(), DriverError> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = &mut *control {
            match ask(process, request) {
                Ok(Answer::Ok(Value::Nothing)) => return Ok(()),
                Ok(Answer::Error(problem)) => return Err(self.error(problem)),
                _ => {}
            }
        }
        *control = None;
        let process = control.insert(greeted(&self.command, self.limit)?.0);
        let problem = match ask(process, request) {
            Ok(Answer::Ok(Value::Nothing)) => return Ok(()),
            Ok(Answer::Error(problem)) => return Err(self.error(problem)),
            Ok(answer) => unexpected(request, &answer),
            Err(problem) => problem,
        };
        *control = None;
        Err(self.error(problem))
    }
}

/// Starts a child, and exchanges the `hello` request and its answer with it.
fn greeted(command: &str, limit: Duration) -> Result<(Process, Capabilities), DriverError> {
    let greet = || {
        let mut process = Process::start(command, limit)?;
        let hello = Request::Hello { version: VERSION };
        let answer = ask(&mut process, &hello)?;
        match answer {
            Answer::Ok(Value::Hello(hello)) if hello.version == VERSION => {
                Ok((process, hello.capabilities()))
            }
            Answer::Ok(Value::Hello(Hello { version, .. })) => Err(format!(
                "it has version {version} of the protocol, and the tester {VERSION}"
            )),
            Answer::Error(problem) => Err(problem),
            answer => Err(unexpected(&hello, &answer)),
        }
    };
    greet().map_err(|problem: String| DriverError::new(format!("exec:{command}"), problem))
}

/// Sends a request and returns the answer.
fn ask(process: &mut Process, request: &Request) -> Result<Answer, String> {
    let line = line(request);
    let answer = process.ask(&line)?;
    parsed(&line, &answer)
}

/// Returns the line of a request.
fn line(request: &Request) -> Vec<u8> {
    let mut line = serde_json::to_vec(request).expect("a request is valid JSON");
    line.push(b'\n');
    line
}

/// Returns the answer to the request in `line`.
fn parsed(line: &[u8], answer: &[u8]) -> Result<Answer, String> {
    serde_json::from_slice(answer).map_err(|error| {
        let (request, answer) = (shown(line.trim_ascii_end()), shown(answer));
        format!("it answered {request} with {answer}, which is not a valid answer: {error}")
    })
}

fn unexpected(request: &Request, answer: &Answer) -> String {
    let text = |bytes: Result<Vec<u8>, _>| shown(&bytes.expect("valid JSON"));
    let request = text(serde_json::to_vec(request));
    let answer = text(serde_json::to_vec(answer));
    format!("it answered {request} with {answer}, which does not answer this request")
}

impl Driver for Exec {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn create(&self) -> Result<(), DriverError> {
        self.control(&Request::Create)
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        objects.chunks(MAX_OBJECTS).try_for_each(|objects| {
            let objects = objects.into();
            self.control(&Request::Set { objects })
        })
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        let (process, _) = greeted(&self.command, self.limit)?;
        Ok(Box::new(Client {
            process: Ok(process),
        }))
    }

    fn destroy(&self) -> Result<(), DriverError> {
        self.control(&Request::Destroy)
    }

    fn kills_in_commits(&self) -> bool {
        true
    }
}

/// A connection: a child, or the reason for which it was killed.
struct Client {
    process: Result<Process, String>,
}

impl Client {
    fn step(&mut self, request: &Request) -> Result<Value, StepError> {
        let process = match &mut self.process {
            Ok(process) => process,
            Err(problem) => return Err(StepError::Lost(problem.clone())),
        };
        let answer = ask(process, request);
        self.result(request, answer)
    }

    /// Returns the result of a step from the answer to its request.
    fn result(
        &mut self,
        request: &Request,
        answer: Result<Answer, String>,
    ) -> Result<Value, StepError> {
        let problem = match answer {
            Ok(Answer::Ok(value)) if answers(request, &value) => return Ok(value),
            Ok(Answer::Aborted(reason)) => return Err(StepError::Aborted(reason)),
            Ok(Answer::Refused(_)) => return Err(StepError::Refused),
            Ok(Answer::Lost(reason)) => reason,
            Ok(answer) => unexpected(request, &answer),
            Err(problem) => problem,
        };
        self.process = Err(problem.clone());
        Err(StepError::Lost(problem))
    }

    fn execute(&mut self, request: &Request) -> Result<(), StepError> {
        self.step(request).map(drop)
    }
}

/// Returns whether the value has the type that the request asks for.
fn answers(request: &Request, value: &Value) -> bool {
    match (request, value) {
        (Request::Read { .. }, Value::Number(_) | Value::Nothing) => true,
        (Request::Count { .. }, Value::Number(number)) => *number >= 0,
        (Request::Read { .. } | Request::Count { .. }, _) => false,
        (_, value) => *value == Value::Nothing,
    }
}

impl Connection for Client {
    fn begin(&mut self) -> Result<(), StepError> {
        self.execute(&Request::Begin)
    }

    fn read(&mut self, key: Key) -> Result<Option<i64>, StepError> {
        match self.step(&Request::Read { key })? {
            Value::Number(value) => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    fn write(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.execute(&Request::Write { key, value })
    }

    fn insert(&mut self, key: Key, value: i64) -> Result<(), StepError> {
        self.execute(&Request::Insert { key, value })
    }

    fn delete(&mut self, key: Key) -> Result<(), StepError> {
        self.execute(&Request::Delete { key })
    }

    fn count(&mut self, range: Range<Key>) -> Result<u64, StepError> {
        let (from, to) = (range.start, range.end);
        match self.step(&Request::Count { from, to })? {
            Value::Number(number) => Ok(number.unsigned_abs()),
            _ => Ok(0),
        }
    }

    fn commit(&mut self) -> Result<(), StepError> {
        self.execute(&Request::Commit)
    }

    fn commit_and_kill(&mut self, delay: Duration) -> Option<Result<(), StepError>> {
        let request = Request::Commit;
        let Ok(process) = &mut self.process else {
            return Some(self.execute(&request));
        };
        let line = line(&request);
        let answer = match process.ask_within(&line, delay) {
            Ok(None) => {
                // The process is killed when it is dropped.
                self.process = Err("the client was killed during the commit".into());
                return None;
            }
            Ok(Some(answer)) => parsed(&line, &answer),
            Err(problem) => Err(problem),
        };
        Some(self.result(&request, answer).map(drop))
    }

    fn abort(&mut self) -> Result<(), StepError> {
        self.execute(&Request::Abort)
    }
}
