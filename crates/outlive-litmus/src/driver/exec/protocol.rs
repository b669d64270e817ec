//! The requests and answers of the protocol, as `docs/litmus-driver.md` describes them.

use crate::driver::{Capabilities, Key, StepError};
use serde::{Deserialize, Serialize};

/// The version of the protocol.
pub(super) const VERSION: u64 = 1;

/// The longest line that the tester reads, in bytes.
pub(super) const MAX_LINE: usize = 64 << 10;

/// The largest number of objects in one request.
pub(super) const MAX_OBJECTS: usize = 500;

/// A request of the tester.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(super) enum Request {
    /// Asks for the version and the capabilities; the first request.
    Hello {
        version: u64,
    },
    /// [`Driver::create`](crate::driver::Driver::create).
    Create,
    /// [`Driver::set`](crate::driver::Driver::set).
    Set {
        objects: Vec<(Key, Option<i64>)>,
    },
    /// [`Driver::destroy`](crate::driver::Driver::destroy).
    Destroy,
    /// The steps of a transaction, as those of [`Connection`](crate::driver::Connection).
    Begin,
    Read {
        key: Key,
    },
    Write {
        key: Key,
        value: i64,
    },
    Insert {
        key: Key,
        value: i64,
    },
    Delete {
        key: Key,
    },
    /// The range is half-open: `from` is in it, `to` is not.
    Count {
        from: Key,
        to: Key,
    },
    Commit,
    Abort,
}

/// An answer of the store's program.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Answer {
    /// The request was executed.
    Ok(Value),
    /// [`StepError::Aborted`].
    Aborted(String),
    /// [`StepError::Refused`]; the text is for readers only.
    Refused(Option<String>),
    /// [`StepError::Lost`].
    Lost(String),
    /// A request that is not a step failed, or the request was not understood.
    Error(String),
}

/// The value in the answer to a request that was executed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Value {
    /// To `hello`.
    Hello(Hello),
    /// To `read`, if the object is present, and to `count`.
    Number(i64),
    /// To `read`, if the object is absent, and to the others.
    Nothing,
}

/// The answer to `hello`. A capability that is not named is `false`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub version: u64,
    #[serde(default)]
    pub insert_delete: bool,
    #[serde(default)]
    pub count: bool,
    #[serde(default)]
    pub abort: bool,
}

impl Hello {
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            insert_delete: self.insert_delete,
            count: self.count,
            abort: self.abort,
        }
    }
}

impl From<Capabilities> for Hello {
    fn from(capabilities: Capabilities) -> Self {
        let Capabilities {
            insert_delete,
            count,
            abort,
        } = capabilities;
        Self {
            version: VERSION,
            insert_delete,
            count,
            abort,
        }
    }
}

impl From<StepError> for Answer {
    fn from(error: StepError) -> Self {
        match error {
            StepError::Aborted(reason) => Self::Aborted(reason),
            StepError::Refused => Self::Refused(None),
            StepError::Lost(reason) => Self::Lost(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that lines have the form in the document.
    #[test]
    fn lines_have_the_documented_form() {
        let requests = [
            (
                Request::Hello { version: 1 },
                r#"{"do":"hello","version":1}"#,
            ),
            (
                Request::Set {
                    objects: vec![(7, Some(-1)), (8, None)],
                },
                r#"{"do":"set","objects":[[7,-1],[8,null]]}"#,
            ),
            (Request::Begin, r#"{"do":"begin"}"#),
            (
                Request::Count { from: 2, to: 9 },
                r#"{"do":"count","from":2,"to":9}"#,
            ),
        ];
        for (request, line) in requests {
            assert_eq!(serde_json::to_string(&request).unwrap(), line);
            assert_eq!(serde_json::from_str::<Request>(line).unwrap(), request);
        }
        let hello = Hello::from(Capabilities::ALL);
        let answers = [
            (
                Answer::Ok(Value::Hello(hello)),
                r#"{"ok":{"version":1,"insert_delete":true,"count":true,"abort":true}}"#,
            ),
            (Answer::Ok(Value::Number(-5)), r#"{"ok":-5}"#),
            (Answer::Ok(Value::Nothing), r#"{"ok":null}"#),
            (Answer::Aborted("late".into()), r#"{"aborted":"late"}"#),
            (Answer::Refused(None), r#"{"refused":null}"#),
        ];
        for (answer, line) in answers {
            assert_eq!(serde_json::to_string(&answer).unwrap(), line);
            assert_eq!(serde_json::from_str::<Answer>(line).unwrap(), answer);
        }
        for line in ["{}", "[]", "1", r#"{"ok":1.5}"#, r#"{"ok":null,"lost":""}"#] {
            assert!(serde_json::from_str::<Answer>(line).is_err(), "{line}");
        }
    }
}
