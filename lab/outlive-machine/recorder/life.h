/* From the beginning of the recording, with the image, to its end, with what the trace says about itself. */

int __close(int); /* the library's own, under its other name */
extern char __data_start[], _end[];

/* Items of a block of the image. */
static unsigned char image_block[BLOCK + 4096];

/* Runs of words that are not zero. One or two zeros do not end a run. Other threads may run meanwhile: what they write
 * is in the image or not, and is in the trace if it comes after. */
HIDDEN void put_image(uintptr_t from, uintptr_t to, uint64_t first) {
    uintptr_t own[3][2] = {{(uintptr_t)&R, (uintptr_t)(&R + 1)},
                           {(uintptr_t)heaps, (uintptr_t)(heaps + 2)},
                           {(uintptr_t)image_block, (uintptr_t)(image_block + sizeof image_block)}};
    uint64_t words = (to - from) / 8;
    for (uint64_t at = 0; at < words;) {
        uintptr_t address = from + 8 * at;
        for (int i = 0; i < 3; i++)
            if (address >= own[i][0] && address < own[i][1])
                at = (own[i][1] - from + 7) / 8, address = own[i][1];
        if (at >= words)
            break;
        if (value_at(from + 8 * at) == 0) {
            at++;
            continue;
        }
        uint64_t end = at + 1, gap = 0;
        for (uint64_t next = end; next < words && gap < 3 && next - at < BLOCK / 8; next++) {
            gap = value_at(from + 8 * next) ? 0 : gap + 1;
            if (!gap)
                end = next + 1;
        }
        unsigned char *out = image_block;
        put_number(&out, first + at);
        put_number(&out, end - at);
        for (; at < end; at++, out += 8)
            put_fixed(out, value_at(from + 8 * at), 8);
        put_block(IMAGE_BLOCK, 0, 1, image_block, (size_t)(out - image_block));
    }
}

HIDDEN void begin_recording(void) {
    uint64_t globals = (R.globals_end - R.globals) / 8;
    put_image(R.globals, R.globals_end, 0);
    put_image(heaps[0].base, heaps[0].base + heaps[0].used, globals);
    if (!over())
        __atomic_store_n(&R.recording, 1, __ATOMIC_SEQ_CST);
}

HIDDEN void put_text(unsigned char **at, const char *text) {
    size_t length = strlen(text);
    put_number(at, length);
    for (size_t i = 0; i < length; i++)
        *(*at)++ = (unsigned char)text[i];
}

/* What the trace says about itself; the words that threads synchronise by come after all others. */
HIDDEN void put_about(void) {
    uint32_t locks = R.ids[A_LOCK], conditions = R.ids[A_CONDITION], barriers = R.ids[A_BARRIER];
    unsigned char *about = reserve(8192 + 16 * ((size_t)locks + conditions + barriers) + R.orders), *at = about;
    if (!about) {
        fail("outlive: not enough memory to finish the trace");
        return;
    }
    uint64_t first = ((R.globals_end - R.globals + heaps[0].used + LINE - 1) / LINE) * (LINE / 8);
    put_number(&at, first + 8 * ((uint64_t)locks + conditions + 2 * (uint64_t)barriers));
    put_number(&at, R.thread_count);
    put_number(&at, R.spins | (R.region_only ? 2 : 0));
    put_number(&at, R.orders);
    for (uint32_t i = 0; i < R.orders; i++)
        *at++ = R.order_needed[i] == 1 || (R.order_needed[i] == 2 && R.spins);
    put_number(&at, locks);
    for (uint32_t i = 0; i < locks; i++, first += 8) {
        put_number(&at, first);
        put_number(&at, R.lock_order[i] + 1);
    }
    put_number(&at, conditions);
    for (uint32_t i = 0; i < conditions; i++, first += 8)
        put_number(&at, first);
    put_number(&at, barriers);
    for (uint32_t i = 0; i < barriers; i++, first += 16) {
        put_number(&at, first);
        put_number(&at, R.barrier_threads[i]);
    }
    char command[1025], gaps[160];
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, command, sizeof command - 1);
    if (file >= 0)
        close(file);
    while (length > 0 && command[length - 1] == 0)
        length--;
    for (ssize_t i = 0; i < length; i++) /* one line of ASCII */
        if ((unsigned char)command[i] < 32 || (unsigned char)command[i] > 126)
            command[i] = command[i] ? '?' : ' ';
    command[length > 0 ? length : 0] = 0;
    snprintf(gaps, sizeof gaps, "estimated: %u.%02u instructions before each access, everywhere", R.gap / 100, R.gap % 100);
    put_number(&at, 4);
    put_text(&at, "program");
    put_text(&at, command);
    put_text(&at, "recorder");
    put_text(&at, "outlive-machine, -fsanitize=thread");
    put_text(&at, "gaps");
    put_text(&at, gaps);
    put_text(&at, "shared");
    put_text(&at, R.heap_of_main ? "globals, and allocations of the first thread" : "globals and allocations");
    for (unsigned char *part = about; part < at; part += BLOCK)
        put_block(ABOUT_BLOCK, 0, 1, part, (size_t)(at - part) < BLOCK ? (size_t)(at - part) : BLOCK);
}

HIDDEN void put_index(void) {
    unsigned char *index = reserve(16 * (size_t)R.place_count + 32);
    if (!index) {
        fail("outlive: not enough memory to finish the trace");
        return;
    }
    unsigned char *at = index;
    for (uint32_t i = 0; i < R.place_count; i++, at += 16) {
        put_fixed(at, R.places[i].offset, 8);
        put_fixed(at + 8, R.places[i].thread, 4);
        at[12] = (unsigned char)R.places[i].kind;
    }
    put_fixed(at, R.end, 8);
    put_fixed(at + 8, R.place_count, 8);
    put_fixed(at + 16, ~crc_of(~0u, index, (size_t)(at + 16 - index)), 4);
    const char *end = "ecarTtuO";
    for (int i = 0; i < 8; i++)
        at[24 + i] = (unsigned char)end[i];
    spin_lock(&R.lock);
    put_file(index, (size_t)(at + 32 - index));
    spin_unlock(&R.lock);
}

HIDDEN void handler_left(void) {
    fail("outlive: a signal's handler ended the program within the recorder, or left it by longjmp, so the trace %s is unusable", R.path);
}

/* Takes all threads, for good. A handler that has left the recorder by `longjmp` has left its thread in there. */
HIDDEN void take_threads(uint32_t threads) {
    for (uint32_t i = 0; i < threads; i++) {
        struct thread *t = R.threads[i];
        uint32_t nobody = 0;
        while (!__atomic_compare_exchange_n(&t->busy, &nobody, 2, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            nobody = 0;
            if (__atomic_load_n(&t->faulting, __ATOMIC_RELAXED))
                handler_left();
            if (R.failed)
                return;
            sched_yield();
        }
    }
}

/* The rest of the trace, when nobody records any more. */
HIDDEN void put_rest(uint32_t threads) {
    take_threads(threads);
    for (uint32_t i = 0; i < threads && !R.failed; i++) {
        struct thread *t = R.threads[i];
        settle(t);
        put_barrier(t);
        /* Nobody is to wait for ever for what it holds. */
        while (t->holds-- > 0)
            if (t->held[t->holds].recorded)
                event1(t, UNLOCK, t->held[t->holds].lock->id);
        put_events(t);
    }
    if (!R.failed)
        put_about();
    if (!R.failed)
        put_index();
    if (!R.failed && __close(R.fd) != 0)
        fail("outlive: the trace %s cannot be written: %s; it is unusable", R.path, strerror(errno));
    __atomic_store_n(&R.fd, -1, __ATOMIC_RELEASE);
}

/* Ends the trace, once. Threads may run on, unrecorded. No handler comes in between, which might end the program, and nobody is
 * cancelled here; who comes when another thread is at it waits, since the program may end when this returns. */
HIDDEN void finish_recording(void) {
    /* Only the thread itself makes it 1. So a handler has come in between that could not be put off: the recorder was in the middle
     * of something, and may have a lock that all others wait for. */
    if (self && __atomic_load_n(&self->busy, __ATOMIC_RELAXED) == 1) {
        handler_left();
        return;
    }
    sigset_t all, before;
    int cancelled;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelled);
    __atomic_store_n(&R.recording, 0, __ATOMIC_SEQ_CST);
    spin_lock(&R.lock);
    bool first = !R.finished && R.fd >= 0;
    __atomic_store_n(&R.finished, true, __ATOMIC_SEQ_CST);
    uint32_t threads = R.thread_count;
    spin_unlock(&R.lock);
    if (first)
        put_rest(threads);
    while (__atomic_load_n(&R.fd, __ATOMIC_ACQUIRE) >= 0 && !R.failed)
        sched_yield();
    pthread_setcancelstate(cancelled, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void outlive_roi_begin(void) {
    struct thread *t = grab();
    if (!t)
        return;
    /* All threads may come here at once: one takes the image, and the others wait until it has, for what they do next is to be
     * in the trace. */
    if (R.region_only && !__atomic_exchange_n(&R.beginning, true, __ATOMIC_ACQ_REL))
        begin_recording();
    while (R.region_only && !recording() && !over())
        sched_yield();
    release(t);
    t = enter();
    if (t) {
        settle(t);
        event0(t, REGION_BEGIN);
        release(t);
    }
}

void outlive_roi_end(void) {
    struct thread *t = enter();
    if (!t)
        return;
    settle(t);
    event0(t, REGION_END);
    release(t);
    if (R.region_only)
        finish_recording();
}

/* Of programs that close whatever there is: to them there is no such file. */
__attribute__((weak)) int close(int file) {
    if (file >= 0 && file == R.fd) {
        errno = EBADF;
        return -1;
    }
    return __close(file);
}

/* The names that PARSEC's hooks have, unless the program has them. */
__attribute__((weak)) void __parsec_roi_begin(void) { outlive_roi_begin(); }
__attribute__((weak)) void __parsec_roi_end(void) { outlive_roi_end(); }

/* Which word of shared memory the trace has an address as, or -1. */
long outlive_word(const void *at) {
    uint64_t word;
    return shared_word((uintptr_t)at, &word) ? (long)word : -1;
}

/* Around a fork, so that the child does not find a lock taken by a thread that it does not have. */
HIDDEN void before_fork(void) {
    lock_heap(0);
    lock_heap(1);
}

HIDDEN void after_fork(void) {
    unlock_heap(1);
    unlock_heap(0);
}

/* A child has one thread and its own memory: it is not recorded. */
HIDDEN void in_child(void) {
    after_fork();
    R.lock = 0;
    R.recording = 0;
    R.finished = true;
    R.failed = false; /* how it ends is its own affair */
    R.fd = -1;
    self = NULL;
}

/* Whether a setting has its other value; without it, it has the usual one. */
HIDDEN bool set_to(const char *name, const char *usual, const char *other) {
    const char *found = getenv(name);
    if (!found || strcmp(found, usual) == 0)
        return false;
    if (strcmp(found, other) == 0)
        return true;
    fprintf(stderr, "outlive: %s is `%s`; use `%s` or `%s`\n", name, found, usual, other);
    _exit(2);
}

/* Moves the trace to a number that a program hardly comes to: who closes all low ones gives them to files of its own. */
HIDDEN void move_file(void) {
    struct rlimit most;
    struct stat there;
    if (getrlimit(RLIMIT_NOFILE, &most) == 0) {
        int high = most.rlim_cur < HIGH_FILE ? (int)most.rlim_cur - 1 : HIGH_FILE;
        int moved = fcntl(R.fd, F_DUPFD_CLOEXEC, high);
        if (moved >= 0) {
            int low = R.fd;
            R.fd = moved;
            close(low);
        }
    }
    if (fstat(R.fd, &there) == 0) {
        R.device = there.st_dev;
        R.inode = there.st_ino;
    }
}

HIDDEN void keep_status(int status, void *nothing) { R.status = status; }

HIDDEN void end_with_1(int status, void *nothing) {
    fflush(NULL);
    _exit(1);
}

__attribute__((constructor(101))) static void start(void) {
    const char *path = getenv("OUTLIVE_TRACE"), *instructions = getenv("OUTLIVE_GAP");
    R.fd = -1;
    pthread_atfork(before_fork, after_fork, in_child);
    if (!path || !*path)
        return;
    double gap = 2;
    if (instructions) {
        char *end;
        gap = strtod(instructions, &end);
        if (*end || end == instructions || !(gap >= 0 && gap <= 1000)) {
            fprintf(stderr, "outlive: OUTLIVE_GAP is `%s`; give a number of instructions from 0 to 1000\n", instructions);
            _exit(2);
        }
    }
    R.gap = (uint32_t)(gap * 100 + 0.5);
    R.region_only = set_to("OUTLIVE_RECORD", "all", "roi");
    R.loads = set_to("OUTLIVE_LOADS", "words", "values");
    R.heap_of_main = set_to("OUTLIVE_SHARED", "heap", "main");
    R.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (R.fd < 0) {
        fprintf(stderr, "outlive: the trace %s cannot be written: %s\n", path, strerror(errno));
        _exit(2);
    }
    snprintf(R.path, sizeof R.path, "%s", path);
    move_file();
    on_exit(keep_status, NULL);
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
        R.crc[i] = crc;
    }
    R.globals = (uintptr_t)__data_start & ~(uintptr_t)(LINE - 1);
    R.globals_end = ((uintptr_t)_end + LINE - 1) & ~(uintptr_t)(LINE - 1);
    R.objects = reserve(MOST_OBJECTS * sizeof *R.objects);
    R.places = reserve(MOST_BLOCKS * sizeof *R.places);
    R.order_needed = reserve(MOST_OBJECTS);
    R.lock_order = reserve(MOST_OBJECTS * sizeof *R.lock_order);
    R.barrier_threads = reserve((size_t)MOST_BLOCKS * sizeof *R.barrier_threads);
    pthread_key_create(&end_key, ends);
    free(malloc(1)); /* there is a heap from now on */
    struct thread *t = R.objects ? claim_slot() : NULL;
    if (!t || !R.places || !R.order_needed || !R.lock_order || !R.barrier_threads || !heaps[0].base) {
        fprintf(stderr, "outlive: not enough memory to record\n");
        _exit(2);
    }
    /* What it starts is not recorded, and must not write to the same file. */
    unsetenv("OUTLIVE_TRACE");
    static const unsigned char first[16] = "OutTrace\1";
    put_file(first, sizeof first);
    self = t;
    if (!R.region_only)
        begin_recording();
}

__attribute__((destructor(101))) static void stop(void) {
    if (R.fd >= 0) {
        if (R.region_only && !R.failed && !R.finished && !recording())
            fprintf(stderr, "outlive: no region of interest began (outlive_roi_begin), so nothing was recorded\n");
        finish_recording();
    }
    /* Whoever waits for the trace is to see it. That comes after all else that the program has left to do. */
    if (R.failed && (R.status & 0xff) == 0)
        on_exit(end_with_1, NULL);
}
