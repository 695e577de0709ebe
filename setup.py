"""Names the compiled library and its wheel after what they depend on; the rest: pyproject.toml.

The library is plain C, loaded by ctypes. No version of Python shows in it, so one wheel serves all
of them; what it does need is a C library at least as new as its symbols. Where nothing could be
compiled, the wheel is one for every machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

# manylinux2014: no machine that runs today's packages has an older glibc.
_OLDEST_GLIBC = 17


class BuildLibrary(build_ext):
    """Compiles to a file whose name holds no version of Python."""

    def build_extensions(self) -> None:
        """Compile the sources side by side: those of attention take most of a minute."""
        compile_in_turn = self.compiler.compile  # type: ignore[attr-defined]

        def compile_side_by_side(sources: Sequence[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                each = threads.map(lambda one: compile_in_turn([one], **options), sources)
                return [made for some in each for made in some]

        self.compiler.compile = compile_side_by_side  # type: ignore[attr-defined]
        super().build_extensions()

    def get_ext_filename(self, fullname: str) -> str:
        """Return the path of a library below the build folder."""
        return str(Path(*fullname.split(".")).with_suffix(".so"))

    def built(self) -> list[Path]:
        """Return the libraries that are there: they are optional."""
        return [path for path in map(Path, self.get_outputs()) if path.is_file()]


class Wheel(bdist_wheel):
    """Is called py3-none-PLATFORM, or py3-none-any without a library."""

    def get_tag(self) -> tuple[str, str, str]:
        """Return what the wheel can be installed on: Python, ABI, platform."""
        libraries = self.get_finalized_command("build_ext").built()  # type: ignore[attr-defined]
        # Only now is it known whether the compiler, if there is one, could compile them.
        self.root_is_pure = not libraries
        platform = super().get_tag()[2]
        return "py3", "none", _manylinux(platform, libraries)


def _manylinux(platform: str, libraries: list[Path]) -> str:
    """Return ``manylinux_2_17_x86_64`` for ``linux_x86_64``, as the libraries allow it."""
    minors = [
        int(minor)
        for library in libraries
        for minor in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())
    ]
    if not (platform.startswith("linux_") and minors):  # another C library, or no Linux
        return platform
    return platform.replace("linux", f"manylinux_2_{max(_OLDEST_GLIBC, *minors)}", 1)


setup(cmdclass={"build_ext": BuildLibrary, "bdist_wheel": Wheel})
