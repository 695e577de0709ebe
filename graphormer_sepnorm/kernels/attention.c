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

/* Twelve numbers of channels unrolled for three instruction sets: at -O3 they compile for a minute
 * and run no faster. */
#pragma GCC optimize("O2")

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
    float *bias_gradient; /* laid out as `bias`; NULL: it is not wanted */
    int32_t adding;       /* whether the bias's gradient is added to what stands there */
    const int64_t *pair_type; /* [graphs][max_tokens queries][max_tokens keys] */
    const float *table;       /* [types][H] */
    double *table_gradient;
    const float *mixing; /* [H][H], shares of all biases in that of each head; NULL: its own */
    float *mixing_gradient; /* [graphs][H][H], of each graph alone */
} Attention;

enum { QUERY, KEY, VALUE };

#define MOST_CHANNELS 32
#define MOST_HEADS 8 /* that there is code of their own for */
/* Loops over channels are unrolled: their counts are known, their values stay in registers. */
#define UNROLLED _Pragma("GCC unroll 32")

INLINE int64_t lanes(int64_t tokens) { return (tokens + EIGHT - 1) / EIGHT * EIGHT; }

/* Channels of a head in whole vectors. */
INLINE int wide_of(int channels) { return (channels + LANES - 1) / LANES * LANES; }

/* Numbers of heads that there is code for, beside that for any number. */
#define FOR_EACH_HEADS(CASE) CASE(4) CASE(6) CASE(8)

/* The mixture of the biases of all heads, `size` numbers each, that one head has. */
INLINE void mixture(const float *bias, const float *shares, float *to, int64_t size, int64_t heads) {
    for (int64_t e = 0; e < size; e += EIGHT) {
        eights sum = (eights){0};
        UNROLLED for (int64_t g = 0; g < heads; g++) sum += load_eight(bias + g * size + e) * shares[g];
        store_eight(to + e, sum);
    }
}

/* The bias of a head of a graph: [T keys][S queries], in `mixed` if it is a mixture. */
INLINE const float *bias_of(const Attention *a, int64_t graph, int64_t head, float *mixed) {
    const int64_t size = a->num_tokens[graph] * lanes(a->num_tokens[graph]);
    const float *bias = a->bias + a->bias_start[graph];
    if (!a->mixing) {
        prefetch(bias + (head + 1) * size, size); /* all biases fill more than the cache */
        return bias + head * size;
    }
    const float *shares = a->mixing + head * a->heads;
#define CASE(n) \
    case n: mixture(bias, shares, mixed, size, n); break;
    switch (a->heads) {
        FOR_EACH_HEADS(CASE)
        default: mixture(bias, shares, mixed, size, a->heads);
    }
#undef CASE
    return mixed;
}

/* The gradient of bias `g` of a graph from those of the mixtures, `slopes`, and the gradients of
 * its shares in all of them. */
INLINE void unmix(const float *bias, const float *slopes, const float *mixing, float *to,
                  float *own, int64_t size, int64_t g, int64_t heads, int adding) {
    eights products[MOST_HEADS];
    UNROLLED for (int64_t h = 0; h < heads; h++) products[h] = (eights){0};
    for (int64_t e = 0; e < size; e += EIGHT) {
        const eights value = load_eight(bias + g * size + e);
        eights sum = adding ? load_eight(to + g * size + e) : (eights){0};
        UNROLLED for (int64_t h = 0; h < heads; h++) {
            const eights of_head = load_eight(slopes + h * size + e);
            sum += of_head * mixing[h * heads + g];
            products[h] += of_head * value;
        }
        store_eight(to + g * size + e, sum);
    }
    UNROLLED for (int64_t h = 0; h < heads; h++) {
        float total = 0;
        for (int lane = 0; lane < EIGHT; lane++) total += products[h][lane];
        own[h * heads + g] = total;
    }
}

/* The same for any number of heads. */
INLINE void unmix_any(const float *bias, const float *slopes, const float *mixing, float *to,
                      float *own, int64_t size, int64_t g, int64_t heads, int adding) {
    for (int64_t e = 0; e < size; e += EIGHT) {
        eights sum = adding ? load_eight(to + g * size + e) : (eights){0};
        for (int64_t h = 0; h < heads; h++)
            sum += load_eight(slopes + h * size + e) * mixing[h * heads + g];
        store_eight(to + g * size + e, sum);
    }
    for (int64_t h = 0; h < heads; h++) {
        eights sum = (eights){0};
        for (int64_t e = 0; e < size; e += EIGHT)
            sum += load_eight(slopes + h * size + e) * load_eight(bias + g * size + e);
        float total = 0;
        for (int lane = 0; lane < EIGHT; lane++) total += sum[lane];
        own[h * heads + g] = total;
    }
}

/* The gradient of the bias of one head, `slopes`, where heads do not share. */
INLINE void bias_gradient(const Attention *a, const float *slopes, float *to, int64_t size) {
    for (int64_t e = 0; e < size; e += EIGHT)
        store_eight(to + e, load_eight(slopes + e) + (a->adding ? load_eight(to + e) : (eights){0}));
}

/* Gradients of a graph's bias and of its mixing from those of what its heads had, `slopes`. */
INLINE void bias_gradients(const Attention *a, int64_t graph, const float *slopes) {
    const int64_t heads = a->heads, size = a->num_tokens[graph] * lanes(a->num_tokens[graph]);
    const float *bias = a->bias + a->bias_start[graph];
    float *to = a->bias_gradient + a->bias_start[graph];
    float *own = a->mixing_gradient + graph * heads * heads;
#define CASE(n) \
    case n: unmix(bias, slopes, a->mixing, to, own, size, g, n, a->adding); break;
    for (int64_t g = 0; g < heads; g++) switch (heads) {
            FOR_EACH_HEADS(CASE)
            default: unmix_any(bias, slopes, a->mixing, to, own, size, g, heads, a->adding);
        }
#undef CASE
}

/* Where a block of EIGHT channels begins: the last may overlap the one before. */
#define FOR_EACH_BLOCK(c, d) \
    for (int c##_ = 0, c = 0; c##_ < (d); c##_ += EIGHT, c = c##_ + EIGHT <= (d) ? c##_ : (d) - EIGHT)

/* Copy the channels of one head of all tokens, transposed and zero beyond the last token. */
INLINE void transposed(float *to, const float *from, const int64_t *rows, int64_t stride,
                       int64_t tokens, float scale, int d) {
    static const float nothing[EIGHT];
    const int64_t width = lanes(tokens);
    if (d < EIGHT) {
        UNROLLED for (int c = 0; c < d; c++)
            for (int64_t i = 0; i < width; i++)
                to[c * width + i] = i < tokens ? from[rows[i] * stride + c] * scale : 0;
        return;
    }
    for (int64_t i = 0; i < width; i += EIGHT)
        UNROLLED FOR_EACH_BLOCK(c, d) {
            eights block[EIGHT];
            UNROLLED for (int lane = 0; lane < EIGHT; lane++)
                block[lane] = load_eight(i + lane < tokens ? from + rows[i + lane] * stride + c : nothing) * scale;
            transpose(block);
            UNROLLED for (int lane = 0; lane < EIGHT; lane++)
                store_eight(to + (c + lane) * width + i, block[lane]);
        }
}

/* The other way: channels of LANES tokens from token `i` on, to the rows of those that exist. */
INLINE void store_rows(float *to, const floats *channels, const int64_t *rows, int64_t stride,
                       int64_t i, int64_t tokens, int d) {
    const int64_t count = tokens - i < LANES ? tokens - i : LANES;
    if (d < EIGHT) {
        for (int64_t lane = 0; lane < count; lane++)
            UNROLLED for (int c = 0; c < d; c++) to[rows[i + lane] * stride + c] = channels[c][lane];
        return;
    }
    UNROLLED for (int first = 0; first < LANES; first += EIGHT)
        UNROLLED FOR_EACH_BLOCK(c, d) {
            eights block[EIGHT];
            UNROLLED for (int lane = 0; lane < EIGHT; lane++)
                block[lane] = load_eight((const float *)(channels + c + lane) + first);
            transpose(block);
            UNROLLED for (int lane = 0; lane < EIGHT; lane++)
                if (first + lane < count)
                    store_eight(to + rows[i + first + lane] * stride + c, block[lane]);
        }
}

/* Where a block of LANES queries begins: the last may overlap the one before. */
INLINE int64_t block_start(int64_t i, int64_t width) { return i + LANES <= width ? i : width - LANES; }

INLINE void forward_head(const Attention *a, int64_t graph, int64_t head, const float *bias,
                         float *scratch, int d) {
    const int64_t tokens = a->num_tokens[graph], width = lanes(tokens);
    const int64_t stride = 3 * a->heads * d;
    const int64_t *rows = a->rows + graph * a->max_tokens;
    const float *query = a->projected + head * d;
    const float *key = query + KEY * a->heads * d, *value = query + VALUE * a->heads * d;
    const int64_t bias_at = a->bias_start[graph] + head * tokens * width;
    float *queries = scratch, *logits = queries + d * width;

    transposed(queries, query, rows, stride, tokens, a->scale, d);
    for (int64_t first = 0; first < width; first += LANES) {
        const int64_t i = block_start(first, width);
        floats q[MOST_CHANNELS], largest = all_equal(-FLT_MAX);
        UNROLLED for (int c = 0; c < d; c++) q[c] = load(queries + c * width + i);
        for (int64_t j = 0; j < tokens; j++) {
            const float *k = key + rows[j] * stride;
            floats logit = load(bias + j * width + i);
            floats logit_too = all_equal(0);
            UNROLLED for (int c = 0; c + 1 < d; c += 2) {
                logit += q[c] * k[c];
                logit_too += q[c + 1] * k[c + 1];
            }
            if (d % 2) logit += q[d - 1] * k[d - 1];
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
        UNROLLED for (int c = 0; c < d; c++) mix[c] *= inverse;
        store_rows(a->output + head * d, mix, rows, a->heads * d, i, tokens, d);
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
    const int wide = wide_of(d);
    for (int64_t i = 0; i < tokens; i++) {
        const float *row = from + rows[i] * stride;
        store(to + i * wide + wide - LANES, all_equal(0));
        if (d < EIGHT)
            UNROLLED for (int c = 0; c < d; c++) to[i * wide + c] = row[c] * scale;
        else
            UNROLLED FOR_EACH_BLOCK(c, d) store_eight(to + i * wide + c, load_eight(row + c) * scale);
    }
}

typedef struct {
    const float *query_rows, *gradient_rows; /* [T][wide], of queries and of the output */
    const float *slopes, *weights;           /* [T keys][S queries]: dS, and P with dropout */
    int64_t tokens, width;
} KeysAndValues;

/* Keys that are summed up at the same time: each sum alone would wait for its last addition. */
#define TOGETHER 2

/* Gradients of keys and values `j` to `j + count - 1`. */
INLINE void key_gradients(const KeysAndValues *of, float *gradient, const int64_t *rows,
                          int64_t part, int64_t j, int d, int count) {
    const int wide = wide_of(d), parts = wide / LANES;
    floats keys[TOGETHER][MOST_CHANNELS / LANES], values[TOGETHER][MOST_CHANNELS / LANES];
    UNROLLED for (int n = 0; n < count; n++)
        UNROLLED for (int p = 0; p < parts; p++) keys[n][p] = values[n][p] = all_equal(0);
    for (int64_t i = 0; i < of->tokens; i++)
        UNROLLED for (int n = 0; n < count; n++) {
            const float slope = of->slopes[(j + n) * of->width + i];
            const float weight = of->weights[(j + n) * of->width + i];
            UNROLLED for (int p = 0; p < parts; p++) {
                keys[n][p] += load(of->query_rows + i * wide + p * LANES) * slope;
                values[n][p] += load(of->gradient_rows + i * wide + p * LANES) * weight;
            }
        }
    UNROLLED for (int n = 0; n < count; n++) {
        float *to = gradient + rows[j + n] * 3 * part;
        UNROLLED for (int p = 0; p < parts; p++) {
            store_first(to + KEY * part + p * LANES, keys[n][p], d - p * LANES);
            store_first(to + VALUE * part + p * LANES, values[n][p], d - p * LANES);
        }
    }
}

/* Gradients of query, key and value; that of the bias goes to `slopes`, [T keys][S queries]. */
INLINE void backward_head(const Attention *a, int64_t graph, int64_t head, const float *bias,
                          float *slopes, float *scratch, int d) {
    const int64_t tokens = a->num_tokens[graph], width = lanes(tokens);
    const int64_t part = a->heads * d, stride = 3 * part;
    const int wide = wide_of(d);
    const int64_t *rows = a->rows + graph * a->max_tokens;
    const float *query = a->projected + head * d;
    const float *key = query + KEY * part, *value = query + VALUE * part;
    float *gradient = a->projected_gradient + head * d;
    const int64_t bias_at = a->bias_start[graph] + head * tokens * width;
    const float *softmax = a->softmax + a->softmax_start[graph] + 2 * head * width;
    float *queries = scratch, *gradients = queries + d * width, *outputs = gradients + d * width;
    float *inner = outputs + d * width;
    float *weights = inner + width;
    float *query_rows = weights + tokens * width, *gradient_rows = query_rows + tokens * wide;

    transposed(queries, query, rows, stride, tokens, a->scale, d);
    transposed(gradients, a->output_gradient + head * d, rows, part, tokens, 1, d);
    widened(query_rows, query, rows, stride, tokens, a->scale, d);
    widened(gradient_rows, a->output_gradient + head * d, rows, part, tokens, 1, d);
    transposed(outputs, a->output + head * d, rows, part, tokens, 1, d);
    for (int64_t first = 0; first < width; first += LANES) {
        const int64_t i = block_start(first, width);
        floats sum = all_equal(0);
        UNROLLED for (int c = 0; c < d; c++)
            sum += load(outputs + c * width + i) * load(gradients + c * width + i);
        store(inner + i, sum);
    }
    for (int64_t first = 0; first < width; first += LANES) {
        const int64_t i = block_start(first, width);
        floats query_gradient[MOST_CHANNELS];
        UNROLLED for (int c = 0; c < d; c++) query_gradient[c] = all_equal(0);
        for (int64_t j = 0; j < tokens; j++) {
            const float *k = key + rows[j] * stride, *v = value + rows[j] * stride;
            floats logit = load(bias + j * width + i), slope = all_equal(0);
            floats logit_too = all_equal(0), slope_too = all_equal(0);
            UNROLLED for (int c = 0; c + 1 < d; c += 2) {
                logit += load(queries + c * width + i) * k[c];
                slope += load(gradients + c * width + i) * v[c];
                logit_too += load(queries + (c + 1) * width + i) * k[c + 1];
                slope_too += load(gradients + (c + 1) * width + i) * v[c + 1];
            }
            if (d % 2) {
                logit += load(queries + (d - 1) * width + i) * k[d - 1];
                slope += load(gradients + (d - 1) * width + i) * v[d - 1];
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
            store(slopes + j * width + i, logit_gradient);
            UNROLLED for (int c = 0; c < d; c++) query_gradient[c] += logit_gradient * k[c];
        }
        UNROLLED for (int c = 0; c < d; c++) query_gradient[c] *= a->scale;
        store_rows(gradient, query_gradient, rows, stride, i, tokens, d);
    }
    const KeysAndValues of = {query_rows, gradient_rows, slopes, weights, tokens, width};
    int64_t j = 0;
    for (; j + TOGETHER <= tokens; j += TOGETHER)
        key_gradients(&of, gradient, rows, part, j, d, TOGETHER);
    for (; j < tokens; j++) key_gradients(&of, gradient, rows, part, j, d, 1);
}

/* Channels of a head that there is code for, in order. */
#define FOR_EACH_SIZE(CASE) CASE(4) CASE(8) CASE(10) CASE(11) CASE(12) CASE(16) CASE(20) CASE(24) CASE(32)

INLINE int is_between(const Attention *a, int64_t graph, int64_t least, int64_t most) {
    const int64_t queries = lanes(a->num_tokens[graph]);
    return least <= queries && queries < most;
}

/* Attention of graphs `first` to `last - 1`, but for those with `most` queries or more (with those
 * that fill up) or too few for a vector. Returns 0, or 1 if there is no memory. */
INLINE int attention_forward_body(const Attention *a, int64_t first, int64_t last, int64_t most) {
    const int64_t width = lanes(a->max_tokens), d = a->channels;
    float *mixed = malloc(sizeof(float) * ((a->max_tokens + d) * width + a->max_tokens * LANES));
    if (!mixed) return 1;
    float *scratch = mixed + a->max_tokens * width;
#define CASE(d) \
    case d: forward_head(a, graph, head, bias, scratch, d); break;
    for (int64_t graph = first; graph < last; graph++) {
        if (!is_between(a, graph, LANES, most)) continue;
        for (int64_t head = 0; head < a->heads; head++) {
            const float *bias = bias_of(a, graph, head, mixed);
            switch (a->channels) { FOR_EACH_SIZE(CASE) }
        }
    }
#undef CASE
    free(mixed);
    return 0;
}

/* Gradients of `attention_forward`, written, not added, but for that of the bias if `adding`. */
INLINE int attention_backward_body(const Attention *a, int64_t first, int64_t last, int64_t most) {
    const int64_t tokens = a->max_tokens, width = lanes(tokens), d = a->channels;
    const int64_t pairs = tokens * width;
    const int64_t size = (3 * d + 1) * width + pairs + 2 * tokens * wide_of(d);
    float *slopes = malloc(sizeof(float) * ((a->heads + 1) * pairs + size));
    if (!slopes) return 1;
    float *mixed = slopes + a->heads * pairs, *scratch = mixed + pairs;
#define CASE(d) \
    case d: backward_head(a, graph, head, bias, of_head, scratch, d); break;
    for (int64_t graph = first; graph < last; graph++) {
        if (!is_between(a, graph, LANES, most)) continue;
        const int64_t of_graph = a->num_tokens[graph] * lanes(a->num_tokens[graph]);
        float *to = a->bias_gradient ? a->bias_gradient + a->bias_start[graph] : NULL;
        for (int64_t head = 0; head < a->heads; head++) {
            const float *bias = bias_of(a, graph, head, mixed);
            float *of_head = a->mixing ? slopes + head * of_graph : slopes;
            if (to && !a->mixing) prefetch(to + head * of_graph, of_graph);
            switch (a->channels) { FOR_EACH_SIZE(CASE) }
            if (to && !a->mixing) bias_gradient(a, slopes, to + head * of_graph, of_graph);
        }
        if (to && a->mixing) bias_gradients(a, graph, slopes);
    }
#undef CASE
    free(slopes);
    return 0;
}

#if LANES > EIGHT
/* The form for processors with AVX-512: sixteen queries at a time. */
#define FORM(name)                                                                              \
    AVX512 int name##_of_sixteen(const Attention *a, int64_t first, int64_t last) {             \
        return name##_body(a, first, last, INT64_MAX);                                          \
    }

FORM(attention_forward)
FORM(attention_backward)
#else
#if defined(__x86_64__)
/* Graphs of less than sixteen queries have the form for AVX2 there. */
#define FORMS(name)                                                                             \
    HIDDEN int name##_of_sixteen(const Attention *a, int64_t first, int64_t last);              \
    AVX2 static int name##_avx2(const Attention *a, int64_t first, int64_t last, int64_t most) { \
        return name##_body(a, first, last, most);                                               \
    }                                                                                           \
    EXPORT int name(const Attention *a, int64_t first, int64_t last) {                          \
        const int form = chosen_form();                                                         \
        if (form == BASIC_FORM) return name##_body(a, first, last, INT64_MAX);                  \
        if (form == AVX2_FORM) return name##_avx2(a, first, last, INT64_MAX);                   \
        int small = 0;                                                                          \
        for (int64_t graph = first; graph < last; graph++) small |= is_between(a, graph, 0, 16); \
        return (small && name##_avx2(a, first, last, 16)) || name##_of_sixteen(a, first, last); \
    }
#else
#define FORMS(name)                                                    \
    EXPORT int name(const Attention *a, int64_t first, int64_t last) { \
        return name##_body(a, first, last, INT64_MAX);                 \
    }
#endif

FORMS(attention_forward)
FORMS(attention_backward)

/* The fewest channels that there is code for and that hold `channels`; 0 if there are none. */
EXPORT int attention_channels(int64_t channels) {
#define CASE(d) \
    if (channels <= d) return d;
    FOR_EACH_SIZE(CASE)
#undef CASE
    return 0;
}

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
#endif
