# Everything works from a fresh clone with nothing installed but Python, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch torchvision

.PHONY: demo test check bench benchmarks clean

demo: $(VENV)/.demo  ## the article's toy pipeline: diagnose, mend, diagnose again
	$(BIN)/unstarve demo

test: $(VENV)/.test  ## what CI runs
	$(BIN)/ruff check src tests benchmarks bench examples
	$(BIN)/ruff format --check --quiet src tests bench examples
	$(BIN)/mypy
	$(BIN)/python -m pytest

check: test

bench: $(VENV)/.bench  ## the bench of planted faults, whole (long)
	$(BIN)/python bench/score.py

benchmarks: $(VENV)/.test  ## the measures that README and docs quote
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

$(VENV)/.base: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "setuptools>=77" wheel
	touch $@

$(VENV)/.demo: $(VENV)/.base
	$(BIN)/python -m pip install --quiet $(TORCH)
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[demo]"
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[test]"
	touch $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --no-build-isolation --editable ".[bench]"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
