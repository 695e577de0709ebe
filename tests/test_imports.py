"""Who may import whom, read from the source; and what importing the package loads."""

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "graphormer_sepnorm"

COMMON = {"errors", "files", "metrics", "formatting", "process", "streams", "values"}  # to all
COMMON |= {"config", "data_config", "__version__"}
ALL_ROOMS = {"baselines", "chem", "tables", "graphs", "datasets", "model", "training", "inference"}
ALL_ROOMS |= {"compare", "pages", "runs", "uncertainty", "pipeline"}
# Rooms that import nothing of the package, and nothing but the standard library.
ALONE = ("errors", "files", "process", "streams", "formatting", "values", "resources")
# Room -> what of the package it may import, anywhere in its files.
ROOMS = {
    "chem": {"graphs", "kernels"},
    "graphs": {"kernels"},
    "datasets": {"chem", "graphs", "tables", "resources"},
    "baselines": {"chem", "datasets", "graphs"},
    "model": {"graphs", "kernels"},
    "training": {"datasets", "graphs", "model", "inference", "kernels", "runs"},
    "uncertainty": {"chem"},
    "inference": {"baselines", "model", "chem", "graphs", "tables", "uncertainty"}
    | {"resources", "runs"},
    "compare": {"baselines", "uncertainty", "training", "inference", "datasets", "graphs"}
    | {"model", "chem", "pages", "resources", "runs"},
    "pages": {"chem", "graphs", "inference", "runs", "tables"},
    "runs": {"resources"},
    "pipeline": ALL_ROOMS - {"pipeline"},
    "estimators": {"chem", "datasets", "graphs", "inference", "model", "pipeline", "resources"}
    | {"tables"},
    "cli": ALL_ROOMS | {"cli", "kernels", "resources"},
    "config": {"data_config", "model", "resources"},
    **{room: set() for room in ("tables", "kernels", "data_config", "metrics", *ALONE)},
}
# Of these rooms only single modules may be imported.
ONLY_MODULES = {
    ("training", "inference"): {"inference.checkpoint"},
    ("chem", "graphs"): {"graphs.packed_graphs"},
    ("inference", "baselines"): {"baselines.blend"},
    ("inference", "runs"): {"runs.directory"},
    ("training", "runs"): {"runs.directory"},
    ("compare", "runs"): {"runs.directory", "runs.locks", "runs.plan"},
    ("compare", "pages"): {"pages.learning_curve", "pages.predictions"},
    ("config", "model"): {"model.config"},
    ("model", "graphs"): {"graphs.batch", "graphs.extra_inputs", "graphs.vocabulary"},
}
# Library -> files (or folders, with a slash at the end) that may import it. Others may not at all.
LIBRARIES = {
    "lightning": {"training/", "datasets/data_module.py", "pipeline/", "cli/known_warnings.py"},
    "rdkit": {"chem/"},
    "ogb": set(),
    "torch_geometric": {"datasets/"},
    "pandas": {"inference/predictions.py"},
    "pyarrow": {"tables/parquet.py"},
    "openpyxl": {"tables/excel.py"},
    "sklearn": {"baselines/fit.py", "baselines/fit_kernel.py", "metrics.py"}
    | {"compare/", "estimators/", "pages/", "uncertainty/"},
    "networkx": set(),
    "matplotlib": {"compare/", "pages/", "chem/"},
    "jinja2": {"compare/report.py", "pages/explanation.py"},
    "torchmetrics": {"training/"},
}
# Rooms that stay small: nothing but these and the standard library.
ONLY_LIBRARIES = {
    "graphs": {"torch", "numpy", "filelock"},
    "kernels": {"numpy"},
    "model": {"torch"},
    "tables": {"pyarrow", "openpyxl"},
    "runs": {"yaml", "torch", "filelock"},
    "metrics": {"numpy", "scipy", "sklearn"},
    **{room: set() for room in ALONE},
}
# Loaded when a file is loaded, so that command lines answer quickly: none of these.
COMMANDS = [f"cli/{name}.py" for name in ("main", "train", "fit", "options", "compare")]
LAZY = {
    **{file: {"torch", "lightning", "numpy"} for file in [*COMMANDS, "config.py"]},
    "model/config.py": {"torch"},
    "cli/predict.py": {"torch", "lightning", "numpy", "rdkit"},
    "metrics.py": {"numpy", "scipy", "sklearn"},
}


@dataclass(frozen=True)
class Import:
    """One import: where, of what, and whether it runs when the file is loaded."""

    file: str
    line: int
    module: str
    when_loaded: bool

    @property
    def library(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def imports_of(source: str, file: str) -> Iterator[Import]:
    """All imports of a file, also those in functions and for type checkers only."""

    def walk(node: ast.AST, when_loaded: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
            checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            loaded = when_loaded and not isinstance(child, inside) and not checking
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(file, child.lineno, alias.name, when_loaded)
            elif isinstance(child, ast.ImportFrom):
                if child.level:
                    raise AssertionError(f"{file}:{child.lineno}: a relative import")
                if child.module == "graphormer_sepnorm":
                    for alias in child.names:
                        module = f"graphormer_sepnorm.{alias.name}"
                        yield Import(file, child.lineno, module, when_loaded)
                else:
                    yield Import(file, child.lineno, child.module or "", when_loaded)
            yield from walk(child, loaded)

    yield from walk(ast.parse(source), True)


FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
IMPORTS = [found for file in FILES for found in imports_of((PACKAGE / file).read_text(), file)]


def room_of(file: str) -> str:
    return file.partition("/")[0].removesuffix(".py")


def test_every_room_is_known():
    assert {room_of(file) for file in FILES} - {"__init__"} <= ROOMS.keys()


def test_rooms_import_along_the_arrows():
    wrong = []
    for one in IMPORTS:
        room = room_of(one.file)
        if one.library != "graphormer_sepnorm" or room == "__init__":
            continue
        module = one.module.partition(".")[2]
        other = module.partition(".")[0]
        if other in COMMON or other == room:
            continue
        allowed = ONLY_MODULES.get((room, other))
        if other not in ROOMS[room] or (allowed is not None and module not in allowed):
            wrong.append(str(one))
    assert wrong == []


@pytest.mark.parametrize("room", ["cli", "inference", "runs"])
def test_files_of_a_room_do_not_import_in_a_circle(room):
    graph: dict[str, set[str]] = {file: set() for file in FILES if room_of(file) == room}
    for one in IMPORTS:
        if one.file in graph:
            graph[one.file].add(f"{one.module.partition('.')[2].replace('.', '/')}.py")
    graphlib.TopologicalSorter(graph).prepare()  # a CycleError names them


@pytest.mark.parametrize("library", LIBRARIES)
def test_each_library_is_imported_in_its_place_only(library):
    places = LIBRARIES[library]
    folders, files = tuple(one for one in places if one.endswith("/")), places
    found = [one for one in IMPORTS if one.library == library]
    assert [str(i) for i in found if i.file not in files and not i.file.startswith(folders)] == []


@pytest.mark.parametrize("room", ONLY_LIBRARIES)
def test_small_rooms_need_little(room):
    allowed = ONLY_LIBRARIES[room] | sys.stdlib_module_names | {"graphormer_sepnorm"}
    assert [str(i) for i in IMPORTS if room_of(i.file) == room and i.library not in allowed] == []


@pytest.mark.parametrize("file", LAZY)
def test_command_lines_load_what_they_need_when_they_need_it(file):
    loaded = [one for one in IMPORTS if one.file == file and one.when_loaded]
    assert [str(one) for one in loaded if one.library in LAZY[file]] == []


def loaded_by(statement: str) -> set[str]:
    """Names of all modules in memory after a statement in a process of its own."""
    command = [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"]
    return set(subprocess.check_output(command, cwd=ROOT, text=True).split())


OURS, TORCH = "graphormer_sepnorm.", {"torch", "numpy"}
MODEL = {"lightning", "ogb", "rdkit", "torch_geometric", "pandas", "sklearn", "matplotlib"}


@pytest.mark.parametrize(
    ("statement", "heavy", "wanted"),
    [
        ("import graphormer_sepnorm as g; g.DataError; dir(g)", MODEL | TORCH, OURS + "errors"),
        ("from graphormer_sepnorm.runs import locks", TORCH | {"yaml"}, OURS + "runs.locks"),
        ("from graphormer_sepnorm import Graphormer, SepNorm", MODEL, "torch"),
        ("import graphormer_sepnorm.datasets.catalog", MODEL | TORCH, OURS + "datasets.catalog"),
        # The first prediction is there nearly as soon as torch is.
        (
            f"from {OURS}cli import predict; predict.main(['esol', 'CCO'])",
            {"lightning", "sklearn", "pandas", "scipy.sparse", "yaml", "rdkit.Chem.Descriptors"},
            OURS + "uncertainty.domain",
        ),
        # On the meta device some functions of torch would load its compiler: a second, and 70 MB.
        (
            "from graphormer_sepnorm import Predictor as P; "
            "[P.load(name, device='cpu').predict(['CCO']) for name in ('esol', 'zinc', 'molhiv')]",
            MODEL - {"rdkit"} | {"torch._dynamo", "sympy", "torchmetrics", "pyarrow"},
            "torch",
        ),
    ],
)
def test_what_importing_loads(statement, heavy, wanted):
    loaded = loaded_by(statement)
    assert loaded & heavy == set()
    assert wanted in loaded


def test_public_names():
    import graphormer_sepnorm

    for name in graphormer_sepnorm.__all__:
        assert getattr(graphormer_sepnorm, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        graphormer_sepnorm.nonsense  # noqa: B018


def test_trees_and_kernel_are_trained_without_lightning(tmp_path):
    rows = [f"{'C' * size}{end},{size}" for size in range(1, 21) for end in ("O", "N", "F", "S")]
    (tmp_path / "t.csv").write_text("\n".join(["smiles,y", *rows]))
    options = ["-c", "table", f"--data.table={tmp_path / 't.csv'}", "--data.split=random"]
    options += [f"--data.root={tmp_path}", f"--output={tmp_path / 'run'}", "--members=kernel,trees"]
    options += ["--ensemble=2"]
    loaded = loaded_by(f"from {OURS}cli.train import main; assert main(['fit', *{options}]) == 0")
    assert "sklearn" in loaded
    assert loaded & {"lightning", "torch_geometric", "torchmetrics", "transformers"} == set()
