# What a newcomer needs: `make demo` and `make test`. Nothing but Python >= 3.11 and make is expected on the machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
STAMP := $(VENV)/.installed
EXTRAS ?= dev
FOCUS_PYTHON ?= python3.12

# Compiled files are kept, whatever the shell says: tests import hundreds of files, in many processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test test-system test-long test-frameworks test-cloud test-kubernetes focus-judge chaos property mutants lint docs bench size wheel clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / - /'

install: $(STAMP)  ## create .venv with gpubroker and everything that the tests need

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(0 if sys.version_info >= (3, 11) else f"gpubroker needs Python 3.11 or newer; {sys.executable} is {v}. Try: make PYTHON=python3.12 install")'
	$(PYTHON) -m venv $(VENV)

$(BASE): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	@touch $@

$(STAMP): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $(BASE) $@

demo: $(BASE)  ## a job from market prices to the bill, on the simulated market, in about a minute
	$(BIN)/gpubroker demo

test: install  ## the quick run: types, style, architecture, some tests of every kind, on SQLite
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.beside $(BIN)/mypy -- $(BIN)/pytest --forks auto -m 'not system and not slow'

test-system: install  ## the other tests: slow ones, full counts, PostgreSQL, real processes killed at every point
	GPUBROKER_TEST_FULL=1 $(BIN)/pytest --forks auto --timeout 900 -m '(system or slow or sampled or hypothesis) and not cloud and not kubernetes and not long'

test-long: test-frameworks  ## also chaos: half an hour
	GPUBROKER_TEST_FULL=1 $(BIN)/pytest --forks auto --timeout 1800 -m long --ignore tests/system/test_frameworks.py --ignore tests/system/test_recipes.py

test-frameworks: install  ## checkpoints as the frameworks themselves write them, interrupted and resumed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,recipes]'
	GPUBROKER_TEST_FULL=1 $(BIN)/pytest --forks auto --timeout 1800 -m long tests/system/test_frameworks.py tests/system/test_recipes.py

test-cloud: install  ## SkyPilot's real provisioner on an emulated AWS with real machines (needs root)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,skypilot]'
	$(BIN)/pytest -m cloud -n 2 --dist load --durations 0

test-kubernetes: install  ## SkyPilot's real provisioner on a real Kubernetes with pretended GPUs (needs root)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,skypilot]'
	$(BIN)/python -m tests.kubernetes

SEED ?= 1
MINUTES ?= 15

focus-judge: install  ## the FOCUS export before the specification's own validator (needs Python 3.12)
	$(FOCUS_PYTHON) -m venv .venv-focus
	.venv-focus/bin/pip install --quiet --disable-pip-version-check 'focus-validator==2.2.1' 'pyarrow<26'
	GPUBROKER_FOCUS_VALIDATOR=$(CURDIR)/.venv-focus/bin/focus-validator $(BIN)/pytest tests/app/billing/test_focus_judges.py

chaos: install  ## a broker among faults for a quarter of an hour: make chaos SEED=1 MINUTES=15
	$(BIN)/python -m tests.chaos --seed $(SEED) --minutes $(MINUTES)

mutants: install  ## whether the tests of the money packages bite (an hour): make mutants [MODULE=broker/ledger/holds.py]
	$(BIN)/python -m tests.mutants $(if $(MODULE),--module $(MODULE)) $(if $(SINCE),--since $(SINCE))

SEQUENCES ?= 1000
STORE ?= sqlite

property: install  ## the promise about money over so many random scripts: make property SEQUENCES=20000 STORE=postgres
	$(BIN)/python -m tests.money --sequences $(SEQUENCES) --store $(STORE)

lint: install  ## mend style, check types and architecture
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: install  ## print speed figures (also in tests/bench/README.md)
	$(BIN)/python -m tests.bench

docs: install  ## build the site of docs/ into site/; a broken link fails
	$(BIN)/python -m tests.docs.reference docs/reference
	$(BIN)/zensical build --clean --strict

size: install  ## how large the product, its tests and its command line are
	$(BIN)/python -m tests.size

wheel: install  ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:  ## remove what the above made
	rm -rf $(VENV) dist build site .cache docs/reference .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .mutants
