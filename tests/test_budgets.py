"""How large each part may be. The numbers only go down; the goals stand beside them."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Folders -> lines of Python that it may have, and what it is to have.
LINES = {
    "graphormer_sepnorm": (27_846, 26_000),
    "graphormer_sepnorm/cli": (1_586, 1_800),
    "graphormer_sepnorm/compare": (2_001, 1_900),
    "graphormer_sepnorm/datasets": (2_983, 2_200),
    "graphormer_sepnorm/tables": (1_491, 1_700),
    "graphormer_sepnorm/inference": (2_627, 2_800),
    "graphormer_sepnorm/training": (2_695, 2_900),
    "tests": (25_955, 26_000),
    "benchmarks examples data docs": (3_734, 3_000),
}
WORDS = 25_000  # of README, CONTRIBUTING and docs, but not of docs/experiments
LONGEST_FILE = 500


def lines_of(path: Path) -> int:
    return path.read_bytes().count(b"\n")


@pytest.mark.parametrize("folder", LINES)
def test_a_folder_is_no_larger_than_it_may_be(folder: str) -> None:
    files = [path for one in folder.split() for path in (ROOT / one).rglob("*.py")]
    own = [path for path in files if ".environments" not in path.parts]  # of other packages
    assert sum(map(lines_of, own)) <= LINES[folder][0]


def test_no_file_of_the_package_is_too_long() -> None:
    files = (ROOT / "graphormer_sepnorm").rglob("*.py")
    assert {path.name for path in files if lines_of(path) > LONGEST_FILE} == set()


def test_documents_have_no_more_words_than_they_may_have() -> None:
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    documents = [path for path in documents if ROOT / "docs" / "experiments" not in path.parents]
    assert sum(len(path.read_text().split()) for path in documents) <= WORDS
