//! Targets of Redis.

use outlive_litmus::driver;

#[test]
fn targets_are_refused() {
    let refusal = |target: &str| driver::open(target).err().unwrap().to_string();
    assert!(refusal("redis:").contains("write `redis://HOST:PORT/DATABASE`"));
    assert!(refusal("redis://127.0.0.1/x").contains("write `redis://HOST:PORT/DATABASE`"));
    assert!(refusal("redis://127.0.0.1?mode=multi").contains("not one of plain, watch, lua"));

    // No server listens at this port.
    let driver = driver::open("redis://127.0.0.1:1").unwrap();
    let problem = driver.create().unwrap_err().problem;
    assert!(problem.starts_with("Redis: "), "{problem}");
    assert!(driver.connect().is_err());
}
