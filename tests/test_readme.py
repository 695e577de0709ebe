"""What the README and the guides say is true: commands and Python run, numbers are those of runs.

Training is capped.
"""

import functools
import gzip
import itertools
import re
import shlex
import struct
import subprocess

import pytest
from reference.processes import REPOSITORY, run_python

from graphormer_sepnorm.resources import sample_path

GUIDES = (
    "installing",
    "tables",
    "training",
    "predicting",
    "explaining",
    "comparing",
    "python",
    "evidence",
    "elsewhere",
    "uncertainty",
)
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"docs/{name}.md" for name in GUIDES)]
TEXT = "\n".join((REPOSITORY / name).read_text(encoding="utf-8") for name in DOCUMENTS)
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)
COMMANDS = list(
    dict.fromkeys(
        line.partition("  #")[0].strip()
        for language, block in BLOCKS
        if not language
        for line in block.splitlines()
        if line.startswith(("python ", "make "))
    )
)
CAP = [
    "--trainer.max_steps",
    "3",
    "--trainer.max_epochs",
    "-1",
    "--model.warmup_steps",
    "1",
    "--trainer.limit_val_batches",
    "2",
    "--trainer.limit_test_batches",
    "2",
    "--data.batch_size",
    "16",
]
SMALL = ["--model.layers", "2", "--model.width", "16", "--model.ffn_width", "16"]
ROWS = 200  # of the sample
# Trees that take a moment; and the bundled sample is the short one of the workspace.
FIRST = """
from pathlib import Path
from graphormer_sepnorm.baselines import fit as baselines
from graphormer_sepnorm.datasets import sample
for trees in (baselines.BOOSTED, baselines.FOREST):
    trees.update(dict.fromkeys(trees, 5))
sample.sample_path = lambda: Path({!r})
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder that looks like the checkout, with a data root of its own."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("train.py", "predict.py", "configs"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "data").mkdir()
    (folder / "docs").mkdir()
    for name in ("make_picture.py", "make_findings.py", "compare", "experiments"):
        (folder / "docs" / name).symlink_to(REPOSITORY / "docs" / name)
    # A short sample, and a stand-in for the user's own table.
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()[1:]
    rows = [line.split(",") for line in lines[:ROWS]]
    hits = [f"{smiles},{int(float(value) > 0)}" for smiles, value in rows]
    sample = "\n".join(["smiles,penalised_logp", *lines[:ROWS]])
    (folder / "data" / "sample.csv.gz").write_bytes(gzip.compress(sample.encode()))
    (folder / "hits.csv").write_text("\n".join(["smiles,active", *hits]))
    tiers = [
        f"{smiles},{['low', 'mid', 'high'][number % 3]}" for number, (smiles, _) in enumerate(rows)
    ]
    (folder / "tiers.csv").write_text("\n".join(["smiles,tier", *tiers]))
    return folder


@pytest.fixture(scope="module")
def python(workspace):
    """Run Python in the workspace."""
    first = FIRST.format(str(workspace / "data" / "sample.csv.gz"))
    return functools.partial(run_python, cwd=workspace, first=first)


@pytest.fixture(scope="module")
def run(python):
    """Run a command of the documents, capped; what was run before is not run again."""

    @functools.cache
    def run(command):
        arguments = shlex.split(command.removeprefix("python "))
        if arguments[:2] == ["train.py", "fit"] and not {"--help", "--resume"} & {*arguments}:
            arguments += CAP
        if arguments[:2] == ["train.py", "compare"] and "--report-only" not in arguments:
            arguments += [*CAP, *SMALL, "--seeds", "0,1"]
        if arguments[:2] == ["train.py", "crossvalidate"] and "-c" in arguments:
            arguments += [*CAP, *SMALL]
        if "configs/zinc.yaml" in arguments:  # the whole set would be a minute of structure
            arguments += ["--data.dataset", "zinc-subset"]
        return python(*arguments)

    return run


def place_data(command, workspace, request):
    """Put the real data that a command needs under the workspace's data root."""
    for name, folder in (("zinc", "ZINC"), ("molhiv", "ogbg_molhiv")):
        link = workspace / "data" / folder
        needed = any(f"{place}/{name}" in command for place in ("configs", "runs"))
        if needed and not link.exists():
            link.symlink_to(request.getfixturevalue("real_data_root") / folder)


def size_of(png):
    """Return the width and the height of a picture, as its header has them."""
    return struct.unpack(">II", png[16:24])


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("python ")])
def test_command(command, workspace, run, request):
    place_data(command, workspace, request)
    arguments = shlex.split(command.removeprefix("python "))
    done = run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    if arguments[1] == "fit" and "--help" not in arguments:
        assert "test " in done.stdout
        assert "best.ckpt" in done.stdout
    elif arguments[1] == "compare":
        directory = workspace / arguments[arguments.index("-o") + 1]
        assert "verdict" in (directory / "summary.md").read_text()
    elif arguments[1] == "crossvalidate":
        rows = (workspace / "runs/folds/out_of_fold.csv").read_text().splitlines()
        assert len(rows) == 1 + ROWS
        assert "all molecules, out of fold" in done.stdout
    elif arguments[0] in ("docs/make_picture.py", "docs/make_findings.py"):
        picture = (workspace / arguments[2]).read_bytes()
        assert picture.startswith(b"\x89PNG")
        kept = (REPOSITORY / arguments[2]).read_bytes()
        assert size_of(picture) == size_of(kept)
        assert len(kept) < 150_000
        findings = (REPOSITORY / "docs/findings.md").read_text(encoding="utf-8")
        assert done.stdout in findings  # the table; nothing of a picture alone
    elif arguments[:2] == ["predict.py", "geometry"]:
        assert "output" in done.stdout
    elif arguments[:2] == ["predict.py", "embed"]:
        header, *rows = (workspace / "embedded.csv").read_text().splitlines()
        assert header.startswith("smiles,penalised_logp,cls_0,cls_1,")
        assert len(rows) == ROWS
    elif arguments[:2] == ["predict.py", "explain"]:
        page = (workspace / arguments[arguments.index("-o") + 1]).read_text(encoding="utf-8")
        assert "CC(=O)Oc1ccccc1C(=O)O" in page
    elif arguments[:2] == ["predict.py", "info"]:
        assert "predicts" in done.stdout
    elif arguments[0] == "predict.py" and "-i" in arguments:
        output = (workspace / arguments[arguments.index("-o") + 1]).read_text().splitlines()
        assert len(output) == 1 + ROWS
        assert output[0].startswith("smiles,penalised_logp,pred_")
        assert ("MAE" in done.stdout) == ("--evaluate" in arguments)
    elif arguments[0] == "predict.py":
        molecules = [*itertools.takewhile(lambda word: word[0] != "-", arguments[2:])]
        to_file = "-o" in arguments
        text = (workspace / arguments[-1]).read_text() if to_file else done.stdout
        assert text.count("\n") == 1 + len(molecules)
    elif arguments[1] == "test":
        assert "mae" in done.stdout


def test_make_commands_exist():
    named = [command.split()[1] for command in COMMANDS if command.startswith("make ")]
    assert {"train", "test"} <= set(named)
    for target in named:
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", range(sum(language == "python" for language, _ in BLOCKS)))
def test_python_block(number, python, run):
    run("python train.py fit -c configs/quickstart.yaml")  # a run that some of them name
    code = [block for language, block in BLOCKS if language == "python"][number]
    done = python("-c", code)
    assert done.returncode == 0, done.stderr


PAGES = [
    *(REPOSITORY / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *(REPOSITORY / name for name in ("data/README.md", "benchmarks/README.md")),
    *sorted((REPOSITORY / "docs").glob("*.md")),
    *sorted((REPOSITORY / "docs" / "compare").glob("*.md")),
    *sorted((REPOSITORY / "data" / "models").glob("*.md")),
]


def section(title):
    """Return a section of the README."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.slow
def test_output_in_the_readme_is_what_is_printed(run):
    """Predicted values to three digits, a training (capped here) by the shape of its lines."""
    commands, shown = re.findall(r"^```\w*\n(.*?)^```$", section("In five minutes"), re.M | re.S)
    shown = [line for line in shown.splitlines() if line != "..."]
    [esol, fit] = [
        run(line.partition("  #")[0].strip()).stdout
        for line in commands.splitlines()
        if "predict.py esol" in line or "train.py fit" in line
    ]
    said = esol.splitlines()
    assert shown[0] == said[0]
    for line, real in zip(shown[1:3], said[1:], strict=True):
        (smiles, value, *rest), (real_smiles, real_value, *real_rest) = (
            one.split(",") for one in (line, real)
        )
        assert (smiles, rest) == (real_smiles, real_rest)
        assert float(value) == pytest.approx(float(real_value), abs=1e-3)
    # Capped at a single epoch.
    shapes = {shape_of(line.replace(" 1 epoch, ", " 1 epochs, ")) for line in fit.splitlines()}
    for line in shown[3:-2]:
        shape = shape_of(line.removesuffix(" ..."))
        assert any(one.startswith(shape) for one in shapes), line


def shape_of(line):
    """Return a line with its numbers, and what depends on them, taken out."""
    return " ".join(re.sub(r"-?\d[\d,.]*", "N", line).split())


def test_results_of_the_readme_stand_in_the_table_of_results():
    table = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8").splitlines()
    first_table = section("What it reaches").strip().split("\n\n")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in first_table.splitlines()
    ][2:]
    assert len(rows) == 3
    for _, configuration, seeds, _, test in rows:
        name = re.match(r"`(\w+)`", configuration)[1]
        value = re.search(r"\d[\d.]* ± [\d.]+|\d[\d.]*", test)[0]
        [row] = [
            line.strip("|").split("|")
            for line in table
            if re.match(rf"\| \d+\. {name} ", line) and f"| {value} " in line
        ]
        assert len(row[1].split(",")) == int(seeds)


def test_every_number_of_the_readme_with_a_deviation_is_one_of_the_results():
    table = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    found = re.findall(r"\d[\d.]* ± [\d.]*\d", " ".join(section("What it reaches").split()))
    assert len(found) >= 6
    assert [number for number in found if number not in table] == []


def test_the_readme_stays_short():
    lines = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_no_code_is_broken_over_two_lines(page):
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith("    ")]
    assert [line for line in lines if line.count("`") % 2] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_files_that_are_linked_exist(page):
    for path in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text(encoding="utf-8")):
        assert (page.parent / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_headings_that_are_linked_exist(page):
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8"))
    missing = [
        f"{path}#{heading}"
        for path, heading in links
        if heading not in headings_of(page.parent / path if path else page)
    ]
    assert missing == []


@functools.cache
def headings_of(page):
    """Return the headings of a page as a link names them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


# CONTRIBUTING.md shows how files that are not there yet would look.
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.name != "CONTRIBUTING.md"],
    ids=lambda page: str(page.relative_to(REPOSITORY)),
)
def test_files_that_are_named_with_their_folder_exist(page):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.{*<>-])((?:\w[\w.-]*/)+\w+\.(?:py|yaml|sh|c))\b", text))
    modules = re.findall(r"-m (benchmarks\.[\w.]+)", text)
    named |= {f"{name.replace('.', '/')}.py" for name in modules}
    folders = REPOSITORY, REPOSITORY / "graphormer_sepnorm", page.parent
    assert [name for name in named if not any((one / name).exists() for one in folders)] == []
