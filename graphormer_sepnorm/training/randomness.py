"""Random numbers that depend on where training stands, not on how it got there.

Lightning saves no state of the random number generator. So dropout is seeded anew at every
micro-batch from (seed, epoch, batch, rank): a resumed run continues exactly as the uninterrupted
one would have, and two arms of a comparison draw the same random numbers at the same step.
"""

from __future__ import annotations

import hashlib
import struct


def stable_seed(*parts: int) -> int:
    """Mix integers into a seed of 63 bits that is the same in every process and version."""
    digest = hashlib.blake2b(struct.pack(f"<{len(parts)}q", *parts), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
