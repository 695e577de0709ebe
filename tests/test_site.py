"""The site: every link between pages, every heading and every docstring is understood by Sphinx."""

from pathlib import Path

import pytest
from reference.processes import REPOSITORY, run_python

for name in ("sphinx", "myst_parser", "furo"):
    pytest.importorskip(name)


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    arguments = ("-q", "-W", "--keep-going", "-c", "docs", ".", str(tmp_path))
    done = run_python("-m", "sphinx", *arguments, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    pages = [*(REPOSITORY / "docs").rglob("*.md")]
    made = {tmp_path / page.relative_to(REPOSITORY).with_suffix(".html") for page in pages}
    assert {path.name for path in made if not path.is_file()} == set()
    assert "replace_norms" in (tmp_path / "docs/reference/api.html").read_text(encoding="utf-8")
