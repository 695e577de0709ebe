"""`train.py fit` that takes its steps when it is asked to, in any checkout of this package.

python recipe.py CHECKOUT STEPS OPTION ...

Each line on standard input lets it take STEPS optimiser steps, loading of batches and Lightning's
loop among them; the answer, as in `protocol`, has the CPU seconds of one of them.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from lightning.pytorch import Callback

_checkout, _steps, *_options = sys.argv[1:]
_answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what fit prints must not stand between the answers


class Turns(Callback):
    """Waits before every so many steps, until there is a line on standard input."""

    def __init__(self) -> None:
        self._started: float | None = None

    def on_train_batch_start(self, *_: Any) -> None:
        """Answer how long the steps took, and wait for the next turn."""
        trainer = _[0]
        if trainer.global_step % int(_steps):
            return
        if self._started is not None:
            seconds = (time.process_time() - self._started) / int(_steps)
            print(json.dumps({"seconds": seconds, "peak": 0}), file=_answers, flush=True)
        if not sys.stdin.readline():
            os._exit(0)
        self._started = time.process_time()


if __name__ == "__main__":
    sys.path.insert(0, _checkout)
    from graphormer_sepnorm.cli.train import main

    sys.exit(main(["fit", "--trainer.callbacks+=__main__.Turns", *_options]))
