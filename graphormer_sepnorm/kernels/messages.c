/* Messages along bonds: each row hears the sum over its bonds of ReLU(row at the other end + bond).
 * Nothing of the size of the messages is kept for backward, which makes them again.
 *
 * With states, what is added is no number of the kind of bond but the bond's own state, to which each
 * layer adds ReLU(what it makes of either end + that of the kind). States are kept. */

#include "vector.h"

typedef struct {
    const int64_t *source, *target, *kind; /* of each bond */
    int64_t bonds;
    int64_t rows, width;
    const float *values;           /* [rows, width] */
    const float *bond_values;      /* [kinds, width] */
    float *sums;                   /* [rows, width], zero before */
    const float *sums_gradient;    /* [rows, width] */
    float *values_gradient;        /* [rows, width], zero before */
    float *bond_values_gradient;   /* [kinds, width], zero before */
    const float *ends;             /* [rows, width]; with states, as what follows */
    const float *before;           /* [bonds, width], or null: zeros */
    float *states;                 /* [bonds, width], zero before forward */
    const float *states_gradient;  /* [bonds, width], or null: zeros */
    float *ends_gradient;          /* [rows, width], zero before */
    float *before_gradient;        /* [bonds, width], zero before */
} Messages;

/* Channels `first` to `last - 1` of all bonds, in their order: threads share no channel. */
INLINE int messages_forward_body(const Messages *a, int64_t first, int64_t last) {
    for (int64_t e = 0; e < a->bonds; e++) {
        if (a->target[e] == a->rows) continue; /* only fills up */
        const float *restrict value = a->values + a->source[e] * a->width;
        const float *restrict bond = a->bond_values + a->kind[e] * a->width;
        float *restrict sum = a->sums + a->target[e] * a->width;
        for (int64_t c = first; c < last; c++) {
            const float message = value[c] + bond[c];
            sum[c] += message < 0 ? 0 : message; /* NaN stays NaN */
        }
    }
    return 0;
}

INLINE int messages_backward_body(const Messages *a, int64_t first, int64_t last) {
    for (int64_t e = 0; e < a->bonds; e++) {
        if (a->target[e] == a->rows) continue;
        const float *restrict value = a->values + a->source[e] * a->width;
        const float *restrict bond = a->bond_values + a->kind[e] * a->width;
        const float *restrict gradient = a->sums_gradient + a->target[e] * a->width;
        float *restrict of_value = a->values_gradient + a->source[e] * a->width;
        float *restrict of_bond = a->bond_values_gradient + a->kind[e] * a->width;
        for (int64_t c = first; c < last; c++) {
            const float passed = value[c] + bond[c] > 0 ? gradient[c] : 0;
            of_value[c] += passed;
            of_bond[c] += passed;
        }
    }
    return 0;
}

INLINE int state_messages_forward_body(const Messages *a, int64_t first, int64_t last) {
    for (int64_t e = 0; e < a->bonds; e++) {
        if (a->target[e] == a->rows) continue;
        const float *restrict value = a->values + a->source[e] * a->width;
        const float *restrict bond = a->bond_values + a->kind[e] * a->width;
        const float *one = a->ends + a->source[e] * a->width;
        const float *other = a->ends + a->target[e] * a->width;
        float *restrict sum = a->sums + a->target[e] * a->width;
        float *restrict state = a->states + e * a->width;
        for (int64_t c = first; c < last; c++) {
            const float news = one[c] + other[c] + bond[c];
            state[c] = (a->before ? a->before[e * a->width + c] : 0) + (news < 0 ? 0 : news);
            const float message = value[c] + state[c];
            sum[c] += message < 0 ? 0 : message;
        }
    }
    return 0;
}

INLINE int state_messages_backward_body(const Messages *a, int64_t first, int64_t last) {
    for (int64_t e = 0; e < a->bonds; e++) {
        if (a->target[e] == a->rows) continue;
        const float *restrict value = a->values + a->source[e] * a->width;
        const float *restrict bond = a->bond_values + a->kind[e] * a->width;
        const float *one = a->ends + a->source[e] * a->width;
        const float *other = a->ends + a->target[e] * a->width;
        const float *restrict state = a->states + e * a->width;
        const float *restrict gradient = a->sums_gradient + a->target[e] * a->width;
        float *restrict of_value = a->values_gradient + a->source[e] * a->width;
        float *restrict of_bond = a->bond_values_gradient + a->kind[e] * a->width;
        float *of_one = a->ends_gradient + a->source[e] * a->width;
        float *of_other = a->ends_gradient + a->target[e] * a->width;
        float *restrict of_before = a->before_gradient + e * a->width;
        for (int64_t c = first; c < last; c++) {
            const float passed = value[c] + state[c] > 0 ? gradient[c] : 0;
            const float of_state =
                passed + (a->states_gradient ? a->states_gradient[e * a->width + c] : 0);
            const float of_news = one[c] + other[c] + bond[c] > 0 ? of_state : 0;
            of_value[c] += passed;
            of_before[c] = of_state;
            of_one[c] += of_news;
            of_other[c] += of_news;
            of_bond[c] += of_news;
        }
    }
    return 0;
}

EXPORT_FOR_EACH_PROCESSOR(messages_forward, (const Messages *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(messages_backward, (const Messages *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(state_messages_forward, (const Messages *a, int64_t first, int64_t last),
                          (a, first, last))
EXPORT_FOR_EACH_PROCESSOR(state_messages_backward, (const Messages *a, int64_t first, int64_t last),
                          (a, first, last))
