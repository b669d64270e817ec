//! `outlive pod objects`, `outlive pod dump` and `outlive pod remove-object`, on objects that this
//! process uses.

use crate::support::explained::assert_explained;
use crate::support::{Place, outlive};
use outlive::memory::{Memory, Ordering};
use outlive::pod::{Pod, PodOptions};
use serde_json::{Value, json};

#[test]
fn objects_are_listed_and_removed() {
    let place = Place::new("objects");
    let path = place.path();
    let pod = Pod::create(path, PodOptions::new().size(16 << 20).ids(32)).unwrap();
    let none = outlive(["pod", "objects", path]).succeeds();
    assert_eq!(none, "no named objects\n");
    outlive(["pod", "remove-object", path, "words"]).fails(1, "the object `words` does not exist");
    {
        let session = pod.session().unwrap();
        let words = session.map::<str, u64>("words").unwrap();
        words.insert("ash", &1).unwrap();
        words.insert("oak", &1).unwrap();
        drop(session.counter("hits").unwrap());
        let me = session.member().instance().id;

        let printed = outlive(["pod", "objects", path, "--json"]).succeeds();
        assert_explained("## `outlive pod objects", &printed);
        let json: Value = serde_json::from_str(&printed).unwrap();
        let expected = json!([
            {
                "name": "hits", "type": "counter", "entries": null, "bytes": 8, "holder": null,
                "users": [],
            },
            {
                "name": "words", "type": "map of str to u64", "entries": 2, "bytes": 8,
                "holder": null, "users": [me],
            },
        ]);
        assert_eq!(json, expected);
        let text = outlive(["pod", "objects", path]).succeeds();
        let line = text.lines().find(|line| line.starts_with("words")).unwrap();
        let cells: Vec<_> = line.split_whitespace().collect();
        let id = me.to_string();
        let expected = ["words", "map", "of", "str", "to", "u64", "about", "2", &id];
        assert_eq!(cells, expected);

        outlive(["pod", "remove-object", path, "hits"]).succeeds();
        outlive(["pod", "remove-object", path, "words"]).fails(1, "in use by the members");
        outlive(["pod", "remove-object", path, "words", "--unlink"]).succeeds();
        assert_eq!(words.get("ash"), Some(1));
        assert_eq!(
            outlive(["pod", "objects", path]).succeeds(),
            "no named objects\n"
        );
    }
    outlive(["pod", "check", path]).succeeds();
    outlive(["pod", "objects", "/dev/shm/outlive-no-such-pod"]).fails(1, "outlive-no-such-pod");
}

#[test]
fn contents_and_holders_are_shown_and_leaks_found() {
    let place = Place::new("dump");
    let path = place.path();
    let pod = Pod::create(path, PodOptions::new().size(16 << 20).ids(32)).unwrap();
    outlive(["pod", "dump", path, "words"]).fails(1, "the object `words` does not exist");
    {
        let session = pod.session().unwrap();
        let words = session.map::<str, u64>("words").unwrap();
        words.insert("oak", &u64::MAX).unwrap();
        words.insert("ash", &1).unwrap();
        let text = outlive(["pod", "dump", path, "words"]).succeeds();
        let expected = "words: map of str to u64\n  \"ash\": 1\n  \"oak\": 18446744073709551615\n";
        assert_eq!(text, expected);
        let printed = outlive(["pod", "dump", path, "words", "--json"]).succeeds();
        assert_explained("## `outlive pod dump", &printed);
        let json: Value = serde_json::from_str(&printed).unwrap();
        let entries = json!([
            { "key": "ash", "value": 1 },
            { "key": "oak", "value": u64::MAX },
        ]);
        assert_eq!(
            (&json["contents"], &json["torn"]),
            (&entries, &json!(false))
        );

        let both = session.mutex("both", [0u64; 2]).unwrap();
        let held = both.lock().unwrap();
        let me = session.member().instance();
        let text = outlive(["pod", "dump", path, "both"]).succeeds();
        let expected = format!("both: mutex over [u64; 2]\n  holder: \"{me}\"\n  value: [0, 0]\n");
        assert_eq!(text, expected);
        let status = outlive(["pod", "status", path]).succeeds();
        let line = status
            .lines()
            .find(|line| line.contains(&format!("thread {me}")));
        assert!(line.unwrap().contains(" both "), "{status}");
        let watched = outlive(["pod", "watch", path, "--once"]).succeeds();
        let line = watched
            .lines()
            .find(|line| line.contains(&format!("thread {me}")));
        assert!(line.unwrap().contains(" both "), "{watched}");
        drop(held);
        outlive(["pod", "dump", path, "none"]).fails(1, "`outlive pod objects");
    }
    let check = outlive(["pod", "check", path]).succeeds();
    assert!(check.contains("no block of the heap has leaked"), "{check}");
    assert!(check.contains("2 objects: nothing is wrong"), "{check}");
    {
        let session = pod.session().unwrap();
        let (heap, memory) = (session.heap(), pod.segment().memory());
        let pending = heap.pending_cell(0);
        heap.allocate_into(40, pending).unwrap();
        memory.store(pending, 0u64, Ordering::Relaxed);
        let check = outlive(["pod", "check", path]).succeeds();
        assert!(
            check.contains("no search for leaked blocks: the pod is in use"),
            "{check}"
        );
    }
    let check = outlive(["pod", "check", path]).says(1);
    assert!(check.contains("bytes has leaked"), "{check}");
}
