//! Handlers of signals in recorded programs.

use super::is_the_same_again;
use super::workshop::Workshop;
use outlive_machine::trace::Event;

const TIMER: &str = "#include <signal.h>\n#include <stdlib.h>\n#include <sys/time.h>\nlong x[1000];\n\
         static void end(int number) { exit(0); }\n\
         int __sigaction(int, const struct sigaction *, struct sigaction *);\n\
         int main(void) {\n    struct sigaction action = {.sa_handler = end};\n    signal(SIGALRM, end);\n\
             struct itimerval soon = {{0, 0}, {0, 20000}};\n    setitimer(ITIMER_REAL, &soon, 0);\n\
             for (long i = 0;; i++)\n        x[i % 1000] += i;\n}\n";

/// Many throughput benchmarks end like this.
#[test]
fn a_handler_of_a_signal_may_end_the_program() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.small(TIMER);
    for _ in 0..10 {
        let (_, trace) = workshop.record(&[]);
        assert!(trace.survey().unwrap().total.stores > 100);
    }
    // The recorder does not know this function.
    let text = TIMER.replace("signal(SIGALRM, end)", "__sigaction(SIGALRM, &action, 0)");
    workshop.small(&text);
    for _ in 0..10 {
        let (status, complaints) = workshop.run(&[]);
        let told = complaints.contains("a signal's handler ended the program");
        assert_eq!(status.code(), Some(i32::from(told)), "{complaints}");
    }
}

#[test]
fn handlers_of_signals_come_between_accesses() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.small(
        "#define _GNU_SOURCE\n#include <signal.h>\n#include <stdio.h>\n#include <sys/time.h>\n#include <unistd.h>\n\
         long outlive_word(const void *);\nlong x[64], ticks, sum;\n\
         static void tick(int number) { ticks++; }\n\
         static void add(int number, siginfo_t *about, void *context) { sum += about->si_value.sival_int; }\n\
         int main(void) {\n    struct sigaction action = {.sa_sigaction = add, .sa_flags = SA_SIGINFO}, old;\n\
             sigaction(SIGRTMIN, &action, 0);\n    signal(SIGALRM, tick);\n\
             struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};\n\
             setitimer(ITIMER_REAL, &often, 0);\n\
             for (long i = 0; i < 300000; i++) {\n        x[i % 64] = i;\n\
                 if (i % 1000 == 0)\n            sigqueue(getpid(), SIGRTMIN, (union sigval){.sival_int = 5});\n    }\n\
             setitimer(ITIMER_REAL, &never, 0);\n\
             if (signal(SIGALRM, SIG_IGN) != tick || sigaction(SIGRTMIN, 0, &old) || old.sa_sigaction != add)\n        return 1;\n\
             if (signal(SIGALRM, SIG_DFL) != SIG_IGN || sum != 1500)\n        return 2;\n\
             if (outlive_word(x) >= 0) {\n\
                 for (int i = 0; i < 64; i++)\n            printf(\"%ld %ld\\n\", outlive_word(&x[i]), x[i]);\n\
                 printf(\"%ld %ld\\n%ld %ld\\n\", outlive_word(&ticks), ticks, outlive_word(&sum), sum);\n    }\n    return 0;\n}\n",
    );
    for _ in 0..3 {
        let trace = is_the_same_again(&workshop, &[]);
        let mut last = std::collections::HashMap::new();
        for event in trace.events(0).map(Result::unwrap) {
            if let Event::Store { word, value } = event {
                let before = last.insert(word, value).unwrap_or(0);
                assert!(before <= value, "{value} after {before}");
            }
        }
        assert!(last.len() > 60);
    }
}

/// Signals of two numbers come at any time to all threads, and the last of them ends the program.
#[test]
fn signals_may_come_at_any_moment() {
    let Some(workshop) = Workshop::new("cc") else {
        return;
    };
    workshop.small(
        "#include <pthread.h>\n#include <signal.h>\n#include <stdatomic.h>\n#include <stdlib.h>\n#include <sys/time.h>\n\
         #include <time.h>\n#include <unistd.h>\n\
         pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\npthread_barrier_t all;\nlong x[100];\natomic_long ticks;\n\
         static void tick(int number) { atomic_fetch_add(&ticks, 1); }\n\
         static void end(int number) { exit(0); }\n\
         static void *work(void *p) {\n    for (;;) {\n        for (int i = 0; i < 100; i++) {\n\
                 pthread_mutex_lock(&lock);\n            x[i]++;\n            pthread_mutex_unlock(&lock);\n        }\n\
                 pthread_barrier_wait(&all);\n    }\n}\n\
         int main(void) {\n    pthread_barrier_init(&all, 0, 4);\n    signal(SIGALRM, tick);\n    signal(SIGUSR1, end);\n\
             struct itimerval often = {{0, 50}, {0, 50}};\n    setitimer(ITIMER_REAL, &often, 0);\n\
             pthread_t thread;\n    for (int i = 0; i < 4; i++)\n        pthread_create(&thread, 0, work, 0);\n\
             struct timespec until;\n    clock_gettime(CLOCK_MONOTONIC, &until);\n    until.tv_sec++;\n             while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0))\n        ;\n\
             kill(getpid(), SIGUSR1);\n    for (;;)\n        pause();\n}\n",
    );
    for _ in 0..3 {
        let (_, trace) = workshop.record(&[]);
        assert!(trace.survey().unwrap().total.locks > 100);
    }
}
