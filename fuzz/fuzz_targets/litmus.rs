//! Any text is a list of litmus tests, which are printed as a text of the same tests, or is refused
//! at a place of it.
//!
//! Each input is tried as it is, and as the transactions or the assertion of a test that is sound
//! without it: a fuzzer would find these late by itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive_litmus::text::{parse, print};

const BEGIN: &str = "test a about \"b\" family read-write objects x = 0, y absent ";
const TRANSACTION: &str = "transaction t1 { a = read x n = count objects } ";
const END: &str = " forbidden from snapshot";

fn check(text: &str) {
    match parse(text) {
        Ok(tests) => {
            for test in tests {
                assert_eq!(parse(&print(&test)), Ok(vec![test]));
            }
        }
        Err(error) => {
            let line = text.split('\n').nth(error.line - 1).expect("a line of the text");
            assert!(error.column <= line.chars().count() + 1, "{error}");
            assert!(!error.to_string().contains(char::is_control), "{error}");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    check(&text);
    check(&format!("{BEGIN}transaction t1 {{ a = read x {text} }} never x = 1{END}"));
    check(&format!("{BEGIN}{TRANSACTION}never {text}{END}"));
    check(&format!("{BEGIN}{TRANSACTION}always x = {text}{END}"));
});
