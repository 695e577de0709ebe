/* Matrix products through tiles of the output that stay in registers. The matrix on the right is
 * packed: the columns of a panel side by side, zero beyond the last. The last vector is half as wide
 * where that is enough. */

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

/* Whether half of the last vector of a panel is enough for the `columns` from its first one on. */
INLINE int half_is_enough(int64_t columns, int64_t vectors) {
    return columns <= (vectors - 1) * WIDE + LANES;
}

INLINE void store_columns(float *to, wides values, int64_t columns) {
    if (columns >= WIDE) {
        *(wides *)to = values;
        return;
    }
    memcpy(to, &values, sizeof(float) * LANES);
    for (int64_t column = LANES; column < columns; column++) to[column] = values[column];
}

INLINE void store_half(float *to, floats values, int64_t columns) {
    if (columns >= LANES) store(to, values);
    else
        for (int64_t column = 0; column < columns; column++) to[column] = values[column];
}

/* A tile of m rows and n vectors, and half a vector if `half`: sum over `depth` of
 * from(i, k) panel[k], i at `row` and k at `step` floats from each other; then to `to`, or added to
 * what is there. */
INLINE void tile(const float *from, int64_t row, int64_t step, const float *panel, int64_t depth,
                 const float *bias, float *to, int64_t stride, int64_t columns, int adding, int m,
                 int n, int half) {
    const int64_t width = n * WIDE + half * LANES;
    wides sums[MOST_ROWS][MOST_VECTORS];
    floats last[MOST_ROWS];
    UNROLLED for (int i = 0; i < m; i++) {
        UNROLLED for (int j = 0; j < n; j++)
            sums[i][j] = bias ? *(const wides *)(bias + j * WIDE) : (wides){0};
        if (half) last[i] = bias ? load(bias + n * WIDE) : (floats){0};
    }
    for (int64_t k = 0; k < depth; k++) {
        wides other[MOST_VECTORS];
        floats other_last;
        UNROLLED for (int j = 0; j < n; j++) other[j] = *(const wides *)(panel + k * width + j * WIDE);
        if (half) other_last = load(panel + k * width + n * WIDE);
        UNROLLED for (int i = 0; i < m; i++) {
            const float value = from[i * row + k * step];
            UNROLLED for (int j = 0; j < n; j++) sums[i][j] += value * other[j];
            if (half) last[i] += value * other_last;
        }
    }
    UNROLLED for (int i = 0; i < m; i++) {
        float *at = to + i * stride;
        UNROLLED for (int j = 0; j < n; j++) {
            if (adding) *(wides *)(at + j * WIDE) += sums[i][j];
            else store_columns(at + j * WIDE, sums[i][j], columns - j * WIDE);
        }
        if (half) {
            if (adding) *(floats *)(at + n * WIDE) += last[i];
            else store_half(at + n * WIDE, last[i], columns - n * WIDE);
        }
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

/* All of `count` rows against one panel, m rows at a time and the rest one by one. */
INLINE void strip(const Strip *s, int64_t count, int m, int n, int half) {
    int64_t i = 0;
    for (; i + m <= count; i += m)
        tile(s->from + i * s->row, s->row, s->step, s->panel, s->depth, s->bias,
             s->to + i * s->stride, s->stride, s->columns, s->adding, m, n, half);
    for (; i < count; i++)
        tile(s->from + i * s->row, s->row, s->step, s->panel, s->depth, s->bias,
             s->to + i * s->stride, s->stride, s->columns, s->adding, 1, n, half);
}

/* The same for a panel of `vectors` vectors. */
INLINE void any_strip(const Strip *s, int64_t count, int64_t vectors) {
    const int half = half_is_enough(s->columns, vectors);
    switch (2 * vectors - half) {
        case 1: strip(s, count, 14, 0, 1); break;
        case 2: strip(s, count, 14, 1, 0); break;
        case 3: strip(s, count, 10, 1, 1); break;
        case 4: strip(s, count, 10, 2, 0); break;
        case 5: strip(s, count, 8, 2, 1); break;
        case 6: strip(s, count, 8, 3, 0); break;
        case 7: strip(s, count, 6, 3, 1); break;
        case 8: strip(s, count, 6, 4, 0); break;
        case 9: strip(s, count, 5, 4, 1); break;
        default: strip(s, count, 5, 5, 0); break;
    }
}

/* Pack columns of a matrix for `vectors` vectors from column `first`; zero beyond the last. */
INLINE void pack_panel(float *to, const float *from, int64_t row, int64_t column, int64_t depth,
                       int64_t first, int64_t columns, int64_t vectors) {
    const int64_t half = half_is_enough(columns - first, vectors);
    const int64_t width = vectors * WIDE - half * LANES;
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

/* TILED functions are compiled for processors with AVX-512: on others the tiles do not fit into the
 * registers, and the libraries behind torch are several times as fast; see `products_are_fast`. */
#if defined(__x86_64__)
#define TILES_ARE_FAST HAS_AVX512
#define TILED AVX512
#else
#define TILES_ARE_FAST 0
#define TILED
#endif

/* Exports a function whose body is the inline function `NAME_body`. */
#define EXPORT_TILED(name, type)                                                  \
    TILED EXPORT int name(const type *a, int64_t first, int64_t last) {           \
        return name##_body(a, first, last);                                       \
    }

#endif
