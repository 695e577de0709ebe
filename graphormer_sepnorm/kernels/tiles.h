/* Matrix products through tiles of the output that stay in registers. The matrix on the right is
 * packed: the columns of a panel side by side, zero beyond the last. */

#ifndef GRAPHORMER_TILES_H
#define GRAPHORMER_TILES_H

#include <string.h>

#include "vector.h"

/* Sixteen floats: one AVX-512 register. */
#define WIDE 16
typedef float wides __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));

#define UNROLLED _Pragma("GCC unroll 16")
/* Of a tile, in 32 registers; see `any_strip`. */
#define MOST_ROWS 14
#define MOST_VECTORS 5

INLINE int64_t vectors_of(int64_t columns) { return (columns + WIDE - 1) / WIDE; }

INLINE int64_t panels_of(int64_t vectors) { return (vectors + MOST_VECTORS - 1) / MOST_VECTORS; }

/* Vectors of panel number `panel`, and in `start` those before it: as even as can be. */
INLINE int64_t panel_vectors(int64_t vectors, int64_t panel, int64_t *start) {
    const int64_t panels = panels_of(vectors);
    *start = vectors * panel / panels;
    return vectors * (panel + 1) / panels - *start;
}

INLINE void store_columns(float *to, wides values, int64_t columns) {
    if (columns >= WIDE) {
        *(wides *)to = values;
        return;
    }
    int64_t column = 0;
    if (columns >= LANES) {
        memcpy(to, &values, sizeof(float) * LANES);
        column = LANES;
    }
    for (; column < columns; column++) to[column] = values[column];
}

/* A tile of m rows and n vectors: sum over `depth` of from(i, k) panel[k], i at `row` and k at
 * `step` floats from each other; then to `to`, or added to what is there. */
INLINE void tile(const float *from, int64_t row, int64_t step, const float *panel, int64_t depth,
                 const float *bias, float *to, int64_t stride, int64_t columns, int adding, int m,
                 int n) {
    wides sums[MOST_ROWS][MOST_VECTORS];
    UNROLLED for (int i = 0; i < m; i++)
        UNROLLED for (int j = 0; j < n; j++)
            sums[i][j] = bias ? *(const wides *)(bias + j * WIDE) : (wides){0};
    for (int64_t k = 0; k < depth; k++) {
        wides other[MOST_VECTORS];
        UNROLLED for (int j = 0; j < n; j++) other[j] = *(const wides *)(panel + (k * n + j) * WIDE);
        UNROLLED for (int i = 0; i < m; i++) {
            const float value = from[i * row + k * step];
            UNROLLED for (int j = 0; j < n; j++) sums[i][j] += value * other[j];
        }
    }
    UNROLLED for (int i = 0; i < m; i++)
        UNROLLED for (int j = 0; j < n; j++) {
            float *at = to + i * stride + j * WIDE;
            if (adding) *(wides *)at += sums[i][j];
            else store_columns(at, sums[i][j], columns - j * WIDE);
        }
}

typedef struct {
    const float *from;
    int64_t row, step;
    const float *panel;
    int64_t depth;
    const float *bias;
    float *to;
    int64_t stride, columns;
    int adding;
} Strip;

/* All of `count` rows against one panel of n vectors, m rows at a time and the rest one by one. */
INLINE void strip(const Strip *s, int64_t count, int m, int n) {
    int64_t i = 0;
    for (; i + m <= count; i += m)
        tile(s->from + i * s->row, s->row, s->step, s->panel, s->depth, s->bias,
             s->to + i * s->stride, s->stride, s->columns, s->adding, m, n);
    for (; i < count; i++)
        tile(s->from + i * s->row, s->row, s->step, s->panel, s->depth, s->bias,
             s->to + i * s->stride, s->stride, s->columns, s->adding, 1, n);
}

INLINE void any_strip(const Strip *s, int64_t count, int64_t vectors) {
    switch (vectors) {
        case 1: strip(s, count, 14, 1); break;
        case 2: strip(s, count, 10, 2); break;
        case 3: strip(s, count, 8, 3); break;
        case 4: strip(s, count, 6, 4); break;
        default: strip(s, count, 5, 5); break;
    }
}

/* Pack columns of a matrix for `vectors` vectors from column `first`; zero beyond the last. */
INLINE void pack_panel(float *to, const float *from, int64_t row, int64_t column, int64_t depth,
                       int64_t first, int64_t columns, int64_t vectors) {
    const int64_t width = vectors * WIDE;
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

/* Exports a function whose body is the inline function `NAME_body`, for processors with AVX-512: on
 * others the tiles do not fit into the registers, and the libraries behind torch are several times as
 * fast; see `products_are_fast`. */
#if defined(__x86_64__)
#define TILES_ARE_FAST HAS_AVX512
#define EXPORT_TILED(name, type)                                                  \
    AVX512 EXPORT int name(const type *a, int64_t first, int64_t last) {          \
        return name##_body(a, first, last);                                       \
    }
#else
#define TILES_ARE_FAST 0
#define EXPORT_TILED(name, type)                                                  \
    EXPORT int name(const type *a, int64_t first, int64_t last) {                 \
        return name##_body(a, first, last);                                       \
    }
#endif

#endif
