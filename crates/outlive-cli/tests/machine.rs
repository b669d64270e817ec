//! The simulated machine from the command line: what is said about traces.

mod support;

use outlive_machine::program::Word;
use outlive_machine::trace::{About, Encoding, Event, TraceWriter};
use serde_json::Value;
use support::outlive;

fn trace() -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), 2, Encoding::Deflate).unwrap();
    writer.image(Word(0), &[1, 2]).unwrap();
    for thread in 0..2 {
        writer.event(thread, Event::Compute(3)).unwrap();
        let word = Word(7);
        writer
            .event(thread, Event::Load { word, value: None })
            .unwrap();
        writer
            .event(thread, Event::Store { word, value: 5 })
            .unwrap();
    }
    let origin = vec![("program".into(), "a \u{1b}[31mtest".into())];
    let about = About {
        words: 8,
        threads: 2,
        origin,
        ..About::default()
    };
    writer.finish(&about).unwrap()
}

#[test]
fn a_trace_is_described() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    std::fs::write(&file, trace()).unwrap();
    let path = file.to_str().unwrap();
    let json = outlive(["machine", "trace-info", path, "--json"]).succeeds();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["total"]["instructions"], 10);
    assert_eq!(json["threads"][1]["loads"], 1);
    assert_eq!(json["total"]["store_fraction"], 0.5);
    assert_eq!(
        (&json["shared_bytes"], &json["image_bytes"]),
        (&64.into(), &16.into())
    );
    let text = outlive(["machine", "trace-info", path]).succeeds();
    assert!(
        text.contains("instructions") && !text.contains('\u{1b}'),
        "{text}"
    );
}

#[test]
fn a_cut_trace_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace");
    let mut bytes = trace();
    bytes.truncate(bytes.len() - 1);
    std::fs::write(&file, bytes).unwrap();
    outlive(["machine", "trace-info", file.to_str().unwrap()]).fails(1, "ends too early");
}
