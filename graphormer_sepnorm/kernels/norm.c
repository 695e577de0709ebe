/* Norms of packed rows that lie in stretches, each with a norm of its own:
 *
 *     output = (input - mean) scale weight + bias        scale = 1 / sqrt(variance + eps)
 *
 * LayerNorm takes mean and variance of a row over its channels, BatchNorm of a channel over the rows
 * of the stretch, or constants. No channel and no row depends on the number of threads. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

enum { OF_ROWS, OF_BATCH, CONSTANT };

typedef struct {
    int64_t first, last; /* rows */
    int64_t kind;
    const float *weight, *bias;             /* [width] */
    float *mean, *scale;                    /* OF_ROWS: [rows of the stretch]; otherwise [width] */
    float *running_mean, *running_variance; /* [width], follow the batch; not OF_ROWS */
    float *weight_gradient, *bias_gradient; /* [width] */
    float eps, momentum;
} Stretch;

typedef struct {
    Stretch stretches[2];
    int64_t count, width;
    const float *input;    /* [rows][width] */
    float *output;         /* [rows][width] */
    const float *gradient; /* [rows][width] */
    float *input_gradient; /* [rows][width] */
} Norm;

/* Rows that are added up before they join the sum over all, which then rounds less. */
#define SUMMED 64

INLINE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

INLINE int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

/* Of one stretch, channels `first` to `last - 1`. Blocks of rows give their mean, counted from the
 * first row of all, and the squares around it, which are joined as by Chan, Golub & LeVeque (1983):
 * nothing cancels, wherever the mean is. */
INLINE void batch_statistics(const Norm *a, const Stretch *s, int64_t first, int64_t last,
                             float *restrict block, double *restrict total) {
    const int64_t own = last - first;
    float *restrict mean = block, *restrict squares = block + own;
    double *restrict all_mean = total, *restrict all_squares = total + own;
    const float *restrict input = a->input + first, *restrict origin = input + s->first * a->width;
    memset(total, 0, sizeof(double) * 2 * own);
    for (int64_t r = s->first; r < s->last; r += SUMMED) {
        const int64_t end = lesser(r + SUMMED, s->last);
        memset(block, 0, sizeof(float) * 2 * own);
        for (int64_t i = r; i < end; i++)
            for (int64_t c = 0; c < own; c++) mean[c] += input[i * a->width + c] - origin[c];
        for (int64_t c = 0; c < own; c++) mean[c] /= end - r;
        for (int64_t i = r; i < end; i++)
            for (int64_t c = 0; c < own; c++) {
                const float centered = input[i * a->width + c] - origin[c] - mean[c];
                squares[c] += centered * centered;
            }
        const double share = (double)(end - r) / (end - s->first);
        const double between = share * (r - s->first);
        for (int64_t c = 0; c < own; c++) {
            const double distance = mean[c] - all_mean[c];
            all_mean[c] += distance * share;
            all_squares[c] += squares[c] + distance * distance * between;
        }
    }
    const double rows = s->last - s->first, kept = 1 - (double)s->momentum;
    for (int64_t c = 0; c < own; c++) {
        float *running_mean = s->running_mean + first + c;
        float *running_variance = s->running_variance + first + c;
        all_mean[c] += origin[c];
        s->mean[first + c] = all_mean[c];
        s->scale[first + c] = 1 / sqrt(all_squares[c] / rows + s->eps);
        *running_mean = kept * *running_mean + s->momentum * all_mean[c];
        *running_variance = kept * *running_variance + s->momentum * all_squares[c] / (rows - 1);
    }
}

/* Mean and scale of BatchNorms, of the batch or of what is known. */
INLINE int norm_statistics_body(const Norm *a, int64_t first, int64_t last) {
    float *block = malloc(sizeof(float) * 2 * (last - first));
    double *total = malloc(sizeof(double) * 2 * (last - first));
    if (block && total)
        for (const Stretch *s = a->stretches; s < a->stretches + a->count; s++) {
            if (s->kind == OF_BATCH) batch_statistics(a, s, first, last, block, total);
            for (int64_t c = first; s->kind == CONSTANT && c < last; c++) {
                s->mean[c] = s->running_mean[c];
                s->scale[c] = 1 / sqrtf(s->running_variance[c] + s->eps);
            }
        }
    free(block);
    free(total);
    return !block || !total;
}

INLINE float lane_sum(floats values) {
    float sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += values[lane];
    return sum;
}

INLINE void normalize_over_channels(const Norm *a, const Stretch *s, int64_t row) {
    const int64_t width = a->width;
    const float *restrict input = a->input + row * width;
    float *restrict output = a->output + row * width;
    floats lanes = all_equal(0);
    float sum = 0;
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) lanes += load(input + c);
    for (; c < width; c++) sum += input[c];
    const float mean = (sum + lane_sum(lanes)) / width;
    lanes = all_equal(0), sum = 0;
    for (c = 0; c + LANES <= width; c += LANES) {
        const floats centered = load(input + c) - mean;
        lanes += centered * centered;
    }
    for (; c < width; c++) sum += (input[c] - mean) * (input[c] - mean);
    const float scale = 1 / sqrtf((sum + lane_sum(lanes)) / width + s->eps);
    for (c = 0; c < width; c++)
        output[c] = (input[c] - mean) * scale * s->weight[c] + s->bias[c];
    s->mean[row - s->first] = mean;
    s->scale[row - s->first] = scale;
}

/* Rows `first` to `last - 1`. */
INLINE int norm_forward_body(const Norm *a, int64_t first, int64_t last) {
    const int64_t width = a->width;
    float *restrict factor = malloc(sizeof(float) * width);
    if (!factor) return 1;
    for (const Stretch *s = a->stretches; s < a->stretches + a->count; s++) {
        const float *restrict mean = s->mean, *restrict bias = s->bias;
        if (s->kind != OF_ROWS)
            for (int64_t c = 0; c < width; c++) factor[c] = s->scale[c] * s->weight[c];
        for (int64_t r = greater(first, s->first); r < lesser(last, s->last); r++) {
            if (s->kind == OF_ROWS) {
                normalize_over_channels(a, s, r);
                continue;
            }
            const float *restrict input = a->input + r * width;
            float *restrict output = a->output + r * width;
            for (int64_t c = 0; c < width; c++)
                output[c] = (input[c] - mean[c]) * factor[c] + bias[c];
        }
    }
    free(factor);
    return 0;
}

/* Gradients of weight and bias: channels `first` to `last - 1` of all rows, in their order. */
INLINE int norm_sums_body(const Norm *a, int64_t first, int64_t last) {
    const int64_t width = a->width, own = last - first;
    float *restrict block = malloc(sizeof(float) * 2 * own);
    double *restrict total = malloc(sizeof(double) * 2 * own);
    const Stretch *const end = a->stretches + a->count;
    for (const Stretch *s = a->stretches; block && total && s < end; s++) {
        const float *restrict mean = s->mean + first, *restrict scale = s->scale + first;
        memset(total, 0, sizeof(double) * 2 * own);
        for (int64_t r = s->first; r < s->last; r += SUMMED) {
            memset(block, 0, sizeof(float) * 2 * own);
            for (int64_t i = r; i < lesser(r + SUMMED, s->last); i++) {
                const float *restrict input = a->input + i * width + first;
                const float *restrict gradient = a->gradient + i * width + first;
                if (s->kind == OF_ROWS) {
                    const float of_row = s->mean[i - s->first], by_row = s->scale[i - s->first];
                    for (int64_t c = 0; c < own; c++) {
                        block[c] += gradient[c];
                        block[own + c] += gradient[c] * ((input[c] - of_row) * by_row);
                    }
                } else {
                    for (int64_t c = 0; c < own; c++) {
                        block[c] += gradient[c];
                        block[own + c] += gradient[c] * (input[c] - mean[c]);
                    }
                }
            }
            for (int64_t c = 0; c < 2 * own; c++) total[c] += block[c];
        }
        for (int64_t c = 0; c < own; c++) {
            s->bias_gradient[first + c] = total[c];
            s->weight_gradient[first + c] = total[own + c] * (s->kind == OF_ROWS ? 1 : scale[c]);
        }
    }
    free(block);
    free(total);
    return !block || !total;
}

INLINE void gradient_over_channels(const Norm *a, const Stretch *s, int64_t row) {
    const int64_t width = a->width;
    const float *restrict input = a->input + row * width, *restrict weight = s->weight;
    const float *restrict gradient = a->gradient + row * width;
    float *restrict own = a->input_gradient + row * width;
    const float mean = s->mean[row - s->first], scale = s->scale[row - s->first];
    floats lanes = all_equal(0), other_lanes = all_equal(0);
    float sum = 0, other = 0;
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        const floats slope = load(gradient + c) * load(weight + c);
        lanes += slope;
        other_lanes += slope * (load(input + c) - mean);
    }
    for (; c < width; c++) {
        sum += gradient[c] * weight[c];
        other += gradient[c] * weight[c] * (input[c] - mean);
    }
    sum = (sum + lane_sum(lanes)) / width;
    other = (other + lane_sum(other_lanes)) * scale * scale / width;
    for (c = 0; c < width; c++)
        own[c] = scale * (gradient[c] * weight[c] - sum - (input[c] - mean) * other);
}

/* Gradient of the input, rows `first` to `last - 1`, after `norm_sums` has done all channels. */
INLINE int norm_backward_body(const Norm *a, int64_t first, int64_t last) {
    const int64_t width = a->width;
    float *restrict factor = malloc(sizeof(float) * 3 * width);
    if (!factor) return 1;
    float *restrict sum = factor + width, *restrict other = factor + 2 * width;
    for (const Stretch *s = a->stretches; s < a->stretches + a->count; s++) {
        const float *restrict mean = s->mean;
        if (s->kind != OF_ROWS)
            for (int64_t c = 0; c < width; c++) factor[c] = s->scale[c] * s->weight[c];
        if (s->kind == OF_BATCH) {
            /* What a row does to the statistics. */
            const float share = 1.0f / (s->last - s->first);
            for (int64_t c = 0; c < width; c++) {
                sum[c] = s->bias_gradient[c] * share;
                other[c] = s->weight_gradient[c] * s->scale[c] * share;
            }
        }
        for (int64_t r = greater(first, s->first); r < lesser(last, s->last); r++) {
            if (s->kind == OF_ROWS) {
                gradient_over_channels(a, s, r);
                continue;
            }
            const float *restrict input = a->input + r * width;
            const float *restrict gradient = a->gradient + r * width;
            float *restrict own = a->input_gradient + r * width;
            if (s->kind == CONSTANT) { /* no row hears of another, nor of its NaN */
                for (int64_t c = 0; c < width; c++) own[c] = factor[c] * gradient[c];
                continue;
            }
            for (int64_t c = 0; c < width; c++)
                own[c] = factor[c] * (gradient[c] - sum[c] - (input[c] - mean[c]) * other[c]);
        }
    }
    free(factor);
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(norm_statistics, (const Norm *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(norm_forward, (const Norm *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(norm_sums, (const Norm *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(norm_backward, (const Norm *a, int64_t first, int64_t last),
                          (a, first, last))
