"""What the documents say is true: commands are understood, code runs, numbers are those of runs.

The parsers read all commands. Those of `RUN` in blocks without a language (in the README: in all
blocks) are run too, with capped training; those in `bash` blocks need a GPU, a cluster or hours.
"""

import ast
import functools
import gzip
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from reference.processes import REPOSITORY, module_of, run_python

from graphormer_sepnorm.cli import options
from graphormer_sepnorm.resources import sample_path

DOCS = REPOSITORY / "docs"
DIARY = DOCS / "experiments"
README, CONTRIBUTING = REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md"
GUIDES = [README, CONTRIBUTING]
GUIDES += [path for path in sorted(DOCS.rglob("*.md")) if DIARY not in path.parents]
CARDS = sorted((REPOSITORY / "data" / "models").glob("*.md"))
PAGES = [
    *GUIDES,
    REPOSITORY / "CHANGELOG.md",
    *(REPOSITORY / name / "README.md" for name in ("data", "benchmarks")),
    *CARDS,
    *sorted(DIARY.rglob("*.md")),
]
# Guides whose commands are run; the features of the others have tests of their own.
RUN = [README, *sorted((DOCS / "tutorials").glob("*.md"))]
RUN += [DOCS / "how-to" / f"{name}.md" for name in ("predict", "uncertainty", "explain")]
RUN += [DOCS / "findings.md", CONTRIBUTING]
CAP = """
    --trainer.max_steps 3 --trainer.max_epochs -1 --model.warmup_steps 1 --data.batch_size 16
    --trainer.limit_val_batches 2 --trainer.limit_test_batches 2
"""
SMALL = "--model.layers 2 --model.width 16 --model.ffn_width 16"
ROWS = 200  # of the sample
# Trees that take a moment; and the bundled sample is the short one of the workspace.
FIRST = """
from pathlib import Path
from graphormer_sepnorm.baselines import fit as baselines
from graphormer_sepnorm.datasets import catalog
for trees in (baselines.BOOSTED, baselines.FOREST):
    trees.update(dict.fromkeys(trees, 5))
catalog.sample_path = lambda: Path({!r})
"""


def name_of(page):
    return str(page.relative_to(REPOSITORY))


def blocks_of(page):
    """Return the fenced blocks of a page: language and text."""
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def commands_of(page, languages=("", "bash")):
    """Return the lines of blocks that run Python or make."""
    blocks = [block for language, block in blocks_of(page) if language in languages]
    return [
        line.partition("  #")[0].strip()
        for line in "\n".join(blocks).splitlines()
        if re.match(r"(\w+=\S+ )?(python|torchrun|make) ", line)
    ]


LANGUAGES = {README: ("", "bash")}
COMMANDS = [one for page in RUN for one in commands_of(page, LANGUAGES.get(page, ("",)))]
COMMANDS = [*dict.fromkeys(one for one in COMMANDS if one.startswith("python "))]


@pytest.fixture(scope="module")
def reference():
    return module_of(DOCS / "make_reference.py")


@functools.cache
def parser(reference, name):
    return reference.parser_of(name)


def understand(words, reference):
    """Have the real parsers read a command; they raise an error about what is wrong."""
    program, *words = words
    if program == "predict.py":
        verb = words[0] if f"predict.py {words[0]}" in reference.COMMANDS else ""
        found = parser(reference, f"predict.py {verb}".strip())
        words = words[1:] if verb else words
        _, rest = found.parse_known_intermixed_args(words)
        assert rest == []
        return
    verb, *words = words
    if f"train.py {verb}" in reference.COMMANDS:  # its own options, and those of fit
        own, words = parser(reference, f"train.py {verb}").parse_known_args(words)
        words += [word for file in getattr(own, "config", ()) for word in ("-c", file)]
        verb = "fit"
    elif verb in ("test", "validate"):
        words = words[1:]
    if "--resume" in words:
        at = words.index("--resume")
        del words[at : at + 2]
    options.parse(verb, words)


@pytest.mark.parametrize("page", GUIDES, ids=name_of)
def test_commands_are_understood(page, reference, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    commands = commands_of(page)
    if page == README:
        commands += re.findall(r"`(python (?:train|predict)\.py [^`]*)`", page.read_text())
        assert len(commands) > 5
    for command in commands:
        words = shlex.split(command)
        programs = [word for word in words if word in ("train.py", "predict.py")]
        if programs:
            understand(words[words.index(programs[0]) :], reference)
        elif words[0] == "make":
            subprocess.run(["make", "--dry-run", *words[1:]], cwd=REPOSITORY, check=True)
        else:
            assert any((REPOSITORY / word).is_file() for word in words), command


def test_page_of_options_is_that_of_the_parsers(reference):
    page = reference.PAGE.read_text(encoding="utf-8")
    assert page == reference.page(), "run python docs/make_reference.py"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder that looks like the checkout, with a data root of its own."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("train.py", "predict.py", "configs"):
        (folder / name).symlink_to(REPOSITORY / name)
    for name in ("data", "docs"):
        (folder / name).mkdir()
    (folder / "data" / "drugs.smi").symlink_to(REPOSITORY / "data" / "drugs.smi")
    for name in ("make_hero.py", "experiments"):
        (folder / "docs" / name).symlink_to(DOCS / name)
    # A short sample, also as the user's own table.
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()[: ROWS + 1]
    (folder / "data" / "sample.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (folder / "molecules.csv").write_text("\n".join(lines))
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
        if arguments[:2] == ["train.py", "fit"] and "--resume" not in arguments:
            arguments += CAP.split()
        if arguments[:2] == ["train.py", "compare"] and "--report-only" not in arguments:
            arguments += shlex.split(f"{CAP} {SMALL} --seeds 0,1")
        if arguments[:2] == ["train.py", "crossvalidate"]:
            arguments += shlex.split(f"{CAP} {SMALL}")
        return python(*arguments)

    return run


def ran_before(command, run):
    """Run the training that a command names the directory of."""
    if "runs/quickstart" in command:
        run("python train.py fit -c configs/quickstart.yaml")
    if "runs/molecules" in command:
        run("python train.py fit -c table --data.table molecules.csv")
    if "--report-only" in command:
        to = command.partition(" -o ")[2].split()[0]
        run(next(one for one in COMMANDS if " compare -c " in one and one.endswith(f"-o {to}")))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_command(command, workspace, run):
    if "paper-zinc" in command:
        pytest.skip("ZINC-subset at its published size")
    ran_before(command, run)
    arguments = shlex.split(command.removeprefix("python "))
    done = run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    to = workspace / arguments[arguments.index("-o") + 1] if "-o" in arguments else None
    if arguments[1] == "fit":
        assert "best.ckpt" in done.stdout
    elif arguments[1] == "compare":
        assert "verdict" in (to / "summary.md").read_text()
    elif arguments[1] == "crossvalidate":
        assert (to / "out_of_fold.csv").read_text().count("\n") == 1 + ROWS
    elif arguments[0].startswith("docs/"):
        picture = (workspace / arguments[2]).read_bytes()
        stored = (REPOSITORY / arguments[2]).read_bytes()
        assert picture[16:24] == stored[16:24]  # width and height
        assert len(stored) < 150_000
        if "make_findings" in arguments[0]:  # the table
            assert done.stdout in (DIARY / "findings.md").read_text(encoding="utf-8")
    elif arguments[0] == "predict.py" and arguments[1] == "explain":
        assert "CC(=O)Oc1ccccc1C(=O)O" in to.read_text(encoding="utf-8")
    elif arguments[0] == "predict.py" and arguments[1] == "info":
        assert "predicts" in done.stdout
    elif arguments[0] == "predict.py" and "-i" in arguments:
        source = workspace / arguments[arguments.index("-i") + 1]
        text = source.read_bytes()
        text = gzip.decompress(text) if source.suffix == ".gz" else text
        rows = len(text.decode().splitlines()) - (source.suffix != ".smi")
        assert len(to.read_text().splitlines()) == 1 + rows
    elif arguments[0] == "predict.py":
        table = to.read_text() if to else done.stdout
        assert table.startswith("smiles,pred_")


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in GUIDES if "```python" in page.read_text()], ids=name_of
)
def test_code_of_a_page_runs(page, python, tmp_path):
    script = tmp_path / "blocks"
    script.write_text(
        "\n".join(
            f"exec(compile({block!r}, 'block {number}', 'exec'), {{}})"  # a traceback names it
            for number, (language, block) in enumerate(blocks_of(page))
            if language == "python" and "import ray" not in block
        )
    )
    done = python(script)
    assert done.returncode == 0, done.stderr


def section(title):
    """Return a section of the README."""
    return README.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.slow
def test_output_in_the_readme_is_what_is_printed(run):
    [shown] = [block for language, block in blocks_of(README) if language == "text"]
    [command] = [command for command in commands_of(README) if '"CC(=O)Oc1' in command]
    header, *rows = [line.split(",") for line in run(command).stdout.splitlines()]
    title, *lines = [re.split("  +", line.strip()) for line in shown.splitlines()]
    # A terminal shows the target's name and unit once, and no empty columns.
    assert title[1:5] == ["logSolubility [log mol/L]", "low", "high", "expected_error"]
    title[1:5] = [f"{one}_logSolubility" for one in ("pred", "low", "high", "expected_error")]
    assert len(lines) == len(rows) > 1
    for cells, row in zip(lines, rows, strict=True):
        real = dict(zip(header, row, strict=True))
        assert [name for name, cell in real.items() if cell] == title
        for name, text in zip(title, cells, strict=True):
            number = name not in ("smiles", "in_domain")
            assert text == real[name] or (
                number and float(text) == pytest.approx(float(real[name]), rel=5e-4)
            )


def test_results_of_the_readme_stand_in_the_table_of_results():
    table = (DIARY / "results.md").read_text(encoding="utf-8").splitlines()
    first_table = section("Results").strip().split("\n\n")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in first_table.splitlines()
    ][2:]
    assert len(rows) == 3
    for _, configuration, seeds, _, test in rows:
        [name] = re.findall(r"`(\w+)`", configuration)
        assert (REPOSITORY / "configs" / f"{name}.yaml").is_file()
        value = re.search(r"\d[\d.]*(?:( ± |, )[\d.]+)?", test)[0]
        [row] = [line.strip("|").split("|") for line in table if f"| {value} " in line]
        assert len(row[1].split(",")) == int(seeds)


# Numbers of a page, and the pages of the diary that have them.
SPREAD = r"\d[\d.]* ± [\d.]*\d"
INTERVAL = r"[+\N{MINUS SIGN}]?\d[\d.]* \[[^\]]*\d\]"
SOURCES = [
    (README, SPREAD, ["results", "small-tables"], 2),
    (DOCS / "results.md", SPREAD, ["results", "small-tables"], 30),
    (DOCS / "findings.md", SPREAD, ["findings"], 8),
    (DOCS / "findings.md", INTERVAL, ["findings"], 18),
]


@pytest.mark.parametrize(("page", "pattern", "sources", "least"), SOURCES)
def test_numbers_of_a_page_are_those_of_the_diary(page, pattern, sources, least):
    texts = [(DIARY / f"{name}.md").read_text(encoding="utf-8") for name in sources]
    diary = " ".join(" ".join(texts).split()).replace("**", "")
    text = " ".join(page.read_text(encoding="utf-8").split()).replace("**", "")
    found = re.findall(pattern, text)
    assert len(found) >= least
    assert [number for number in found if number not in diary] == []


@pytest.mark.parametrize(("page", "words"), [(README, 800), (DOCS / "findings.md", 1200)])
def test_what_everybody_reads_stays_short(page, words):
    text = page.read_text(encoding="utf-8")
    assert len(text.split()) <= words
    assert page != README or len(text.splitlines()) <= 120


# The glossary of CONTRIBUTING has the terms that stand for these.
BODIES = (ast.Module, ast.ClassDef, ast.FunctionDef)
DIALECT = re.compile(
    r"\b(how sure|(is|are|was|were) told|beside|of no weight|by heart|dealt|deals|goes on|judged|"
    r"without five|so many|in place of|behaviour|licence|colour\w*|centre\w*|"
    r"neighbour\w*|\w*(normal|standard|optim|recogn|general|penal|featur)is(e|ed|es|ing|ation|er))\b",
    re.IGNORECASE,
)


def dialect(page):
    """Yield words that the glossary or American spelling replaces, outside of code."""
    if page == CONTRIBUTING or page.name == "options.md" or page not in [*GUIDES, *CARDS]:
        return  # the glossary itself, the help of commands, the diary
    text = re.sub(
        r"^(```.*?^```|    .*?)$|`[^`]*`|\]\([^)]*\)", "", page.read_text(), flags=re.M | re.S
    )
    yield from (found[0] for found in DIALECT.finditer(" ".join(text.split())))


def test_the_dialect_is_noticed(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("The model is told how sure it is, beside `beside`;\nnormalised.\n")
    monkeypatch.setitem(globals(), "GUIDES", [page])
    assert list(dialect(page)) == ["is told", "how sure", "beside", "normalised"]


def messages(file):
    """Yield the texts of a source that are shown, so neither docstrings nor names."""
    nodes = [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    docs = {ast.get_docstring(one, clean=False) for one in nodes if isinstance(one, BODIES)}
    texts = [one.value for one in nodes if isinstance(one, ast.Constant)]
    return [text for text in texts if isinstance(text, str) and " " in text and text not in docs]


def test_messages_are_in_the_terms_of_the_glossary():
    private = re.compile(DIALECT.pattern + r"|\b(anew|mend|verbs?|of one piece)\b", re.IGNORECASE)
    files = (REPOSITORY / "graphormer_sepnorm").rglob("*.py")
    found = [(file.name, text) for file in files for text in messages(file) if private.search(text)]
    assert found == []


def test_code_is_spelled_as_torch_is():
    british = re.compile(r"colour|centre|neighbour|(normal|standard|featur|penal|random)is(e|ing)")
    files = [*(REPOSITORY / "graphormer_sepnorm").rglob("*.py"), *REPOSITORY.glob("configs/*.yaml")]
    assert [file.name for file in files if british.search(file.read_text(encoding="utf-8"))] == []


def broken_lines(page):
    """Yield lines of prose in which code does not end."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for line in prose.splitlines():
        if not line.startswith("    ") and line.count("`") % 2:
            yield line


def broken_links(page):
    """Yield links whose file or heading is not there."""
    links = re.compile(r"\]\(([^)#:\s]*)#?([^):\s]*)\)")
    for path, heading in links.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        if not target.exists():
            yield path
        elif heading and heading not in headings_of(target):
            yield f"{path}#{heading}"


@functools.cache
def headings_of(page):
    """Return the headings of a page as a link names them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    found = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


def missing_files(page):
    """Yield files that are named with their folder and are not there."""
    if page == CONTRIBUTING:  # shows how files that are not there yet would look
        return
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w/.{*<>-])((?:\w[\w.-]*/)+\w+\.(?:py|yaml|sh|c))\b", text))
    modules = re.findall(r"-m (benchmarks\.[\w.]+)", text)
    named |= {f"{name.replace('.', '/')}.py" for name in modules}
    folders = REPOSITORY, REPOSITORY / "graphormer_sepnorm", page.parent, DIARY
    yield from (name for name in named if not any((one / name).exists() for one in folders))


@pytest.mark.parametrize("check", [broken_lines, broken_links, missing_files, dialect])
def test_pages_have_no(check):
    found = {name_of(page): list(check(page)) for page in PAGES if list(check(page))}
    assert found == {}


def test_every_guide_is_in_the_index():
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    linked = {(DOCS / path).resolve() for path in re.findall(r"\]\(([^)#]+\.md)", index)}
    guides = {page for page in GUIDES if Path(DOCS) in page.parents}
    assert guides - linked - {DOCS / "index.md"} == set()
