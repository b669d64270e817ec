//! Any bytes are an edge list or a Matrix Market file, packed perhaps, whose graph can be relied
//! on, or are refused.
//!
//! Each input is tried as it is, and again behind what begins a list with each separator, a matrix
//! and each packed file: a fuzzer would find these late by itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive_programs::graph::{Graph, GraphError, edge_list, matrix_market};
use std::io::Cursor;

fn check(graph: Result<Graph, GraphError>) {
    let Ok(graph) = graph else {
        return;
    };
    let begins = graph.begins();
    assert_eq!(begins.len(), graph.vertices() as usize + 1);
    assert!(begins.is_sorted());
    assert_eq!(begins.last(), Some(&graph.edges()));
    assert!(graph.sources().iter().all(|source| *source < graph.vertices()));
    for vertex in 0..graph.vertices() {
        let label = graph.label(vertex).to_string();
        assert!(!label.contains(|c: char| c.is_ascii_control()), "{label:?}");
    }
}

fuzz_target!(|bytes: &[u8]| {
    let path = "fuzzed".as_ref();
    let begins: [&[u8]; 10] = [
        b"",
        b"1 2\n",
        b"source,target\n",
        b"\"a\";b\n",
        b"a\tb\n1\t2\n",
        b"\x1F\x8B\x08\0\0\0\0\0\0\x03",
        b"\xFD7zXZ\0\0\x04\xE6\xD6\xB4\x46",
        b"\x28\xB5\x2F\xFD\x04\x58",
        b"BZh9\x31\x41\x59\x26\x53\x59",
        b"1\r",
    ];
    for begin in begins {
        let list = Cursor::new([begin, bytes].concat());
        check(edge_list::read(list, path));
    }
    // Of few rows: one with many takes the memory that its size line says.
    let matrix = [b"%%MatrixMarket matrix coordinate real symmetric\n9 9 ", bytes].concat();
    check(matrix_market::read(Cursor::new(matrix), path));
});
