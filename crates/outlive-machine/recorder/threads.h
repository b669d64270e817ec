/* Threads. Each has a slot, which is a thread of the trace; a slot whose thread has been joined is given to the next
 * one. */

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

HIDDEN void *begins(void *argument) {
    struct thread *t = argument;
    void *result;
    self = t;
    if (t->await && enter()) {
        event2(t, AWAIT, t->slot->order, t->await);
        release(t);
    }
    pthread_cleanup_push(ends, t);
    result = t->start(t->argument);
    pthread_cleanup_pop(1);
    return result;
}

int pthread_create(pthread_t *handle, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    REAL(pthread_create);
    struct thread *child = self ? claim_slot() : NULL;
    if (!child) {
        if (self)
            fail("outlive: more than %d threads at once cannot be recorded", MOST_THREADS);
        return real_pthread_create(handle, attributes, start, argument);
    }
    child->start = start;
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
    pthread_t made;
    int error = real_pthread_create(&made, attributes, begins, child);
    if (error) {
        child->claimed = false;
    } else {
        child->handle = made;
        *handle = made;
    }
    return error;
}

int pthread_join(pthread_t handle, void **result) {
    REAL(pthread_join);
    int error = real_pthread_join(handle, result);
    if (error || !self)
        return error;
    struct thread *joined = NULL;
    spin_lock(&R.lock);
    for (uint32_t i = 1; i < R.thread_count && !joined; i++) {
        struct thread *t = R.threads[i];
        if (t->claimed && pthread_equal(t->handle, handle) && __atomic_load_n(&t->ended, __ATOMIC_ACQUIRE))
            joined = t;
    }
    spin_unlock(&R.lock);
    if (!joined)
        return error;
    struct thread *t = enter();
    if (t) {
        settle(t);
        if (joined->ended_at)
            event2(t, AWAIT, joined->slot->order, joined->ended_at);
        release(t);
    }
    joined->handle = 0;
    joined->claimed = false;
    return error;
}
