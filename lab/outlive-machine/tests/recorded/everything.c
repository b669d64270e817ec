/* What threads can do to shared memory, for the test of the recorder: at the end it prints each word that it uses, by
 * the word's number in the trace, with what it holds. */

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define ROUNDS 200

long outlive_word(const void *) __attribute__((weak));
void outlive_roi_begin(void) __attribute__((weak));
void outlive_roi_end(void) __attribute__((weak));

struct record {
    double values[7];
    char name[12];
};

/* Initialised, so they are in the image. */
static int initial[16] = {1, 2, 3, 5, 8};
static long counter, order[THREADS * ROUNDS];
static int parts[THREADS * 8]; /* neighbours in a word belong to different threads */
static char bytes[THREADS * 8];
static atomic_long sum;
static atomic_int small_sum[2], flag, chosen, user_lock;
static int under_user_lock;
static volatile int volatile_flag;
static long after_flag, after_volatile, after_semaphore;
static struct record source = {{1.5, 2.5, 3.5}, "a record"}, copied;
static double *grid, *next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t opened = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t both = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static sem_t semaphore;
static int waiting, generation, spun, read_and_written;

#define CELLS 1024

/* A barrier as programs of SPLASH have it. */
static void meet(void) {
    pthread_mutex_lock(&gate);
    int mine = generation;
    if (++waiting == THREADS) {
        waiting = 0;
        generation++;
        pthread_cond_broadcast(&opened);
    } else {
        while (generation == mine)
            pthread_cond_wait(&opened, &gate);
    }
    pthread_mutex_unlock(&gate);
}

static void *work(void *argument) {
    int me = (int)(long)argument;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&lock);
        order[counter++] = me;
        pthread_mutex_unlock(&lock);
        atomic_fetch_add(&sum, me + 1);
        atomic_fetch_sub_explicit(&small_sum[me & 1], 3, memory_order_relaxed);
        for (int i = 0; i < 8; i++) {
            parts[i * THREADS + me] += me * 1000 + i;
            bytes[i * THREADS + me]++;
        }
        int expected = atomic_load(&chosen);
        while (!atomic_compare_exchange_weak(&chosen, &expected, expected * 3 + me))
            ;
        while (atomic_exchange(&user_lock, 1))
            while (atomic_load_explicit(&user_lock, memory_order_relaxed))
                ;
        under_user_lock = under_user_lock * 5 + me;
        atomic_store_explicit(&user_lock, 0, memory_order_release);
        pthread_spin_lock(&spin);
        spun = spun * 7 + me;
        pthread_spin_unlock(&spin);
    }
    meet();
    for (int round = 0; round < 10; round++) {
        for (int i = 1 + me; i < CELLS - 1; i += THREADS)
            next[i] = (grid[i - 1] + grid[i] + grid[i + 1]) / 3;
        pthread_barrier_wait(&barrier);
        if (me == round % THREADS)
            memcpy(grid, next, CELLS * sizeof *grid);
        pthread_barrier_wait(&barrier);
    }
    pthread_rwlock_wrlock(&both);
    read_and_written = read_and_written * 11 + me;
    pthread_rwlock_unlock(&both);
    pthread_rwlock_rdlock(&both);
    int seen = read_and_written;
    pthread_rwlock_unlock(&both);
    if (me == 0) {
        copied = source;
        copied.name[3] = (char)('a' + (seen & 1));
        after_flag = 17;
        atomic_store(&flag, 1);
        after_semaphore = 18;
        sem_post(&semaphore);
    } else if (me == 1) {
        while (!atomic_load(&flag))
            ;
        after_flag = after_flag * 2 + 1;
        after_volatile = 5;
        volatile_flag = 1;
    } else if (me == 2) {
        sem_wait(&semaphore);
        after_semaphore = after_semaphore * 2 + 1;
    } else {
        while (!volatile_flag)
            ;
        after_volatile = after_volatile * 2 + 1;
    }
    return NULL;
}

static void show(const void *from, size_t size) {
    for (const char *at = from; at < (const char *)from + size; at += 8) {
        unsigned long value;
        memcpy(&value, (const void *)((unsigned long)at & ~7ul), 8);
        printf("%ld %lu\n", outlive_word(at), value);
    }
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_spin_init(&spin, 0);
    sem_init(&semaphore, 0, 0);
    grid = malloc(CELLS * sizeof *grid);
    next = calloc(CELLS, sizeof *next);
    for (int i = 0; i < CELLS; i++)
        grid[i] = i % 17 * 0.37;
    if (outlive_roi_begin)
        outlive_roi_begin();
    for (long i = 1; i < THREADS; i++)
        pthread_create(&threads[i], NULL, work, (void *)i);
    work(0);
    for (int i = 1; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    /* Slots are used again. */
    pthread_create(&threads[1], NULL, (void *(*)(void *))free, calloc(1, 100));
    pthread_join(threads[1], NULL);
    memset(initial + 8, 7, 20);
    grid = realloc(grid, 2 * CELLS * sizeof *grid);
    grid[CELLS] = 4.25;
    grid[CELLS + 1] = -0.0;
    if (outlive_roi_end)
        outlive_roi_end();
    if (!outlive_word)
        return 0;
#define SHOW(what) show((const void *)&what, sizeof what)
    SHOW(initial); SHOW(counter); SHOW(order); SHOW(parts); SHOW(bytes); SHOW(sum); SHOW(small_sum); SHOW(chosen);
    SHOW(under_user_lock); SHOW(after_flag); SHOW(after_volatile); SHOW(after_semaphore); SHOW(source); SHOW(copied);
    SHOW(waiting); SHOW(generation); SHOW(spun); SHOW(read_and_written); SHOW(flag); SHOW(volatile_flag); SHOW(grid);
    show(grid, (CELLS + 2) * sizeof *grid);
    show(next, CELLS * sizeof *next);
    return 0;
}
