//! etcd. Its transactions are strictly serializable. Serializable reads are local to a member: a
//! transaction that only reads can miss commits that were acknowledged before it began.

use crate::rows::{Row, run_test};
use crate::served::{assert_judged, assert_no_halves, survive};
use crate::servers::{Place, Program, Server, words};
use outlive_litmus::driver::{StepError, conformance};
use outlive_litmus::run::{Judgement, Outage, Report};
use outlive_litmus::suite;
use outlive_litmus::test::Test;

/// A cluster, with the number of its members.
struct Etcd(usize);

/// Returns the ports of each member, for clients and for the other members.
fn members(place: &Place) -> &[[u16; 2]] {
    place.ports.as_chunks().0
}

impl Program for Etcd {
    fn needs(&self) -> Vec<&'static str> {
        vec!["etcd", "sh"]
    }

    fn ports(&self) -> usize {
        2 * self.0
    }

    fn prepare(&self, _place: &Place) -> Option<Vec<String>> {
        None
    }

    fn serve(&self, place: &Place) -> Vec<String> {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let peers: Vec<String> = { members(place).iter() }
            .map(|[client, peer]| format!("m{client}={}", url(*peer)))
            .collect();
        let member = |[client, peer]: &[u16; 2]| {
            let (data, peers) = (place.path(&format!("m{client}")), peers.join(","));
            let (client_url, peer_url) = (url(*client), url(*peer));
            format!(
                "setpriv --pdeathsig KILL etcd --name m{client} --data-dir {data} \
                 --listen-client-urls {client_url} --advertise-client-urls {client_url} \
                 --listen-peer-urls {peer_url} --initial-advertise-peer-urls {peer_url} \
                 --initial-cluster {peers} --logger zap --log-level error &"
            )
        };
        let members: Vec<String> = members(place).iter().map(member).collect();
        let mut command = words("sh -c");
        command.push(format!("{} wait", members.join(" ")));
        command
    }

    fn target(&self, place: &Place) -> String {
        let clients = { members(place).iter() }.map(|[client, _]| format!("127.0.0.1:{client}"));
        format!("etcd://{}", clients.collect::<Vec<_>>().join(","))
    }
}

#[test]
fn levels() {
    let Some(server) = Server::start(Etcd(1)) else {
        return;
    };
    let row = Row {
        parameters: "reads=linearizable",
        level: "strict-serializable",
        violated: &[],
        permitted: &[],
    };
    assert_judged(&server, &[row]);
    // The only member does not lag.
    let serializable = server.driver("reads=serializable");
    conformance::check(&*serializable).unwrap();
}

/// Final states are read from members that lag, too, so any test can find a stale one. It refutes
/// only levels with real time.
#[test]
fn reads_of_a_lagging_member() {
    let Some(server) = Server::start(Etcd(3)) else {
        return;
    };
    let driver = server.driver("reads=serializable");
    let run = |test: &Test| run_test(&driver, test, test.name == "stale-read");
    let report = Report {
        seed: 0,
        crashes: false,
        tests: suite::tests().iter().map(run).collect(),
        left: None,
        is_stopped: false,
    };
    let violated: Vec<&str> = report.violated().map(|it| &*it.name).collect();
    let judgement = Judgement::new(&report);
    eprintln!("reads=serializable: {judgement}, violated: {violated:?}");
    assert!(violated.contains(&"stale-read"), "{violated:?}");
    let levels = "strict-read-committed and serializable";
    assert_eq!(judgement.to_string(), levels, "{report:#?}");
    assert_eq!(judgement.levels, judgement.not_refuted, "{report:#?}");
}

#[test]
fn acknowledged_writes() {
    let Some(server) = Server::start(Etcd(1)) else {
        return;
    };
    let survival = survive(&server, "", 3);
    assert_eq!((survival.kills, survival.lost), (3, None));
}

#[test]
fn a_commit_without_an_answer_is_unknown() {
    let Some(server) = Server::start(Etcd(1)) else {
        return;
    };
    let driver = server.driver("");
    driver.set(&[(1, Some(10))]).unwrap();
    let problem = driver.create().unwrap_err().problem;
    assert!(problem.contains("`outlive_litmus/...` exist"), "{problem}");
    let mut client = driver.connect().unwrap();
    client.begin().unwrap();
    client.write(1, 11).unwrap();
    server.kill().unwrap();
    assert!(matches!(client.commit(), Err(StepError::Lost(_))));
}

#[test]
fn no_half_of_a_transaction_survives_a_kill() {
    if let Some(server) = Server::start(Etcd(1)) {
        assert_no_halves(&server, "");
    }
}
