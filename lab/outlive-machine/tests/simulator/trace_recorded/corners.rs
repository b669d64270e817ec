//! Rare operations of programs, and those that are easily recorded wrongly.

use super::is_the_same_again;
use super::workshop::Workshop;
use outlive_machine::recorder::build;
use outlive_machine::trace::Event;
use std::ffi::OsString;

#[test]
fn every_join_is_recorded() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.small(
        "#include <pthread.h>\nlong x[64];\n\
         static void *leaf(void *p) { ++*(long *)p; return 0; }\n\
         static void *branch(void *p) {\n    pthread_t leaves;\n\
             for (int i = 0; i < 2000; i++) {\n        pthread_create(&leaves, 0, leaf, p);\n\
                 pthread_join(leaves, 0);\n    }\n    return 0;\n}\n\
         int main(void) {\n    pthread_t branches[4];\n\
             for (int i = 0; i < 4; i++)\n        pthread_create(&branches[i], 0, branch, &x[8 * i]);\n\
             for (int i = 0; i < 4; i++)\n        pthread_join(branches[i], 0);\n    return x[8] != 2000;\n}\n",
    );
    for _ in 0..3 {
        let (_, trace) = workshop.record(&[]);
        let all = (0..trace.about().threads).flat_map(|thread| trace.events(thread));
        let awaits = all.filter(|event| matches!(event, Ok(Event::Await(..))));
        // Each thread awaits its own creation, and is awaited.
        assert_eq!(awaits.count(), 2 * 4 * (1 + 2000));
    }
}

#[test]
fn what_is_waited_for_until_a_time_of_a_clock_is_recorded() {
    let Some(workshop) = Workshop::new("c++") else {
        return;
    };
    workshop.small(
        "#include <chrono>\n#include <shared_mutex>\n#include <thread>\n#include <pthread.h>\n#include <time.h>\n\
         std::shared_timed_mutex m;\nlong x;\n\
         int main() {\n    std::thread all[3];\n\
             for (auto &one : all)\n        one = std::thread([] {\n            for (int i = 0; i < 100; i++)\n\
                 if (m.try_lock_for(std::chrono::seconds(60))) {\n                    x++;\n                    m.unlock();\n                }\n        });\n\
             for (auto &one : all)\n        one.join();\n\
             pthread_t last;\n    struct timespec soon;\n    clock_gettime(CLOCK_MONOTONIC, &soon);\n    soon.tv_sec += 60;\n\
             pthread_create(&last, 0, [](void *) -> void * { x++; return 0; }, 0);\n\
             return pthread_clockjoin_np(last, 0, CLOCK_MONOTONIC, &soon) || x != 301;\n}\n",
    );
    let (_, trace) = workshop.record(&[]);
    let events = |of: fn(&Event) -> bool| {
        let all = (0..trace.about().threads).flat_map(|thread| trace.events(thread));
        all.filter(|event| event.as_ref().is_ok_and(of)).count()
    };
    assert_eq!(events(|event| matches!(event, Event::Lock { .. })), 300);
    // Each of four threads awaits its own creation, and is awaited.
    assert_eq!(events(|event| matches!(event, Event::Await(..))), 2 * 4);
}

#[test]
fn all_threads_may_begin_the_region_of_interest() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.small(
        "#include <pthread.h>\nvoid outlive_roi_begin(void);\nvoid outlive_roi_end(void);\n\
         pthread_barrier_t all;\nlong big[200000], x[64];\n\
         static void *work(void *p) {\n    pthread_barrier_wait(&all);\n    outlive_roi_begin();\n\
             for (int i = 0; i < 1000; i++)\n        ((long *)p)[i % 8] += i;\n\
             pthread_barrier_wait(&all);\n    outlive_roi_end();\n    return 0;\n}\n\
         int main(void) {\n    pthread_t threads[4];\n    for (int i = 0; i < 200000; i++)\n        big[i] = i * 77 + 1;\n\
             pthread_barrier_init(&all, 0, 4);\n\
             for (int i = 0; i < 4; i++)\n        pthread_create(&threads[i], 0, work, &x[8 * i]);\n\
             for (int i = 0; i < 4; i++)\n        pthread_join(threads[i], 0);\n    return 0;\n}\n",
    );
    for _ in 0..3 {
        let (_, trace) = workshop.record(&[("OUTLIVE_RECORD", "roi")]);
        let image = trace.image().unwrap();
        assert!(
            image
                .runs
                .iter()
                .map(|(_, words)| words.len())
                .sum::<usize>()
                >= 200_000
        );
        let total = trace.survey().unwrap().total;
        assert_eq!((total.stores, total.barriers), (4 * 1000, 4));
    }
}

#[test]
fn a_program_may_close_all_files() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    let text = |close: &str| {
        format!(
            "#include <fcntl.h>\n#include <unistd.h>\nlong x[1000];\n\
             int main(void) {{\n    {close};\n\
                 for (int i = 0; i < 8; i++) {{\n        int file = open(\"result\", O_RDWR | O_CREAT | O_TRUNC, 0644);\n\
                     if (write(file, \"the result\\n\", 11) != 11)\n            return 1;\n    }}\n\
                 for (long i = 0; i < 100000; i++)\n        x[i % 1000] += i;\n    return 0;\n}}\n"
        )
    };
    let result = || std::fs::read_to_string(workshop.path("result")).unwrap();
    workshop.small(&text("for (int i = 3; i < 20000; i++)\n        close(i)"));
    workshop.record(&[]);
    assert_eq!(result(), "the result\n");
    // The trace is closed unnoticed, and another file takes its descriptor.
    workshop.small(&text(
        "closefrom(3);\n    int other = open(\"result\", O_RDWR | O_CREAT, 0644);\n    \
         for (int i = 900; i < 20000; i++)\n        dup2(other, i)",
    ));
    let (status, complaints) = workshop.run(&[]);
    assert_eq!(status.code(), Some(1), "{complaints}");
    assert!(complaints.contains("has closed the trace"), "{complaints}");
    assert_eq!(result(), "the result\n");
}

#[test]
fn what_is_too_large_is_not_allocated() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.small(
        "#include <errno.h>\n#include <malloc.h>\n#include <stdint.h>\n#include <stdlib.h>\n\
         int main(void) {\n    volatile size_t most = SIZE_MAX;\n    void *some = 0;\n\
             if (posix_memalign(&some, 4096, most - 4095) != ENOMEM || some)\n        return 1;\n\
             if (aligned_alloc(64, most - 63) || errno != ENOMEM)\n        return 2;\n\
             if (pvalloc(most - 1) || malloc(most) || valloc(most - 4000))\n        return 3;\n\
             return posix_memalign(&some, 1 << 20, 100) || (uintptr_t)some % (1 << 20);\n}\n",
    );
    workshop.record(&[]);
}

/// Returns the numbers of stores and of lock acquisitions of all threads.
fn stores_and_locks(workshop: &Workshop) -> (u64, u64) {
    let (_, trace) = workshop.record(&[]);
    let total = trace.survey().unwrap().total;
    (total.stores, total.locks)
}

/// The compiler knows the sizes, and would copy in place.
#[test]
fn small_copies_are_recorded_by_whatever_name() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    for copy in [
        "memset(a, 1, 64)",
        "__builtin_memset(a, 1, 64)",
        "bzero(a, 64)",
        "memcpy(a, b, 64)",
        "__builtin_memcpy(a, b, 64)",
        "__builtin_memmove(a, b, (sizeof a))",
        "__builtin___memcpy_chk(a, b, 64, __builtin_object_size(a, 0))",
        "bcopy(b, a, 64)",
        "*(struct line *)a = *(struct line *)b",
    ] {
        workshop.small(&format!(
            "#define _FORTIFY_SOURCE 2\n#include <string.h>\n#include <strings.h>\nstruct line {{ char bytes[64]; }};\nlong many[100];\n\
             char a[64] __attribute__((aligned(64))), b[64] __attribute__((aligned(64))) = {{1}};\n\
             __attribute__((noinline)) static void copy(void) {{ {copy}; }}\n\
             int main(void) {{\n    for (int i = 0; i < 100; i++) {{\n        copy();\n        many[i] = i;\n    }}\n    return a[0] > 1;\n}}\n"
        ));
        assert_eq!(stores_and_locks(&workshop), (100 * (8 + 1), 0), "{copy}");
    }
    // No compiler warns about the code behind these names.
    let text = "char a[64];\nint main(void) { __builtin_memset(a, 1, 64); return 0; }\n";
    std::fs::write(workshop.path("small.c"), text).unwrap();
    let strict = [
        "-std=c89",
        "-pedantic-errors",
        "-Wall",
        "-Wextra",
        "-Werror",
    ];
    workshop.build(workshop.path("small.c").to_str().unwrap(), &strict);
    assert_eq!(stores_and_locks(&workshop), (8, 0));
}

#[test]
fn small_copies_of_cpp_are_recorded() {
    let Some(workshop) = Workshop::new("c++") else {
        return;
    };
    workshop.small(
        "#include <algorithm>\n#include <string>\n\
         alignas(64) char a[64];\nalignas(64) long b[8], c[8];\n\
         __attribute__((noinline)) void fill() { std::fill_n(a, 64, 'z'); }\n\
         __attribute__((noinline)) void copy() { std::copy(b, b + 8, c); }\n\
         constexpr bool now = std::char_traits<char>::length(\"a\") == 1;\n\
         int main() {\n    for (int i = 0; i < 100; i++) {\n        fill();\n        copy();\n    }\n    return !now;\n}\n",
    );
    assert_eq!(stores_and_locks(&workshop), (100 * 2 * 8, 0));
}

#[test]
fn copies_in_a_library_are_recorded() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    let path = |name: &str| workshop.path(name).into_os_string();
    let (library, source) = (path("libfill.so"), path("fill.c"));
    let text = "#include <string.h>\nvoid fill(char *at, long size) { memset(at, 7, size); }\n";
    std::fs::write(&source, text).unwrap();
    let shared = ["cc", "-O1", "-shared", "-fPIC"].map(OsString::from);
    let rest = [source, "-o".into(), library.clone()];
    build(&shared.into_iter().chain(rest).collect::<Vec<_>>()).unwrap();
    let main = path("main.c");
    let text = "#include <stdlib.h>\nvoid fill(char *, long);\n\
                int main(void) {\n    char *some = malloc(8000);\n    fill(some, 8000);\n    return some[99] != 7;\n}\n";
    std::fs::write(&main, text).unwrap();
    let mut here = OsString::from("-Wl,-rpath,");
    here.push(workshop.path(""));
    build(&[
        "cc".into(),
        main,
        library,
        here,
        "-o".into(),
        path("program"),
    ])
    .unwrap();
    assert_eq!(stores_and_locks(&workshop), (1000, 0));
}

#[test]
fn what_destructors_of_a_threads_data_do_is_recorded() {
    let Some(workshop) = Workshop::new("c++") else {
        return;
    };
    workshop.small(
        "#include <mutex>\n#include <pthread.h>\n#include <thread>\n\
         std::mutex lock;\nlong total;\npthread_key_t key;\nint rounds[4];\n\
         static void add(long n) { std::lock_guard<std::mutex> guard(lock); total += n; }\n\
         struct Count { long n = 0; ~Count() { add(n); } };\nthread_local Count mine;\n\
         static void again(void *p) { add(1); if (++*(int *)p < 3) pthread_setspecific(key, p); }\n\
         int main() {\n    pthread_key_create(&key, again);\n    std::thread threads[4];\n\
             for (int i = 0; i < 4; i++)\n        threads[i] = std::thread([i] { pthread_setspecific(key, &rounds[i]); mine.n = 1000; });\n\
             for (std::thread &thread : threads)\n        thread.join();\n    return total != 4 * (1000 + 3);\n}\n",
    );
    let (_, locks) = stores_and_locks(&workshop);
    assert_eq!(locks, 4 * (1 + 3));
}

#[test]
fn an_atomic_on_a_stack_orders_threads() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    // Stored and loaded, exchanged, compared: they order one word.
    for (wait, tell) in [
        (
            "!atomic_load_explicit(go, memory_order_acquire)",
            "atomic_store_explicit(&go, 1, memory_order_release)",
        ),
        ("!atomic_exchange(go, 0)", "atomic_exchange(&go, 1)"),
        (
            "!atomic_compare_exchange_weak(go, &(int){1}, 2)",
            "atomic_fetch_add(&go, 1)",
        ),
    ] {
        workshop.small(&format!(
            "#include <pthread.h>\n#include <stdatomic.h>\n#include <stdio.h>\n#include <unistd.h>\n\
             long outlive_word(const void *);\nlong x[6];\n\
             static void *wait_for(void *flag) {{\n    atomic_int *go = flag;\n    while ({wait})\n        ;\n\
                 for (int i = 0; i < 6; i++)\n        x[i] = 2;\n    return 0;\n}}\n\
             int main(void) {{\n    atomic_int go = 0;\n    pthread_t other;\n    pthread_create(&other, 0, wait_for, &go);\n\
                 usleep(20000);\n    for (int i = 0; i < 6; i++)\n        x[i] = 1;\n    {tell};\n    pthread_join(other, 0);\n\
                 if (outlive_word(x) >= 0)\n        for (int i = 0; i < 6; i++)\n            printf(\"%ld %ld\\n\", outlive_word(&x[i]), x[i]);\n\
                 return 0;\n}}\n"
        ));
        for _ in 0..2 {
            let trace = is_the_same_again(&workshop, &[]);
            assert!(trace.about().spins);
            let events = trace.survey().unwrap().total.instructions;
            assert!(events < 300, "{wait}: {events} instructions");
        }
    }
}
