//! Rows of stores that are served by a [`Server`].

use crate::rows::{Row, judge, options};
use crate::servers::Server;
use outlive_litmus::run::{self, Limit, Outage, Outages, Survival, Verdict};
use outlive_litmus::suite;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// Executes the suite for each row, and asserts that exactly the tests of the row fail, and its
/// level.
pub fn assert_judged(server: &Server, rows: &[Row]) {
    let judge = |row: &Row| judge(&server.driver(row.parameters), row).err();
    let problems: Vec<String> = rows.iter().filter_map(judge).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

enum Request {
    Kill,
    Recover,
}

/// Outages that another thread causes.
struct Relay {
    requests: Sender<Request>,
    answered: Mutex<Receiver<Result<(), String>>>,
}

impl Relay {
    fn request(&self, request: Request) -> Result<(), String> {
        self.requests.send(request).unwrap();
        self.answered.lock().unwrap().recv().unwrap()
    }
}

impl Outage for Relay {
    fn kill(&self) -> Result<(), String> {
        self.request(Request::Kill)
    }

    fn recover(&self) -> Result<(), String> {
        self.request(Request::Recover)
    }
}

/// Kills the server during tests that show halves of transactions, and asserts that they find none.
pub fn assert_no_halves(server: &Server, parameters: &str) {
    let driver = server.driver(parameters);
    let tests: Vec<_> = { suite::tests().into_iter() }
        .filter(|it| ["litmus-1", "litmus-1-insert-delete"].contains(&&*it.name))
        .collect();
    let options = options(Limit::Time(Duration::from_secs(2)));
    // A server that a thread of the run started would be killed with that thread.
    let (requests, received) = mpsc::channel();
    let (answers, answered) = mpsc::channel();
    let relay = Relay {
        requests,
        answered: Mutex::new(answered),
    };
    let report = thread::scope(|scope| {
        let running = scope.spawn(move || {
            let outages = Some(Outages {
                outage: &relay,
                each: 2,
            });
            let stop = AtomicBool::new(false);
            run::run_with_outages(&driver, &tests, &options, outages, &stop, &mut |_| ())
        });
        for request in received {
            let done = match request {
                Request::Kill => server.kill(),
                Request::Recover => server.recover(),
            };
            answers.send(done).unwrap();
        }
        running.join().unwrap().unwrap()
    });
    assert_eq!(report.tests.len(), 2);
    for test in &report.tests {
        eprintln!("{parameters}: {}: {} kills", test.name, test.kills);
        // A slow disk leaves time for few trials.
        let is_quiet = matches!(test.verdict, Verdict::Passed | Verdict::NotExercised(_));
        assert!(is_quiet && test.kills == 2, "{test:#?}");
    }
}

/// Kills the server while clients write, until a write is lost or for `kills` times.
pub fn survive(server: &Server, parameters: &str, kills: u64) -> Survival {
    let (driver, options) = (&server.driver(parameters), options(Limit::Instances(1)));
    let survival = run::survive(driver, server, kills, &options, &AtomicBool::new(false)).unwrap();
    eprintln!("{parameters}: {survival:?}");
    assert!(
        survival.acknowledged > 0 && survival.blocked.is_none(),
        "{survival:?}"
    );
    survival
}
