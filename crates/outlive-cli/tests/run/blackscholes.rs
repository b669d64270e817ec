//! `outlive run blackscholes`: hosts are killed, and the prices are those of the plain program, to
//! the last bit.

use crate::support::outlive;
use crate::support::programs::{
    an_interrupted_run_leaves_nothing, is_the_same_however_hosts_are_killed, refused, run,
};
use crate::support::run::Stage;
use outlive_programs::blackscholes::{Normal, Portfolio, price, prices_text};
use std::fs;

/// Two options of PARSEC's input (Hull's example 15.6), with their references.
const PARSEC: &[u8] = b"2
42.00 40.00 0.1000 0.00 0.20 0.50 C 0.00 4.759423036851750055
42.00 40.00 0.1000 0.00 0.20 0.50 P 0.00 0.808600016880314021
";

#[test]
fn prices_are_the_same_to_the_last_bit_however_hosts_are_killed() {
    let stage = Stage::new("blackscholes-killed");
    let portfolio = Portfolio::generate(5000, 4);
    let path = stage.write("portfolio.txt", portfolio.to_text().as_bytes());
    let expected = prices_text(&price(&portfolio, Normal::Polynomial));
    let pricing = ["blackscholes", &path, "--task-options", "41", "--verify"];
    is_the_same_however_hosts_are_killed(&stage, &pricing, &expected, true, |summary| {
        assert_eq!(summary["result"]["verified"], true);
        assert_eq!(summary["result"]["options"], 5000);
        assert_eq!(summary["units"], 5000u64.div_ceil(41));
    });
    let pricing = [
        "blackscholes",
        "random:5000:4",
        "--normal",
        "accurate",
        "--verify",
    ];
    let (found, summary) = run(&stage, &[&pricing[..], &["--task-options", "700"]].concat());
    assert_eq!(found, prices_text(&price(&portfolio, Normal::Accurate)));
    assert_eq!(summary["result"]["normal"], "accurate");
    // More than fit in one array.
    let many = Portfolio::generate(160_000, 1);
    let pricing = [
        "blackscholes",
        "random:160000",
        "--task-options",
        "7000",
        "--kill",
        "2",
    ];
    let (found, _) = run(&stage, &pricing);
    assert!(found == prices_text(&price(&many, Normal::Polynomial)));
}

#[test]
fn parsecs_options_are_priced() {
    let stage = Stage::new("blackscholes-parsec");
    let path = stage.write("in.txt", PARSEC);
    let (found, _) = run(&stage, &["blackscholes", &path, "--kill", "1", "--verify"]);
    let prices: Vec<f64> = found.lines().map(|line| line.parse().unwrap()).collect();
    // As in Hull, but for the polynomial.
    for (price, expected) in prices.iter().zip([2.0, 4.759_422, 0.808_600]) {
        assert!((price - expected).abs() < 1e-5, "{found}");
    }
    let none = stage.write("none.txt", b"0\n");
    let (found, _) = run(&stage, &["blackscholes", &none, "--verify"]);
    assert_eq!(found, "0\n");
    // As text.
    let shown = outlive(["run", "blackscholes", &path, "--kill", "1", "--verify"]).succeeds();
    assert!(shown.contains("2 options of "), "{shown}");
    assert!(shown.contains("worth 5.568"), "{shown}");
    assert!(shown.contains("nothing was lost"), "{shown}");
    assert!(shown.contains("and 2 with the integration"), "{shown}");
    // Wrong references.
    let wrong = String::from_utf8(PARSEC.to_vec())
        .unwrap()
        .replace("4.759", "4.859");
    let wrong = stage.write("wrong.txt", wrong.as_bytes());
    let verified = outlive(["run", "blackscholes", &wrong, "--verify", "--json"]);
    assert!(
        verified.output.contains("\"verified\": false"),
        "{}",
        verified.output
    );
    verified.fails(1, "the price of option 0 is");
}

#[test]
fn what_cannot_be_priced_is_refused() {
    let stage = Stage::new("blackscholes-refused");
    let pricing = |arguments: &[&str]| {
        let mut all = vec!["blackscholes"];
        all.extend(arguments);
        refused(&all)
    };
    pricing(&[&stage.path("missing")]).fails(1, "missing cannot be read: No such file");
    let few = stage.write("few", &PARSEC[..70]);
    pricing(&[&few]).fails(1, "few: ");
    let words = stage.write("words", b"hello\n");
    pricing(&[&words]).fails(
        1,
        "words: line 1: \u{201c}hello\u{201d} is not the number of options",
    );
    let zero = stage.write("zero", b"1\n42 40 .1 0 0 .5 C 0 0\n");
    pricing(&[&zero]).fails(1, "zero: line 2: the volatility is 0");
    pricing(&["random:0"]).fails(2, "write random:COUNT[:SEED], COUNT from 1 to 100000000");
    pricing(&["random:9", "--task-options", "0"]).fails(2, "--task-options");
    let kept = stage.write("kept", PARSEC);
    pricing(&[&kept, "--output", &kept]).fails(1, "would be replaced");
    assert_eq!(fs::read(&kept).unwrap(), PARSEC);
    pricing(&["random:300000", "--size", "8M"]).fails(1, "--size");
    let none = [
        "random:999",
        "--task-options",
        "9",
        "--hosts",
        "2",
        "--kill",
        "2",
    ];
    pricing(&[&none[..], &["--supervise", "none"]].concat()).fails(1, "all 2 hosts are dead");
}

#[test]
fn an_interrupted_pricing_leaves_nothing() {
    let _stage = Stage::new("blackscholes-interrupted");
    an_interrupted_run_leaves_nothing(&["blackscholes", "random:2000000", "--task-options", "1"]);
}
