//! Leased objects in one process: by name, sealed, leased, evicted, lost.

use outlive_pool::{
    ObjectState, ObjectStore, Placement, Pool, PoolError, PoolOptions, Server, UnsealedObject,
};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SLICE: u64 = 4096;

/// A pool with servers, which is destroyed with this value.
struct Place {
    path: PathBuf,
    servers: Vec<Server>,
    pool: Pool,
}

impl Place {
    /// Creates a pool with a server for each number of slices.
    fn new(name: &str, options: PoolOptions, servers: &[u64]) -> Self {
        let path = format!("/dev/shm/outlive-objects-{name}-{}", std::process::id());
        let options = options.slice_bytes(SLICE).slices(64).members(48);
        let pool = Pool::create(&path, options).unwrap();
        let serve = |slices: &u64| pool.serve(slices * SLICE, 0).unwrap();
        let servers = servers.iter().map(serve).collect();
        Self {
            path: path.into(),
            servers,
            pool,
        }
    }

    fn objects(&self) -> ObjectStore {
        self.pool.join().unwrap().objects().unwrap()
    }

    /// Checks the tables, and returns the number of allocated slices.
    fn slices(&self) -> u64 {
        let census = self.pool.check().unwrap();
        assert_eq!(census.hidden, 0);
        assert_eq!(census.slices, self.pool.status().slices);
        census.slices
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.servers.clear();
        let _ = Pool::destroy(&self.path);
    }
}

/// Returns `len` bytes that differ for each `seed`.
fn bytes(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + 1) as u8).collect()
}

fn names(objects: &ObjectStore) -> Vec<String> {
    let all = objects.list().unwrap().into_iter();
    all.map(|it| it.name).collect()
}

#[test]
fn what_was_put_is_read_in_place() {
    let place = Place::new("put", PoolOptions::new(), &[8, 8]);
    let (objects, others) = (place.objects(), place.objects());
    for (name, len) in [
        ("none", 0),
        ("one", 1),
        ("whole", SLICE),
        ("some", 3 * SLICE + 100),
    ] {
        let wanted = bytes(len, len);
        objects.put(name, &wanted, Placement::Spread).unwrap();
        let object = others.get(name).unwrap();
        assert_eq!((object.len(), object.is_empty()), (len, len == 0));
        let chunks: Result<Vec<_>, _> = object.chunks().collect();
        assert_eq!(chunks.unwrap().concat(), wanted);
        let is_one_chunk = object.as_slice().unwrap().is_some();
        assert_eq!(is_one_chunk, len <= SLICE);
        if len > 0 {
            let (from, mut part) = (len / 2, vec![0; (len - len / 2) as usize]);
            object.read(from, &mut part).unwrap();
            assert_eq!(part, wanted[from as usize..]);
        }
        let beyond = object.read(len, &mut [0]).unwrap_err();
        assert!(
            matches!(beyond, PoolError::OutsideObject { .. }),
            "{beyond}"
        );
    }
    assert_eq!(names(&objects), ["none", "one", "some", "whole"]);
    assert_eq!(place.slices(), 1 + 1 + 1 + 4);
}

#[test]
fn an_object_is_seen_when_it_is_sealed() {
    let place = Place::new("seal", PoolOptions::new(), &[8]);
    let (objects, others) = (place.objects(), place.objects());
    let mut made: UnsealedObject = objects.create("made", 6000, Placement::Any).unwrap();
    assert_eq!((made.len(), made.chunks()), (6000, 2));
    assert!(made.chunk_mut(1).unwrap().iter().all(|byte| *byte == 0));
    made.chunk_mut(0).unwrap()[7] = 1;
    made.write(4000, &[2; 200]).unwrap();
    let beyond = made.write(5999, &[0; 2]).unwrap_err();
    assert!(
        matches!(beyond, PoolError::OutsideObject { .. }),
        "{beyond}"
    );

    let is_being_created = |error| matches!(error, PoolError::BeingCreated { .. });
    assert!(is_being_created(others.get("made").unwrap_err()));
    assert!(is_being_created(others.delete("made").unwrap_err()));
    let second = others.create("made", 1, Placement::Any);
    assert!(is_being_created(second.unwrap_err()));
    assert_eq!(others.list().unwrap()[0].state, ObjectState::Unsealed);
    assert!(
        others
            .wait("made", Duration::from_millis(5))
            .unwrap()
            .is_none()
    );

    let made = made.seal().unwrap();
    let got = others.get("made").unwrap();
    let mut all = vec![0; 6000];
    got.read(0, &mut all).unwrap();
    assert_eq!(
        (all[7], all[3999], all[4000], all[4199], all[4200]),
        (1, 0, 2, 2, 0)
    );
    let exists = others.create("made", 1, Placement::Any).unwrap_err();
    assert!(matches!(exists, PoolError::ObjectExists { .. }), "{exists}");
    let status = &others.list().unwrap()[0];
    assert_eq!((status.state, status.users.len()), (ObjectState::Sealed, 2));
    drop((made, got));
    assert!(others.list().unwrap()[0].users.is_empty());
}

#[test]
fn created_memory_is_zero_after_objects_that_were_put() {
    let place = Place::new("zero", PoolOptions::new(), &[4]);
    let objects = place.objects();
    objects
        .put("a", &bytes(4 * SLICE, 1), Placement::Any)
        .unwrap();
    objects.delete("a").unwrap();
    objects.put("b", &[5; 10], Placement::Any).unwrap();
    assert_eq!(
        objects.get("b").unwrap().as_slice().unwrap().unwrap(),
        [5; 10]
    );
    let made = objects.create("c", 3 * SLICE, Placement::Any).unwrap();
    let made = made.seal().unwrap();
    assert!(
        made.chunks()
            .all(|chunk| chunk.unwrap().iter().all(|byte| *byte == 0))
    );
    objects.delete("b").unwrap();
    let client = objects.client();
    let address = client.allocate(SLICE, Placement::Any).unwrap();
    let mut data = [1; 64];
    client.reader().unwrap().read(address, &mut data).unwrap();
    assert_eq!(data, [0; 64]);
}

#[test]
fn an_object_that_is_given_up_leaves_nothing() {
    let place = Place::new("give-up", PoolOptions::new(), &[4]);
    let objects = place.objects();
    for _ in 0..20 {
        let mut made = objects.create("made", 4 * SLICE, Placement::Any).unwrap();
        made.write(0, &bytes(4 * SLICE, 1)).unwrap();
        drop(made);
        assert_eq!((place.slices(), names(&objects).len()), (0, 0));
    }
    let none = objects.get("made").unwrap_err();
    assert!(matches!(none, PoolError::NoObject { .. }), "{none}");
}

#[test]
fn the_memory_of_a_deleted_object_lives_as_long_as_its_leases() {
    let place = Place::new("delete", PoolOptions::new(), &[4]);
    let (objects, others) = (place.objects(), place.objects());
    let wanted = bytes(2 * SLICE, 3);
    objects.put("a", &wanted, Placement::Any).unwrap();
    let (first, second) = (objects.get("a").unwrap(), others.get("a").unwrap());
    let view = first.chunk(1).unwrap();
    objects.delete("a").unwrap();
    let again = objects.delete("a").unwrap_err();
    assert!(matches!(again, PoolError::NoObject { .. }), "{again}");
    // The name is free for another object, which has other memory.
    objects
        .put("a", &bytes(2 * SLICE, 4), Placement::Any)
        .unwrap();
    assert_eq!(view, &wanted[SLICE as usize..]);
    objects.client().collect();
    assert_eq!(place.slices(), 4);
    drop(first);
    assert_eq!(place.slices(), 4);
    drop(second);
    assert_eq!(place.slices(), 2);
    objects.delete("a").unwrap();
    assert_eq!(place.slices(), 0);
}

#[test]
fn readers_do_not_reach_the_memory_of_objects() {
    let place = Place::new("reach", PoolOptions::new(), &[4]);
    let objects = place.objects();
    objects.put("a", &[1; 100], Placement::Any).unwrap();
    let reader = objects.client().reader().unwrap();
    // Addresses that a process has guessed: of all generations.
    for count in 1..8 {
        for of_object in [0, 1 << 14] {
            let word = (count | of_object) << outlive_pool::Address::POSITION_BITS;
            let address = outlive_pool::Address::from_word(word).unwrap();
            assert_eq!(address.is_of_object(), of_object != 0);
            let guarded = reader.guard(address);
            match of_object {
                0 => assert!(matches!(guarded, Err(PoolError::Freed { .. }))),
                _ => assert!(matches!(guarded, Err(PoolError::OfObject { .. }))),
            }
            let freed = objects.client().free(address);
            assert!(freed.is_err(), "{address}");
        }
    }
    assert_eq!(
        objects.get("a").unwrap().as_slice().unwrap().unwrap(),
        [1; 100]
    );
}

#[test]
fn objects_that_are_not_used_make_room() {
    let place = Place::new("evict", PoolOptions::new(), &[4]);
    let objects = place.objects();
    for name in ["a", "b", "c", "d"] {
        objects.put(name, &bytes(SLICE, 1), Placement::Any).unwrap();
        // The unit of the times of uses is a millisecond.
        std::thread::sleep(Duration::from_millis(3));
    }
    objects.pin("b", true).unwrap();
    let held = objects.get("d").unwrap();
    drop(objects.get("a").unwrap());
    // The oldest is `b`, which is pinned; then `c`.
    objects.put("e", &bytes(SLICE, 2), Placement::Any).unwrap();
    assert_eq!(names(&objects), ["a", "b", "d", "e"]);
    // An object that cannot fit evicts nothing.
    let too_large = objects.put("f", &bytes(3 * SLICE, 2), Placement::Any);
    assert!(matches!(too_large, Err(PoolError::OutOfMemory { .. })));
    assert_eq!(names(&objects), ["a", "b", "d", "e"]);
    // Only as many objects are evicted as needed: `a` was used before `e` was created.
    objects.put("f", &bytes(SLICE, 2), Placement::Any).unwrap();
    assert_eq!(names(&objects), ["b", "d", "e", "f"]);
    objects.pin("b", false).unwrap();
    drop(held);
    objects
        .put("g", &bytes(3 * SLICE, 2), Placement::Any)
        .unwrap();
    assert_eq!(place.slices(), 4);
    assert_eq!(names(&objects), ["f", "g"]);
}

#[test]
fn only_objects_on_the_server_of_the_placement_make_room() {
    let place = Place::new("there", PoolOptions::new(), &[2, 4]);
    let objects = place.objects();
    let [first, second] = [0, 1].map(|at| Placement::There(place.servers[at].id()));
    for (name, there) in [("a", second), ("b", first), ("c", second), ("d", first)] {
        objects.put(name, &bytes(SLICE, 1), there).unwrap();
        std::thread::sleep(Duration::from_millis(3));
    }
    // On the first server at most two slices can be free.
    let too_large = objects.put("e", &bytes(3 * SLICE, 1), first);
    assert!(matches!(too_large, Err(PoolError::OutOfMemory { .. })));
    assert_eq!(names(&objects), ["a", "b", "c", "d"]);
    objects.put("e", &bytes(SLICE, 1), first).unwrap();
    assert_eq!(names(&objects), ["a", "c", "d", "e"]);
    // More than all addresses: nothing is evicted.
    let huge = objects.create("f", 65 * SLICE, Placement::Any).unwrap_err();
    assert!(matches!(huge, PoolError::OutOfAddresses { .. }), "{huge}");
    let none = objects.create("f", 1, Placement::Here).unwrap_err();
    assert!(matches!(none, PoolError::NotAServer), "{none}");
    assert_eq!(names(&objects).len(), 4);
}

#[test]
fn the_memory_of_an_unsealed_object_is_not_freed_by_its_address() {
    let mut place = Place::new("unsealed", PoolOptions::new(), &[4, 4]);
    let objects = place.objects();
    let mut made = objects.create("a", 4 * SLICE, Placement::Spread).unwrap();
    drop(place.servers.remove(0));
    let lost = (0..4).find_map(|index| match made.chunk_mut(index) {
        Err(PoolError::Lost { address, .. }) => Some((index, address)),
        _ => None,
    });
    let (index, address) = lost.unwrap();
    let first = outlive_pool::Address::from_word(address.to_word() - index * SLICE).unwrap();
    let client = objects.client();
    let is_of_object = |refused| matches!(refused, Err(PoolError::OfObject { .. }));
    assert!(is_of_object(client.free(first)) && is_of_object(client.keep(first)));
    drop(made);
    assert_eq!(place.slices(), 0);
}

#[test]
fn objects_make_room_for_names() {
    let path = format!("/dev/shm/outlive-objects-heap-{}", std::process::id());
    let options = PoolOptions::new().slice_bytes(SLICE).slices(16 << 10);
    let pool = Pool::create(&path, options.members(48).objects(0)).unwrap();
    let place = Place {
        path: path.into(),
        servers: vec![pool.serve((16 << 10) * SLICE, 0).unwrap()],
        pool,
    };
    // There is memory for all objects, and too little for their names.
    let objects = place.objects();
    let mut puts = 0;
    while names(&objects).len() == puts {
        for _ in 0..100 {
            objects
                .put(&format!("{puts}"), &[1], Placement::Any)
                .unwrap();
            puts += 1;
        }
        assert!(puts < 16 << 10, "the heap is too large for this test");
    }
    assert!(objects.get(&format!("{}", puts - 1)).is_ok());
    assert!(objects.get("0").is_err());
}

#[test]
fn a_thread_that_leaks_its_store_ends_the_process() {
    const LEAKS: &str = "OUTLIVE_POOL_TEST_LEAKS";
    if let Ok(path) = std::env::var(LEAKS) {
        std::thread::spawn(move || {
            let pool = Pool::open(path).unwrap();
            std::mem::forget(pool.join().unwrap().objects().unwrap());
        })
        .join()
        .unwrap();
        return;
    }
    let place = Place::new("leaks", PoolOptions::new(), &[1]);
    let name = "a_thread_that_leaks_its_store_ends_the_process";
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env(LEAKS, &place.path)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("were leaked"),
        "{errors}"
    );
}

#[test]
fn a_quota_limits_the_objects() {
    let options = PoolOptions::new().object_quota(3 * SLICE);
    let place = Place::new("quota", options, &[16]);
    let objects = place.objects();
    for name in ["a", "b", "c", "d", "e"] {
        objects.put(name, &bytes(SLICE, 1), Placement::Any).unwrap();
        std::thread::sleep(Duration::from_millis(3));
    }
    assert_eq!(names(&objects), ["c", "d", "e"]);
    let _held = objects.get("c").unwrap();
    objects
        .put("f", &bytes(2 * SLICE, 1), Placement::Any)
        .unwrap();
    assert_eq!(names(&objects), ["c", "f"]);
    for bytes in [2 * SLICE + 1, 3 * SLICE, u64::MAX] {
        let over = objects.create("g", bytes, Placement::Any).unwrap_err();
        assert!(matches!(over, PoolError::OverQuota { .. }), "{over}");
    }
    // Other memory does not count.
    objects
        .client()
        .allocate(8 * SLICE, Placement::Any)
        .unwrap();
    assert_eq!(place.slices(), 8 + 1 + 2);
    assert_eq!(names(&objects), ["c", "f"]);
}

#[test]
fn an_object_on_a_dead_server_is_lost() {
    let mut place = Place::new("lost", PoolOptions::new(), &[4, 4]);
    let objects = place.objects();
    let there = Placement::There(place.servers[1].id());
    let wanted = bytes(2 * SLICE, 5);
    objects.put("a", &wanted, there).unwrap();
    objects
        .put("b", &wanted, Placement::There(place.servers[0].id()))
        .unwrap();
    let held = objects.get("a").unwrap();
    let view = held.chunk(0).unwrap();
    let mut unsealed = objects.create("c", SLICE, there).unwrap();
    unsealed.write(0, &[1; 8]).unwrap();
    drop(place.servers.pop());
    objects.client().collect();
    // Bytes that were returned before stay; an access to others is an error.
    assert_eq!(view, &wanted[..SLICE as usize]);
    assert!(matches!(held.chunk(1), Err(PoolError::Lost { .. })));
    assert!(matches!(unsealed.seal(), Err(PoolError::Lost { .. })));
    assert!(matches!(objects.get("a"), Err(PoolError::Lost { .. })));
    let states = objects.list().unwrap().into_iter();
    let states: Vec<_> = states.map(|it| (it.name, it.state)).collect();
    let expected = [("a", ObjectState::Lost), ("b", ObjectState::Sealed)];
    assert_eq!(
        states,
        expected.map(|(name, state)| (name.to_owned(), state))
    );
    // A lost object is replaced.
    objects.put("a", &[9; 10], Placement::Any).unwrap();
    assert_eq!(
        objects.get("a").unwrap().as_slice().unwrap().unwrap(),
        [9; 10]
    );
    assert_eq!(view, &wanted[..SLICE as usize]);
    drop(held);
    assert_eq!(place.slices(), 2 + 1);
}

#[test]
fn lost_objects_make_room_for_others() {
    let options = PoolOptions::new().object_quota(3 * SLICE);
    let mut place = Place::new("lost-room", options, &[4]);
    let objects = place.objects();
    for name in ["a", "b", "c"] {
        objects.put(name, &bytes(SLICE, 1), Placement::Any).unwrap();
    }
    place.servers.clear();
    place.servers.push(place.pool.serve(4 * SLICE, 0).unwrap());
    for name in ["d", "e", "f"] {
        objects.put(name, &bytes(SLICE, 1), Placement::Any).unwrap();
    }
    assert_eq!(names(&objects), ["d", "e", "f"]);
    assert_eq!(place.slices(), 3);
}

#[test]
fn a_store_in_a_variable_of_its_thread_ends_no_process() {
    std::thread_local! {
        static STORE: std::cell::RefCell<Option<ObjectStore>> = const { std::cell::RefCell::new(None) };
    }
    let place = Place::new("local", PoolOptions::new(), &[2]);
    let thread = std::thread::scope(|scope| {
        let own = scope.spawn(|| {
            STORE.with(|store| *store.borrow_mut() = Some(place.objects()));
            STORE.with(|store| {
                let store = store.borrow();
                store.as_ref().unwrap().put("a", &[1], Placement::Any)
            })
        });
        own.join()
    });
    thread.unwrap().unwrap();
    assert_eq!(names(&place.objects()), ["a"]);
}

#[test]
fn a_thread_waits_for_an_object() {
    let place = Place::new("wait", PoolOptions::new(), &[4]);
    let objects = place.objects();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let own = place.objects();
            let got = own.wait("late", Duration::from_secs(60)).unwrap().unwrap();
            got.as_slice().unwrap().unwrap().to_vec()
        });
        std::thread::sleep(Duration::from_millis(20));
        objects.put("late", &[3; 10], Placement::Any).unwrap();
        assert_eq!(waiter.join().unwrap(), [3; 10]);
    });
    let made = objects.create("never", 10, Placement::Any).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let own = place.objects();
            own.wait("never", Duration::from_secs(60)).map(|_| ())
        });
        std::thread::sleep(Duration::from_millis(50));
        drop(made);
        let ended = waiter.join().unwrap();
        assert!(
            matches!(ended, Err(PoolError::Abandoned { .. })),
            "{ended:?}"
        );
    });
    let begin = Instant::now();
    assert!(
        objects
            .wait("no", Duration::from_millis(10))
            .unwrap()
            .is_none()
    );
    assert!(begin.elapsed() >= Duration::from_millis(10));
}

#[test]
fn threads_share_objects() {
    let place = Place::new("threads", PoolOptions::new(), &[8, 8]);
    std::thread::scope(|scope| {
        for seed in 0..3u64 {
            let place = &place;
            scope.spawn(move || {
                let objects = place.objects();
                for round in 0..300 {
                    let name = format!("object {}", (round + seed) % 4);
                    // Other threads have the name, or the memory.
                    let _ = objects.put(&name, &bytes(5000, (round + seed) % 4), Placement::Spread);
                    if let Ok(object) = objects.get(&name) {
                        let chunks: Result<Vec<_>, _> = object.chunks().collect();
                        assert_eq!(chunks.unwrap().concat(), bytes(5000, (round + seed) % 4));
                    }
                    if round % 3 == 0 {
                        let _ = objects.delete(&name);
                    }
                }
            });
        }
    });
    // Opening the store frees the memory whose last lease was that of a failed lookup.
    let objects = place.objects();
    assert_eq!(place.slices(), 2 * names(&objects).len() as u64);
    for name in names(&objects) {
        objects.delete(&name).unwrap();
    }
    assert_eq!(place.slices(), 0);
}

#[test]
fn wrong_names_are_refused() {
    let place = Place::new("names", PoolOptions::new(), &[4]);
    let objects = place.objects();
    for name in ["", &"x".repeat(256)] {
        let refused = objects.put(name, &[1], Placement::Any).unwrap_err();
        assert!(refused.to_string().contains("1 to 255 bytes"), "{refused}");
    }
    assert_eq!(place.slices(), 0);
    objects.put(&"x".repeat(255), &[1], Placement::Any).unwrap();
}
