/* Newton-Schulz iteration of Muon: X <- a X + (b S + c S^2) X with S = X X^T, matrix by matrix, so
 * that all of one stays in the cache. */

#include <stdlib.h>

#include "tiles.h"

typedef struct {
    float *matrices;   /* [count][rows][columns], rows <= columns; written over */
    int64_t rows, columns, iterations;
    float a, b, c;
} NewtonSchulz;

/* `to` [rows][columns] = `left` [rows][depth] times the matrix with element (k, c) at
 * right[k * row + c * column]. */
static void multiply(float *to, const float *left, const float *right, int64_t row, int64_t column,
                     int64_t rows, int64_t depth, int64_t columns, float *packed) {
    const int64_t vectors = vectors_of(columns);
    int64_t start;
    for (int64_t panel = 0; panel < panels_of(vectors); panel++) {
        const int64_t n = panel_vectors(vectors, panel, &start);
        pack_panel(packed, right, row, column, depth, start * WIDE, columns, n);
        const int64_t rest = columns - start * WIDE;
        const Strip s = {left, depth, 1, packed, panel_width(rest, n), depth, NULL,
                         to + start * WIDE, columns, rest, 0};
        any_strip(&s, rows, n);
    }
}

EXPORT int newton_schulz(const NewtonSchulz *n, int64_t first, int64_t last) {
    const int64_t rows = n->rows, columns = n->columns, square = rows * rows, size = rows * columns;
    float *scratch = malloc(sizeof(float) * (2 * square + size + columns * MOST_VECTORS * WIDE));
    if (!scratch) return 1;
    float *s = scratch, *s2 = s + square, *product = s2 + square, *packed = product + size;
    for (int64_t number = first; number < last; number++) {
        float *x = n->matrices + number * size;
        for (int64_t iteration = 0; iteration < n->iterations; iteration++) {
            multiply(s, x, x, 1, columns, rows, columns, rows, packed);
            multiply(s2, s, s, rows, 1, rows, rows, rows, packed);
            for (int64_t i = 0; i < square; i++) s2[i] = n->b * s[i] + n->c * s2[i];
            multiply(product, s2, x, columns, 1, rows, rows, columns, packed);
            for (int64_t i = 0; i < size; i++) x[i] = n->a * x[i] + product[i];
        }
    }
    free(scratch);
    return 0;
}
