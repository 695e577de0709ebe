/* Self-attention of many small graphs, with an additive bias and dropout of the weights.
 *
 * A graph has T tokens and H heads of d channels. All loops run over the queries of a graph, LANES
 * at a time: T is rounded up to S (a multiple of LANES), and what belongs to the queries is kept
 * transposed, [d][S], [T keys][S queries]. Softmax is then a reduction over keys without any
 * exchange between lanes, and no graph is padded to the size of another.
 *
 * Backward computes the weights again from the largest logit and the sum of each softmax (the idea
 * of Dao et al. 2022), so nothing of size T^2 is kept. With P the weights, M the dropout mask over
 * 1 - p, G the gradient of the output O = (P * M) V:
 *
 *     dV = (P * M)^T G        dP = (G V^T) * M        dS = P * (dP - rowsum(G * O))
 *     dQ = scale dS K         dK = scale dS^T Q       dbias = dS
 */

#include <float.h>
#include <stdlib.h>

#include "vector.h"

typedef struct {
    const int64_t *rows;       /* [graphs][max_tokens], packed row of each token */
    const int64_t *num_tokens; /* [graphs], T */
    const int64_t *bias_start; /* [graphs], where a graph's bias [H][T][S] begins */
    const int64_t *softmax_start; /* [graphs], where its softmax [H][2][S] begins */
    int64_t max_tokens, heads, channels; /* of a head */
    float scale;
    int32_t dropping;
    Dropout dropout;
    const float *projected; /* [R][3 H d]: query, key, value */
    float *bias;
    float *output;  /* [R][H d] */
    float *softmax; /* largest logits and inverse sums; NULL in forward: there is no backward */
    const float *output_gradient;
    float *projected_gradient;
    float *bias_gradient;
    const int64_t *pair_type; /* [graphs][max_tokens queries][max_tokens keys] */
    const float *table;       /* [types][H] */
    double *table_gradient;
    int64_t graphs;
    float *pair_bias; /* [H][graphs][max_tokens queries][max_tokens keys] */
    const float *mixing; /* [H][H] */
    float *mixing_gradient; /* [graphs][H][H], of each graph alone */
    float *mixed_bias;      /* laid out as `bias` */
} Attention;

enum { QUERY, KEY, VALUE };

#define MOST_CHANNELS 32
#define MOST_HEADS 8 /* that there is code of their own for */
/* Loops over channels are unrolled: their counts are known, their values stay in registers. */
#define UNROLLED _Pragma("GCC unroll 32")

INLINE int64_t lanes(int64_t tokens) { return (tokens + LANES - 1) / LANES * LANES; }

/* Copy the channels of one head of all tokens, transposed and zero beyond the last token. */
INLINE void transposed(float *to, const float *from, const int64_t *rows, int64_t stride,
                       int64_t tokens, float scale, int d) {
    int64_t width = lanes(tokens);
    UNROLLED for (int c = 0; c < d; c++)
        for (int64_t i = tokens; i < width; i++) to[c * width + i] = 0;
    for (int64_t i = 0; i < tokens; i++) {
        const float *row = from + rows[i] * stride;
        UNROLLED for (int c = 0; c < d; c++) to[c * width + i] = row[c] * scale;
    }
}

INLINE void forward_head(const Attention *a, int64_t graph, int64_t head, float *scratch, int d) {
    const int64_t tokens = a->num_tokens[graph], width = lanes(tokens);
    const int64_t stride = 3 * a->heads * d;
    const int64_t *rows = a->rows + graph * a->max_tokens;
    const float *query = a->projected + head * d;
    const float *key = query + KEY * a->heads * d, *value = query + VALUE * a->heads * d;
    const int64_t bias_at = a->bias_start[graph] + head * tokens * width;
    float *queries = scratch, *logits = queries + d * width, *mixed_values = logits + tokens * LANES;

    transposed(queries, query, rows, stride, tokens, a->scale, d);
    for (int64_t i = 0; i < width; i += LANES) {
        floats q[MOST_CHANNELS], largest = all_equal(-FLT_MAX);
        UNROLLED for (int c = 0; c < d; c++) q[c] = load(queries + c * width + i);
        for (int64_t j = 0; j < tokens; j++) {
            const float *k = key + rows[j] * stride;
            floats logit = load(a->bias + bias_at + j * width + i);
            floats logit_too = all_equal(0);
            UNROLLED for (int c = 0; c < d; c += 2) {
                logit += q[c] * k[c];
                logit_too += q[c + 1] * k[c + 1];
            }
            logit += logit_too;
            store(logits + j * LANES, logit);
            largest = larger(logit, largest);
        }
        floats sum = all_equal(0), mix[MOST_CHANNELS];
        UNROLLED for (int c = 0; c < d; c++) mix[c] = all_equal(0);
        for (int64_t j = 0; j < tokens; j++) {
            const float *v = value + rows[j] * stride;
            floats weight = exponential(load(logits + j * LANES) - largest);
            sum += weight;
            if (a->dropping)
                weight = dropped(weight, &a->dropout, (uint32_t)(bias_at + j * width + i));
            UNROLLED for (int c = 0; c < d; c++) mix[c] += weight * v[c];
        }
        const floats inverse = 1 / sum;
        UNROLLED for (int c = 0; c < d; c++) store(mixed_values + c * LANES, mix[c] * inverse);
        for (int64_t lane = 0; lane < LANES && i + lane < tokens; lane++) {
            float *out = a->output + rows[i + lane] * a->heads * d + head * d;
            UNROLLED for (int c = 0; c < d; c++) out[c] = mixed_values[c * LANES + lane];
        }
        if (a->softmax) {
            float *softmax = a->softmax + a->softmax_start[graph] + 2 * head * width + i;
            store(softmax, largest);
            store(softmax + width, inverse);
        }
    }
}

/* Channels of a head of the tokens as rows of LANES-multiples, zero beyond the last channel. */
INLINE void widened(float *to, const float *from, const int64_t *rows, int64_t stride,
                    int64_t tokens, float scale, int d) {
    const int wide = (d + LANES - 1) / LANES * LANES;
    for (int64_t i = 0; i < tokens; i++) {
        const float *row = from + rows[i] * stride;
        UNROLLED for (int c = 0; c < d; c++) to[i * wide + c] = row[c] * scale;
        for (int c = d; c < wide; c++) to[i * wide + c] = 0;
    }
}

typedef struct {
    const float *query_rows, *gradient_rows; /* [T][wide], of queries and of the output */
    const float *logits, *weights;           /* [T keys][S queries]: dS, and P with dropout */
    int64_t tokens, width;
} KeysAndValues;

/* Keys that are summed up at the same time: each sum alone would wait for its last addition. */
#define TOGETHER 2

/* Gradients of keys and values `j` to `j + count - 1`. */
INLINE void key_gradients(const KeysAndValues *of, float *gradient, const int64_t *rows,
                          int64_t part, int64_t j, int d, int count) {
    const int wide = (d + LANES - 1) / LANES * LANES, parts = wide / LANES;
    floats keys[TOGETHER][MOST_CHANNELS / LANES], values[TOGETHER][MOST_CHANNELS / LANES];
    UNROLLED for (int n = 0; n < count; n++)
        UNROLLED for (int p = 0; p < parts; p++) keys[n][p] = values[n][p] = all_equal(0);
    for (int64_t i = 0; i < of->tokens; i++)
        UNROLLED for (int n = 0; n < count; n++) {
            const float slope = of->logits[(j + n) * of->width + i];
            const float weight = of->weights[(j + n) * of->width + i];
            UNROLLED for (int p = 0; p < parts; p++) {
                keys[n][p] += load(of->query_rows + i * wide + p * LANES) * slope;
                values[n][p] += load(of->gradient_rows + i * wide + p * LANES) * weight;
            }
        }
    UNROLLED for (int n = 0; n < count; n++) {
        float *to = gradient + rows[j + n] * 3 * part;
        UNROLLED for (int c = 0; c < d; c++) {
            to[KEY * part + c] = keys[n][c / LANES][c % LANES];
            to[VALUE * part + c] = values[n][c / LANES][c % LANES];
        }
    }
}

INLINE void backward_head(const Attention *a, int64_t graph, int64_t head, float *scratch, int d) {
    const int64_t tokens = a->num_tokens[graph], width = lanes(tokens);
    const int64_t part = a->heads * d, stride = 3 * part;
    const int wide = (d + LANES - 1) / LANES * LANES;
    const int64_t *rows = a->rows + graph * a->max_tokens;
    const float *query = a->projected + head * d;
    const float *key = query + KEY * part, *value = query + VALUE * part;
    float *gradient = a->projected_gradient + head * d;
    const int64_t bias_at = a->bias_start[graph] + head * tokens * width;
    const float *softmax = a->softmax + a->softmax_start[graph] + 2 * head * width;
    float *queries = scratch, *gradients = queries + d * width, *inner = gradients + d * width;
    float *weights = inner + width, *logits = weights + tokens * width;
    float *query_rows = logits + tokens * width, *gradient_rows = query_rows + tokens * wide;
    float *lane_values = gradient_rows + tokens * wide;

    transposed(queries, query, rows, stride, tokens, a->scale, d);
    transposed(gradients, a->output_gradient + head * d, rows, part, tokens, 1, d);
    widened(query_rows, query, rows, stride, tokens, a->scale, d);
    widened(gradient_rows, a->output_gradient + head * d, rows, part, tokens, 1, d);
    for (int64_t i = 0; i < width; i++) inner[i] = 0;
    for (int64_t i = 0; i < tokens; i++) {
        const float *out = a->output + rows[i] * part + head * d;
        UNROLLED for (int c = 0; c < d; c++) inner[i] += out[c] * gradient_rows[i * wide + c];
    }
    for (int64_t i = 0; i < width; i += LANES) {
        floats query_gradient[MOST_CHANNELS];
        UNROLLED for (int c = 0; c < d; c++) query_gradient[c] = all_equal(0);
        for (int64_t j = 0; j < tokens; j++) {
            const float *k = key + rows[j] * stride, *v = value + rows[j] * stride;
            floats logit = load(a->bias + bias_at + j * width + i), slope = all_equal(0);
            floats logit_too = all_equal(0), slope_too = all_equal(0);
            UNROLLED for (int c = 0; c < d; c += 2) {
                logit += load(queries + c * width + i) * k[c];
                slope += load(gradients + c * width + i) * v[c];
                logit_too += load(queries + (c + 1) * width + i) * k[c + 1];
                slope_too += load(gradients + (c + 1) * width + i) * v[c + 1];
            }
            logit += logit_too, slope += slope_too;
            floats weight = exponential(logit - load(softmax + i)) * load(softmax + width + i);
            floats kept = weight;
            if (a->dropping) {
                const uint32_t counter = (uint32_t)(bias_at + j * width + i);
                kept = dropped(weight, &a->dropout, counter);
                slope = dropped(slope, &a->dropout, counter);
            }
            floats logit_gradient = weight * (slope - load(inner + i));
            store(weights + j * width + i, kept);
            store(logits + j * width + i, logit_gradient);
            store(a->bias_gradient + bias_at + j * width + i, logit_gradient);
            UNROLLED for (int c = 0; c < d; c++) query_gradient[c] += logit_gradient * k[c];
        }
        UNROLLED for (int c = 0; c < d; c++) store(lane_values + c * LANES, query_gradient[c] * a->scale);
        for (int64_t lane = 0; lane < LANES && i + lane < tokens; lane++) {
            float *to = gradient + rows[i + lane] * stride;
            UNROLLED for (int c = 0; c < d; c++) to[c] = lane_values[c * LANES + lane];
        }
    }
    const KeysAndValues of = {query_rows, gradient_rows, logits, weights, tokens, width};
    int64_t j = 0;
    for (; j + TOGETHER <= tokens; j += TOGETHER)
        key_gradients(&of, gradient, rows, part, j, d, TOGETHER);
    for (; j < tokens; j++) key_gradients(&of, gradient, rows, part, j, d, 1);
}

/* Channels of a head that there is code for; even, because loops take two channels at a time. */
#define FOR_EACH_SIZE(CASE) CASE(4) CASE(8) CASE(10) CASE(12) CASE(16) CASE(20) CASE(24) CASE(32)

EXPORT int attention_supports(int64_t channels) {
#define CASE(d) \
    case d: return 1;
    switch (channels) { FOR_EACH_SIZE(CASE) }
#undef CASE
    return 0;
}

/* Attention of graphs `first` to `last - 1`. Returns 0, or 1 if there is no memory. */
INLINE int attention_forward_body(const Attention *a, int64_t first, int64_t last) {
    const int64_t width = lanes(a->max_tokens), d = a->channels;
    float *scratch = malloc(sizeof(float) * (d * width + (a->max_tokens + d) * LANES));
    if (!scratch) return 1;
#define CASE(d) \
    case d: forward_head(a, graph, head, scratch, d); break;
    for (int64_t graph = first; graph < last; graph++)
        for (int64_t head = 0; head < a->heads; head++) switch (a->channels) { FOR_EACH_SIZE(CASE) }
#undef CASE
    free(scratch);
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(attention_forward, (const Attention *a, int64_t first, int64_t last),
                          (a, first, last))

/* Gradients of `attention_forward`, written, not added. */
INLINE int attention_backward_body(const Attention *a, int64_t first, int64_t last) {
    const int64_t tokens = a->max_tokens, width = lanes(tokens), d = a->channels;
    const int64_t size = (2 * d + 1 + 2 * tokens) * width + 2 * tokens * lanes(d) + d * LANES;
    float *scratch = malloc(sizeof(float) * size);
    if (!scratch) return 1;
#define CASE(d) \
    case d: backward_head(a, graph, head, scratch, d); break;
    for (int64_t graph = first; graph < last; graph++)
        for (int64_t head = 0; head < a->heads; head++) switch (a->channels) { FOR_EACH_SIZE(CASE) }
#undef CASE
    free(scratch);
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(attention_backward, (const Attention *a, int64_t first, int64_t last),
                          (a, first, last))

/* Lay out the bias of each pair as attention reads it, [H][T keys][S queries] a graph, from the
 * bias of its type. */
EXPORT int bias_forward(const Attention *a, int64_t first, int64_t last) {
    for (int64_t graph = first; graph < last; graph++) {
        const int64_t tokens = a->num_tokens[graph], width = lanes(tokens);
        const int64_t *types = a->pair_type + graph * a->max_tokens * a->max_tokens;
        float *to = a->bias + a->bias_start[graph];
        for (int64_t j = 0; j < tokens; j++)
            for (int64_t i = 0; i < width; i++)
                for (int64_t head = 0; head < a->heads; head++)
                    to[(head * tokens + j) * width + i] =
                        i < tokens ? a->table[types[i * a->max_tokens + j] * a->heads + head] : 0;
    }
    return 0;
}

/* Add the gradients of all pairs up by type: thousands of them for the common types, hence in double
 * precision. Types are shared by all graphs, so this is for one thread. */
EXPORT int bias_backward(const Attention *a, int64_t first, int64_t last) {
    for (int64_t graph = first; graph < last; graph++) {
        const int64_t tokens = a->num_tokens[graph], width = lanes(tokens);
        const int64_t *types = a->pair_type + graph * a->max_tokens * a->max_tokens;
        const float *from = a->bias_gradient + a->bias_start[graph];
        for (int64_t j = 0; j < tokens; j++)
            for (int64_t i = 0; i < tokens; i++)
                for (int64_t head = 0; head < a->heads; head++)
                    a->table_gradient[types[i * a->max_tokens + j] * a->heads + head] +=
                        from[(head * tokens + j) * width + i];
    }
    return 0;
}

/* Where the bias of a head's first pair of a graph stands in `pair_bias`. */
INLINE float *pair_bias_of(const Attention *a, int64_t graph, int64_t head) {
    return a->pair_bias + (head * a->graphs + graph) * a->max_tokens * a->max_tokens;
}

/* Add a bias that pairs have of their own, `pair_bias`, to `bias`. */
EXPORT int pair_bias_forward(const Attention *a, int64_t first, int64_t last) {
    for (int64_t graph = first; graph < last; graph++)
        for (int64_t head = 0; head < a->heads; head++) {
            const int64_t tokens = a->num_tokens[graph], width = lanes(tokens);
            const float *from = pair_bias_of(a, graph, head);
            float *to = a->bias + a->bias_start[graph] + head * tokens * width;
            for (int64_t j = 0; j < tokens; j++)
                for (int64_t i = 0; i < tokens; i++) to[j * width + i] += from[i * a->max_tokens + j];
        }
    return 0;
}

/* The gradient of `pair_bias`, written over it; that of padding is left as it is. */
EXPORT int pair_bias_backward(const Attention *a, int64_t first, int64_t last) {
    for (int64_t graph = first; graph < last; graph++)
        for (int64_t head = 0; head < a->heads; head++) {
            const int64_t tokens = a->num_tokens[graph], width = lanes(tokens);
            const float *from = a->bias_gradient + a->bias_start[graph] + head * tokens * width;
            float *to = pair_bias_of(a, graph, head);
            for (int64_t i = 0; i < tokens; i++)
                for (int64_t j = 0; j < tokens; j++) to[i * a->max_tokens + j] = from[j * width + i];
        }
    return 0;
}

/* Numbers of heads that there is code for, beside that for any number. */
#define FOR_EACH_HEADS(CASE) CASE(4) CASE(6) CASE(8)

/* One head of `size` mixed biases. */
INLINE void mix_head(const float *from, const float *shares, float *to, int64_t size,
                     int64_t heads) {
    for (int64_t e = 0; e < size; e += LANES) {
        floats sum = all_equal(0);
        UNROLLED for (int64_t g = 0; g < heads; g++) sum += load(from + g * size + e) * shares[g];
        store(to + e, sum);
    }
}

/* Each head of `mixed_bias` is a mixture of the heads of `bias`. */
INLINE int mix_bias_forward_body(const Attention *a, int64_t first, int64_t last) {
    const int64_t heads = a->heads;
    for (int64_t graph = first; graph < last; graph++) {
        const int64_t size = a->num_tokens[graph] * lanes(a->num_tokens[graph]);
        const float *from = a->bias + a->bias_start[graph];
        float *to = a->mixed_bias + a->bias_start[graph];
#define CASE(n) \
    case n: mix_head(from, a->mixing + h * n, to + h * size, size, n); break;
        for (int64_t h = 0; h < heads; h++) switch (heads) {
                FOR_EACH_HEADS(CASE)
                default: mix_head(from, a->mixing + h * heads, to + h * size, size, heads);
            }
#undef CASE
    }
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(mix_bias_forward, (const Attention *a, int64_t first, int64_t last),
                          (a, first, last))

/* Head `g` of the gradient of a graph's bias, and the gradients of its shares in every head. */
INLINE void mix_head_backward(const float *bias, const float *slope, const float *mixing,
                              float *to, float *own, int64_t size, int64_t g, int64_t heads) {
    floats products[MOST_HEADS];
    UNROLLED for (int64_t h = 0; h < heads; h++) products[h] = all_equal(0);
    for (int64_t e = 0; e < size; e += LANES) {
        const floats value = load(bias + g * size + e);
        floats sum = all_equal(0);
        UNROLLED for (int64_t h = 0; h < heads; h++) {
            const floats of_head = load(slope + h * size + e);
            sum += of_head * mixing[h * heads + g];
            products[h] += of_head * value;
        }
        store(to + g * size + e, sum);
    }
    UNROLLED for (int64_t h = 0; h < heads; h++) {
        float total = 0;
        for (int lane = 0; lane < LANES; lane++) total += products[h][lane];
        own[h * heads + g] = total;
    }
}

/* The same for any number of heads. */
INLINE void mix_any_head_backward(const float *bias, const float *slope, const float *mixing,
                                  float *to, float *own, int64_t size, int64_t g, int64_t heads) {
    for (int64_t e = 0; e < size; e += LANES) {
        floats sum = all_equal(0);
        for (int64_t h = 0; h < heads; h++)
            sum += load(slope + h * size + e) * mixing[h * heads + g];
        store(to + g * size + e, sum);
    }
    for (int64_t h = 0; h < heads; h++) {
        floats sum = all_equal(0);
        for (int64_t e = 0; e < size; e += LANES)
            sum += load(slope + h * size + e) * load(bias + g * size + e);
        float total = 0;
        for (int lane = 0; lane < LANES; lane++) total += sum[lane];
        own[h * heads + g] = total;
    }
}

/* Gradients of `mix_bias_forward` for that of `mixed_bias`, which stands in `bias_gradient`: that
 * of `bias` goes to `mixed_bias`. */
INLINE int mix_bias_backward_body(const Attention *a, int64_t first, int64_t last) {
    const int64_t heads = a->heads;
    for (int64_t graph = first; graph < last; graph++) {
        const int64_t size = a->num_tokens[graph] * lanes(a->num_tokens[graph]);
        const float *bias = a->bias + a->bias_start[graph];
        const float *slope = a->bias_gradient + a->bias_start[graph];
        float *to = a->mixed_bias + a->bias_start[graph];
        float *own = a->mixing_gradient + graph * heads * heads;
#define CASE(n) \
    case n: mix_head_backward(bias, slope, a->mixing, to, own, size, g, n); break;
        for (int64_t g = 0; g < heads; g++) switch (heads) {
                FOR_EACH_HEADS(CASE)
                default: mix_any_head_backward(bias, slope, a->mixing, to, own, size, g, heads);
            }
#undef CASE
    }
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(mix_bias_backward, (const Attention *a, int64_t first, int64_t last),
                          (a, first, last))
