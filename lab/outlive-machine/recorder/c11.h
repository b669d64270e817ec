/* The threads of C11. The system's library does them by its own inner functions, so that those before which the recorder
 * stands for POSIX are never called: these are recorded apart. */

#if __GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 28)
#include <threads.h>

/* Programs may have functions of these names of their own, made of those of POSIX. */
#pragma weak mtx_lock
#pragma weak mtx_trylock
#pragma weak mtx_timedlock
#pragma weak mtx_unlock
#pragma weak cnd_wait
#pragma weak cnd_timedwait
#pragma weak cnd_signal
#pragma weak cnd_broadcast
#pragma weak thrd_create
#pragma weak thrd_join
#pragma weak call_once

/* `TAKES` and the like take 0 for success. */
_Static_assert(thrd_success == 0, "thrd_success must be 0");

TAKES(mtx_lock, mtx_t)
TAKES(mtx_trylock, mtx_t)
TAKES_UNTIL(mtx_timedlock, mtx_t)
GIVES(mtx_unlock, mtx_t)

int cnd_wait(cnd_t *condition, mtx_t *lock) {
    REAL(cnd_wait);
    struct wait wait = wait_begins(condition, lock);
    int error;
    pthread_cleanup_push(wait_ends, &wait);
    error = real_cnd_wait(condition, lock);
    pthread_cleanup_pop(1);
    return error;
}

int cnd_timedwait(cnd_t *condition, mtx_t *lock, const struct timespec *until) {
    REAL(cnd_timedwait);
    struct wait wait = wait_begins(condition, lock);
    int error;
    pthread_cleanup_push(wait_ends, &wait);
    error = real_cnd_timedwait(condition, lock, until);
    pthread_cleanup_pop(1);
    return error;
}

int cnd_signal(cnd_t *condition) {
    REAL(cnd_signal);
    wakes(condition, SIGNAL);
    return real_cnd_signal(condition);
}

int cnd_broadcast(cnd_t *condition) {
    REAL(cnd_broadcast);
    wakes(condition, BROADCAST);
    return real_cnd_broadcast(condition);
}

HIDDEN int begins_c11(void *argument) {
    struct thread *t = argument;
    begin_thread(t);
    return t->start_c11(t->argument);
}

int thrd_create(thrd_t *handle, thrd_start_t start, void *argument) {
    REAL(thrd_create);
    struct thread *child = will_make(argument);
    if (!child)
        return real_thrd_create(handle, start, argument);
    child->start_c11 = start;
    thrd_t made;
    int error = real_thrd_create(&made, begins_c11, child);
    was_made(child, error, made);
    if (!error)
        *handle = made;
    return error;
}

JOINS(thrd_join, (thrd_t handle, int *result), (handle, result))

void call_once(once_flag *control, void (*routine)(void)) {
    REAL(call_once);
    once = (struct once){routine, (uintptr_t)control};
    real_call_once(control, does_once);
    was_done((uintptr_t)control);
}
#endif
