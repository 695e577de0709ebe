"""Predict molecular properties: ``python predict.py CHECKPOINT SMILES ...``."""

import sys

from graphormer_sepnorm.cli.predict import main

if __name__ == "__main__":
    sys.exit(main())
