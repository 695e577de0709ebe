/* Linear layers: products of many rows with a matrix small enough to stay in the cache.
 *
 *     rows      output[r] = bias + sum_k input[r][k] matrix[k]      forward; backward of the input
 *     weights   output[n] = sum_r gradient[r][n] input[r]           backward of weight and bias
 *
 * Both go through tiles of the output that stay in registers. The matrix of a tile is packed: the
 * columns of a panel side by side, zero beyond the last. An output does not depend on how many rows
 * there are, nor on the number of threads. */

#include <stdlib.h>
#include <string.h>

#include "vector.h"

/* Sixteen floats: one AVX-512 register, two of AVX2, four of SSE or NEON. */
#define WIDE 16
typedef float wides __attribute__((vector_size(4 * WIDE), aligned(4), may_alias));

typedef struct {
    const float *input;      /* [rows][depth] */
    const float *matrix;     /* element (k, c) at k * matrix_row + c * matrix_column */
    const float *bias;       /* [columns], or NULL */
    const float *gradient;   /* weights: [rows][outputs] */
    float *packed;           /* [panels][depth][of a panel] */
    float *output;           /* rows: [rows][columns]; weights: [outputs][columns] */
    float *bias_gradient;    /* weights: [outputs], or NULL */
    int64_t rows, depth, columns, outputs;
    int64_t matrix_row, matrix_column;
} Linear;

#define UNROLLED _Pragma("GCC unroll 16")
/* Rows of a tile for panels of 1 to 5 vectors where there are 32 wide registers. */
#define MOST_ROWS 14
#define MOST_VECTORS 5
/* Rows that share a pass over all panels, and rows that are added up before they join the sum over
 * all: with a panel they fit into the first cache. */
#define BLOCK 70
#define SUMMED 96

INLINE int64_t vectors_of(int64_t columns) { return (columns + WIDE - 1) / WIDE; }

/* Vectors of panel number `panel`, and in `start` those before it: as even as can be. */
INLINE int64_t panel_vectors(int64_t vectors, int64_t most, int64_t panel, int64_t *start) {
    const int64_t panels = (vectors + most - 1) / most;
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
        *(floats *)to = __builtin_shufflevector(values, values, 0, 1, 2, 3, 4, 5, 6, 7);
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

/* `most`: vectors of a panel; where it is 1, registers are few and `few` rows fill them. */
INLINE void any_strip(const Strip *s, int64_t count, int64_t vectors, int most, int few) {
    if (most == 1) {
        strip(s, count, few, 1);
        return;
    }
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

INLINE int linear_pack_body(const Linear *a, int most) {
    const int64_t vectors = vectors_of(a->columns);
    int64_t start;
    for (int64_t panel = 0; panel * most < vectors; panel++) {
        const int64_t count = panel_vectors(vectors, most, panel, &start);
        pack_panel(a->packed + start * WIDE * a->depth, a->matrix, a->matrix_row, a->matrix_column,
                   a->depth, start * WIDE, a->columns, count);
    }
    return 0;
}

INLINE int linear_rows_body(const Linear *a, int64_t first, int64_t last, int most, int few) {
    const int64_t vectors = vectors_of(a->columns);
    float *bias = NULL;
    if (a->bias) {
        bias = calloc(vectors * WIDE, sizeof(float));
        if (!bias) return 1;
        memcpy(bias, a->bias, 4 * a->columns);
    }
    for (int64_t r = first; r < last; r += BLOCK) {
        const int64_t count = last - r < BLOCK ? last - r : BLOCK;
        int64_t start;
        for (int64_t panel = 0; panel * most < vectors; panel++) {
            const int64_t n = panel_vectors(vectors, most, panel, &start);
            const Strip s = {a->input + r * a->depth, a->depth, 1,
                             a->packed + start * WIDE * a->depth, a->depth,
                             bias ? bias + start * WIDE : NULL,
                             a->output + r * a->columns + start * WIDE, a->columns,
                             a->columns - start * WIDE, 0};
            any_strip(&s, count, n, most, few);
        }
    }
    free(bias);
    return 0;
}

/* Outputs `first` to `last - 1` of the gradients of weight and bias. */
INLINE int linear_weights_body(const Linear *a, int64_t first, int64_t last, int most, int few) {
    const int64_t vectors = vectors_of(a->columns), width = vectors * WIDE, own = last - first;
    float *packed = malloc(sizeof(float) * SUMMED * width);
    float *sums = calloc(own * width, sizeof(float));
    if (!packed || !sums) {
        free(packed);
        free(sums);
        return 1;
    }
    if (a->bias_gradient) memset(a->bias_gradient + first, 0, 4 * own);
    for (int64_t r = 0; r < a->rows; r += SUMMED) {
        const int64_t count = a->rows - r < SUMMED ? a->rows - r : SUMMED;
        const float *gradient = a->gradient + r * a->outputs + first;
        int64_t start;
        for (int64_t panel = 0; panel * most < vectors; panel++) {
            const int64_t n = panel_vectors(vectors, most, panel, &start);
            pack_panel(packed, a->input + r * a->columns, a->columns, 1, count, start * WIDE,
                       a->columns, n);
            const Strip s = {gradient, 1, a->outputs, packed, count, NULL,
                             sums + start * WIDE, width, n * WIDE, 1};
            any_strip(&s, own, n, most, few);
        }
        if (a->bias_gradient)
            for (int64_t n = 0; n < own; n += WIDE) {
                wides sum = {0};
                if (n + WIDE <= own) {
                    for (int64_t i = 0; i < count; i++)
                        sum += *(const wides *)(gradient + i * a->outputs + n);
                } else {
                    for (int64_t i = 0; i < count; i++)
                        for (int64_t c = n; c < own; c++) sum[c - n] += gradient[i * a->outputs + c];
                }
                for (int64_t c = n; c < own && c < n + WIDE; c++)
                    a->bias_gradient[first + c] += sum[c - n];
            }
    }
    for (int64_t n = 0; n < own; n++)
        memcpy(a->output + (first + n) * a->columns, sums + n * width, 4 * a->columns);
    free(packed);
    free(sums);
    return 0;
}

#if defined(__x86_64__)
#define FEW 2
#define EXPORT_WITH_REGISTERS(name)                                                            \
    AVX512 static int name##_avx512(const Linear *a, int64_t first, int64_t last) {            \
        return name##_body(a, first, last, MOST_VECTORS, 0);                                   \
    }                                                                                          \
    AVX2 static int name##_avx2(const Linear *a, int64_t first, int64_t last) {                \
        return name##_body(a, first, last, 1, 6);                                              \
    }                                                                                          \
    EXPORT int name(const Linear *a, int64_t first, int64_t last) {                            \
        if (HAS_AVX512) return name##_avx512(a, first, last);                                  \
        if (HAS_AVX2) return name##_avx2(a, first, last);                                      \
        return name##_body(a, first, last, 1, FEW);                                            \
    }
#else
#define FEW 6
#define HAS_AVX512 0
#define EXPORT_WITH_REGISTERS(name)                                 \
    EXPORT int name(const Linear *a, int64_t first, int64_t last) { \
        return name##_body(a, first, last, 1, FEW);                 \
    }
#endif

EXPORT_WITH_REGISTERS(linear_rows)
EXPORT_WITH_REGISTERS(linear_weights)

/* Pack the matrix for `linear_rows`. */
EXPORT int linear_pack(const Linear *a, int64_t first, int64_t last) {
    (void)first, (void)last;
    return linear_pack_body(a, HAS_AVX512 ? MOST_VECTORS : 1);
}
