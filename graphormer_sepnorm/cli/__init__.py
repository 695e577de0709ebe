"""The command lines: `train.py` and `predict.py`. Everything heavy is imported when it is used."""
