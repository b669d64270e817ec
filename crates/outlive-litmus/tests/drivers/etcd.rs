//! Targets of etcd.

use outlive_litmus::driver;

#[test]
fn targets_are_refused() {
    let refusal = |target: &str| driver::open(target).err().unwrap().to_string();
    for target in ["etcd:", "etcd:127.0.0.1:2379", "etcd://127.0.0.1:2379,"] {
        assert!(refusal(target).contains("write `etcd://HOST:PORT`"));
    }
    let reads = refusal("etcd://127.0.0.1:2379?reads=local");
    assert!(reads.contains("not one of linearizable, serializable"));

    // No server listens at this port.
    let driver = driver::open("etcd://127.0.0.1:1").unwrap();
    let problem = driver.create().unwrap_err().problem;
    assert!(problem.starts_with("etcd at 127.0.0.1:1: "), "{problem}");
    assert!(driver.connect().is_err());
}
