/* Threads, and what is done once. Each thread has a slot, which is a thread of the trace; a slot whose thread has been
 * joined is given to the next one. */

HIDDEN struct thread *claim_slot(void) {
    struct thread *t = NULL;
    spin_lock(&R.lock);
    for (uint32_t i = 0; i < R.thread_count && !t; i++)
        if (!R.threads[i]->claimed)
            t = R.threads[i];
    if (!t && R.thread_count < MOST_THREADS && (t = reserve(sizeof *t))) {
        t->number = R.thread_count;
        t->busy = R.finished ? 2 : 0;
        R.threads[R.thread_count++] = t;
    }
    if (t)
        t->claimed = true;
    spin_unlock(&R.lock);
    if (t)
        t->slot = object_at((uintptr_t)t, A_SLOT);
    return t;
}

HIDDEN void ends(void *argument) {
    struct thread *t = argument;
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
    if (t->await && enter()) {
        event2(t, AWAIT, t->slot->order, t->await);
        release(t);
    }
}

HIDDEN void *begins(void *argument) {
    struct thread *t = argument;
    void *result;
    begin_thread(t);
    pthread_cleanup_push(ends, t);
    result = t->start(t->argument);
    pthread_cleanup_pop(1);
    return result;
}

/* The slot for a thread that is made next; none if it is not to be recorded. */
HIDDEN struct thread *will_make(void *argument) {
    struct thread *child = self ? claim_slot() : NULL;
    if (!child) {
        if (self)
            fail("outlive: more than %d threads at once cannot be recorded", MOST_THREADS);
        return NULL;
    }
    child->argument = argument;
    child->ended = false;
    child->ended_at = child->await = 0;
    child->makes_private = false;
    struct thread *t = enter();
    if (t) {
        settle(t);
        child->await = __atomic_add_fetch(&child->slot->turns, 1, __ATOMIC_SEQ_CST);
        event1(t, ADVANCE, child->slot->order);
        release(t);
    }
    return child;
}

HIDDEN void was_made(struct thread *child, int error, pthread_t handle) {
    if (error) {
        child->claimed = false;
        return;
    }
    spin_lock(&R.lock);
    child->handle = handle;
    /* Who had that handle before was detached, and is gone. */
    for (uint32_t i = 1; i < R.thread_count; i++) {
        struct thread *t = R.threads[i];
        if (t != child && t->claimed && pthread_equal(t->handle, handle) && __atomic_load_n(&t->ended, __ATOMIC_ACQUIRE)) {
            t->handle = 0;
            t->claimed = false;
        }
    }
    spin_unlock(&R.lock);
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

HIDDEN void was_joined(pthread_t handle) {
    if (!self)
        return;
    struct thread *joined = NULL;
    spin_lock(&R.lock);
    for (uint32_t i = 1; i < R.thread_count && !joined; i++) {
        struct thread *t = R.threads[i];
        if (t->claimed && pthread_equal(t->handle, handle) && __atomic_load_n(&t->ended, __ATOMIC_ACQUIRE))
            joined = t;
    }
    spin_unlock(&R.lock);
    if (!joined)
        return;
    struct thread *t = enter();
    if (t) {
        settle(t);
        if (joined->ended_at)
            event2(t, AWAIT, joined->slot->order, joined->ended_at);
        release(t);
    }
    joined->handle = 0;
    joined->claimed = false;
}

#define JOINS(name, parameters, arguments) \
    int name parameters { \
        REAL(name); \
        int error = real_##name arguments; \
        if (!error) \
            was_joined(handle); \
        return error; \
    }

JOINS(pthread_join, (pthread_t handle, void **result), (handle, result))
JOINS(pthread_tryjoin_np, (pthread_t handle, void **result), (handle, result))
JOINS(pthread_timedjoin_np, (pthread_t handle, void **result, const struct timespec *until), (handle, result, until))

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
