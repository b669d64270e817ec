/* What the recorder knows, and who may touch it when. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define HIDDEN static __attribute__((unused))
#define LINE 64
#define MOST_THREADS 1024
#define MOST_OBJECTS (1u << 21)
#define MOST_BLOCKS (1u << 24)
#define MOST_HELD 256
#define MOST_QUEUED 16
#define BLOCK (1u << 16)
#define HIGH_FILE 10000

enum object_kind { AN_ATOMIC, A_LOCK, A_CONDITION, A_BARRIER, A_SEMAPHORE, A_SLOT };

/* Something that threads meet at. Objects are found by address and kind, and never go. */
struct object {
    uint64_t key; /* 0: free */
    uint32_t ready;
    uint32_t lock; /* of atomics: held over the operation and its turn */
    uint32_t id; /* among those of its kind */
    uint32_t order; /* its event count */
    uint64_t turns; /* how often that has been, or will have been, advanced */
    uint64_t arrived; /* of barriers */
    uint32_t count; /* of barriers: who takes part */
    uint8_t recorded[2]; /* of barriers: whether the round, by its number's lowest bit, is recorded */
};

struct held {
    struct object *lock;
    uint32_t depth;
    bool recorded;
};

/* An access that has not been written down: of shared or private data. */
struct queued {
    uintptr_t address;
    size_t size;
    bool write; /* only of private data */
};

struct thread {
    uint32_t busy; /* 0: nobody, 1: the thread itself, 2: whoever ended the recording, for good */
    uint32_t number;
    bool has_signals; /* that wait until it is not busy, nor in the heap */
    bool faulting; /* a handler has been called within the recorder, for what the program has accessed there, and is not back */
    uint32_t in_heap; /* how many of its locks it has, or waits for */
    bool claimed; /* has an owner, or will have to be joined */
    bool ended;
    uint32_t end_rounds; /* of destructors */
    bool joined; /* somebody waits for its end, or has, and will give its slot back */
    bool makes_private; /* what it allocates */
    pthread_t handle;
    void *(*start)(void *);
    int (*start_c11)(void *); /* instead */
    void *argument;
    uint64_t await; /* the turn of its slot that it begins after; 0: none */
    uint64_t ended_at; /* the turn of its slot after its end; 0: not recorded */
    struct object *slot;
    sigset_t signals;

    /* The store that has been announced and may not have been done. Its value is read when the next thing is announced. */
    uintptr_t store_at;
    size_t store_size;
    uint32_t store_order; /* event count to advance after it, plus 1 */
    /* What came after that. */
    struct queued queue[MOST_QUEUED];
    unsigned queued;

    /* The last load or atomic, while nothing but reads has come after it: the same again is spinning. */
    uintptr_t spin_at;
    size_t spin_size;
    uint64_t spin_value;
    uint64_t spins;
    bool spin_volatile;

    struct held held[MOST_HELD];
    unsigned holds;
    bool unsettled; /* some of these may not have been recorded */
    struct object *at_barrier;
    uint64_t round;

    uint32_t gap; /* hundredths of an instruction that are due */
    uint64_t word, address; /* that differences are told from */
    uint32_t events;
    size_t used;
    unsigned char bytes[BLOCK + 4096];
};

/* One struct, so that the image can leave it out. */
static struct recorder {
    int fd;
    dev_t device; /* of the file, which it must be as long as it is written to */
    ino_t inode;
    char path[400]; /* of the trace, for people */
    int status; /* that the program ends with */
    bool beginning, finished, failed, region_only, loads, heap_of_main;
    uint32_t recording;
    uint32_t gap; /* hundredths of an instruction before each access */
    uint32_t spins;
    uint32_t lock; /* of the list of threads, the file and the index */
    uint32_t making; /* lock: somebody makes a thread, and will say which slot has its handle */
    struct thread *threads[MOST_THREADS];
    uint32_t thread_count;
    struct object *objects;
    uint32_t ids[6], orders;
    uint8_t *order_needed; /* by event count */
    uint32_t *lock_order; /* by lock */
    uint32_t *barrier_threads; /* by barrier */
    uint64_t end; /* of the file */
    struct place { uint64_t offset; uint32_t thread; uint32_t kind; } *places;
    uint32_t place_count;
    uint32_t crc[256];
    uintptr_t globals, globals_end;
} R __attribute__((aligned(LINE)));

static __thread struct thread *self __attribute__((tls_model("initial-exec")));

HIDDEN void spin_lock(uint32_t *lock) {
    while (__atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

HIDDEN void spin_unlock(uint32_t *lock) { __atomic_store_n(lock, 0, __ATOMIC_RELEASE); }

/* The library's `write` is where a thread may be cancelled: it would keep its locks, and be busy for ever. */
HIDDEN ssize_t put_bytes(int file, const void *bytes, size_t length) { return syscall(SYS_write, file, bytes, length); }

/* Says it, and records nothing more. The trace has no end then, so it is refused. */
HIDDEN void fail(const char *format, ...) {
    if (__atomic_exchange_n(&R.failed, true, __ATOMIC_SEQ_CST))
        return;
    __atomic_store_n(&R.recording, 0, __ATOMIC_SEQ_CST);
    char text[512];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof text - 1, format, list);
    va_end(list);
    if (length > (int)sizeof text - 2)
        length = sizeof text - 2;
    text[length++] = '\n';
    put_bytes(2, text, (size_t)length);
}

/* Memory of the recorder's own, zero; pages that are never touched cost nothing. */
HIDDEN void *reserve(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* The calling thread, until it is released; or nothing, if it is in the recorder already, is none of ours, or all is
 * over. Who ends the recording takes all threads in this way, and keeps them: exchanging the word orders that with what
 * they do. */
HIDDEN struct thread *grab(void) {
    struct thread *t = self;
    uint32_t nobody = 0;
    if (!t || !__atomic_compare_exchange_n(&t->busy, &nobody, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return NULL;
    return t;
}

/* Lets the signals come that have been put off. More may come, and be put off, while their handlers run. */
HIDDEN __attribute__((noinline, cold)) void take_signals(struct thread *t) {
    sigset_t signals = t->signals;
    t->has_signals = false;
    sigemptyset(&t->signals);
    pthread_sigmask(SIG_UNBLOCK, &signals, NULL);
}

/* Whatever handler comes from here on finds that the thread does nothing in here, and one that came before is seen to. */
HIDDEN void let_signals_come(struct thread *t) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(t->has_signals, false))
        take_signals(t);
}

HIDDEN void release(struct thread *t) {
    __atomic_store_n(&t->busy, 0, __ATOMIC_RELEASE);
    let_signals_come(t);
}

/* Around what a thread does to the list of threads: it is busy, so that handlers of signals wait. */
HIDDEN struct thread *lock_list(void) {
    struct thread *t = grab();
    spin_lock(&R.lock);
    return t;
}

HIDDEN void unlock_list(struct thread *t) {
    spin_unlock(&R.lock);
    if (t)
        release(t);
}

HIDDEN bool recording(void) { return __atomic_load_n(&R.recording, __ATOMIC_SEQ_CST); }

/* Whether nothing will be recorded any more. */
HIDDEN bool over(void) {
    return __atomic_load_n(&R.finished, __ATOMIC_SEQ_CST) || __atomic_load_n(&R.failed, __ATOMIC_SEQ_CST);
}

/* The object at an address; made if it is not there. */
HIDDEN struct object *object_at(uintptr_t address, enum object_kind kind) {
    static struct object nowhere;
    uint64_t key = ((uint64_t)address << 3 | kind) + 1;
    uint64_t hash = key * 0x9E3779B97F4A7C15u >> 20;
    for (uint32_t probe = 0; probe < MOST_OBJECTS; probe++) {
        struct object *o = &R.objects[(hash + probe) % MOST_OBJECTS];
        uint64_t found = __atomic_load_n(&o->key, __ATOMIC_ACQUIRE);
        if (found == 0 && __atomic_compare_exchange_n(&o->key, &found, key, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            o->order = __atomic_fetch_add(&R.orders, 1, __ATOMIC_RELAXED);
            R.order_needed[o->order] = kind == A_SEMAPHORE || kind == A_SLOT;
            /* Barriers get theirs when they are initialised. */
            if (kind != A_BARRIER)
                o->id = __atomic_fetch_add(&R.ids[kind], 1, __ATOMIC_RELAXED);
            if (kind == A_LOCK)
                R.lock_order[o->id] = o->order;
            if (kind == AN_ATOMIC)
                R.order_needed[o->order] = 2; /* a counter: if there was spinning */
            __atomic_store_n(&o->ready, 1, __ATOMIC_RELEASE);
            return o;
        }
        if (found == key) {
            while (!__atomic_load_n(&o->ready, __ATOMIC_ACQUIRE))
                sched_yield();
            return o;
        }
    }
    fail("outlive: the program has more than %u locks and atomic variables, so it cannot be recorded", MOST_OBJECTS);
    return &nowhere;
}
