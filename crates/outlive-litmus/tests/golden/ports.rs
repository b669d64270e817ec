//! Ports for servers. The kernel assigns ports of its ephemeral range to connections of clients,
//! also the port of a server that was killed and has not been restarted. Servers therefore listen
//! on ports outside this range.

use std::collections::HashSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Well-known services have ports below this one.
const FIRST: u16 = 10_000;

/// The ports that this process has used: servers that start at the same time need different ones.
static USED: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// Returns a port of 127.0.0.1 that no server listens on. Each call returns a different port.
pub fn next() -> u16 {
    let mut used = USED.lock().unwrap_or_else(PoisonError::into_inner);
    let ephemeral = ephemeral();
    let mut ports: Vec<u16> = (FIRST..=u16::MAX)
        .filter(|it| !ephemeral.contains(it))
        .collect();
    if ports.is_empty() {
        ports = ephemeral.collect();
    }
    fastrand::shuffle(&mut ports);
    let is_free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let port = ports
        .into_iter()
        .find(|it| !used.contains(it) && is_free(*it))
        .expect("a port of 127.0.0.1 is free");
    used.insert(port);
    port
}

/// Returns the ports that the kernel gives to connections.
fn ephemeral() -> RangeInclusive<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = text.split_whitespace().map(|it| it.parse().unwrap());
    let default = [32_768, 60_999];
    let [first, last] = default.map(|it| bounds.next().unwrap_or(it));
    first..=last
}
