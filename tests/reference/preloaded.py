"""What the server of forked processes imports: all that the commands import at some time."""

import contextlib
import importlib
import pkgutil

import graphormer_sepnorm

# What the package imports in functions, and what those import when they are first called.
LIBRARIES = """
reference.processes lightning.pytorch.loggers tensorboard matplotlib.pyplot jinja2 pandas
scipy.stats sklearn.ensemble sklearn.metrics networkx pyarrow.parquet torch._dynamo
torch.utils.tensorboard rdkit.Chem.Descriptors
"""

PACKAGE = pkgutil.walk_packages(graphormer_sepnorm.__path__, "graphormer_sepnorm.")

for name in (*(module.name for module in PACKAGE), *LIBRARIES.split()):
    with contextlib.suppress(ImportError):  # a library that is not there
        importlib.import_module(name)
