/* Divides molecules in RDKit's binary form into records, see chem/records.py. */

#include <stdlib.h>
#include <string.h>

#include "pair_types.h"

/* Molecules one after the other; of each the atoms and bonds that it is known to have. */
typedef struct {
    int64_t num_molecules, rings; /* rings: whether they are read */
    const uint8_t *data;
    const int64_t *starts;                 /* [molecules + 1] */
    const int64_t *num_atoms, *num_bonds;  /* [molecules] */
    int32_t *atom_kind, *bond_kind;        /* which kind of record an atom or bond has */
    int64_t *ends;                         /* [bonds][2] */
    uint8_t *in_ring;                      /* [atoms], zero at first */
    uint8_t *was_read;                     /* [molecules] */
    int64_t *begin, *length;               /* [kinds], of the first record; as many as atoms, bonds */
    int64_t *first;                        /* [kinds], its atom, or number of atoms + its bond */
} Records;

/* A header of the format's version 16.2 or 16.4, two counts and what begins the atoms. */
enum { COUNTS = 20, ATOMS = 30, MINOR = 12, BEGIN_BONDS = 0x0B, BEGIN_RINGS = 0x42 };
static const uint8_t header[COUNTS] = {0xef, 0xbe, 0xad, 0xde, [8] = 0x10};

/* Flags of an atom that announce nothing: aromatic, and no implicit hydrogens. Properties, by the
 * bit that announces them, are a byte each, of bits 1 to 7, and four of bit 8, the isotope. */
enum { PLAIN_ATOM = 0x40 | 0x20, SHORT_PROPERTIES = 0xFE, ISOTOPE = 0x100 };

/* Flags of a bond: stereo (its descriptor and a list of atoms), direction and type, a byte each, and
 * those that announce nothing: aromatic, conjugated. */
enum { STEREO = 0x02, DIRECTION = 0x04, TYPE = 0x08, PLAIN_BOND = 0x40 | 0x20 };

/* Bytes of an atom's record; 0: it is not laid out as here. */
INLINE int64_t atom_bytes(const uint8_t *at) {
    uint32_t properties;
    memcpy(&properties, at + 2, 4);
    if (at[1] & ~PLAIN_ATOM || properties & ~(uint32_t)(SHORT_PROPERTIES | ISOTOPE)) return 0;
    return 6 + __builtin_popcount(properties & SHORT_PROPERTIES) + (properties & ISOTOPE ? 4 : 0);
}

/* The number of a record among those that differ; -1: no memory. */
static int32_t kind_of(const Records *r, Table *table, int32_t *kinds, int64_t begin, int64_t length,
                       int64_t first) {
    uint64_t key = (uint64_t)length;
    for (int64_t i = 0; i < length; i += 8) {
        uint64_t part = 0;
        memcpy(&part, r->data + begin + i, length - i < 8 ? length - i : 8);
        key = mixed64(key ^ part);
    }
    int64_t *value = value_of(table, key);
    if (!value) return -1;
    if (*value < 0) {
        *value = (*kinds)++;
        r->begin[*value] = begin, r->length[*value] = length, r->first[*value] = first;
    }
    return (int32_t)*value;
}

/* 1: read; 0: something is not laid out as here; NO_MEMORY. */
static int read_one(const Records *r, int64_t molecule, int64_t atom, int64_t bond, int64_t atoms,
                    Table *table, int32_t *kinds) {
    const uint8_t *data = r->data;
    int64_t at = r->starts[molecule];
    const int64_t end = r->starts[molecule + 1], num_atoms = r->num_atoms[molecule];
    if (num_atoms > 255 || end - at < ATOMS) return 0;
    const uint8_t minor = data[at + MINOR];
    if ((minor != 2 && minor != 4) || memcmp(data + at, header, MINOR) ||
        memcmp(data + at + MINOR + 1, header + MINOR + 1, COUNTS - MINOR - 1) ||
        data[at + ATOMS - 2] != 0x80 || data[at + ATOMS - 1] != 0x01)
        return 0;
    at += ATOMS;
    for (int64_t i = 0; i < num_atoms; i++) {
        const int64_t length = end - at < 6 ? 0 : atom_bytes(data + at);
        if (!length || end - at < length) return 0;
        const int32_t kind = kind_of(r, table, kinds, at, length, atom + i);
        if (kind < 0) return NO_MEMORY;
        r->atom_kind[atom + i] = kind;
        at += length;
    }
    if (at >= end || data[at++] != BEGIN_BONDS) return 0;
    for (int64_t i = 0; i < r->num_bonds[molecule]; i++) {
        if (end - at < 3) return 0;
        const uint8_t flags = data[at + 2];
        if (flags & ~(STEREO | DIRECTION | TYPE | PLAIN_BOND)) return 0;
        const int64_t length =
            1 + 2 * !!(flags & STEREO) + !!(flags & DIRECTION) + !!(flags & TYPE);
        if (end - at < 2 + length) return 0;
        r->ends[2 * (bond + i)] = data[at];
        r->ends[2 * (bond + i) + 1] = data[at + 1];
        const int32_t kind = kind_of(r, table, kinds, at + 2, length, atoms + bond + i);
        if (kind < 0) return NO_MEMORY;
        r->bond_kind[bond + i] = kind;
        at += 2 + length;
        if (flags & STEREO) at += data[at - 1]; /* the atoms that it names */
    }
    if (!r->rings) return 1;
    if (end - at < 5 || data[at] != BEGIN_RINGS) return 0;
    int32_t rings;
    memcpy(&rings, data + at + 1, 4);
    at += 5;
    for (; rings > 0; rings--) {
        if (at >= end || end - at <= data[at]) return 0;
        const int64_t size = data[at++];
        for (int64_t i = 0; i < size; i++) {
            if (data[at + i] >= num_atoms) return 0;
            r->in_ring[atom + data[at + i]] = 1;
        }
        at += size;
    }
    return 1;
}

/* Returns the number of kinds, or NO_MEMORY. */
EXPORT int64_t read_records(const Records *r) {
    Table table = {0};
    int32_t kinds = 0;
    int64_t atom = 0, bond = 0, atoms = 0;
    int status = 1;
    for (int64_t i = 0; i < r->num_molecules; i++) atoms += r->num_atoms[i];
    for (int64_t i = 0; i < r->num_molecules && status >= 0; i++) {
        status = read_one(r, i, atom, bond, atoms, &table, &kinds);
        r->was_read[i] = status == 1;
        atom += r->num_atoms[i];
        bond += r->num_bonds[i];
    }
    free(table.slots);
    return status < 0 ? status : kinds;
}
