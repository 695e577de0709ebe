"""Text (SMILES, mol blocks) to a molecule, or the reason why there is none."""

from __future__ import annotations

import contextlib
import io
import math
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass

from rdkit import Chem, rdBase
from rdkit.Chem import rdqueries

from graphormer_sepnorm.formatting import shortened

RDKIT_VERSION = rdBase.rdkitVersion
_LOG_ROUTE = threading.Lock()
_SPACE = re.compile(r"\s")
_NOT_TEXT = re.compile("[\ud800-\udfff]")  # what bytes of another encoding are read as
# RDKit's time grows with the square of the length of a chain of branches: minutes for 100,000.
LONGEST_SMILES = 10_000
# Atoms with an isotope or an atom map, and brackets that are not needed.
_LABELED = rdqueries.IsotopeGreaterQueryAtom(0)
_LABELED.ExpandQuery(
    rdqueries.HasPropQueryAtom("molAtomMapNumber"), Chem.CompositeQueryType.COMPOSITE_OR
)
_NEEDLESS = re.compile(r"\[(?!nH\])[A-Za-z]{1,2}\d?\]")
_AS_WRITTEN = Chem.SmilesParserParams()
_AS_WRITTEN.sanitize = False
_AS_WRITTEN.removeHs = False


@dataclass(frozen=True, eq=False)
class ParsedMolecule:
    """What became of one SMILES or mol block.

    Attributes:
        molecule: The sanitized molecule, or None.
        reason: Why there is no molecule, one line; empty where there is one.
        standard: The SMILES of its standardized form, in whose order the atoms stand then; empty:
            it was not standardized.
        remark: What was not read of its text, or should be known of its form; mostly empty.
    """

    molecule: Chem.Mol | None
    reason: str
    standard: str = ""
    remark: str = ""

    @property
    def empty(self) -> bool:
        """Whether nothing was there to be read."""
        return self.reason.endswith(("is empty", "has no atoms"))


def parse_smiles(smiles: object) -> ParsedMolecule:
    """Read one SMILES, or one InChI (``InChI=...``).

    RDKit writes nothing to stderr meanwhile; what it would have written is in the reason.

    Args:
        smiles: The text. None, and what a missing field of a table becomes (NaN, pandas' NA), count
            as empty.

    Returns:
        The molecule, sanitized, hydrogens implicit, atoms in the order of the text, without atom
        maps and isotopes (`unlabeled`), or the reason why there is none. A text followed by
        something else than a CXSMILES extension (``|...|``) is refused: RDKit would drop the rest
        silently. An extension that RDKit cannot read is dropped, with a remark.
    """
    kind = type(smiles).__name__
    no_number = isinstance(smiles, float) and math.isnan(smiles)
    if not (isinstance(smiles, str | None) or no_number or kind == "NAType"):
        return ParsedMolecule(None, f"this is no text but of the type {kind}: give SMILES")
    text = smiles.strip() if isinstance(smiles, str) else ""
    if not text:
        return ParsedMolecule(None, "the SMILES is empty")
    if len(text) > LONGEST_SMILES:
        return ParsedMolecule(
            None, f"too large: the SMILES has {len(text):,} characters, at most 10,000 are read"
        )
    if is_inchi(text):
        with rdBase.BlockLogs():
            molecule = Chem.MolFromInchi(text)
        return _parsed(molecule, f"{shortened(text)!r}", lambda: "no such InChI")
    head, _, rest = text.partition(" ")
    if _SPACE.search(head) or (rest and not rest.startswith("|")):
        return ParsedMolecule(
            None, f"{shortened(text)!r} has a space in it: one SMILES is expected"
        )
    if not (text.isascii() and text.isprintable()):
        # RDKit stops reading at such a character and returns what it has up to there.
        return ParsedMolecule(None, f"{shortened(text)!r} has a character that is not plain text")
    remark = ""
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(text)
        if molecule is None and rest and (molecule := Chem.MolFromSmiles(head)) is not None:
            remark = f"the extension {shortened(rest, 30)} cannot be read and is left out"
    return _parsed(
        molecule,
        f"{shortened(head)!r}",
        lambda: _why(lambda: Chem.MolFromSmiles(head, sanitize=False), _smiles_error),
        brackets=bool(_NEEDLESS.search(text)),
        remark=remark,
    )


def _parsed(
    molecule: Chem.Mol | None,
    name: str,
    why: Callable[[], str],
    brackets: bool = False,
    remark: str = "",
) -> ParsedMolecule:
    """Return what RDKit has read of a text; `why` is asked where that is nothing."""
    if molecule is None:
        return ParsedMolecule(None, f"{name} is not a valid molecule: {why()}")
    if molecule.GetNumAtoms() == 0:
        return ParsedMolecule(None, f"{name} has no atoms")
    return ParsedMolecule(unlabeled(molecule, brackets), "", remark=remark)


def as_text(given: object) -> object:
    """Return the SMILES of an RDKit molecule, and anything else as it is."""
    return Chem.MolToSmiles(given) if isinstance(given, Chem.Mol) else given


def is_inchi(text: object) -> bool:
    """Whether a text is written as InChI, right or wrong."""
    return isinstance(text, str) and text.lstrip().startswith("InChI=")


def unlabeled(molecule: Chem.Mol, brackets: bool = False) -> Chem.Mol:
    """Return a molecule without atom maps and isotopes, atoms in the same order.

    Whether two molecules are one is decided by this form. Stereochemistry that isotopes alone made
    is gone. Deuterium stays an atom, which other hydrogens are not; so does tritium, as the same.

    Args:
        molecule: It stays as it is, and is returned if it has neither.
        brackets: It was written with needless ones: RDKit would not add hydrogens to such atoms,
            which a scaffold needs.
    """
    if not (brackets or molecule.GetAtomsMatchingQuery(_LABELED)):
        return molecule
    plain = Chem.Mol(molecule)
    for atom in plain.GetAtoms():
        atom.SetAtomMapNum(0)
        atom.SetIsotope(2 if atom.GetIsotope() > 1 and atom.GetAtomicNum() == 1 else 0)
    with rdBase.BlockLogs():
        plain = Chem.RemoveHs(plain)  # [1H] is like any other now
        Chem.AssignStereochemistry(plain, cleanIt=True, force=True)
        text, order = written(plain)
        again = Chem.MolFromSmiles(text)
    if again is None or again.GetNumAtoms() != len(order):
        return plain
    return Chem.RenumberAtoms(again, sorted(range(len(order)), key=order.__getitem__))


def is_smiles(text: str) -> bool:
    """Whether a text can be read as SMILES or InChI."""
    return parse_smiles(text).molecule is not None


def mol_block(record: str) -> str:
    """Return the part of a record of an SD file that is the molecule, without its data fields."""
    block, end, _ = record.partition("M  END")
    return f"{block}{end}\n" if end else record


def parse_molblock(text: str) -> ParsedMolecule:
    """Read one mol block (V2000 or V3000) like a SMILES; data fields of an SD file are ignored."""
    if not text.strip():
        return ParsedMolecule(None, "the mol block is empty")
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # RDKit ends no line at a \r
    *header, atoms = mol_block(text).split("\n", 3)  # name, program and remark, then what counts
    text = "\n".join([*(_NOT_TEXT.sub("?", line) for line in header), atoms])
    if "\0" in text or _NOT_TEXT.search(text):
        return ParsedMolecule(None, "the mol block has bytes that are not text")
    with rdBase.BlockLogs():
        molecule = Chem.MolFromMolBlock(text)
    return _parsed(
        molecule,
        "the mol block",
        lambda: _why(lambda: Chem.MolFromMolBlock(text, sanitize=False), _block_error),
    )


def parse_text(text: str) -> ParsedMolecule:
    """Read a SMILES, an InChI or a mol block: what a data set holds of a molecule."""
    return parse_molblock(text) if "M  END" in text else parse_smiles(text)


def count_pieces(molecule: Chem.Mol) -> int:
    """Return how many molecules there are without a bond between them, as in a salt."""
    return len(Chem.GetMolFrags(molecule))


def canonical_smiles(molecule: Chem.Mol) -> str:
    """Return RDKit's canonical SMILES, stereochemistry included: the same for all spellings."""
    return Chem.MolToSmiles(molecule)


def written(molecule: Chem.Mol) -> tuple[str, list[int]]:
    """Return the canonical SMILES, and which atom of the molecule each of its atoms is."""
    text = Chem.MolToSmiles(molecule)  # notes the order in which it writes the atoms
    noted = molecule.GetProp("_smilesAtomOutputOrder")  # as in [2,0,1,]; a list takes longer
    return text, [*map(int, noted[1:-1].rstrip(",").split(","))]


def in_written_order(molecule: Chem.Mol) -> Chem.Mol:
    """Return a molecule whose atoms stand in the order of its canonical SMILES."""
    return Chem.RenumberAtoms(molecule, written(molecule)[1])


def parse_canonical(smiles: str) -> Chem.Mol | None:
    """Read a canonical SMILES that RDKit has written, in a tenth of the time of `parse_smiles`.

    Neither valences nor rings are perceived. None if the text cannot be read.
    """
    return Chem.MolFromSmiles(smiles, _AS_WRITTEN)


def _why(read: Callable[[], Chem.Mol | None], error_of: Callable[[str], str]) -> str:
    """Return RDKit's own words for why there is no molecule: bad chemistry, or a syntax error."""
    with rdBase.BlockLogs():
        unchecked = read()
        try:
            found = Chem.DetectChemistryProblems(unchecked) if unchecked else ()
            problems = [problem.Message() for problem in found]
        except RuntimeError as error:
            # A failed assertion of RDKit's, as for [#119]: its kind, what is wrong, where.
            problems = str(error).splitlines()[1:2]
    reason = " ".join(problems[0].split()) if problems else error_of(_log_of(read))
    return reason or "it cannot be read"


def _smiles_error(log: str) -> str:
    """Return the error in RDKit's log, and where it is."""
    error = re.search(r"Parse Error: (.+?)(?= for input| while parsing|[:\n]|$)", log)
    position = re.search(r"around position \d+", log)
    return " ".join(match.group(match.lastindex or 0) for match in (error, position) if match)


def _block_error(log: str) -> str:
    """Return the last entry: remarks come first, and the stack trace of a failed assertion."""
    entries = re.findall(r"^\[[\d:]+\] +(\S.*)$", log, re.MULTILINE)
    return shortened(entries[-1].strip(), 100) if entries else ""


def _log_of(read: Callable[[], object]) -> str:
    """Return what RDKit logs during `read`; a syntax error is found nowhere else.

    The route of the log is global: only a text that has failed already is read again. What was
    disabled is so afterwards; a log that went to Python's logger, which cannot be asked for, goes
    to stderr then.
    """
    caught = io.StringIO()
    with _LOG_ROUTE:
        before = rdBase.LogStatus()  # lines such as rdApp.error:disabled
        rdBase.LogToPythonStderr()
        try:
            with contextlib.redirect_stderr(caught):
                read()
        finally:
            rdBase.LogToCppStreams()
            for name, _, status in (line.partition(":") for line in before.splitlines()):
                if status == "disabled":
                    rdBase.DisableLog(name)
    return caught.getvalue()
