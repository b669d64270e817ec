//! `outlive pod check --repair` on a heap with unfinished operations or with damage: repairable
//! damage is repaired, other damage is reported, and the rest stays unchanged.
//!
//! The user of the pod is a second process of this test program: a pod that is open in any process
//! is not repaired.

use crate::support;
use crate::support::{Place, outlive};
use outlive::membership::ProcessOptions;
use outlive::memory::{Memory, Ordering};
use outlive::pod::Pod;
use outlive::segment::AreaKind;
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdout, Command, Stdio};

/// The words of the large block that lead to small blocks, which survive their creators.
const KEPT: [u64; 2] = [0, 8];
/// The size of a small block in bytes.
const SMALL: u64 = 48;

/// Not a test: the entry point of a process that uses the pod. Without a role it does nothing.
#[test]
fn play() {
    let Ok(role) = std::env::var("OUTLIVE_TEST_ROLE") else {
        return;
    };
    let path = std::env::var("OUTLIVE_TEST_POD").expect("a pod");
    let pod = Pod::open(path).expect("the pod opens");
    let heap = pod.heap().expect("a heap");
    let tell = |value: Value| println!("told: {value}");
    if role == "look" {
        let state = pod.segment().area(AreaKind::HeapState).expect("a heap");
        return tell(json!({
            "state": state.offset.byte(),
            "state_bytes": state.size,
            "buddy": heap.buddy().metadata().byte(),
            "region": heap.buddy().region().byte(),
        }));
    }
    let process = pod.join(ProcessOptions::on_host(1)).expect("it joins");
    let thread = process.enter(None, "worker").expect("a thread joins");
    let (memory, local) = (thread.memory(), thread.heap(&pod).expect("a heap handle"));
    // Permanent data: a large block, under a root, that leads to small ones.
    let published = pod.roots().find::<[u64; 2]>("kept").expect("sound roots");
    let root = match published {
        Some(root) => root.offset(),
        None => {
            let block = local
                .allocate_into(20_000, local.pending_cell(0))
                .expect("room");
            for place in KEPT {
                memory.store(block + place, 0u64, Ordering::Relaxed);
            }
            pod.roots()
                .publish::<[u64; 2]>("kept", block)
                .expect("a root");
            // Other members reach it now.
            memory.store(local.pending_cell(0), 0u64, Ordering::Release);
            block
        }
    };
    let free = KEPT.iter().find(|place| {
        let held: u64 = memory.load(root + **place, Ordering::Acquire);
        held == 0
    });
    let small = local
        .allocate_into(SMALL, root + *free.expect("a place"))
        .expect("room");
    memory.store(small, 0x7E57u64, Ordering::Relaxed);
    if role == "die" {
        // Not linked yet, one small and one large.
        local
            .allocate_into(SMALL, local.pending_cell(1))
            .expect("room");
        local
            .allocate_into(40_000, local.pending_cell(2))
            .expect("room");
        // Retired, and not freed while it is pinned.
        let old = local
            .allocate_into(SMALL, local.pending_cell(3))
            .expect("room");
        memory.store(old, local.era(), Ordering::Relaxed);
        let pin = local.pin();
        memory.store(local.pending_cell(3), 0u64, Ordering::Relaxed);
        local.retire(old);
        tell(json!({ "small": small.byte() }));
        loop {
            std::thread::park();
            let _ = &pin;
        }
    }
    tell(json!({ "small": small.byte() }));
    drop(local);
    drop(thread);
    process.leave().expect("no member is left");
}

/// A process that uses a pod. It is killed on drop.
struct Player(Child, BufReader<ChildStdout>);

impl Player {
    /// Starts it, and waits for its report.
    fn start(place: &Place, role: &str) -> (Self, Value) {
        let mut child = Command::new(std::env::current_exe().expect("a path"))
            .args(["repair::play", "--exact", "--nocapture", "--test-threads=1"])
            .env("OUTLIVE_TEST_ROLE", role)
            .env("OUTLIVE_TEST_POD", place.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut player = Self(child, output);
        let lines = player.1.by_ref().lines();
        let told = lines.map_while(Result::ok).find_map(|line| {
            let (_, told) = line.split_once("told: ")?;
            Some(serde_json::from_str(told).expect("its output is JSON"))
        });
        (
            player,
            told.unwrap_or_else(|| panic!("the {role} said nothing")),
        )
    }

    /// Lets it end by itself. Returns its report.
    fn done(place: &Place, role: &str) -> Value {
        let (mut player, told) = Self::start(place, role);
        player.1.read_to_end(&mut Vec::new()).expect("it ends");
        let ended = player.0.wait().expect("it ends");
        assert!(ended.success(), "the {role}: {ended}");
        told
    }

    fn kill(mut self) {
        self.0.kill().expect("a child can be killed");
        self.0.wait().expect("it is dead");
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pod, and the offsets of its heap's words in its file.
struct Scene {
    place: Place,
    state: u64,
    state_bytes: u64,
    buddy: u64,
    region: u64,
}

impl Scene {
    fn new(name: &str) -> Self {
        let place = Place::new(name);
        outlive(["pod", "create", place.path(), "--size", "1M", "--ids", "16"]).succeeds();
        let told = Player::done(&place, "look");
        let number = |name: &str| told[name].as_u64().expect("a number");
        Self {
            state: number("state"),
            state_bytes: number("state_bytes"),
            buddy: number("buddy"),
            region: number("region"),
            place,
        }
    }

    /// Returns the offset of a slab's entry in the heap's table.
    fn entry(&self, slab: u64) -> u64 {
        self.state + 0x180 + slab * 0x280
    }

    fn slab_of(&self, block: u64) -> u64 {
        (block - self.region) / (32 << 10)
    }

    fn word(&self, at: u64) -> u64 {
        let file = fs::File::open(self.place.path()).expect("the pod");
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).expect("a word");
        u64::from_ne_bytes(bytes)
    }

    fn set(&self, at: u64, word: u64) {
        let file = OpenOptions::new().write(true).open(self.place.path());
        let file = file.expect("the pod");
        file.write_all_at(&word.to_ne_bytes(), at).expect("a word");
    }

    /// Returns the words that describe the heap.
    fn described(&self) -> Vec<u8> {
        let bytes = fs::read(self.place.path()).expect("the pod");
        bytes[self.state as usize..][..self.state_bytes as usize].to_vec()
    }

    fn run(&self, flags: &[&str]) -> support::Ended {
        outlive(
            ["pod", "check", self.place.path()]
                .into_iter()
                .chain(flags.iter().copied()),
        )
    }

    /// Returns the findings of a check as JSON. Requires this exit code.
    #[track_caller]
    fn check(&self, flags: &[&str], code: i32) -> Value {
        let flags: Vec<&str> = flags.iter().copied().chain(["--json"]).collect();
        let ended = self.run(&flags);
        assert_eq!(ended.code, Some(code), "{}{}", ended.output, ended.errors);
        serde_json::from_str(&ended.output).expect("JSON")
    }

    /// Returns the findings as text, and requires exit code 1.
    #[track_caller]
    fn finds(&self, flags: &[&str], what: &str) -> String {
        let ended = self.run(flags);
        assert_eq!(ended.code, Some(1), "{}{}", ended.output, ended.errors);
        assert!(
            ended.output.contains(what),
            "not {what:?}: {}",
            ended.output
        );
        ended.output
    }
}

fn small_blocks(check: &Value) -> (u64, u64, u64, u64) {
    let number = |name: &str| check["heap"][name].as_u64().expect("a number");
    (
        number("slabs"),
        number("small_blocks"),
        number("large_blocks"),
        number("retired"),
    )
}

#[test]
fn what_the_killed_had_in_their_hands_comes_back_and_what_they_linked_stays() {
    let scene = Scene::new("hands");
    let (victim, told) = Player::start(&scene.place, "die");
    let block = told["small"].as_u64().expect("a number");
    // A member lives, so nothing is repaired.
    scene.run(&["--repair"]).fails(1, "is in use");
    victim.kill();
    // Remnants of a dead member are not violations: linked, in two pending-allocation cells,
    // retired.
    let before = scene.check(&[], 0);
    assert_eq!(small_blocks(&before), (1, 3, 2, 1), "{before:#}");
    let done = scene.check(&["--repair"], 0);
    let repaired = &done["repaired"];
    // The ids of the host, the process and the thread.
    assert_eq!(
        repaired["recovered"].as_array().map(Vec::len),
        Some(3),
        "{done:#}"
    );
    assert_eq!(repaired["unrecovered"], json!([]), "{done:#}");
    assert_eq!(repaired["mended"], json!([]), "{done:#}");
    // The blocks that it had linked: the large one under the root and the small one, in the slab of
    // the dead member, which no member has adopted yet.
    assert_eq!(small_blocks(&done), (1, 1, 1, 0), "{done:#}");
    assert_eq!(scene.word(block), 0x7E57);
    let owner = scene.word(scene.entry(scene.slab_of(block)));
    assert_ne!(owner, 0);
    let again = scene.run(&["--repair"]).succeeds();
    assert!(again.contains("nothing was repaired"), "{again}");
    // The next member that needs such blocks adopts the slab, and creates no new one.
    let next = Player::done(&scene.place, "leave");
    let next = next["small"].as_u64().expect("a number");
    assert_eq!(scene.slab_of(next), scene.slab_of(block));
    assert_ne!(
        scene.word(scene.entry(scene.slab_of(block))),
        owner,
        "no member adopted it"
    );
    assert_eq!(small_blocks(&scene.check(&[], 0)), (1, 2, 1, 0));
    outlive(["pod", "destroy", scene.place.path()]).succeeds();
}

#[test]
fn what_is_damaged_is_found_and_mended() {
    let scene = Scene::new("mends");
    let told = Player::done(&scene.place, "leave");
    let slab = scene.slab_of(told["small"].as_u64().expect("a number"));
    let entry = scene.entry(slab);
    // Bits of blocks, of the owner and of others; a slab of 48 bytes has 682 blocks, and eleven
    // words of bits.
    let (local, remote) = (entry + 0x80, entry + 0x180);
    // An entry and a debt without an allocation.
    let free = scene.entry(0);
    assert_eq!((scene.word(free), scene.word(free + 0x10)), (0, 0));
    let damages: [(u64, u64, Option<&str>, &str); 5] = [
        (
            local + 15 * 8,
            0b101,
            Some("which correspond to no block"),
            "cleared the bits 0x5",
        ),
        (
            remote + 15 * 8,
            1 << 63,
            Some("which correspond to no block"),
            "cleared the bits 0x8",
        ),
        // As after an interrupted collection: not wrong, and finished.
        (remote, 1 << 9, None, "cleared the remote bits 0x200"),
        (
            free,
            scene.word(entry),
            Some("but no block of a slab's size"),
            "cleared the table entry of the slab",
        ),
        (
            free + 0x10,
            1,
            Some("as owed, but that block is not"),
            "cleared the owed word",
        ),
    ];
    for (at, damage, found, mended) in damages {
        let sound = scene.word(at);
        let before = small_blocks(&scene.check(&[], 0));
        scene.set(at, sound | damage);
        match found {
            Some(found) => drop(scene.finds(&[], found)),
            None => drop(scene.check(&[], 0)),
        }
        let done = scene.run(&["--repair"]).succeeds();
        assert!(done.contains(mended), "not {mended:?}: {done}");
        assert!(done.contains("nothing is wrong"), "{done}");
        assert_eq!(scene.word(at), sound, "{mended}");
        let after = scene.check(&["--repair"], 0);
        assert_eq!(after["repaired"]["mended"], json!([]), "{after:#}");
        assert_eq!(small_blocks(&after), before, "{mended}");
    }
    outlive(["pod", "destroy", scene.place.path()]).succeeds();
}

#[test]
fn what_cannot_be_mended_is_reported_and_left() {
    let scene = Scene::new("beyond");
    let told = Player::done(&scene.place, "leave");
    let slab = scene.slab_of(told["small"].as_u64().expect("a number"));
    // A unit of an allocated block is marked free in the buddy allocator's tree; a slab has no
    // class.
    let tree = scene.buddy + 0xC0 + 2 * slab / 64 * 8;
    let damages = [
        (tree, scene.word(tree) | 1 << (2 * slab % 64), "free"),
        (scene.entry(slab) + 8, 77, "the slab class at"),
        (
            scene.entry(slab),
            9 << 32 | 500,
            "names no instance of this pod",
        ),
    ];
    for (at, damage, found) in damages {
        let sound = scene.word(at);
        scene.set(at, damage);
        let (before, described) = (scene.finds(&[], found), scene.described());
        let violations = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| line.starts_with("heap at"));
            lines.map(str::to_owned).collect()
        };
        let after = scene.finds(&["--repair"], found);
        assert!(after.contains("nothing was repaired"), "{after}");
        assert_eq!(violations(&before), violations(&after));
        assert_eq!(scene.described(), described, "something was changed");
        scene.set(at, sound);
        scene.check(&[], 0);
    }
    // With an invalid header, the pod is refused, and nothing is written.
    let magic = scene.word(scene.state);
    scene.set(scene.state, !magic);
    let bytes = fs::read(scene.place.path()).expect("the pod");
    scene.run(&["--repair"]).fails(1, "is damaged");
    assert!(bytes == fs::read(scene.place.path()).expect("the pod"));
    scene.set(scene.state, magic);
    scene.check(&[], 0);
    outlive(["pod", "destroy", scene.place.path()]).succeeds();
}

#[test]
fn what_is_sound_is_not_changed() {
    let scene = Scene::new("sound");
    Player::done(&scene.place, "leave");
    let read = || fs::read(scene.place.path()).expect("the pod");
    let before = read();
    scene.check(&[], 0);
    assert!(before == read(), "a check wrote something");
    let done = scene.run(&["--repair"]).succeeds();
    assert!(done.contains("nothing was repaired"), "{done}");
    // A repair joins, so the tables of members have changed; the heap has not.
    let after = read();
    let heap = |bytes: &[u8]| {
        let state = scene.state as usize..(scene.state + scene.state_bytes) as usize;
        (
            bytes[state].to_vec(),
            bytes[scene.region as usize..].to_vec(),
        )
    };
    let (before, after) = (heap(&before), heap(&after));
    let changed = before.0.iter().zip(&after.0).position(|(a, b)| a != b);
    assert_eq!(changed, None, "the heap's state was changed");
    assert!(before.1 == after.1, "the region was changed");
    outlive(["pod", "destroy", scene.place.path()]).succeeds();
}
