# Two commands: `make train` and `make test`. Each sets everything up on a fresh machine that has
# Python 3.11 or newer; a second call finds .venv up to date and starts at once.

PYTHON ?= python3
CONFIG ?= configs/quickstart.yaml

BIN := .venv/bin
# Written last by the set-up, so that an interrupted one is started again.
STAMP := .venv/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: train test test-all unit lint types format sample bench gpu-check clean

train: $(STAMP)
	$(BIN)/python train.py fit -c $(CONFIG)

# Without what is marked slow: load, whole comparisons, pages of examples. `make test-all` runs it.
test: PYTEST_ARGS ?= -m "not slow"
test: lint types unit

test-all: lint types unit

# Real data for the tests are looked for in $GRAPHORMER_DATA, if that is set.
unit: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Makes data/sample.csv.gz again; the result is the same file.
sample: $(STAMP)
	$(BIN)/python data/make_sample.py

# Times the package beside others, whose environments it builds; see benchmarks/README.md.
# BENCH chooses rows and options: make bench BENCH="train --rounds 3".
bench: $(STAMP)
	$(BIN)/python -m benchmarks.bench $(BENCH)

# What to run first on a machine with a GPU, see docs/how-to/gpu.md; elsewhere it says that there is none.
# make gpu-check GPU_CHECK="--config zinc_subset_best --root DIR --batch_sizes 125"
GPU_CHECK ?= --config quickstart --batch_sizes 125
gpu-check: $(STAMP)
	$(BIN)/python -m benchmarks.gpu --check --output gpu_check.json $(GPU_CHECK)

# torch goes first and by its exact version: so pip takes the build that is offered for this
# machine (a CPU build where there is one) and the rest is resolved around it. Python compiles what
# is imported; pip would take a minute for 20,000 files.
$(STAMP): pyproject.toml constraints.txt $(wildcard graphormer_sepnorm/kernels/*.[ch])
	@$(PYTHON) -c 'import sys; sys.exit("Python >= 3.11 is needed, this is " + sys.version.split()[0] + "; choose another one with: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	@echo "Setting up .venv: about 2 GB, a few minutes; once."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --no-compile "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/python -m pip install --quiet --no-compile -c constraints.txt -e '.[test]'
	@touch $@

# The site, from the Markdown files and docstrings, in build/site; a broken link is an error.
.PHONY: docs
docs: $(STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going -c docs . build/site

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find graphormer_sepnorm tests data -name __pycache__ -type d -prune -exec rm -rf {} +
