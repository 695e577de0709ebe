import pytest
from penalized_logp import longest_basis_cycle, penalized_logp
from rdkit import Chem


# Bridged: of adamantane a basis may have cycles of six alone.
@pytest.mark.parametrize(
    ("smiles", "longest"), [("C1C2CC3CC1CC(C2)C3", 8), ("CC.C12C3C4C1C5C2C3C45", 6)]
)
def test_longest_cycle(smiles, longest):
    assert longest_basis_cycle(Chem.MolFromSmiles(smiles)) == longest


def test_formula_gives_zincs_targets(zinc):
    cycles = 0
    for row in zinc[:500]:
        molecule = Chem.MolFromSmiles(row["smiles"])
        cycles += longest_basis_cycle(molecule) > 6
        assert penalized_logp(molecule) == pytest.approx(float(row["y"]), abs=2e-6), row["smiles"]
    assert cycles > 0
