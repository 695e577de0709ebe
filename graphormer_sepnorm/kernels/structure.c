/* Degrees, pair types and rings of graphs by breadth-first searches. */

#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "pair_types.h"

/* Graphs one after the other. Atoms of a bond are numbered within their graph. */
typedef struct {
    int64_t num_graphs, num_kinds;
    const int64_t *num_atoms, *num_bonds;  /* [graphs] */
    const int64_t *source, *target, *kind; /* [bonds] */
    double largest_count;       /* of shortest paths, before counts are scaled */
    int64_t *in_degree, *out_degree; /* [atoms] */
    int32_t *pair_type;              /* [pairs], row-major within a graph */
    int64_t *ring_sizes;             /* [atoms][2], smallest and largest */
} Block;

enum { SOURCE, TARGET };

typedef struct {
    int32_t ends[2], kind;
} Bond;

/* What the search from one atom knows of another. */
typedef struct {
    int32_t distance, node;
    int32_t predecessors, last_bond; /* last_bond: the one it was reached over first */
    double count;                    /* of shortest paths */
} Reached;

/* Working memory for one graph, large enough for each of a block. The bonds out of an atom are
 * out[first_out[atom]] to out[first_out[atom + 1] - 1], those to it likewise. */
typedef struct {
    void *memory;
    Bond *out, *in;
    int64_t *first_out, *first_in;
    Reached *reached;
    int32_t *queue, *level, *level_back, *reached_from;
    int32_t *pair_ring; /* [atoms][atoms], row-major in the graph */
    Entry *lists[3];
} Search;

/* Counting sort, stable. Fills to[num_bonds] and first[num_atoms + 2]. */
static void sort_by(int end, Bond *to, int64_t *first, const Bond *from, int64_t num_bonds,
                    int64_t num_atoms) {
    memset(first, 0, (size_t)(num_atoms + 2) * sizeof *first);
    for (int64_t i = 0; i < num_bonds; i++) first[from[i].ends[end] + 2]++;
    for (int64_t atom = 0; atom < num_atoms; atom++) first[atom + 2] += first[atom + 1];
    for (int64_t i = 0; i < num_bonds; i++) to[first[from[i].ends[end] + 1]++] = from[i];
}

/* Sort the bonds of a graph, each once, without those of an atom to itself. Returns DONE, or an
 * atom with two different bonds to one other. */
static int64_t sort_bonds(Search *s, int64_t num_atoms, int64_t num_bonds, const int64_t *source,
                          const int64_t *target, const int64_t *kind) {
    int64_t proper = 0, kept = 0;
    for (int64_t i = 0; i < num_bonds; i++)
        if (source[i] != target[i])
            s->out[proper++] = (Bond){{(int32_t)source[i], (int32_t)target[i]}, (int32_t)kind[i]};
    sort_by(TARGET, s->in, s->first_in, s->out, proper, num_atoms);
    sort_by(SOURCE, s->out, s->first_out, s->in, proper, num_atoms);
    for (int64_t i = 0; i < proper; i++) {
        const Bond *bond = s->out + i, *last = s->out + kept - 1;
        if (!kept || memcmp(bond->ends, last->ends, sizeof bond->ends))
            s->out[kept++] = *bond;
        else if (bond->kind != last->kind)
            return bond->ends[SOURCE];
    }
    sort_by(TARGET, s->in, s->first_in, s->out, kept, num_atoms);
    sort_by(SOURCE, s->out, s->first_out, s->in, kept, num_atoms);
    return DONE;
}

/* to = a + share * b, lists in the same order; returns the length. */
static int64_t added(Entry *to, const Entry *a, int64_t num_a, const Entry *b, int64_t num_b,
                     double share) {
    Entry *const first = to;
    const Entry *const end_a = a + num_a, *const end_b = b + num_b;
    while (a < end_a || b < end_b) {
        const uint64_t place_a = a < end_a ? both(a->hop, a->kind) : UINT64_MAX;
        const uint64_t place_b = b < end_b ? both(b->hop, b->kind) : UINT64_MAX;
        *to = place_a <= place_b ? *a : *b;
        to->share = 0;
        if (place_a <= place_b) to->share += (a++)->share;
        if (place_b <= place_a) to->share += share * (b++)->share;
        to += to->share > 0; /* a product of tiny shares may be none */
    }
    return to - first;
}

/* Add the node of an atom that has been reached over several predecessors. */
static int32_t merged_node(Search *s, PairTypes *types, int64_t atom) {
    const Reached *end = s->reached + atom;
    Entry *sum = s->lists[0], *next = s->lists[1], *part = s->lists[2];
    int64_t length = 0;
    for (int64_t i = s->first_in[atom]; i < s->first_in[atom + 1]; i++) {
        const Reached *before = s->reached + s->in[i].ends[SOURCE];
        if (before->distance != end->distance - 1) continue;
        int64_t part_length = copy_entries(types, before->node, part);
        if (end->distance <= types->hops)
            part[part_length++] = (Entry){end->distance - 1, s->in[i].kind, 1};
        length = added(next, sum, length, part, part_length, before->count / end->count);
        Entry *const swap = sum;
        sum = next, next = swap;
    }
    return add_node(types, NO_PARENT, end->distance, sum, length);
}

/* Find the node of an atom from those of its predecessors; 0 if there is no memory. */
static int find_node(Search *s, PairTypes *types, int64_t atom) {
    Reached *end = s->reached + atom;
    const int bond_counts = end->distance <= types->hops, alone = end->predecessors == 1;
    const Bond *last = s->out + end->last_bond;
    const int32_t parent = s->reached[last->ends[SOURCE]].node;
    uint64_t composition = 0;
    if (alone)
        composition = mixed64(both(parent, bond_counts ? last->kind + 1 : 0));
    for (int64_t i = s->first_in[atom]; !alone && i < s->first_in[atom + 1]; i++) {
        const Reached *before = s->reached + s->in[i].ends[SOURCE];
        if (before->distance != end->distance - 1) continue;
        const double share = before->count / end->count;
        uint64_t bits;
        memcpy(&bits, &share, sizeof bits);
        const uint64_t step = both(before->node, bond_counts ? s->in[i].kind + 1 : 0);
        composition += mixed64(mixed64(step) ^ bits);
    }
    int64_t *node = value_of(&types->node_of_composition, composition);
    if (!node) return 0;
    if (*node < 0) {
        const Entry hop = {end->distance - 1, last->kind, 1};
        *node = alone ? add_node(types, parent, end->distance, &hop, bond_counts)
                      : merged_node(s, types, atom);
    }
    end->node = (int32_t)*node;
    return end->node >= 0;
}

/* Search from one atom; 0 if there is no memory. */
static int search_from(Search *s, PairTypes *types, const Block *block, int64_t num_atoms,
                       int64_t start) {
    for (int64_t atom = 0; atom < num_atoms; atom++)
        s->reached[atom] = (Reached){.distance = UNREACHABLE_DISTANCE, .node = UNREACHABLE};
    s->reached[start] = (Reached){.distance = 0, .node = SAME_ATOM, .count = 1};
    s->queue[0] = (int32_t)start;
    int64_t first = 0, last = 1;
    for (int32_t distance = 1; first < last; distance++) {
        int64_t end = last;
        for (; first < last; first++) {
            const int32_t atom = s->queue[first];
            const double count = s->reached[atom].count;
            for (int64_t i = s->first_out[atom]; i < s->first_out[atom + 1]; i++) {
                Reached *next = s->reached + s->out[i].ends[TARGET];
                if (next->distance == UNREACHABLE_DISTANCE) {
                    next->distance = distance, next->last_bond = (int32_t)i;
                    s->queue[end++] = s->out[i].ends[TARGET];
                }
                if (next->distance == distance) next->count += count, next->predecessors++;
            }
        }
        double largest = 0;
        for (int64_t i = last; i < end; i++) {
            if (!find_node(s, types, s->queue[i])) return 0;
            const double count = s->reached[s->queue[i]].count;
            if (count > largest) largest = count;
        }
        if (largest >= block->largest_count) /* only ratios of counts are ever used */
            for (int64_t i = last; i < end; i++) {
                Reached *scaled = s->reached + s->queue[i];
                scaled->count /= largest;
                if (scaled->count < DBL_MIN) scaled->count = DBL_MIN; /* 0 has no ratio to others */
            }
        last = end;
    }
    return 1;
}

/* Give the atoms that are reached from `start` their level, `start` 1, without the step from there
 * to `end`, up to the level of `end`; 0: not reached. Each bond leads to its end number `to`.
 * Returns the level of `end`. */
static int32_t fill_levels(Search *s, int32_t *level, const Bond *bonds, const int64_t *first_bond,
                           int to, int64_t num_atoms, int32_t start, int32_t end) {
    memset(level, 0, (size_t)num_atoms * sizeof *level);
    s->queue[0] = start, level[start] = 1;
    for (int64_t first = 0, last = 1; first < last; first++) {
        const int32_t atom = s->queue[first];
        if (level[end] && level[atom] >= level[end]) break;
        for (int64_t i = first_bond[atom]; i < first_bond[atom + 1]; i++) {
            const int32_t next = bonds[i].ends[to];
            if (level[next] || (atom == start && next == end)) continue;
            level[next] = level[atom] + 1;
            s->queue[last++] = next;
        }
    }
    return level[end];
}

/* Whether an atom lies on one of the smallest rings, of `size` atoms, of the bond that levels were
 * filled from both ends of. */
INLINE int lies_on_ring(const Search *s, int64_t atom, int32_t size) {
    return s->level[atom] && s->level_back[atom] && s->level[atom] + s->level_back[atom] == size + 1;
}

/* Let all pairs of atoms that lie on the same such ring know its size, unless they share a smaller
 * one. Two atoms lie on the same one if one is reached from the other along its atoms, level by
 * level. */
static void share_ring(Search *s, int64_t num_atoms, int32_t size) {
    for (int64_t atom = 0; atom < num_atoms; atom++) s->reached_from[atom] = -1;
    for (int32_t begin = 0; begin < num_atoms; begin++) {
        if (!lies_on_ring(s, begin, size)) continue;
        s->queue[0] = begin;
        for (int64_t first = 0, last = 1; first < last; first++) {
            const int32_t atom = s->queue[first];
            int32_t *there = s->pair_ring + begin * num_atoms + atom;
            int32_t *back = s->pair_ring + atom * num_atoms + begin;
            if (atom != begin && (!*there || *there > size)) *there = *back = size;
            for (int64_t i = s->first_out[atom]; i < s->first_out[atom + 1]; i++) {
                const int32_t next = s->out[i].ends[TARGET];
                if (s->level[next] != s->level[atom] + 1 || s->reached_from[next] == begin ||
                    !lies_on_ring(s, next, size))
                    continue;
                s->reached_from[next] = begin;
                s->queue[last++] = next;
            }
        }
    }
}

static void count_ring(int64_t of_atom[2], int32_t ring) {
    if (!of_atom[0] || ring < of_atom[0]) of_atom[0] = ring;
    if (ring > of_atom[1]) of_atom[1] = ring;
}

/* Find the ring sizes of all atoms of a graph and of all pairs of them. The ring of a bond is the
 * shortest way back from its target to its source, closed by the bond; there may be several. */
static void find_rings(Search *s, int64_t num_atoms, int64_t (*sizes)[2]) {
    memset(s->pair_ring, 0, (size_t)(num_atoms * num_atoms) * sizeof *s->pair_ring);
    memset(sizes, 0, (size_t)num_atoms * sizeof *sizes);
    const int64_t num_bonds = s->first_out[num_atoms];
    int both_ways = 1; /* then both have the same rings */
    for (int64_t i = 0; i < num_bonds && both_ways; i++)
        both_ways = s->out[i].ends[SOURCE] == s->in[i].ends[TARGET] &&
                    s->out[i].ends[TARGET] == s->in[i].ends[SOURCE];
    for (int64_t i = 0; i < num_bonds; i++) {
        const int32_t source = s->out[i].ends[SOURCE], target = s->out[i].ends[TARGET];
        if (both_ways && target < source) continue;
        const int32_t ring =
            fill_levels(s, s->level, s->out, s->first_out, TARGET, num_atoms, target, source);
        if (!ring) continue;
        count_ring(sizes[source], ring);
        if (both_ways) count_ring(sizes[target], ring);
        fill_levels(s, s->level_back, s->in, s->first_in, SOURCE, num_atoms, source, target);
        share_ring(s, num_atoms, ring);
    }
}

static int allocate(Search *s, const PairTypes *types, const Block *block) {
    int64_t atoms = 0, bonds = 0;
    for (int64_t graph = 0; graph < block->num_graphs; graph++) {
        if (block->num_atoms[graph] > atoms) atoms = block->num_atoms[graph];
        if (block->num_bonds[graph] > bonds) bonds = block->num_bonds[graph];
    }
    const int64_t hops = types->hops < atoms ? types->hops : atoms;
    const size_t list = (size_t)(hops * block->num_kinds + 1), places = (size_t)atoms + 2;
    s->memory = malloc(3 * list * sizeof(Entry) + places * sizeof(Reached) +
                       2 * places * sizeof(int64_t) + 2 * (size_t)bonds * sizeof(Bond) +
                       4 * places * sizeof(int32_t) + (size_t)(atoms * atoms) * sizeof(int32_t));
    if (!s->memory) return 0;
    /* In the order of their alignment. */
    s->lists[0] = s->memory;
    s->lists[1] = s->lists[0] + list;
    s->lists[2] = s->lists[1] + list;
    s->reached = (Reached *)(s->lists[2] + list);
    s->first_out = (int64_t *)(s->reached + places);
    s->first_in = s->first_out + places;
    s->out = (Bond *)(s->first_in + places);
    s->in = s->out + bonds;
    s->queue = (int32_t *)(s->in + bonds);
    s->level = s->queue + places;
    s->level_back = s->level + places;
    s->reached_from = s->level_back + places;
    s->pair_ring = s->reached_from + places;
    return 1;
}

/* Fill the degrees, pair types and ring sizes of a block. Returns DONE, NO_MEMORY, or the number,
 * in the block, of an atom with two different bonds to one other. */
EXPORT int64_t structure_of_block(PairTypes *types, const Block *block) {
    Search s;
    if (!allocate(&s, types, block)) return NO_MEMORY;
    int64_t first_atom = 0, first_bond = 0, result = DONE;
    int32_t *pair_type = block->pair_type;
    for (int64_t graph = 0; graph < block->num_graphs && result == DONE; graph++) {
        const int64_t num_atoms = block->num_atoms[graph], num_bonds = block->num_bonds[graph];
        const int64_t conflict =
            sort_bonds(&s, num_atoms, num_bonds, block->source + first_bond,
                       block->target + first_bond, block->kind + first_bond);
        if (conflict != DONE) result = first_atom + conflict;
        if (result == DONE)
            find_rings(&s, num_atoms, (int64_t(*)[2])(block->ring_sizes + 2 * first_atom));
        for (int64_t atom = 0; atom < num_atoms && result == DONE; atom++) {
            block->out_degree[first_atom + atom] = s.first_out[atom + 1] - s.first_out[atom];
            block->in_degree[first_atom + atom] = s.first_in[atom + 1] - s.first_in[atom];
            if (!search_from(&s, types, block, num_atoms, atom)) result = NO_MEMORY;
            for (int64_t end = 0; end < num_atoms && result == DONE; end++) {
                *pair_type = type_of_node(types, s.reached[end].node,
                                          s.pair_ring[atom * num_atoms + end]);
                if (*pair_type++ < 0) result = NO_MEMORY;
            }
        }
        first_atom += num_atoms, first_bond += num_bonds;
    }
    free(s.memory);
    return result;
}
