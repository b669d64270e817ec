//! etcd, by its JSON gateway: `etcd://HOST:PORT,HOST:PORT?reads=READS`. Connections are distributed
//! among the members.
//!
//! | reads | meaning |
//! | --- | --- |
//! | `linearizable` | each read sees all commits that were acknowledged before it (the default) |
//! | `serializable` | the member reads its own state; all reads of a transaction are of one revision |
//!
//! A transaction keeps its writes. Its commit is one transaction of etcd, which compares the
//! revisions of all objects that were read. With serializable reads, a transaction without writes
//! commits without a request: the comparison would wait for the state of the other members.

use super::optimistic::{Object, Optimistic, Requests};
use super::target::{Parameters, Scheme};
use super::{Capabilities, Connection, Driver, DriverError, Key, StepError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use ureq::Agent;

/// The scheme `etcd`.
pub const SCHEME: Scheme = Scheme {
    name: "etcd",
    form: "etcd://HOST:PORT",
    about: "members of etcd, separated by commas; ?reads=linearizable or serializable",
    open: |target, place| Ok(Box::new(Etcd::new(target, place)?)),
};

/// The time in which a member has to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The number of operations of a request; etcd's limit is 128 by default.
const OPERATIONS: usize = 100;

/// A cluster of etcd.
#[derive(Debug)]
pub struct Etcd {
    target: String,
    members: Vec<String>,
    /// The number of connections so far.
    connections: AtomicUsize,
    is_serializable: bool,
}

impl Etcd {
    /// Returns the driver for `target`, with `place` as the part after the scheme.
    ///
    /// # Errors
    /// If the target names no member, or a parameter has no such value.
    pub fn new(target: &str, place: &str) -> Result<Self, DriverError> {
        let (address, mut given) = Parameters::split(target, place)?;
        let reads = given.choice("reads", &["linearizable", "serializable"])?;
        given.end()?;
        let members = address.strip_prefix("//").unwrap_or_default().split(',');
        let members: Vec<_> = members.map(str::to_owned).collect();
        if members.iter().any(String::is_empty) {
            let problem = "the target names no member; write `etcd://HOST:PORT`";
            return Err(DriverError::malformed(target, problem));
        }
        Ok(Self {
            target: target.into(),
            members,
            connections: AtomicUsize::new(0),
            is_serializable: reads == Some("serializable"),
        })
    }

    /// Executes a request at a member.
    fn execute(&self, member: &str, method: &str, request: &Value) -> Result<Value, DriverError> {
        let answer = Member::new(member).call(method, request);
        answer.map_err(|problem| DriverError::new(&self.target, problem))
    }
}

/// A member, with a connection that is kept open.
struct Member {
    agent: Agent,
    address: String,
}

impl Member {
    fn new(address: &str) -> Self {
        // No proxy of the environment. ureq repeats no request.
        let config = Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE));
        Self {
            agent: config.build().new_agent(),
            address: address.into(),
        }
    }

    /// Returns the answer to a request, or the reason why there is none.
    fn call(&self, method: &str, request: &Value) -> Result<Value, String> {
        let problem = |error: ureq::Error| format!("etcd at {}: {error}", self.address);
        let url = format!("http://{}/v3/kv/{method}", self.address);
        let mut response = self.agent.post(url).send_json(request).map_err(problem)?;
        let answer: Value = response.body_mut().read_json().map_err(problem)?;
        match answer.get("error") {
            None if response.status().is_success() => Ok(answer),
            _ => Err(format!("etcd at {}: {answer}", self.address)),
        }
    }
}

/// Returns the name of an object. Names have the order of keys.
fn name(key: Key) -> String {
    STANDARD.encode(format!("outlive_litmus/{key:016x}"))
}

/// Returns the range of all names.
fn all() -> Value {
    let [key, end] = ["outlive_litmus/", "outlive_litmus0"].map(|it| STANDARD.encode(it));
    json!({ "key": key, "range_end": end })
}

/// Returns the operation that sets an object.
fn change(key: Key, value: Option<i64>) -> Value {
    match value.map(|it| STANDARD.encode(it.to_string())) {
        Some(value) => json!({ "request_put": { "key": name(key), "value": value } }),
        None => json!({ "request_delete_range": { "key": name(key) } }),
    }
}

/// Returns a number in an answer, which the gateway writes as a text. It omits zero.
fn number(answer: &Value) -> Option<u64> {
    answer.as_str().map_or(Some(0), |it| it.parse().ok())
}

impl Driver for Etcd {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn create(&self) -> Result<(), DriverError> {
        let found = self.execute(&self.members[0], "range", &all())?;
        if found.get("kvs").is_none() {
            return Ok(());
        }
        let problem = "the keys `outlive_litmus/...` exist, after another run perhaps; remove them \
                       with `etcdctl del --prefix outlive_litmus/`";
        Err(DriverError::new(&self.target, problem))
    }

    fn set(&self, objects: &[(Key, Option<i64>)]) -> Result<(), DriverError> {
        for some in objects.chunks(OPERATIONS) {
            let changes: Vec<_> = some
                .iter()
                .map(|(key, value)| change(*key, *value))
                .collect();
            self.execute(&self.members[0], "txn", &json!({ "success": changes }))?;
        }
        // A linearizable read returns after its member has applied all commits before it.
        for member in self.members.iter().filter(|_| self.is_serializable) {
            self.execute(member, "range", &json!({ "key": name(0) }))?;
        }
        Ok(())
    }

    fn connect(&self) -> Result<Box<dyn Connection>, DriverError> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let mut client = Client {
            member: Member::new(&self.members[number % self.members.len()]),
            is_serializable: self.is_serializable,
            revision: 0,
        };
        // A request opens the connection.
        let read = client.fetch(0);
        read.map_err(|error| DriverError::new(&self.target, error.to_string()))?;
        Ok(Box::new(Optimistic::new(client)))
    }

    fn destroy(&self) -> Result<(), DriverError> {
        self.execute(&self.members[0], "deleterange", &all())
            .map(drop)
    }
}

struct Client {
    member: Member,
    is_serializable: bool,
    /// The revision of the first serializable read of a transaction.
    revision: u64,
}

impl Requests for Client {
    fn begin(&mut self) -> Result<(), StepError> {
        self.revision = 0;
        Ok(())
    }

    fn fetch(&mut self, key: Key) -> Result<(Option<i64>, u64), StepError> {
        let (is_local, revision) = (self.is_serializable, self.revision);
        // Revision 0 is the newest one.
        let request = json!({ "key": name(key), "serializable": is_local, "revision": revision });
        let answer = self
            .member
            .call("range", &request)
            .map_err(StepError::Lost)?;
        let unexpected = || StepError::Lost(format!("etcd: unexpected answer {answer}"));
        if self.is_serializable && self.revision == 0 {
            self.revision = number(&answer["header"]["revision"]).ok_or_else(unexpected)?;
        }
        let Some(found) = answer["kvs"].get(0) else {
            return Ok((None, 0));
        };
        let value = { found["value"].as_str() }.and_then(|it| STANDARD.decode(it).ok());
        let value = value.and_then(|it| str::from_utf8(&it).ok()?.parse().ok());
        let version = number(&found["mod_revision"]);
        let (value, version) = value.zip(version).ok_or_else(unexpected)?;
        Ok((Some(value), version))
    }

    fn commit(&mut self, objects: &BTreeMap<Key, Object>) -> Result<bool, StepError> {
        let changed = objects.iter().filter(|(_, it)| it.is_changed);
        let changes: Vec<_> = changed.map(|(key, it)| change(*key, it.value)).collect();
        if self.is_serializable && changes.is_empty() {
            return Ok(true);
        }
        // An absent object has the revision 0.
        let is_as_seen = |(key, object): (&Key, &Object)| json!({ "key": name(*key), "target": "MOD", "mod_revision": object.version });
        let compare: Vec<_> = objects.iter().map(is_as_seen).collect();
        let request = json!({ "compare": compare, "success": changes });
        let answer = self.member.call("txn", &request).map_err(StepError::Lost)?;
        Ok(answer["succeeded"] == true)
    }
}
