//! Recorded programs and threads that end in the middle of an operation.

use super::workshop::Workshop;

/// Runs `look` on a program with this C code.
fn of_c(text: &str, look: impl Fn(&Workshop)) {
    if let Some(workshop) = Workshop::new("cc") {
        workshop.small(text);
        look(&workshop);
    }
}

/// A cancelled thread holds nothing that other threads wait for: the recorder is no cancellation
/// point, although it writes.
#[test]
fn threads_may_be_cancelled() {
    of_c(
        "#include <pthread.h>\n#include <unistd.h>\nlong x[1000], *y;\n\
         static void *work(void *p) {\n    for (long i = 1;; i++) {\n        y[i % 1000] += i;\n\
             if (i % 200000 == 0)\n            pthread_testcancel();\n    }\n    return p;\n}\n\
         int main(void) {\n    y = x;\n    for (int i = 0; i < 10; i++) {\n        pthread_t thread;\n\
             pthread_create(&thread, 0, work, 0);\n        usleep(1000);\n        pthread_cancel(thread);\n\
             pthread_join(thread, 0);\n    }\n    return 0;\n}\n",
        |workshop| {
            let (_, trace) = workshop.record(&[]);
            assert!(trace.survey().unwrap().total.stores > 10 * 200_000);
        },
    );
}

/// The handler allocates, also after the end of the recording.
#[test]
fn a_handler_may_end_a_program_that_allocates() {
    of_c(
        "#include <signal.h>\n#include <stdlib.h>\n#include <sys/time.h>\nvoid outlive_roi_begin(void), outlive_roi_end(void);\n\
         static void *volatile kept;\nstatic void end(int number) {\n    kept = malloc(100);\n    exit(0);\n}\n\
         int main(void) {\n    outlive_roi_begin();\n    kept = malloc(100);\n    outlive_roi_end();\n    signal(SIGALRM, end);\n\
             struct itimerval soon = {{0, 0}, {0, 5000}};\n    setitimer(ITIMER_REAL, &soon, 0);\n\
             for (;;) {\n        kept = malloc(100);\n        free(kept);\n    }\n}\n",
        |workshop| {
            for settings in [&[][..], &[("OUTLIVE_RECORD", "roi")]] {
                for _ in 0..20 {
                    workshop.record(settings);
                }
            }
        },
    );
}

/// A trace that is being finished is finished, although the program ends at the same time.
#[test]
fn a_program_may_end_while_its_trace_does() {
    let begin = "#include <pthread.h>\n#include <signal.h>\n#include <stdlib.h>\n#include <sys/time.h>\n#include <time.h>\n\
         #include <unistd.h>\nvoid outlive_roi_begin(void), outlive_roi_end(void);\nlong x[64];\npthread_barrier_t both;\n";
    // By a handler that comes at any time in the 200 us around it, and by another thread.
    let by_handler = "static void end(int number) { exit(0); }\n\
         int main(void) {\n    signal(SIGALRM, end);\n    outlive_roi_begin();\n    x[0] = x[1] = 1;\n    struct timespec now;\n\
             clock_gettime(CLOCK_MONOTONIC, &now);\n    struct itimerval soon = {{0, 0}, {0, 1 + now.tv_nsec / 1000 % 200}};\n\
             setitimer(ITIMER_REAL, &soon, 0);\n    outlive_roi_end();\n    for (;;)\n        pause();\n}\n";
    let by_thread = "static void *work(void *p) {\n    outlive_roi_begin();\n    x[0] = x[1] = 1;\n    pthread_barrier_wait(&both);\n\
             outlive_roi_end();\n    for (;;)\n        pause();\n}\n\
         int main(void) {\n    pthread_t thread;\n    pthread_barrier_init(&both, 0, 2);\n    pthread_create(&thread, 0, work, 0);\n\
             pthread_barrier_wait(&both);\n    exit(0);\n}\n";
    for text in [by_handler, by_thread] {
        of_c(&format!("{begin}{text}"), |workshop| {
            for _ in 0..40 {
                let (_, trace) = workshop.record(&[("OUTLIVE_RECORD", "roi")]);
                assert!(trace.survey().unwrap().total.stores >= 1);
            }
        });
    }
}

/// A program may probe memory like this. The recorder reads the address first, and the handler
/// leaves it by a jump; this is reported.
#[test]
fn a_handler_that_goes_on_elsewhere_is_told() {
    let begin = "#include <pthread.h>\n#include <setjmp.h>\n#include <signal.h>\nstatic sigjmp_buf elsewhere;\n\
         static void go(int number) { siglongjmp(elsewhere, 1); }\n\
         static void *probe(void *p) {\n    volatile char *volatile at = (char *)8;\n    signal(SIGSEGV, go);\n\
             if (!sigsetjmp(elsewhere, 1))\n        return at[0] ? p : 0;\n    return p;\n}\n";
    let alone = "int main(void) { return probe(0) != 0; }\n";
    let besides = "int main(void) {\n    pthread_t thread;\n    pthread_create(&thread, 0, probe, 0);\n\
             return pthread_join(thread, 0);\n}\n";
    for text in [alone, besides] {
        of_c(&format!("{begin}{text}"), |workshop| {
            let (status, complaints) = workshop.run(&[]);
            assert_eq!(status.code(), Some(1));
            assert!(complaints.contains("left it by longjmp"), "{complaints}");
        });
    }
}
