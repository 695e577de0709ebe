"""Penalized logP, the target of ZINC as a benchmark of graph networks.

The sum of three z-scores, logP - SA - cycle (Gomez-Bombarelli et al. 2018, arXiv 1610.02415; Jin et
al. 2018, arXiv 1802.04364), standardized over the 220,011 training molecules of the latter:

* logP: Crippen's octanol-water partition coefficient (dimensionless);
* SA: synthetic accessibility after Ertl and Schuffenhauer 2009, 1 (easy) to 10 (hard);
* cycle: by how many atoms the longest cycle is longer than six, 0 if it is not.
"""

from __future__ import annotations

import networkx
from rdkit import Chem
from rdkit.Chem import Crippen
from rdkit.Contrib.SA_Score import sascorer  # type: ignore[import-not-found]

# y = LOGP_WEIGHT * logP + SA_WEIGHT * SA + CYCLE_WEIGHT * cycle + OFFSET, the z-scores multiplied
# out: means 2.457797, 3.05353, 0.0482933 and deviations 1.4334209, 0.8346078, 0.2877583.
LOGP_WEIGHT = 0.69763180
SA_WEIGHT = -1.19816760
CYCLE_WEIGHT = -3.47513914
OFFSET = 2.11182998


def penalized_logp(molecule: Chem.Mol) -> float:
    """Return the penalized logP of a molecule, in standard deviations summed over three terms.

    The cycle term looks at one cycle basis, which depends on the atoms' numbers where rings are
    bridged: two spellings of such a molecule can have different values. This is the benchmark's
    definition; a canonical SMILES makes it definite.
    """
    logp = Crippen.MolLogP(molecule)  # type: ignore[attr-defined]
    cycle = max(0, longest_basis_cycle(molecule) - 6)
    accessibility = sascorer.calculateScore(molecule)
    return LOGP_WEIGHT * logp + SA_WEIGHT * accessibility + CYCLE_WEIGHT * cycle + OFFSET


def longest_basis_cycle(molecule: Chem.Mol) -> int:
    """Return the number of atoms in the longest cycle of a cycle basis; 0 without rings.

    The basis is that of Paton's algorithm (1969, doi 10.1145/363219.363232), as the benchmark has
    it of networkx; here started at the lowest atom number of each fragment, neighbors in rising
    order, so that it depends on nothing but these numbers.
    """
    bonds = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
    graph = networkx.Graph(sorted((min(ends), max(ends)) for ends in bonds))
    cycles = (
        cycle
        for fragment in networkx.connected_components(graph)
        for cycle in networkx.cycle_basis(graph.subgraph(fragment), root=min(fragment))
    )
    return max(map(len, cycles), default=0)
