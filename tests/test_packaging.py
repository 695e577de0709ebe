"""The project as it is installed: what the wheel holds, and that it works in an empty folder."""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from test_imports import IMPORTS

from graphormer_sepnorm import __version__
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.kernels.library import library
from graphormer_sepnorm.resources import bundled_configs, config_path, sample_path

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "graphormer_sepnorm"
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
# Prints where an environment keeps its packages.
PLACE = "import sysconfig; print(sysconfig.get_path('purelib'))"
OPTIONAL = {"openpyxl", "pandas"}
# Import names that are not the names of their distributions.
DISTRIBUTIONS = {"yaml": "pyyaml", "sklearn": "scikit-learn", "torch_geometric": "torch-geometric"}


def normalized(requirement: str) -> str:
    """Return the distribution's name in a requirement, in its normal form."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower().replace("_", "-")


def requirements() -> dict[str, str]:
    """Return the direct dependencies, name to requirement."""
    return {normalized(line): line for line in PROJECT["project"]["dependencies"]}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command that has to succeed; return what it says."""
    words, own = [str(part) for part in command], {**os.environ, **environment}
    options = {"capture_output": True, "text": True, "timeout": 300}
    done = subprocess.run(words, cwd=cwd, env=own, check=False, **options)
    assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_every_import_is_a_direct_dependency():
    known = {*sys.stdlib_module_names, *OPTIONAL, *requirements(), "graphormer_sepnorm"}
    unknown = [one for one in IMPORTS if DISTRIBUTIONS.get(one.library, one.library) not in known]
    assert [*map(str, unknown)] == []


def test_constraints_are_exact_and_cover_the_dependencies():
    lines = re.findall(r"^[^#\n].*", (REPOSITORY / "constraints.txt").read_text(), flags=re.M)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in lines), lines
    pinned = {normalized(line) for line in lines}
    extras = {normalized(line) for line in PROJECT["project"]["optional-dependencies"]["test"]}
    assert set(requirements()) | extras <= pinned
    assert "torch==2.13.0" in lines


def test_resources_of_the_checkout():
    assert config_path("quickstart") == REPOSITORY / "configs" / "quickstart.yaml"
    assert config_path("quickstart.yaml") == config_path("quickstart")
    configs = {path.stem: path for path in (REPOSITORY / "configs").glob("*.yaml")}
    assert bundled_configs() == configs
    assert sample_path() == REPOSITORY / "data" / "sample.csv.gz"
    with pytest.raises(ConfigError, match=r"did you mean 'quickstart'\?"):
        config_path("quikstart")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of what is needed to build, so that nothing is left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    for name in ("graphormer_sepnorm", "configs", "data/models"):
        shutil.copytree(REPOSITORY / name, source / name, ignore=ignore)
    for path in (REPOSITORY / "data").iterdir():  # not the downloads, which are other folders
        if path.is_file():
            shutil.copy(path, source / "data")
    return source


# Checks a source, with what it includes; then takes the library that is compiled already.
CHECK_AND_COPY = """#!/bin/sh
for word; do
    if [ "$before" = -o ]; then made=$word; fi
    before=$word
done
case $made in
    *.so) cp "{library}" "$made" ;;
    *) {compiler} "$@" -fsyntax-only && touch "$made" ;;
esac
"""


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    """Build the source distribution and, from what is in it, the wheel.

    Compiling takes more than half a minute, and the installation that these tests run in has done
    it, from the same sources with the same options. So the compiler only reads what the source
    distribution holds, and the library is that of the installation.
    """
    output = tmp_path_factory.mktemp("built")
    compiler = tmp_path_factory.mktemp("compiler") / "cc"
    names = {"compiler": sysconfig.get_config_var("CC") or "cc"}
    if compiled := library():
        compiler.write_text(CHECK_AND_COPY.format(library=compiled._name, **names))
    else:
        compiler.write_text('#!/bin/sh\nexec {compiler} "$@" -O0\n'.format(**names))
    compiler.chmod(0o755)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", output]
    run(*build, source, cwd=output, CC=str(compiler))
    [wheel], [_] = output.glob("*.whl"), output.glob("*.tar.gz")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The Python of a new environment that has the wheel alone, installed without an index.

    It sees the packages that the wheel needs where those tests have them, behind its own.
    """
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    own = Path(run(python, "-c", PLACE, cwd=folder).strip())
    (own / "of_the_tests.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps"]
    own = {"PIP_FIND_LINKS": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": ""}
    run(*pip, "--no-index", wheel, cwd=folder, **own)
    return python


def test_wheel_holds_what_it_should(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in PACKAGE.rglob("*.py"):
        assert str(path.relative_to(REPOSITORY)) in names
    for path in (REPOSITORY / "configs").rglob("*.yaml"):
        assert f"graphormer_sepnorm/{path.relative_to(REPOSITORY)}" in names
    assert "graphormer_sepnorm/data/sample.csv.gz" in names
    assert "graphormer_sepnorm/py.typed" in names
    assert "graphormer_sepnorm/compare/page.html" in names
    if library() is not None:
        assert "graphormer_sepnorm/kernels/_kernels.so" in names
    own = {"graphormer_sepnorm", f"graphormer_sepnorm-{__version__}.dist-info"}
    assert {name.split("/")[0] for name in names} == own
    assert wheel.stat().st_size < 9_000_000  # bundled models and their fingerprints included


def test_installed_package_finds_its_files(installed, tmp_path):
    program = (
        "import graphormer_sepnorm\n"
        "from graphormer_sepnorm.compare.arms import parse_arms\n"
        "from graphormer_sepnorm.resources import bundled_configs, config_path, sample_path\n"
        "files = graphormer_sepnorm.__file__, config_path('quickstart'), sample_path()\n"
        "print(*files, ' '.join(bundled_configs()), sep='\\n')\n"
        "assert sample_path().stat().st_size > 10_000\n"
        "assert config_path('quickstart').read_text()\n"
        "assert len(parse_arms('extensions')) > 10\n"
    )
    said = run(installed, "-c", program, cwd=tmp_path, PYTHONPATH="")
    module, config, sample, names = said.splitlines()
    folder = Path(run(installed, "-c", PLACE, cwd=tmp_path).strip()) / "graphormer_sepnorm"
    assert Path(module) == folder / "__init__.py"
    assert Path(config) == folder / "configs" / "quickstart.yaml"
    assert Path(sample) == folder / "data" / "sample.csv.gz"
    assert names.split() == [*bundled_configs()]


@pytest.mark.parametrize("command", ["train", "predict"])
def test_installed_commands_answer(command, installed, tmp_path):
    script = installed.parent / f"graphormer-{command}"
    said = run(script, "--help", cwd=tmp_path, PYTHONPATH="")
    assert "usage" in said.lower()


KERNELS = (
    "from graphormer_sepnorm.kernels.library import library\n"
    "print(library()._name if library() else None)"
)
needs_compiler = pytest.mark.skipif(
    not (shutil.which("cc") or shutil.which("gcc")), reason="there is no C compiler"
)


@needs_compiler
def test_kernels_of_the_wheel_load(installed, tmp_path):
    loaded = run(installed, "-c", KERNELS, cwd=tmp_path, PYTHONPATH="", GRAPHORMER_KERNELS="")
    assert Path(loaded.strip()).parts[-3:] == ("graphormer_sepnorm", "kernels", "_kernels.so")
    assert Path(loaded).is_relative_to(installed.parents[1])


@needs_compiler
@pytest.mark.skipif(sys.platform != "linux", reason="manylinux is for Linux")
def test_wheel_is_for_every_python_and_for_the_c_libraries_that_it_needs(wheel, tmp_path):
    _, _, *tags = wheel.stem.split("-")
    assert tags[:2] == ["py3", "none"]
    newest, machine = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", tags[2]).groups()
    assert machine == platform.machine()
    with zipfile.ZipFile(wheel) as archive:
        said = archive.read(f"graphormer_sepnorm-{__version__}.dist-info/WHEEL").decode()
        archive.extract("graphormer_sepnorm/kernels/_kernels.so", tmp_path)
    assert "Root-Is-Purelib: false" in said
    assert f"Tag: {'-'.join(tags)}\n" in said.replace("\r", "")
    of_wheel = tmp_path / "graphormer_sepnorm" / "kernels" / "_kernels.so"
    # Of the dynamic loader's own tables, not of any text in the file.
    symbols = run("readelf", "--version-info", "--wide", of_wheel, cwd=tmp_path)
    needed = [int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", symbols)]
    assert max(17, *needed) == int(newest)
    optimized = library()
    for file in (of_wheel, *([optimized._name] if optimized else [])):
        said = run("readelf", "-d", file, cwd=tmp_path)
        assert set(re.findall(r"\(NEEDED\).*\[(.+?)\]", said)) <= {"libc.so.6", "libm.so.6"}


@pytest.mark.slow
def test_without_a_compiler_the_wheel_is_for_every_machine(source, tmp_path):
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path]
    said = run(*command, source, cwd=tmp_path, CC=str(tmp_path / "no_compiler"))
    assert "no_compiler" in said
    [wheel] = tmp_path.glob("*.whl")
    assert wheel.name == f"graphormer_sepnorm-{__version__}-py3-none-any.whl"
    archive = zipfile.ZipFile(wheel)
    assert not [name for name in archive.namelist() if name.endswith(".so")]
    said = archive.read(f"graphormer_sepnorm-{__version__}.dist-info/WHEEL").decode()
    assert "Root-Is-Purelib: true" in said
