//! `outlive store table`, `get`, `put`, `delete`, `scan`, `dump` and `load`.

use crate::support::{Place, Running, outlive};
use outlive_store::servers::Store;

/// A store.
pub struct Bank(String);

impl Bank {
    /// Creates a store with two memory servers.
    pub fn new(name: &str) -> (Self, [Running; 2]) {
        Self::with(name, &[])
    }

    /// The same with more arguments of `store create`.
    pub fn with(name: &str, arguments: &[&str]) -> (Self, [Running; 2]) {
        let path = format!("/dev/shm/outlive-cli-{name}-{}", std::process::id());
        let create = ["store", "create", &path].into_iter();
        outlive(create.chain(arguments.iter().copied())).succeeds();
        let memory = [(); 2].map(|()| {
            let mut memory = Running::start(["store", "memory", &path, "--size", "4M"]);
            memory.wait_for(&["memory server"]);
            memory
        });
        (Self(path), memory)
    }

    pub fn path(&self) -> &str {
        &self.0
    }

    pub fn says(&self, command: &str, arguments: &[&str]) -> String {
        outlive(
            ["store", command, &self.0]
                .into_iter()
                .chain(arguments.iter().copied()),
        )
        .succeeds()
    }

    fn fails(&self, code: i32, command: &str, arguments: &[&str], message: &str) {
        outlive(
            ["store", command, &self.0]
                .into_iter()
                .chain(arguments.iter().copied()),
        )
        .fails(code, message);
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        let _ = Store::destroy(&self.0);
    }
}

#[test]
fn rows_are_written_read_and_deleted() {
    let (bank, mut memory) = Bank::new("rows");
    bank.fails(1, "get", &["names", "7"], "no tables");
    assert_eq!(
        bank.says("table", &["names", "--keys", "100", "--value-bytes", "16"]),
        "table 0, names\n"
    );
    bank.says("table", &["names", "--keys", "100", "--value-bytes", "16"]);
    bank.fails(
        1,
        "table",
        &["names", "--keys", "100"],
        "values of 16 bytes",
    );
    bank.says("table", &["balances", "--keys", "100"]);
    bank.fails(
        1,
        "get",
        &["name", "7"],
        "no table `name`; its tables are names, balances",
    );

    assert_eq!(bank.says("put", &["names", "7", "ada"]), "inserted key 7\n");
    assert_eq!(bank.says("put", &["names", "7", "bob"]), "replaced key 7\n");
    bank.says("put", &["names", "8", "0x00ff"]);
    bank.fails(
        2,
        "put",
        &["names", "9", "seventeen letters"],
        "has 17 bytes",
    );
    bank.fails(2, "put", &["names", "9", "0x0"], "even number");
    assert_eq!(
        bank.says("get", &["names", "7", "8"]),
        "bob\n0x00ff0000000000000000000000000000\n"
    );
    bank.says("put", &["balances", "7", "-100", "--numbers"]);
    assert_eq!(bank.says("get", &["balances", "7", "--numbers"]), "-100\n");
    let missing = outlive(["store", "get", &bank.0, "names", "7", "9"]).says(1);
    assert!(missing.contains("bob"), "{missing}");

    // A memory server dies, and the rows are still there.
    memory[0].kill();
    assert_eq!(bank.says("scan", &["names", "--to", "7"]), "7\tbob\n");
    let metrics = bank.says("status", &["--metrics"]);
    for line in [
        "# TYPE outlive_store_commits counter",
        "outlive_store_epoch 1",
        "outlive_store_memory_servers{state=\"live\"} 1",
        "outlive_store_table_slots{table=\"names\"} 768",
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
    let commits = |metrics: &str| -> u64 {
        let line =
            { metrics.lines() }.find_map(|it| it.strip_prefix("outlive_store_commits_total "));
        line.expect("a number of commits").parse().unwrap()
    };
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    assert_eq!(bank.says("delete", &["names", "7"]), "deleted key 7\n");
    let after = bank.says("status", &["--metrics"]);
    assert!(
        commits(&metrics) > 4 && commits(&after) > commits(&metrics),
        "{after}"
    );
    outlive(["store", "delete", &bank.0, "names", "7"]).says(1);
    assert_eq!(
        bank.says("scan", &["names", "--from", "0", "--to", "7"]),
        ""
    );
    bank.fails(
        2,
        "scan",
        &["names", "--from", "8", "--to", "7"],
        "must not be greater",
    );
    bank.says("check", &[]);
    let [_, mut second] = memory;
    second.interrupt();
    second.ends();
}

#[test]
fn a_dump_is_loaded_into_another_store() {
    let (bank, mut memory) = Bank::new("dump");
    let place = Place::new("dump");
    let file = format!("{}.dump", place.path());
    bank.says("table", &["names", "--keys", "100", "--value-bytes", "16"]);
    bank.says("table", &["balances", "--keys", "100"]);
    for key in ["0", "7", "18446744073709551615"] {
        bank.says("put", &["names", key, "ada"]);
    }
    bank.says("put", &["balances", "7", "100", "--numbers"]);
    // The store's own files are not replaced.
    let own = bank.0.clone();
    bank.fails(1, "dump", &[&own], "would be replaced");
    let printed = bank.says("dump", &["/dev/stdout"]);
    assert!(
        printed.ends_with("}\n") && printed.lines().count() == 8,
        "{printed}"
    );
    let dumped = bank.says("dump", &[&file]);
    assert!(dumped.starts_with("4 rows of 2 tables"), "{dumped}");

    let (other, mut others) = Bank::new("loaded");
    other.fails(1, "load", &["/no/file"], "/no/file cannot be read");
    let whole = std::fs::read(&file).unwrap();
    assert_eq!(String::from_utf8(whole.clone()).unwrap(), printed);
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    other.fails(1, "load", &[&file], "nothing was written");
    std::fs::write(&file, &whole).unwrap();
    for _ in 0..2 {
        assert_eq!(other.says("load", &[&file]), "loaded 4 rows of 2 tables\n");
    }
    for table in ["names", "balances"] {
        assert_eq!(bank.says("scan", &[table]), other.says("scan", &[table]));
    }
    let again = format!("{file}.again");
    other.says("dump", &[&again]);
    assert_eq!(std::fs::read(&again).unwrap(), whole);
    std::fs::remove_file(&again).unwrap();
    std::fs::remove_file(&file).unwrap();
    other.fails(1, "dump", &["/no/folder/file"], "cannot be written");
    for server in memory.iter_mut().chain(&mut others) {
        server.interrupt();
        server.ends();
    }
}

#[test]
fn tables_are_scanned_while_a_program_changes_them() {
    use outlive_store::verbs::block_on;
    let (bank, mut memory) = Bank::new("scanned");
    bank.says("table", &["balances", "--keys", "100"]);
    bank.says("put", &["balances", "0", "100", "--numbers"]);
    bank.says("put", &["balances", "1", "0", "--numbers"]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let compute = Store::open(&bank.0).unwrap().join_compute().unwrap();
            let balances = compute.table::<i64>("balances", 100).unwrap();
            let mut coordinator = compute.worker().unwrap().coordinator().unwrap();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                block_on(coordinator.transaction(async |tx| {
                    tx.update(balances, 0, |it| it - 1).await?;
                    tx.update(balances, 1, |it| it + 1).await
                }))
                .unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        for _ in 0..10 {
            let scanned = bank.says("scan", &["balances", "--numbers"]);
            let values = scanned.lines().map(|it| it.split_once('\t').unwrap().1);
            let sum: i64 = values.map(|it| it.parse::<i64>().unwrap()).sum();
            assert_eq!(sum, 100, "{scanned}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    for server in &mut memory {
        server.interrupt();
        server.ends();
    }
}
