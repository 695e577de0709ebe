/* Matrix products through tiles of the output that stay in registers (tiles.c). The matrix on the
 * right is packed, unless it stands so already: the columns of a panel side by side, zero beyond the
 * last. The last vector is half as wide where that is enough. */

#ifndef GRAPHORMER_TILES_H
#define GRAPHORMER_TILES_H

#include <string.h>

#include "vector.h"

/* Sixteen floats: one AVX-512 register. */
#define WIDE 16
typedef float wides __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));

/* Of a tile, in 32 registers. */
#define MOST_VECTORS 5

INLINE int64_t vectors_of(int64_t columns) { return (columns + WIDE - 1) / WIDE; }

INLINE int64_t panels_of(int64_t vectors) { return (vectors + MOST_VECTORS - 1) / MOST_VECTORS; }

/* Vectors of panel number `panel`, and in `start` those before it: as even as can be. */
INLINE int64_t panel_vectors(int64_t vectors, int64_t panel, int64_t *start) {
    const int64_t panels = panels_of(vectors);
    *start = vectors * panel / panels;
    return vectors * (panel + 1) / panels - *start;
}

/* Whether half of the last vector of a panel is enough for the `columns` from its first one on. */
INLINE int half_is_enough(int64_t columns, int64_t vectors) {
    return columns <= (vectors - 1) * WIDE + LANES;
}

typedef struct {
    const float *from;   /* element (i, k) at i * row + k * step */
    int64_t row, step;
    const float *panel;  /* row k at k * width */
    int64_t width, depth;
    const float *bias;   /* of the panel's vectors, or NULL */
    float *to;           /* row i at i * stride */
    int64_t stride, columns;
    int adding;          /* to what is there, of all columns of the vectors */
} Strip;

/* All of `count` rows against a panel of `vectors` vectors. */
void any_strip(const Strip *s, int64_t count, int64_t vectors);

/* Apply GELU to `count` outputs, if they are `activated`, and add the residual, unless it is NULL. */
int finish(float *rows, const float *residual, int64_t count, int activated);

/* Floats of a row of a panel, for the `columns` from its first one on. */
INLINE int64_t panel_width(int64_t columns, int64_t vectors) {
    return vectors * WIDE - half_is_enough(columns, vectors) * LANES;
}

/* Whether a matrix with elements (k, c) at `column * c` of a row k is its own panels. */
INLINE int is_packed(int64_t column, int64_t columns) {
    return column == 1 && columns % LANES == 0;
}

/* Pack columns of a matrix for `vectors` vectors from column `first`; zero beyond the last. */
INLINE void pack_panel(float *to, const float *from, int64_t row, int64_t column, int64_t depth,
                       int64_t first, int64_t columns, int64_t vectors) {
    const int64_t width = panel_width(columns - first, vectors);
    const int64_t filled = columns - first < width ? columns - first : width;
    if (column == 1) {
        for (int64_t k = 0; k < depth; k++) {
            memcpy(to + k * width, from + k * row + first, 4 * filled);
            memset(to + k * width + filled, 0, 4 * (width - filled));
        }
        return;
    }
    for (int64_t c = 0; c < filled; c++)
        for (int64_t k = 0; k < depth; k++)
            to[k * width + c] = from[k * row + (first + c) * column];
    for (int64_t k = 0; k < depth; k++)
        memset(to + k * width + filled, 0, 4 * (width - filled));
}

#endif
