"""A part of a table, for one of several machines that do not know of each other."""

from __future__ import annotations

import re
from typing import NamedTuple

from graphormer_sepnorm.errors import ConfigError


class Shard(NamedTuple):
    """The part `number` of `of` parts, counted from 1.

    The parts are contiguous, disjoint and together the whole table. They begin where a chunk of the
    whole table begins: the last digits of a value depend on the rows that are predicted together,
    so these are the same, and the parts behind each other are the output of the whole table.
    """

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``3/16``.

        Raises:
            ConfigError: It is something else.
        """
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        shard = cls(*map(int, match.groups())) if match else None
        if shard is None or not 1 <= shard.number <= shard.of:
            raise ConfigError(f"--shard is {text}: give K/N with K from 1 to N, such as 3/16")
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def rows(self, total: int, chunk_rows: int) -> range:
        """Return which rows of a table belong to it, from 0.

        Args:
            total: Rows of the table.
            chunk_rows: Rows that are predicted together. There are shards without rows where there
                are fewer chunks than shards.
        """
        chunks = -(-total // chunk_rows)
        first, last = (chunks * part // self.of for part in (self.number - 1, self.number))
        return range(min(first * chunk_rows, total), min(last * chunk_rows, total))
