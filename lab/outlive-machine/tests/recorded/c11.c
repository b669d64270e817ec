/* The threads of C11, and what is done once, for the test of the recorder; see everything.c. */

#include <stdio.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>

#define THREADS 4
#define ROUNDS 200

long outlive_word(const void *) __attribute__((weak));

static mtx_t lock, gate;
static cnd_t opened;
static once_flag made = ONCE_FLAG_INIT;
static long counter, order[THREADS * ROUNDS], waiting, generation, *table, returned;

static void make(void) {
    table = malloc(THREADS * sizeof *table);
    for (int i = 0; i < THREADS; i++)
        table[i] = 10 + i;
}

static void meet(void) {
    struct timespec later;
    timespec_get(&later, TIME_UTC);
    later.tv_sec += 100;
    mtx_lock(&gate);
    long mine = generation;
    if (++waiting == THREADS) {
        waiting = 0;
        generation++;
        cnd_broadcast(&opened);
    } else {
        while (generation == mine)
            if (mine % 2)
                cnd_timedwait(&opened, &gate, &later);
            else
                cnd_wait(&opened, &gate);
    }
    mtx_unlock(&gate);
}

static int work(void *argument) {
    int me = (int)(long)argument;
    call_once(&made, make);
    table[me] = table[me] * 3 + me;
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 4 || mtx_trylock(&lock) != thrd_success)
            mtx_lock(&lock);
        order[counter++] = me;
        mtx_unlock(&lock);
        if (round % 50 == 0)
            meet();
    }
    if (me == 3)
        thrd_exit(7 + me);
    return 7 + me;
}

static void show(const void *from, size_t size) {
    for (const long *at = from; at < (const long *)((const char *)from + size); at++)
        printf("%ld %lu\n", outlive_word(at), (unsigned long)*at);
}

int main(void) {
    thrd_t threads[THREADS];
    mtx_init(&lock, mtx_plain);
    mtx_init(&gate, mtx_timed);
    cnd_init(&opened);
    for (long i = 1; i < THREADS; i++)
        if (thrd_create(&threads[i], work, (void *)i) != thrd_success)
            return 1;
    work(0);
    for (int i = 1; i < THREADS; i++) {
        int result;
        thrd_join(threads[i], &result);
        returned = returned * 100 + result;
    }
    if (returned != 80910)
        return 1;
    if (!outlive_word)
        return 0;
    show(&counter, sizeof counter);
    show(order, sizeof order);
    show(&waiting, sizeof waiting);
    show(&generation, sizeof generation);
    show(&returned, sizeof returned);
    show(table, THREADS * sizeof *table);
    return 0;
}
