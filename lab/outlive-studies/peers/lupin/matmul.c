/* Multiplies two matrices. Every element is the sum of its terms in their order, each product and sum rounded once.
 *
 * The right matrix is packed into panels of eight columns before the work; threads take rows of the product. A part of a
 * panel that stays in the first-level cache is multiplied with four rows at a time, whose sums stay in registers.
 *
 * matmul THREADS REPORT RESULT LEFT RIGHT
 *
 *   LEFT, RIGHT  how many rows and columns (64 bits each), the elements row by row
 *
 * The result has the elements of the product, row by row.
 */

#include "common.h"

/* DEPTH rows of a panel are 16 KiB. */
enum { LANES = 4, COLUMNS = 2 * LANES, TILE = 4, DEPTH = 256, ROWS = 48 };

typedef double lanes __attribute__((vector_size(8 * LANES), aligned(8), may_alias));

struct matrix {
    size_t rows, columns;
    const double *elements;
};

static struct {
    struct matrix left, right;
    double *panels;
    /* Of whole tiles and panels. */
    double *product;
    size_t stride;
    atomic_size_t next;
} all;

static struct matrix matrix_of(const char *path) {
    size_t count;
    const uint64_t *words = read_words(path, 2, &count);
    struct matrix matrix = {words[0], words[1], (const double *)(words + 2)};
    if (matrix.rows == 0 || matrix.columns == 0 || count != 2 + matrix.rows * matrix.columns)
        refuse("the length of a matrix does not match its header");
    return matrix;
}

static void pack(void) {
    size_t depth = all.right.rows, columns = all.right.columns;
    for (size_t column = 0; column < all.stride; column++)
        for (size_t row = 0; row < depth; row++)
            all.panels[(column / COLUMNS * depth + row) * COLUMNS + column % COLUMNS] =
                column < columns ? all.right.elements[row * columns + column] : 0;
}

/* Adds to `rows` rows of the product, from `row` on, the terms from `from` to before `to` of a panel's columns. */
static inline __attribute__((always_inline)) void tile(size_t rows, size_t row, size_t panel, size_t from, size_t to,
                                                       const double *left, const double *panels, size_t depth,
                                                       double *product, size_t stride) {
    lanes low[TILE], high[TILE];
    for (size_t at = 0; at < rows; at++) {
        const double *sums = product + (row + at) * stride + panel * COLUMNS;
        low[at] = *(const lanes *)sums;
        high[at] = *(const lanes *)(sums + LANES);
    }
    const double *right = panels + (panel * depth + from) * COLUMNS;
    for (size_t term = from; term < to; term++, right += COLUMNS) {
        lanes right_low = *(const lanes *)right, right_high = *(const lanes *)(right + LANES);
        for (size_t at = 0; at < rows; at++) {
            double factor = left[(row + at) * depth + term];
            low[at] += factor * right_low;
            high[at] += factor * right_high;
        }
    }
    for (size_t at = 0; at < rows; at++) {
        double *sums = product + (row + at) * stride + panel * COLUMNS;
        *(lanes *)sums = low[at];
        *(lanes *)(sums + LANES) = high[at];
    }
}

WIDEST static void multiply_rows(size_t from_row, size_t to_row, const double *left, const double *panels, size_t depth,
                                 double *product, size_t stride) {
    for (size_t from = 0; from < depth; from += DEPTH) {
        size_t to = from + DEPTH < depth ? from + DEPTH : depth;
        for (size_t panel = 0; panel < stride / COLUMNS; panel++) {
            size_t row = from_row;
            for (; row + TILE <= to_row; row += TILE)
                tile(TILE, row, panel, from, to, left, panels, depth, product, stride);
            for (; row < to_row; row++) tile(1, row, panel, from, to, left, panels, depth, product, stride);
        }
    }
}

static void multiply(void *shared, unsigned thread) {
    (void)shared, (void)thread;
    for (size_t from, to; claim(&all.next, ROWS, all.left.rows, &from, &to);)
        multiply_rows(from, to, all.left.elements, all.panels, all.left.columns, all.product, all.stride);
}

int main(int count, char **arguments) {
    if (count != 6) refuse("matmul THREADS REPORT RESULT LEFT RIGHT");
    unsigned threads = threads_of(arguments[1]);
    all.left = matrix_of(arguments[4]);
    all.right = matrix_of(arguments[5]);
    if (all.left.columns != all.right.rows) refuse("the matrices do not fit together");
    all.stride = (all.right.columns + COLUMNS - 1) / COLUMNS * COLUMNS;
    all.panels = allocate(all.stride * all.right.rows * sizeof(double));
    pack();
    struct moment began = now();
    all.product = allocate_zeroed(all.left.rows * all.stride, sizeof(double));
    in_threads(threads, multiply, NULL);
    struct moment ended = now();
    FILE *out = begin_result(arguments[3]);
    for (size_t row = 0; row < all.left.rows; row++)
        put(out, all.product + row * all.stride, all.right.columns * sizeof(double));
    end_result(out, arguments[3]);
    report(arguments[2], began, ended);
    return 0;
}
