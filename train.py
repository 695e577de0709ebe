"""Train and evaluate Graphormer with SepNorm: `python train.py --help`."""

import sys

from graphormer_sepnorm.cli.train import main

if __name__ == "__main__":
    sys.exit(main())
