/* Degrees and pair types of graphs, see graphs/structure.py.
 *
 * What lies along the shortest paths from i to v follows from the predecessors of v: what lies
 * along the paths from i to each of them, the kind of its bond to v, and its share of the paths. A
 * *node* stands for all pairs that are composed in the same way; molecules have few, so nearly
 * every pair is found by one look into a hash table, and what lies along the paths is computed only
 * for a new node. Different compositions may come to the same, so nodes are numbered by content:
 * rounded to the grid of shares, it makes the *type*. A node keeps unrounded shares, so that
 * rounding errors do not add up along a path.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

#define UNREACHABLE (-1)
enum { SAME_ATOM_TYPE, UNREACHABLE_TYPE };
enum { DONE = -1, NO_MEMORY = -2 };

/* A share of the paths takes a bond of this kind at this hop. */
typedef struct {
    int32_t hop, kind;
    double share;
} Entry;

/* The entries of a node are those of its parent, if it has one, and then its own; in all `length`,
 * ordered by hop and kind. */
typedef struct {
    uint64_t content; /* a sum of hashes of the entries */
    int64_t first_own;
    int32_t parent, length;
    int32_t distance, type; /* type: -1 as long as it has none */
} Node;

/* Open addressing. Keys are well mixed: two things share a key with probability 2^-64. */
typedef struct {
    struct {
        uint64_t key;
        int64_t value; /* -1: empty */
    } *slots;
    int64_t size, used; /* size: a power of 2 */
} Table;

typedef struct {
    int64_t hops; /* D */
    double share_unit;
    Table node_of_composition, type_of_content;
    Node *nodes;
    Entry *entries;
    int32_t *node_of_type;
    int64_t num_nodes, num_entries, num_types;
    int64_t nodes_capacity, entries_capacity, types_capacity;
} PairTypes;

/* Graphs one after the other. Atoms of a bond are numbered within their graph. */
typedef struct {
    int64_t num_graphs, num_kinds;
    const int64_t *num_atoms, *num_bonds; /* [graphs] */
    const int64_t *source, *target, *kind; /* [bonds] */
    double largest_count; /* of shortest paths, before counts are scaled */
    int64_t *in_degree, *out_degree; /* [atoms] */
    int32_t *pair_type;              /* [pairs], row-major within a graph */
} Block;

/* Working memory for one graph, large enough for each of a block. Bonds are kept twice, by source
 * and by target: those of atom a are first[a] to first[a + 1] - 1. */
typedef struct {
    int64_t *first_out, *target, *out_kind;
    int64_t *first_in, *source, *in_kind;
    int64_t *distance, *node, *queue;
    double *count; /* of shortest paths */
    Entry *lists[3];
    void *memory;
} Search;

/* The finaliser of SplitMix64 (Steele et al. 2014). */
INLINE uint64_t mixed64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

INLINE uint64_t both(int64_t high, int64_t low) { return (uint64_t)high << 32 | (uint32_t)low; }

/* Return `items` with room for `needed` of them, or NULL. */
static void *with_room(void *items, int64_t *capacity, int64_t needed, size_t item_size) {
    if (needed <= *capacity) return items;
    int64_t wanted = needed > *capacity + *capacity / 2 ? needed + 64 : *capacity + *capacity / 2;
    void *more = realloc(items, (size_t)wanted * item_size);
    if (more) *capacity = wanted;
    return more;
}

/* Return the value of a key, -1 in a new place that the caller fills, or NULL. */
static int64_t *value_of(Table *table, uint64_t key) {
    if (2 * table->used >= table->size) {
        Table larger = {.size = table->size ? 2 * table->size : 1024};
        larger.slots = malloc((size_t)larger.size * sizeof *larger.slots);
        if (!larger.slots) return NULL;
        for (int64_t i = 0; i < larger.size; i++) larger.slots[i].value = -1;
        for (int64_t i = 0; i < table->size; i++)
            if (table->slots[i].value >= 0)
                *value_of(&larger, table->slots[i].key) = table->slots[i].value;
        free(table->slots);
        *table = larger;
    }
    uint64_t place = key;
    for (;; place++) {
        place &= (uint64_t)table->size - 1;
        if (table->slots[place].value < 0) {
            table->slots[place].key = key;
            table->used++;
            return &table->slots[place].value;
        }
        if (table->slots[place].key == key) return &table->slots[place].value;
    }
}

INLINE int32_t on_grid(const PairTypes *types, double share) {
    return (int32_t)lrint(share * types->share_unit);
}

INLINE uint64_t hash_of_entry(const PairTypes *types, Entry entry) {
    return mixed64(mixed64(both(entry.hop, entry.kind)) ^ (uint64_t)on_grid(types, entry.share));
}

INLINE int64_t own_entries(const PairTypes *types, const Node *node) {
    return node->length - (node->parent >= 0 ? types->nodes[node->parent].length : 0);
}

static int64_t copy_entries(const PairTypes *types, int64_t number, Entry *to) {
    const Node *node = types->nodes + number;
    const int64_t length = node->length;
    int64_t end = length;
    for (;; node = types->nodes + node->parent) {
        const int64_t own = own_entries(types, node);
        end -= own;
        if (own) memcpy(to + end, types->entries + node->first_own, (size_t)own * sizeof *to);
        if (node->parent < 0) return length;
    }
}

/* Add a node with these own entries; -1 if there is no memory. */
static int64_t add_node(PairTypes *types, int64_t parent, int64_t distance, const Entry *own,
                        int64_t num_own) {
    Node *nodes = with_room(types->nodes, &types->nodes_capacity, types->num_nodes + 1, sizeof *nodes);
    if (!nodes) return -1;
    types->nodes = nodes;
    Entry *entries = with_room(types->entries, &types->entries_capacity,
                               types->num_entries + num_own, sizeof *entries);
    if (!entries && num_own) return -1;
    types->entries = entries;

    Node node = {.parent = (int32_t)parent, .distance = (int32_t)distance, .type = -1};
    if (parent >= 0) node.content = nodes[parent].content, node.length = nodes[parent].length;
    node.length += (int32_t)num_own;
    node.first_own = types->num_entries;
    for (int64_t i = 0; i < num_own; i++) {
        node.content += hash_of_entry(types, own[i]);
        entries[types->num_entries++] = own[i];
    }
    nodes[types->num_nodes] = node;
    return types->num_nodes++;
}

/* Number the content of a node; 0 if there is no memory. */
static int number(PairTypes *types, int64_t node) {
    Node *own = types->nodes + node;
    int64_t *type = value_of(&types->type_of_content,
                             own->content + mixed64(mixed64((uint64_t)own->distance)));
    if (!type) return 0;
    if (*type < 0) {
        int32_t *of_type = with_room(types->node_of_type, &types->types_capacity,
                                     types->num_types + 1, sizeof *of_type);
        if (!of_type) return 0;
        types->node_of_type = of_type;
        of_type[types->num_types] = (int32_t)node;
        *type = types->num_types++;
    }
    own->type = (int32_t)*type;
    return 1;
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

/* The node of a pair whose end has been reached over several predecessors. */
static int64_t merged_node(Search *s, PairTypes *types, int64_t end) {
    const int64_t distance = s->distance[end];
    Entry *sum = s->lists[0], *next = s->lists[1], *part = s->lists[2];
    int64_t length = 0;
    for (int64_t bond = s->first_in[end]; bond < s->first_in[end + 1]; bond++) {
        const int64_t before = s->source[bond];
        if (s->distance[before] != distance - 1) continue;
        int64_t part_length = copy_entries(types, s->node[before], part);
        if (distance <= types->hops)
            part[part_length++] = (Entry){(int32_t)distance - 1, (int32_t)s->in_kind[bond], 1};
        length = added(next, sum, length, part, part_length, s->count[before] / s->count[end]);
        Entry *const swap = sum;
        sum = next, next = swap;
    }
    return add_node(types, -1, distance, sum, length);
}

/* The node of a pair whose end has one predecessor. */
static int64_t next_node(Search *s, PairTypes *types, int64_t end, int64_t bond) {
    const int64_t distance = s->distance[end];
    const Entry last = {(int32_t)distance - 1, (int32_t)s->in_kind[bond], 1};
    return add_node(types, s->node[s->source[bond]], distance, &last, distance <= types->hops);
}

/* Find the node of the pair (start, end) from those of the predecessors; 0 if there is no memory. */
static int find_node(Search *s, PairTypes *types, int64_t end) {
    const int64_t distance = s->distance[end];
    uint64_t composition = 0;
    int64_t predecessors = 0, last = 0;
    for (int64_t bond = s->first_in[end]; bond < s->first_in[end + 1]; bond++) {
        const int64_t before = s->source[bond];
        if (s->distance[before] != distance - 1) continue;
        const double share = s->count[before] / s->count[end];
        uint64_t bits;
        memcpy(&bits, &share, sizeof bits);
        const int64_t kind = distance <= types->hops ? s->in_kind[bond] + 1 : 0;
        composition += mixed64(mixed64(both(s->node[before], kind)) ^ bits);
        predecessors++;
        last = bond;
    }
    int64_t *node = value_of(&types->node_of_composition, composition);
    if (!node) return 0;
    if (*node < 0)
        *node = predecessors == 1 ? next_node(s, types, end, last) : merged_node(s, types, end);
    s->node[end] = *node;
    return *node >= 0;
}

/* Pair types of one row; 0 if there is no memory. */
static int row(Search *s, PairTypes *types, const Block *block, int64_t num_atoms, int64_t start,
               int32_t *pair_type) {
    for (int64_t atom = 0; atom < num_atoms; atom++) s->distance[atom] = UNREACHABLE;
    s->distance[start] = 0, s->count[start] = 1, s->node[start] = SAME_ATOM_TYPE;
    s->queue[0] = start;
    int64_t first = 0, last = 1;
    for (int64_t distance = 1; first < last; distance++) {
        int64_t end = last;
        for (; first < last; first++) {
            const int64_t here = s->queue[first];
            for (int64_t bond = s->first_out[here]; bond < s->first_out[here + 1]; bond++) {
                const int64_t next = s->target[bond];
                if (s->distance[next] == UNREACHABLE) {
                    s->distance[next] = distance, s->count[next] = 0;
                    s->queue[end++] = next;
                }
                if (s->distance[next] == distance) s->count[next] += s->count[here];
            }
        }
        double largest = 0;
        for (int64_t place = last; place < end; place++) {
            if (!find_node(s, types, s->queue[place])) return 0;
            largest = fmax(largest, s->count[s->queue[place]]);
        }
        if (largest >= block->largest_count) /* only ratios of counts are ever used */
            for (int64_t place = last; place < end; place++) s->count[s->queue[place]] /= largest;
        last = end;
    }
    for (int64_t atom = 0; atom < num_atoms; atom++) {
        if (s->distance[atom] == UNREACHABLE) {
            pair_type[atom] = UNREACHABLE_TYPE;
            continue;
        }
        const int64_t node = s->node[atom];
        if (types->nodes[node].type < 0 && !number(types, node)) return 0;
        pair_type[atom] = types->nodes[node].type;
    }
    return 1;
}

/* Turn counts per atom, at first[1 + atom], into places. */
static void add_up(int64_t *first, int64_t num_atoms) {
    for (int64_t atom = 0; atom < num_atoms; atom++) first[atom + 1] += first[atom];
}

/* Sort the bonds of a graph by source and target, keep each once, without those of an atom to
 * itself; then by target and source. Returns the source of two different bonds to one target, or
 * DONE. */
static int64_t sort_bonds(Search *s, int64_t num_atoms, int64_t num_bonds, const int64_t *source,
                          const int64_t *target, const int64_t *kind) {
    const size_t size = (size_t)(num_atoms + 2) * sizeof(int64_t);
    int64_t *by_target = s->source, *by_source = s->in_kind; /* free as yet */
    memset(s->first_in, 0, size);
    memset(s->first_out, 0, size);
    for (int64_t i = 0; i < num_bonds; i++) {
        if (source[i] == target[i]) continue;
        s->first_in[target[i] + 1]++;
        s->first_out[source[i] + 1]++;
    }
    add_up(s->first_in, num_atoms);
    add_up(s->first_out, num_atoms);
    const int64_t proper = s->first_in[num_atoms];
    for (int64_t i = 0; i < num_bonds; i++)
        if (source[i] != target[i]) by_target[s->first_in[target[i]]++] = i;
    for (int64_t i = 0; i < proper; i++)
        by_source[s->first_out[source[by_target[i]]]++] = by_target[i];

    memset(s->first_in, 0, size);
    memset(s->first_out, 0, size);
    int64_t kept = 0, previous = -1;
    for (int64_t i = 0; i < proper; i++) {
        const int64_t bond = by_source[i];
        if (i && source[bond] == source[previous] && target[bond] == target[previous]) {
            if (kind[bond] != kind[previous]) return source[bond];
            continue;
        }
        s->target[kept] = target[bond], s->out_kind[kept] = kind[bond], kept++;
        s->first_out[source[bond] + 1]++;
        s->first_in[target[bond] + 1]++;
        previous = bond;
    }
    add_up(s->first_out, num_atoms);
    add_up(s->first_in, num_atoms);
    for (int64_t atom = 0; atom < num_atoms; atom++)
        for (int64_t i = s->first_out[atom]; i < s->first_out[atom + 1]; i++) {
            const int64_t place = s->first_in[s->target[i]]++;
            s->source[place] = atom, s->in_kind[place] = s->out_kind[i];
        }
    /* Each place now is where the next atom's bonds begin. */
    memmove(s->first_in + 1, s->first_in, (size_t)num_atoms * sizeof(int64_t));
    s->first_in[0] = 0;
    return DONE;
}

static int allocate(Search *s, const PairTypes *types, const Block *block) {
    int64_t atoms = 0, bonds = 0;
    for (int64_t graph = 0; graph < block->num_graphs; graph++) {
        if (block->num_atoms[graph] > atoms) atoms = block->num_atoms[graph];
        if (block->num_bonds[graph] > bonds) bonds = block->num_bonds[graph];
    }
    const int64_t hops = types->hops < atoms ? types->hops : atoms;
    const int64_t list = hops * block->num_kinds + 1;
    s->memory = malloc((size_t)(6 * (atoms + 2) + 4 * bonds) * sizeof(int64_t) +
                       (size_t)(3 * list) * sizeof(Entry));
    if (!s->memory) return 0;
    Entry *entries = s->memory;
    for (int i = 0; i < 3; i++, entries += list) s->lists[i] = entries;
    int64_t *words = (int64_t *)entries;
    s->first_out = words, words += atoms + 2;
    s->first_in = words, words += atoms + 2;
    s->distance = words, words += atoms + 2;
    s->node = words, words += atoms + 2;
    s->queue = words, words += atoms + 2;
    s->count = (double *)words, words += atoms + 2;
    s->target = words, words += bonds;
    s->out_kind = words, words += bonds;
    s->source = words, words += bonds;
    s->in_kind = words;
    return 1;
}

/* Fill the degrees and pair types of a block. Returns DONE, NO_MEMORY, or the number, in the block,
 * of an atom with two different bonds to one atom. */
EXPORT int64_t structure_of_block(PairTypes *types, const Block *block) {
    Search search;
    if (!allocate(&search, types, block)) return NO_MEMORY;
    int64_t first_atom = 0, first_bond = 0, result = DONE;
    int32_t *pair_type = block->pair_type;
    for (int64_t graph = 0; graph < block->num_graphs && result == DONE; graph++) {
        const int64_t atoms = block->num_atoms[graph], bonds = block->num_bonds[graph];
        const int64_t conflict =
            sort_bonds(&search, atoms, bonds, block->source + first_bond,
                       block->target + first_bond, block->kind + first_bond);
        if (conflict != DONE) result = first_atom + conflict;
        for (int64_t atom = 0; atom < atoms && result == DONE; atom++) {
            block->out_degree[first_atom + atom] =
                search.first_out[atom + 1] - search.first_out[atom];
            block->in_degree[first_atom + atom] = search.first_in[atom + 1] - search.first_in[atom];
            if (!row(&search, types, block, atoms, atom, pair_type)) result = NO_MEMORY;
            pair_type += atoms;
        }
        first_atom += atoms, first_bond += bonds;
    }
    free(search.memory);
    return result;
}

EXPORT void pair_types_free(PairTypes *types) {
    if (!types) return;
    free(types->node_of_composition.slots);
    free(types->type_of_content.slots);
    free(types->nodes);
    free(types->entries);
    free(types->node_of_type);
    free(types);
}

/* Make a table with the types of an atom with itself and of unreachable pairs; NULL: no memory. */
EXPORT PairTypes *pair_types_new(int64_t hops, double share_unit) {
    PairTypes *types = calloc(1, sizeof *types);
    if (!types) return NULL;
    types->hops = hops, types->share_unit = share_unit;
    for (int64_t distance = 0; distance >= UNREACHABLE; distance--) {
        const int64_t node = add_node(types, -1, distance, NULL, 0);
        if (node < 0 || !number(types, node)) {
            pair_types_free(types);
            return NULL;
        }
    }
    return types;
}

EXPORT int64_t pair_types_count(const PairTypes *types) { return types->num_types; }

/* Write where the entries of each type begin, start [types + 1], and its distance [types]. */
EXPORT void pair_types_distances(const PairTypes *types, int32_t *distance, int64_t *start) {
    start[0] = 0;
    for (int64_t type = 0; type < types->num_types; type++) {
        const Node *node = types->nodes + types->node_of_type[type];
        distance[type] = node->distance;
        start[type + 1] = start[type] + node->length;
    }
}

/* Write the entries of all types, [start[types]] each. Returns DONE or NO_MEMORY. */
EXPORT int64_t pair_types_entries(const PairTypes *types, int32_t *hop, int32_t *kind,
                                  int32_t *share) {
    int64_t longest = 0;
    for (int64_t node = 0; node < types->num_nodes; node++)
        if (types->nodes[node].length > longest) longest = types->nodes[node].length;
    Entry *list = malloc((size_t)(longest + 1) * sizeof *list);
    if (!list) return NO_MEMORY;
    for (int64_t type = 0; type < types->num_types; type++) {
        const int64_t length = copy_entries(types, types->node_of_type[type], list);
        for (int64_t i = 0; i < length; i++) {
            *hop++ = list[i].hop;
            *kind++ = list[i].kind;
            *share++ = on_grid(types, list[i].share);
        }
    }
    free(list);
    return DONE;
}
