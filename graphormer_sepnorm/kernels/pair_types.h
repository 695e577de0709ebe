/* The growing table of pair types, see graphs/structure.py.
 *
 * What lies along the shortest paths from i to v follows from the predecessors of v: what lies
 * along the paths from i to each of them, the kind of its bond to v, and its share of the paths. A
 * *node* stands for all pairs that are composed in the same way; molecules have few, so nearly
 * every pair is found by one look into a hash table, and what lies along the paths is computed only
 * for a new node. Different compositions may come to the same, so nodes are numbered by content:
 * rounded to the grid of shares, it makes, with the ring that both atoms lie in, the *type*. A node
 * keeps unrounded shares, so that rounding errors do not add up along a path. */

#ifndef GRAPHORMER_PAIR_TYPES_H
#define GRAPHORMER_PAIR_TYPES_H

#include <stdint.h>

#include "vector.h"

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
    int32_t distance, type; /* type: of pairs in no ring; -1 as long as it has none */
} Node;

typedef struct {
    uint64_t key;
    int64_t value; /* -1: empty */
} Slot;

/* Open addressing. Keys are well mixed: two things share a key with probability 2^-64. */
typedef struct {
    Slot *slots;
    int64_t size, used; /* size: a power of 2 */
} Table;

/* What a type stands for: a node, and the atoms of the pair's ring, 0 for none. */
typedef struct {
    int32_t node, ring;
} Type;

typedef struct {
    int64_t hops; /* D */
    double share_unit;
    Table node_of_composition, type_of_content;
    Node *nodes;
    Entry *entries;
    Type *types;
    int64_t num_nodes, num_entries, num_types;
    int64_t nodes_capacity, entries_capacity, types_capacity;
} PairTypes;

enum { SAME_ATOM, UNREACHABLE }; /* the first two nodes and types */
enum { UNREACHABLE_DISTANCE = -1, NO_PARENT = -1, NO_TYPE = -1 };
enum { DONE = -1, NO_MEMORY = -2 };

/* The finaliser of SplitMix64 (Steele et al. 2014). */
INLINE uint64_t mixed64(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

INLINE uint64_t both(int32_t high, int32_t low) { return (uint64_t)high << 32 | (uint32_t)low; }

/* Return the value of a key, -1 in a new place that the caller fills, or NULL. */
int64_t *value_of(Table *table, uint64_t key);

/* Write the entries of a node, return how many. */
int64_t copy_entries(const PairTypes *types, int32_t node, Entry *to);

/* Add a node with these own entries and return its number, or -1 if there is no memory. */
int32_t add_node(PairTypes *types, int32_t parent, int32_t distance, const Entry *own,
                 int64_t num_own);

/* Return the type of pairs of a node in this ring, a new one if need be, or -1 if there is no
 * memory. */
int32_t type_of_node(PairTypes *types, int32_t node, int32_t ring);

#endif
