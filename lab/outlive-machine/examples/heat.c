/* How heat spreads on a plate: red and black cells take turns, each thread has some rows, and the hottest change is told under a lock.
 * An ordinary program with threads; docs/recording.md records it.
 *
 *     heat [THREADS [SIZE [ROUNDS]]]
 */

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* Where the region of interest begins and ends. Without the recorder these are not there, and nothing is called. */
void outlive_roi_begin(void) __attribute__((weak));
void outlive_roi_end(void) __attribute__((weak));

static int threads = 4, size = 64, rounds = 10;
static double *plate, change;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;

static void *spread(void *argument) {
    int me = (int)(long)argument;
    for (int round = 0; round < rounds; round++) {
        double most = 0;
        for (int colour = 0; colour < 2; colour++) {
            for (int row = 1 + me; row < size - 1; row += threads) {
                for (int column = 1 + (row + colour) % 2; column < size - 1; column += 2) {
                    double *cell = &plate[row * size + column];
                    double now = (cell[-1] + cell[1] + cell[-size] + cell[size]) / 4;
                    if (fabs(now - *cell) > most)
                        most = fabs(now - *cell);
                    *cell = now;
                }
            }
            pthread_barrier_wait(&barrier);
        }
        pthread_mutex_lock(&lock);
        if (most > change)
            change = most;
        pthread_mutex_unlock(&lock);
        pthread_barrier_wait(&barrier);
        if (me == 0 && round + 1 < rounds)
            change = 0;
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int count, char **arguments) {
    int *settings[] = {&threads, &size, &rounds};
    for (int i = 1; i < count && i <= 3; i++)
        *settings[i - 1] = atoi(arguments[i]);
    if (threads < 1 || size < 3 || rounds < 1) {
        fprintf(stderr, "heat [THREADS [SIZE [ROUNDS]]]: whole numbers, a size of 3 at least\n");
        return 2;
    }
    pthread_t *all = malloc((size_t)threads * sizeof *all);
    plate = calloc((size_t)size * (size_t)size, sizeof *plate);
    if (!all || !plate)
        return 1;
    for (int row = 0; row < size; row++)
        plate[row * size] = 100;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    if (outlive_roi_begin)
        outlive_roi_begin();
    for (int i = 1; i < threads; i++)
        pthread_create(&all[i], NULL, spread, (void *)(long)i);
    spread(NULL);
    for (int i = 1; i < threads; i++)
        pthread_join(all[i], NULL);
    if (outlive_roi_end)
        outlive_roi_end();
    double sum = 0;
    for (int i = 0; i < size * size; i++)
        sum += plate[i];
    printf("heat %.6f, last change %.6f\n", sum, change);
    free(plate);
    free(all);
    return 0;
}
