"""What the tests start in place of a new Python behaves as one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from reference.processes import REPOSITORY, Forked, run_python


def test_it_has_its_own_folder_environment_streams_and_status(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys\n"
        "from graphormer_sepnorm.resources import __file__ as file\n"
        "print(os.getcwd(), os.environ['OWN'], *sys.argv[1:], sys.stdin.read(), file)\n"
        "print(sys.path[0], __name__, file=sys.stderr)\n"
        "sys.exit(3)\n"
    )
    process = Forked(
        [sys.executable, str(program), "--word"],
        cwd=tmp_path,
        env={**os.environ, "OWN": "set", "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, error = process.communicate("given", timeout=300)
    package = REPOSITORY / "graphormer_sepnorm" / "resources.py"
    assert out == f"{tmp_path} set --word given {package}\n"
    assert error == f"{tmp_path} __main__\n"
    assert process.returncode == 3
    assert process.pid != os.getpid()


def test_a_package_elsewhere_is_the_one_that_is_imported(tmp_path: Path) -> None:
    (tmp_path / "graphormer_sepnorm").mkdir()
    (tmp_path / "graphormer_sepnorm" / "__init__.py").write_text("here = 'another'")
    program = "import graphormer_sepnorm as package; print(package.here)"
    done = run_python("-c", program, cwd=tmp_path, package=tmp_path)
    assert (done.stdout, done.stderr) == ("another\n", "")
