#include "pair_types.h"

#include <stdlib.h>
#include <string.h>

/* Return `items` with room for `needed` of them, or NULL. */
static void *with_room(void *items, int64_t *capacity, int64_t needed, size_t item_size) {
    if (needed <= *capacity) return items;
    const int64_t wanted = needed + needed / 2 + 64;
    void *more = realloc(items, (size_t)wanted * item_size);
    if (more) *capacity = wanted;
    return more;
}

static int grown(Table *table) {
    Table larger = {.size = table->size ? 2 * table->size : 1024};
    larger.slots = malloc((size_t)larger.size * sizeof *larger.slots);
    if (!larger.slots) return 0;
    for (int64_t i = 0; i < larger.size; i++) larger.slots[i].value = -1;
    for (int64_t i = 0; i < table->size; i++)
        if (table->slots[i].value >= 0)
            *value_of(&larger, table->slots[i].key) = table->slots[i].value;
    free(table->slots);
    *table = larger;
    return 1;
}

int64_t *value_of(Table *table, uint64_t key) {
    if (2 * table->used >= table->size && !grown(table)) return NULL;
    const uint64_t last = (uint64_t)table->size - 1;
    for (uint64_t place = key & last;; place = (place + 1) & last) {
        Slot *slot = table->slots + place;
        if (slot->value < 0) {
            slot->key = key;
            table->used++;
        }
        if (slot->key == key) return &slot->value;
    }
}

static int32_t on_grid(const PairTypes *types, double share) {
    const double shift = 6755399441055744.0; /* 1.5 * 2^52: adding it rounds to an integer */
    return (int32_t)((share * types->share_unit + shift) - shift);
}

static uint64_t hash_of_entry(const PairTypes *types, Entry entry) {
    return mixed64(mixed64(both(entry.hop, entry.kind)) ^ (uint64_t)on_grid(types, entry.share));
}

int64_t copy_entries(const PairTypes *types, int32_t number, Entry *to) {
    const Node *node = types->nodes + number;
    const int64_t length = node->length;
    while (node) {
        const Node *parent = node->parent == NO_PARENT ? NULL : types->nodes + node->parent;
        const int64_t before = parent ? parent->length : 0;
        for (int64_t i = before; i < node->length; i++)
            to[i] = types->entries[node->first_own + i - before];
        node = parent;
    }
    return length;
}

int32_t add_node(PairTypes *types, int32_t parent, int32_t distance, const Entry *own,
                 int64_t num_own) {
    const int64_t num_nodes = types->num_nodes + 1, num_entries = types->num_entries + num_own;
    Node *nodes = with_room(types->nodes, &types->nodes_capacity, num_nodes, sizeof *nodes);
    if (!nodes) return -1;
    types->nodes = nodes;
    Entry *entries =
        with_room(types->entries, &types->entries_capacity, num_entries + 1, sizeof *entries);
    if (!entries) return -1;
    types->entries = entries;

    Node node = {.parent = parent, .distance = distance, .type = NO_TYPE};
    if (parent != NO_PARENT) node.content = nodes[parent].content, node.length = nodes[parent].length;
    node.length += (int32_t)num_own;
    node.first_own = types->num_entries;
    for (int64_t i = 0; i < num_own; i++) {
        node.content += hash_of_entry(types, own[i]);
        entries[node.first_own + i] = own[i];
    }
    nodes[types->num_nodes] = node;
    types->num_nodes = num_nodes, types->num_entries = num_entries;
    return (int32_t)num_nodes - 1;
}

int32_t type_of_node(PairTypes *types, int32_t number, int32_t ring) {
    Node *node = types->nodes + number;
    if (!ring && node->type != NO_TYPE) return node->type;
    const uint64_t key = node->content + mixed64(mixed64(both(ring, node->distance)));
    int64_t *type = value_of(&types->type_of_content, key);
    if (!type) return -1;
    if (*type < 0) {
        Type *all = with_room(types->types, &types->types_capacity, types->num_types + 1, sizeof *all);
        if (!all) return -1;
        types->types = all;
        all[types->num_types] = (Type){number, ring};
        *type = types->num_types++;
    }
    if (!ring) node->type = (int32_t)*type;
    return (int32_t)*type;
}

EXPORT void pair_types_free(PairTypes *types) {
    if (!types) return;
    free(types->node_of_composition.slots);
    free(types->type_of_content.slots);
    free(types->nodes);
    free(types->entries);
    free(types->types);
    free(types);
}

/* Make a table with the types of an atom with itself and of unreachable pairs; NULL: no memory. */
EXPORT PairTypes *pair_types_new(int64_t hops, double share_unit) {
    PairTypes *types = calloc(1, sizeof *types);
    if (!types) return NULL;
    types->hops = hops, types->share_unit = share_unit;
    if (add_node(types, NO_PARENT, 0, NULL, 0) == SAME_ATOM &&
        add_node(types, NO_PARENT, UNREACHABLE_DISTANCE, NULL, 0) == UNREACHABLE &&
        type_of_node(types, SAME_ATOM, 0) == SAME_ATOM &&
        type_of_node(types, UNREACHABLE, 0) == UNREACHABLE)
        return types;
    pair_types_free(types);
    return NULL;
}

EXPORT int64_t pair_types_count(const PairTypes *types) { return types->num_types; }

/* Write where the entries of each type begin, start [types + 1], its distance and ring [types]. */
EXPORT void pair_types_distances(const PairTypes *types, int32_t *distance, int32_t *ring,
                                 int64_t *start) {
    start[0] = 0;
    for (int64_t type = 0; type < types->num_types; type++) {
        const Node *node = types->nodes + types->types[type].node;
        distance[type] = node->distance, ring[type] = types->types[type].ring;
        start[type + 1] = start[type] + node->length;
    }
}

/* Write the entries of all types, [start[types]] each. Returns DONE or NO_MEMORY. */
EXPORT int64_t pair_types_entries(const PairTypes *types, int32_t *hop, int32_t *kind,
                                  int32_t *share) {
    int32_t longest = 0;
    for (int64_t node = 0; node < types->num_nodes; node++)
        if (types->nodes[node].length > longest) longest = types->nodes[node].length;
    Entry *list = malloc(((size_t)longest + 1) * sizeof *list);
    if (!list) return NO_MEMORY;
    for (int64_t type = 0; type < types->num_types; type++) {
        const int64_t length = copy_entries(types, types->types[type].node, list);
        for (int64_t i = 0; i < length; i++) {
            *hop++ = list[i].hop;
            *kind++ = list[i].kind;
            *share++ = on_grid(types, list[i].share);
        }
    }
    free(list);
    return DONE;
}
