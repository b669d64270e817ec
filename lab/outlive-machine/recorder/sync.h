/* Locks, condition variables, barriers and semaphores: the program's calls come here, do what they did, and what came of
 * it is recorded. Definitions in an executable come before a library's, so those of C++'s threads come here too. */

HIDDEN void *real(const char *name) {
    /* Condition variables are there twice; `dlsym` alone might find the old ones. */
    void *found = strncmp(name, "pthread_cond_", 13) ? NULL : dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");
    if (!found)
        found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "outlive: the recorder cannot find the function %s of the system's library\n", name);
        abort();
    }
    return found;
}

#define REAL(name) \
    static __typeof__(&name) real_##name; \
    if (!real_##name) \
        real_##name = (__typeof__(&name))real(#name)

/* A lock has been taken. Who has it raises its turn, so turns are in the order of holders. */
HIDDEN void taken(void *lock, uint32_t depth) {
    struct thread *t = grab();
    if (!t)
        return;
    struct object *o = object_at((uintptr_t)lock, A_LOCK);
    struct held *end = t->held + t->holds, *held = t->held;
    while (held < end && held->lock != o)
        held++;
    if (held < end) {
        held->depth += depth;
    } else if (t->holds == MOST_HELD) {
        fail("outlive: a thread holds more than %d locks, so it cannot be recorded", MOST_HELD);
    } else {
        *held = (struct held){o, depth, false};
        t->holds++;
        t->unsettled = true;
    }
    release(t);
    /* Records it. */
    t = enter();
    if (t)
        release(t);
}

/* A lock is given back next. For a wait, whole, and as what it says. Returns how often it was held. */
HIDDEN uint32_t given(void *lock, struct object *condition, bool *recorded) {
    struct thread *t = enter();
    bool active = t;
    if (!t)
        t = grab();
    if (!t)
        return 1;
    if (active)
        settle(t);
    struct object *o = object_at((uintptr_t)lock, A_LOCK);
    struct held *end = t->held + t->holds, *held = t->held;
    while (held < end && held->lock != o)
        held++;
    uint32_t depth = 1;
    if (held < end) {
        depth = held->depth;
        if (depth > 1 && !condition) {
            held->depth--;
        } else {
            if (active && held->recorded) {
                gap(t);
                if (condition)
                    event2(t, WAIT_BEGIN, condition->id, o->id);
                else
                    event1(t, UNLOCK, o->id);
                if (recorded)
                    *recorded = true;
            }
            *held = t->held[--t->holds];
        }
    }
    release(t);
    return depth;
}

#define TAKES(name, type) \
    int name(type *lock) { \
        REAL(name); \
        int error = real_##name(lock); \
        if (!error) \
            taken((void *)lock, 1); \
        return error; \
    }
#define TAKES_UNTIL(name, type) \
    int name(type *lock, const struct timespec *until) { \
        REAL(name); \
        int error = real_##name(lock, until); \
        if (!error) \
            taken((void *)lock, 1); \
        return error; \
    }
#define GIVES(name, type) \
    int name(type *lock) { \
        REAL(name); \
        given((void *)lock, NULL, NULL); \
        return real_##name(lock); \
    }

/* EOWNERDEAD of a robust mutex is an error to `TAKES`, so what it protects is not recorded as protected. */
TAKES(pthread_mutex_lock, pthread_mutex_t)
TAKES(pthread_mutex_trylock, pthread_mutex_t)
TAKES_UNTIL(pthread_mutex_timedlock, pthread_mutex_t)
GIVES(pthread_mutex_unlock, pthread_mutex_t)
TAKES(pthread_spin_lock, pthread_spinlock_t)
TAKES(pthread_spin_trylock, pthread_spinlock_t)
GIVES(pthread_spin_unlock, pthread_spinlock_t)
TAKES(pthread_rwlock_rdlock, pthread_rwlock_t)
TAKES(pthread_rwlock_tryrdlock, pthread_rwlock_t)
TAKES_UNTIL(pthread_rwlock_timedrdlock, pthread_rwlock_t)
TAKES(pthread_rwlock_wrlock, pthread_rwlock_t)
TAKES(pthread_rwlock_trywrlock, pthread_rwlock_t)
TAKES_UNTIL(pthread_rwlock_timedwrlock, pthread_rwlock_t)
GIVES(pthread_rwlock_unlock, pthread_rwlock_t)

/* A wait is giving the lock back, and taking it in the turn in which it was taken then. */
struct wait {
    struct object *condition;
    void *lock;
    uint32_t depth;
    bool recorded;
};

HIDDEN struct wait wait_begins(void *condition, void *lock) {
    struct wait wait = {NULL, lock, 1, false};
    struct thread *t = grab();
    if (!t)
        return wait;
    wait.condition = object_at((uintptr_t)condition, A_CONDITION);
    /* Its turns are kept to from now on, since they tell who was woken when. */
    R.order_needed[object_at((uintptr_t)lock, A_LOCK)->order] = 1;
    release(t);
    wait.depth = given(lock, wait.condition, &wait.recorded);
    return wait;
}

HIDDEN void wait_ends(void *argument) {
    struct wait *wait = argument;
    struct thread *t = wait->recorded ? enter() : NULL;
    if (!t) {
        taken(wait->lock, wait->depth);
        return;
    }
    struct object *o = object_at((uintptr_t)wait->lock, A_LOCK);
    settle(t);
    gap(t);
    event3(t, WAIT_END, wait->condition->id, o->id, __atomic_fetch_add(&o->turns, 1, __ATOMIC_RELAXED));
    if (t->holds < MOST_HELD)
        t->held[t->holds++] = (struct held){o, wait->depth, true};
    release(t);
}

int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *lock) {
    REAL(pthread_cond_wait);
    struct wait wait = wait_begins(condition, lock);
    int error;
    /* Who is cancelled there has the lock again. */
    pthread_cleanup_push(wait_ends, &wait);
    error = real_pthread_cond_wait(condition, lock);
    pthread_cleanup_pop(1);
    return error;
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *lock, const struct timespec *until) {
    REAL(pthread_cond_timedwait);
    struct wait wait = wait_begins(condition, lock);
    int error;
    pthread_cleanup_push(wait_ends, &wait);
    error = real_pthread_cond_timedwait(condition, lock, until);
    pthread_cleanup_pop(1);
    return error;
}

#if __GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 30)
int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *lock, clockid_t clock, const struct timespec *until) {
    REAL(pthread_cond_clockwait);
    struct wait wait = wait_begins(condition, lock);
    int error;
    pthread_cleanup_push(wait_ends, &wait);
    error = real_pthread_cond_clockwait(condition, lock, clock, until);
    pthread_cleanup_pop(1);
    return error;
}

#define TAKES_BY_CLOCK(name, type) \
    int name(type *lock, clockid_t clock, const struct timespec *until) { \
        REAL(name); \
        int error = real_##name(lock, clock, until); \
        if (!error) \
            taken((void *)lock, 1); \
        return error; \
    }
TAKES_BY_CLOCK(pthread_mutex_clocklock, pthread_mutex_t)
TAKES_BY_CLOCK(pthread_rwlock_clockrdlock, pthread_rwlock_t)
TAKES_BY_CLOCK(pthread_rwlock_clockwrlock, pthread_rwlock_t)
#endif

HIDDEN void wakes(void *condition, enum event kind) {
    struct thread *t = enter();
    if (t) {
        settle(t);
        gap(t);
        event1(t, kind, object_at((uintptr_t)condition, A_CONDITION)->id);
        release(t);
    }
}

int pthread_cond_signal(pthread_cond_t *condition) {
    REAL(pthread_cond_signal);
    wakes(condition, SIGNAL);
    return real_pthread_cond_signal(condition);
}

int pthread_cond_broadcast(pthread_cond_t *condition) {
    REAL(pthread_cond_broadcast);
    wakes(condition, BROADCAST);
    return real_pthread_cond_broadcast(condition);
}

int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attributes, unsigned count) {
    REAL(pthread_barrier_init);
    int error = real_pthread_barrier_init(barrier, attributes, count);
    if (!error && self) {
        struct object *o = object_at((uintptr_t)barrier, A_BARRIER);
        o->id = __atomic_fetch_add(&R.ids[A_BARRIER], 1, __ATOMIC_RELAXED);
        o->count = R.barrier_threads[o->id] = count;
        o->arrived = 0;
    }
    return error;
}

/* Whether the round that a thread has come to is in the trace is up to whoever comes last: so it is in all threads or
 * none. */
HIDDEN void put_barrier(struct thread *t) {
    struct object *o = t->at_barrier;
    if (o && o->arrived >= (t->round + 1) * o->count && o->recorded[t->round & 1]) {
        settle(t);
        gap(t);
        event1(t, BARRIER, o->id);
    }
    t->at_barrier = NULL;
}

int pthread_barrier_wait(pthread_barrier_t *barrier) {
    REAL(pthread_barrier_wait);
    struct thread *t = enter();
    if (t)
        settle(t);
    else
        t = grab();
    if (t) {
        struct object *o = object_at((uintptr_t)barrier, A_BARRIER);
        if (o->count) {
            uint64_t arrival = __atomic_fetch_add(&o->arrived, 1, __ATOMIC_SEQ_CST);
            t->round = arrival / o->count;
            t->at_barrier = o;
            if (arrival % o->count == o->count - 1)
                o->recorded[t->round & 1] = recording();
        }
        release(t);
    }
    int error = real_pthread_barrier_wait(barrier);
    t = grab();
    if (t) {
        put_barrier(t);
        release(t);
    }
    return error;
}

int sem_post(sem_t *semaphore) {
    REAL(sem_post);
    struct thread *t = enter();
    if (t) {
        struct object *o = object_at((uintptr_t)semaphore, A_SEMAPHORE);
        settle(t);
        gap(t);
        /* Others may post at the same time, in whatever order. */
        __atomic_fetch_add(&o->turns, 1, __ATOMIC_SEQ_CST);
        event1(t, ADVANCE, o->order);
        release(t);
    }
    return real_sem_post(semaphore);
}

/* Goes on when all is posted that had been when it did: that is enough, and it was so. */
HIDDEN void passes(sem_t *semaphore) {
    struct thread *t = enter();
    if (t) {
        struct object *o = object_at((uintptr_t)semaphore, A_SEMAPHORE);
        settle(t);
        gap(t);
        event2(t, AWAIT, o->order, __atomic_load_n(&o->turns, __ATOMIC_SEQ_CST));
        release(t);
    }
}

#define PASSES(name, parameters, arguments) \
    int name parameters { \
        REAL(name); \
        int error = real_##name arguments; \
        if (!error) \
            passes(semaphore); \
        return error; \
    }

PASSES(sem_wait, (sem_t *semaphore), (semaphore))
PASSES(sem_trywait, (sem_t *semaphore), (semaphore))
PASSES(sem_timedwait, (sem_t *semaphore, const struct timespec *until), (semaphore, until))
#if __GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 30)
PASSES(sem_clockwait, (sem_t *semaphore, clockid_t clock, const struct timespec *until), (semaphore, clock, until))
#endif
