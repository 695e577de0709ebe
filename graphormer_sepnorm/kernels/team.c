/* Shares work among the threads of the OpenMP runtime that torch uses. A pool of our own would
 * compete with them: they keep a processor busy for a while after each operation of torch. */

#include "vector.h"

/* GCC's entry point of a parallel region, which LLVM's runtime has too. */
typedef void (*Parallel)(void (*)(void *), void *, unsigned threads, unsigned flags);
/* Does items `first` to `last - 1`; returns 0 if all went well. */
typedef int (*Work)(const void *arguments, int64_t first, int64_t last);

typedef struct {
    Work work;
    const void *arguments;
    int64_t count, share, next;
    int failed;
} Team;

static void take_part(void *team) {
    Team *t = team;
    int64_t first;
    while ((first = __atomic_fetch_add(&t->next, t->share, __ATOMIC_RELAXED)) < t->count) {
        const int64_t last = first + t->share < t->count ? first + t->share : t->count;
        if (t->work(t->arguments, first, last)) __atomic_store_n(&t->failed, 1, __ATOMIC_RELAXED);
    }
}

/* Do `count` items, `share` of them at a time, in several threads. Returns 0 if all went well. */
EXPORT int in_team(Parallel parallel, unsigned threads, Work work, const void *arguments,
                   int64_t count, int64_t share) {
    Team team = {work, arguments, count, share, 0, 0};
    parallel(take_part, &team, threads, 0);
    return team.failed;
}

int most_form = AVX512_FORM;

EXPORT int best_form(void) { return HAS_AVX512 ? AVX512_FORM : HAS_AVX2 ? AVX2_FORM : BASIC_FORM; }

EXPORT int form_in_use(void) { return chosen_form(); }

/* Use no better form than this from now on. */
EXPORT void limit_form(int form) { most_form = form; }
