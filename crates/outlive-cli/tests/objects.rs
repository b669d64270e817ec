//! `outlive pod objects` and `outlive pod remove-object`, on objects that this process uses.

mod support;

use outlive::pod::{Pod, PodOptions};
use serde_json::{Value, json};
use support::explained::assert_explained;
use support::{Place, outlive};

#[test]
fn objects_are_listed_and_removed() {
    let place = Place::new("objects");
    let path = place.path();
    let pod = Pod::create(path, PodOptions::new().size(16 << 20).ids(32)).unwrap();
    let none = outlive(["pod", "objects", path]).succeeds();
    assert_eq!(none, "no named objects\n");
    outlive(["pod", "remove-object", path, "words"]).fails(1, "there is no object \"words\"");
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
            { "name": "hits", "type": "counter", "entries": null, "users": [] },
            { "name": "words", "type": "map of str to u64", "entries": 2, "users": [me] },
        ]);
        assert_eq!(json, expected);
        let text = outlive(["pod", "objects", path]).succeeds();
        let line = text.lines().find(|line| line.starts_with("words")).unwrap();
        let cells: Vec<_> = line.split_whitespace().collect();
        let id = me.to_string();
        assert_eq!(cells, ["words", "map", "of", "str", "to", "u64", "2", &id]);

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
