# Everything a newcomer needs. Each target does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: optimize test lint bench clean

optimize: $(VENV)/ready  ## run the main job on the embedded default; ends well whether or not there is something to gain
	$(BIN)/pgo-agent optimize kernels/fa_fwd.py; code=$$?; test $$code -le 1

test: $(VENV)/ready lint  ## style, types and the whole suite
	$(BIN)/python -m pytest -n 2 --dist worksteal -q

lint: $(VENV)/ready build/types/pgo_agent
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/ready  ## seconds to trace, to compile and to judge; memory
	$(BIN)/python -m pgo_agent.evals.bench kernels/fa_fwd.py

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $@

# A link that lets type checkers and editors see the folders under the names they are installed by.
build/types/pgo_agent:
	mkdir -p build/types
	ln -sfn ../.. $@

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
