/* Threads, and what is done once. Each thread has a slot, which is a thread of the trace; a slot whose thread has been
 * joined is given to the next one. */

HIDDEN struct thread *claim_slot(void) {
    struct thread *t = NULL, *caller = lock_list();
    for (uint32_t i = 0; i < R.thread_count && !t; i++)
        if (!R.threads[i]->claimed)
            t = R.threads[i];
    if (!t && R.thread_count < MOST_THREADS && (t = reserve(sizeof *t))) {
        t->number = R.thread_count;
        t->busy = R.finished ? 2 : 0;
        R.threads[R.thread_count++] = t;
    }
    if (t) {
        t->claimed = true;
        t->slot = object_at((uintptr_t)t, A_SLOT);
    }
    unlock_list(caller);
    return t;
}

/* The data of the system's by which it tells a thread's end: its destructor comes in the last of the rounds that there are, so that what
 * the program's own destructors do is recorded. Those of C++ come before all of these. */
static pthread_key_t end_key;

HIDDEN void ends(void *argument) {
    struct thread *t = argument;
    if (++t->end_rounds < PTHREAD_DESTRUCTOR_ITERATIONS && pthread_setspecific(end_key, t) == 0)
        return;
    if (enter()) {
        settle(t);
        event1(t, ADVANCE, t->slot->order);
        t->ended_at = __atomic_add_fetch(&t->slot->turns, 1, __ATOMIC_SEQ_CST);
        release(t);
    }
    self = NULL;
    __atomic_store_n(&t->ended, true, __ATOMIC_RELEASE);
}

HIDDEN void begin_thread(struct thread *t) {
    self = t;
    pthread_setspecific(end_key, t);
    /* Whoever made it has said whose the handle is, before anybody can use that. */
    spin_lock(&R.making);
    spin_unlock(&R.making);
    if (t->await && enter()) {
        event2(t, AWAIT, t->slot->order, t->await);
        release(t);
    }
}

HIDDEN void *begins(void *argument) {
    struct thread *t = argument;
    begin_thread(t);
    return t->start(t->argument);
}

/* The slot for a thread that is made next; none if it is not to be recorded. One is made at a time. */
HIDDEN struct thread *will_make(void *argument) {
    struct thread *child = self ? claim_slot() : NULL;
    if (!child) {
        if (self)
            fail("outlive: more than %d threads at once cannot be recorded", MOST_THREADS);
        return NULL;
    }
    child->argument = argument;
    child->ended = child->joined = false;
    child->ended_at = child->await = 0;
    child->end_rounds = 0;
    child->makes_private = false;
    struct thread *t = enter();
    if (t) {
        settle(t);
        child->await = __atomic_add_fetch(&child->slot->turns, 1, __ATOMIC_SEQ_CST);
        event1(t, ADVANCE, child->slot->order);
        release(t);
    }
    spin_lock(&R.making);
    return child;
}

HIDDEN void was_made(struct thread *child, int error, pthread_t handle) {
    struct thread *caller = lock_list();
    child->handle = error ? 0 : handle;
    child->claimed = !error;
    /* Who had that handle before is gone: it was detached, or somebody has joined it just now and gives its slot back. */
    for (uint32_t i = 1; i < R.thread_count && !error; i++) {
        struct thread *t = R.threads[i];
        if (t != child && t->claimed && !t->joined && pthread_equal(t->handle, handle)) {
            t->handle = 0;
            t->claimed = false;
        }
    }
    unlock_list(caller);
    spin_unlock(&R.making);
}

int pthread_create(pthread_t *handle, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    REAL(pthread_create);
    struct thread *child = will_make(argument);
    if (!child)
        return real_pthread_create(handle, attributes, start, argument);
    child->start = start;
    pthread_t made;
    int error = real_pthread_create(&made, attributes, begins, child);
    was_made(child, error, made);
    if (!error)
        *handle = made;
    return error;
}

/* Whose end is waited for next, if that is known. Afterwards the system may have given its handle to another thread already. */
HIDDEN struct thread *will_join(pthread_t handle) {
    if (!self)
        return NULL;
    struct thread *joined = NULL, *caller = lock_list();
    for (uint32_t i = 1; i < R.thread_count && !joined; i++) {
        struct thread *t = R.threads[i];
        if (t->claimed && !t->joined && pthread_equal(t->handle, handle))
            joined = t;
    }
    if (joined)
        joined->joined = true;
    unlock_list(caller);
    return joined;
}

HIDDEN void was_joined(struct thread *joined) {
    struct thread *t = enter();
    if (t) {
        settle(t);
        if (joined->ended_at)
            event2(t, AWAIT, joined->slot->order, joined->ended_at);
        release(t);
    }
    t = lock_list();
    joined->handle = 0;
    joined->claimed = false;
    unlock_list(t);
}

/* It has not ended yet, or who waited for it was cancelled. */
HIDDEN void was_not_joined(void *joined) {
    if (joined) {
        struct thread *t = lock_list();
        ((struct thread *)joined)->joined = false;
        unlock_list(t);
    }
}

#define JOINS(name, parameters, arguments) \
    int name parameters { \
        REAL(name); \
        struct thread *joined = will_join(handle); \
        int error; \
        pthread_cleanup_push(was_not_joined, joined); \
        error = real_##name arguments; \
        pthread_cleanup_pop(error); \
        if (!error && joined) \
            was_joined(joined); \
        return error; \
    }

JOINS(pthread_join, (pthread_t handle, void **result), (handle, result))
JOINS(pthread_tryjoin_np, (pthread_t handle, void **result), (handle, result))
JOINS(pthread_timedjoin_np, (pthread_t handle, void **result, const struct timespec *until), (handle, result, until))
#if __GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 31)
JOINS(pthread_clockjoin_np, (pthread_t handle, void **result, clockid_t clock, const struct timespec *until),
      (handle, result, clock, until))
#endif

/* What is being done once, by this thread: it is told to others before the library lets them go on. */
struct once {
    void (*routine)(void);
    uintptr_t control;
};
static __thread struct once once __attribute__((tls_model("initial-exec")));

HIDDEN void does_once(void) {
    struct once mine = once;
    mine.routine();
    struct thread *t = enter();
    if (!t)
        return;
    struct object *o = object_at(mine.control, A_SEMAPHORE);
    settle(t);
    __atomic_fetch_add(&o->turns, 1, __ATOMIC_SEQ_CST);
    event1(t, ADVANCE, o->order);
    release(t);
}

/* Whatever was done once is done. */
HIDDEN void was_done(uintptr_t control) {
    struct thread *t = enter();
    if (!t)
        return;
    struct object *o = object_at(control, A_SEMAPHORE);
    uint64_t turns = __atomic_load_n(&o->turns, __ATOMIC_SEQ_CST);
    if (turns) {
        settle(t);
        gap(t);
        event2(t, AWAIT, o->order, turns);
    }
    release(t);
}

int pthread_once(pthread_once_t *control, void (*routine)(void)) {
    REAL(pthread_once);
    once = (struct once){routine, (uintptr_t)control};
    int error = real_pthread_once(control, does_once);
    if (!error)
        was_done((uintptr_t)control);
    return error;
}
