"""Options that name classes: whose code a configuration that may come from elsewhere can run.

A configuration can name any class, which is imported and made. That is Lightning's convention, and
fine for a configuration that somebody has written or chosen with ``-c``. What lies in a directory,
of a run or a comparison, may have come with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from jsonargparse import _common, set_parsing_settings

from graphormer_sepnorm.errors import ConfigError

OPTION = "--allow-code"
_OWN = ("graphormer_sepnorm", "lightning", "pytorch_lightning", "lightning_fabric")


def without_option(arguments: list[str]) -> tuple[list[str], bool]:
    """Return the arguments without ``--allow-code``, and whether it was among them.

    It is no option of a configuration: that would allow itself.
    """
    rest = [word for word in arguments if word not in (OPTION, "--allow_code")]
    return rest, len(rest) < len(arguments)


@contextmanager
def known_classes_only(where: str, allowed: bool = False) -> Iterator[None]:
    """Let options name classes and functions of Lightning and of this package only.

    Wherever they stand, in nested options and in other files too.

    Args:
        where: What the options are read from.
        allowed: Let them name any after all.

    Raises:
        ConfigError: They name another one; it has not been imported.
    """
    if allowed:
        yield
        return
    settings = _common.parsing_settings  # there is no public way to what was set before
    before = dict(settings)
    set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=list(_OWN))
    try:
        yield
    except Exception as error:
        denied = re.search(r"Importing '([\w.]+)' is not allowed", " ".join(_messages(error)))
        if denied is None:
            raise
        option = re.search(r'(?:key "|--)(trainer\.\w+)', str(error))
        raise ConfigError(
            f"{where} names {denied[1]}{f' ({option[1]})' if option else ''}, code that is neither "
            f"Lightning's nor of this package: look at it, and add {OPTION} to run it"
        ) from error
    finally:
        settings.update(before)


def names_foreign_code(options: Any) -> bool:
    """Tell whether options name a class that `known_classes_only` does not let pass."""
    if isinstance(options, Mapping):
        path = options.get("class_path")
        if isinstance(path, str) and path.partition(".")[0] not in _OWN:
            return True
        options = options.values()
    elif not isinstance(options, list | tuple):
        return False
    return any(names_foreign_code(part) for part in options)


def _messages(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        error = error.__cause__ or error.__context__
