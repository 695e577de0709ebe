/* Random walks or simple paths on many small graphs, and the attention bias that they give:
 *
 *     bias_h(i, j) += sum_k weight_hk P_k(i, j)
 *
 * P of walks is 1, M, M^2, ... with M = D^-1 A. An atom has few neighbors: a step of all walks adds
 * a few vectors for each atom, where a product of matrices would multiply mostly zeros.
 *
 * P of paths is 1, then log(1 + n) of the n simple paths of k bonds from i to j, for j = i of the
 * simple cycles: a search finds each.
 *
 * Backward makes P again, so nothing is kept. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

typedef struct {
    const int64_t *rows;       /* [graphs][max_tokens], packed row of each token */
    const int64_t *num_tokens; /* [graphs], T */
    const int64_t *bias_start; /* [graphs], where a graph's bias [H][T keys][S queries] begins */
    const int64_t *pair_type;  /* [graphs][max_tokens queries][max_tokens keys] */
    const uint8_t *is_bond;    /* [types] */
    int64_t max_tokens, heads, steps;
    int64_t most_paths;  /* of a graph, see count_paths; 0: random walks */
    const float *weight; /* [H][steps] */
    const float *bias;
    float *output;  /* laid out as `bias` */
    float *returns; /* [R][steps], P_k(i, i) */
    const float *gradient;  /* of `output` */
    float *weight_gradient; /* [graphs][H][steps], of each graph alone */
} Walks;

#define FIRST_ATOM_PAIR 2
#define FEW 64 /* halves of paths, more than there are between most atoms */
#define UNROLLED _Pragma("GCC unroll 8")

INLINE int64_t walk_lanes(int64_t tokens) { return (tokens + LANES - 1) / LANES * LANES; }

/* Bonds that lead to each token, and the probability of taking each; [T][T], `count` of them. */
typedef struct {
    int32_t *from, *count;
    float *share;
    uint8_t *visited; /* [T], for the search for paths */
    float logarithm[FEW]; /* log(1 + n / 2) of n halves */
} Steps;

INLINE void find_steps(const Walks *a, int64_t graph, const Steps *to) {
    const int64_t tokens = a->num_tokens[graph];
    const int64_t *types = a->pair_type + graph * a->max_tokens * a->max_tokens;
    for (int64_t j = 0; j < tokens; j++) to->count[j] = 0;
    for (int64_t i = 0; i < tokens; i++) {
        int32_t degree = 0;
        for (int64_t j = 0; j < tokens; j++) degree += a->is_bond[types[i * a->max_tokens + j]];
        for (int64_t j = 0; degree && j < tokens; j++) {
            if (!a->is_bond[types[i * a->max_tokens + j]]) continue;
            const int64_t place = j * tokens + to->count[j]++;
            to->from[place] = (int32_t)i;
            to->share[place] = 1.0f / (float)degree;
        }
    }
}

/* A search for the paths to atom `end`, backwards. */
typedef struct {
    const Steps *bonds;
    float *counts; /* [steps][T keys][S queries] */
    int64_t tokens, width, steps, end;
    int64_t left; /* paths that may still be found */
} Search;

/* Count the paths to `end` that go on from a path of `length` bonds which begins at `here`. Returns
 * 0 if there are more than may be found. */
static int find_paths(Search *s, int64_t here, int64_t length) {
    const Steps *bonds = s->bonds;
    float *counts = s->counts + ((length + 1) * s->tokens + s->end) * s->width;
    int found = 1;
    bonds->visited[here] = 1;
    for (int32_t n = 0; n < bonds->count[here] && found; n++) {
        const int64_t before = bonds->from[here * s->tokens + n];
        if (before == s->end && length >= 2) counts[before] += 0.5f; /* it is found both ways */
        if (bonds->visited[before]) continue;
        counts[before] += 1;
        found = s->left-- > 0 && (length + 2 >= s->steps || find_paths(s, before, length + 1));
    }
    bonds->visited[here] = 0;
    return found;
}

/* log(1 + n) of the simple paths and cycles of 0 to steps - 1 bonds. A cage of rings may have
 * millions: of a graph with more than `most_paths` only as many lengths as have no more count. */
static void count_paths(const Walks *a, int64_t graph, const Steps *bonds, float *paths) {
    const int64_t tokens = a->num_tokens[graph], width = walk_lanes(tokens), size = tokens * width;
    const int64_t *types = a->pair_type + graph * a->max_tokens * a->max_tokens;
    memset(bonds->visited, 0, (size_t)tokens);
    Search search = {bonds, paths, tokens, width, a->steps + 1, 0, 0};
    for (int all = 0; !all;) {
        search.steps--, search.left = a->most_paths, all = 1;
        memset(paths, 0, sizeof(float) * size * a->steps);
        for (search.end = 0; search.steps > 1 && search.end < tokens && all; search.end++)
            all = find_paths(&search, search.end, 0);
    }
    for (int64_t e = size; e < size * a->steps; e++) {
        const float halves = 2 * paths[e]; /* one remains where a cycle goes one way only */
        paths[e] = halves < FEW ? bonds->logarithm[(int)halves] : log1pf(paths[e]);
    }
    for (int64_t i = 0; i < tokens; i++)
        paths[i * width + i] = types[i * a->max_tokens + i] >= FIRST_ATOM_PAIR;
}

/* P of all steps, [steps][T keys][S queries]. */
INLINE void take_walks(const Walks *a, int64_t graph, const Steps *bonds, float *walks) {
    if (a->most_paths) {
        count_paths(a, graph, bonds, walks);
        return;
    }
    const int64_t tokens = a->num_tokens[graph], width = walk_lanes(tokens), size = tokens * width;
    const int64_t *types = a->pair_type + graph * a->max_tokens * a->max_tokens;
    memset(walks, 0, sizeof(float) * size);
    for (int64_t i = 0; i < tokens; i++)
        walks[i * width + i] = types[i * a->max_tokens + i] >= FIRST_ATOM_PAIR;
    for (int64_t k = 1; k < a->steps; k++) {
        const float *before = walks + (k - 1) * size;
        float *after = walks + k * size;
        for (int64_t j = 0; j < tokens; j++)
            for (int64_t i = 0; i < width; i += LANES) {
                floats sum = all_equal(0);
                for (int32_t n = 0; n < bonds->count[j]; n++)
                    sum += load(before + bonds->from[j * tokens + n] * width + i) *
                           bonds->share[j * tokens + n];
                store(after + j * width + i, sum);
            }
    }
}

/* The bias of `count` heads. */
INLINE void add_heads(const float *walks, const float *weight, const float *bias, float *output,
                      int64_t size, int64_t steps, int count) {
    for (int64_t e = 0; e < size; e += LANES) {
        floats sums[8];
        UNROLLED for (int h = 0; h < count; h++) sums[h] = load(bias + h * size + e);
        for (int64_t k = 0; k < steps; k++) {
            const floats walk = load(walks + k * size + e);
            UNROLLED for (int h = 0; h < count; h++) sums[h] += walk * weight[h * steps + k];
        }
        UNROLLED for (int h = 0; h < count; h++) store(output + h * size + e, sums[h]);
    }
}

/* The gradients of the weights of `count` heads for `powers` powers of the walk. */
INLINE void weight_gradients(const float *walks, const float *gradient, float *to, int64_t size,
                             int64_t steps, int count, int powers) {
    floats sums[4][4];
    UNROLLED for (int h = 0; h < count; h++)
        UNROLLED for (int k = 0; k < powers; k++) sums[h][k] = all_equal(0);
    for (int64_t e = 0; e < size; e += LANES)
        UNROLLED for (int h = 0; h < count; h++) {
            const floats slope = load(gradient + h * size + e);
            UNROLLED for (int k = 0; k < powers; k++)
                sums[h][k] += slope * load(walks + k * size + e);
        }
    UNROLLED for (int h = 0; h < count; h++)
        UNROLLED for (int k = 0; k < powers; k++) {
            float total = 0;
            for (int lane = 0; lane < LANES; lane++) total += sums[h][k][lane];
            to[h * steps + k] = total;
        }
}

/* Memory for the walks of any graph: the walks, then steps. */
INLINE float *walk_memory(const Walks *a, Steps *bonds) {
    const int64_t tokens = a->max_tokens, width = walk_lanes(tokens), pairs = tokens * tokens;
    float *walks = malloc(4 * (a->steps * tokens * width + 2 * pairs + tokens) + tokens);
    if (!walks) return NULL;
    bonds->share = walks + a->steps * tokens * width;
    bonds->from = (int32_t *)(bonds->share + pairs);
    bonds->count = bonds->from + pairs;
    bonds->visited = (uint8_t *)(bonds->count + tokens);
    for (int n = 0; a->most_paths && n < FEW; n++) bonds->logarithm[n] = log1pf(0.5f * n);
    return walks;
}

/* Graphs `first` to `last - 1`. Returns 0, or 1 if there is no memory. */
INLINE int walks_forward_body(const Walks *a, int64_t first, int64_t last) {
    Steps bonds;
    float *walks = walk_memory(a, &bonds);
    if (!walks) return 1;
    for (int64_t graph = first; graph < last; graph++) {
        const int64_t tokens = a->num_tokens[graph], width = walk_lanes(tokens);
        const int64_t size = tokens * width, *rows = a->rows + graph * a->max_tokens;
        find_steps(a, graph, &bonds);
        take_walks(a, graph, &bonds, walks);
        for (int64_t i = 0; i < tokens; i++)
            for (int64_t k = 0; k < a->steps; k++)
                a->returns[rows[i] * a->steps + k] = walks[k * size + i * width + i];
        int64_t h = 0;
#define HEADS(count)                                                                     \
    for (; h + count <= a->heads; h += count)                                            \
        add_heads(walks, a->weight + h * a->steps, a->bias + a->bias_start[graph] + h * size, \
                  a->output + a->bias_start[graph] + h * size, size, a->steps, count);
        HEADS(8) HEADS(4) HEADS(1)
#undef HEADS
    }
    free(walks);
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(walks_forward, (const Walks *a, int64_t first, int64_t last),
                          (a, first, last))

/* The gradient of the weights, written, not added. */
INLINE int walks_backward_body(const Walks *a, int64_t first, int64_t last) {
    Steps bonds;
    float *walks = walk_memory(a, &bonds);
    if (!walks) return 1;
    for (int64_t graph = first; graph < last; graph++) {
        const int64_t tokens = a->num_tokens[graph], size = tokens * walk_lanes(tokens);
        float *own = a->weight_gradient + graph * a->heads * a->steps;
        find_steps(a, graph, &bonds);
        take_walks(a, graph, &bonds, walks);
        int64_t h = 0;
#define POWERS(count, powers)                                                               \
    for (; k + powers <= a->steps; k += powers)                                             \
        weight_gradients(walks + k * size, a->gradient + a->bias_start[graph] + h * size,   \
                         own + h * a->steps + k, size, a->steps, count, powers);
#define HEADS(count)                            \
    for (; h + count <= a->heads; h += count) { \
        int64_t k = 0;                          \
        POWERS(count, 4) POWERS(count, 1)       \
    }
        HEADS(4) HEADS(1)
#undef HEADS
#undef POWERS
    }
    free(walks);
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(walks_backward, (const Walks *a, int64_t first, int64_t last),
                          (a, first, last))
