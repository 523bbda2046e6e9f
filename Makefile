# `make demo` shows the package, `make test` and `make lint` check it; everything lives in ./.venv
# `make bench` measures it beside others, in ./.venv-bench; `make fleet` on many workers
# Demo and tests install by constraints.txt, versions that passed them together; `make test CONSTRAINTS=` takes the newest.
PYTHON ?= python3
ARGS ?=
WORKERS ?= logical
DATA ?=
BENCH ?=
QUICK ?=
MODEL ?=
CONSTRAINTS ?= constraints.txt
VENV := .venv
BENCH_VENV := .venv-bench
NEWEST_VENV := .venv-newest
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
# Knows dependency groups; a new environment has the pip that came with its Python.
NEW_PIP := "pip>=25.1"
CONSTRAINED := $(addprefix --constraint ,$(CONSTRAINTS))

.PHONY: demo test lint format docs bench figures fleet constraints clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo-ready  ## make demo ARGS="--window 4096"
	$(BIN)/ctxwin demo $(ARGS)

# One process per core, up to four: each imports and collects everything. WORKERS=0 runs all in one process.
# worksteal keeps most of a file together, and goes on when a process dies (loadfile hangs then).
test: export PYTHONDONTWRITEBYTECODE =  # else each process that a test starts compiles the package anew
test: $(VENV)/.test-ready  ## make test ARGS="tests/unit -k retriever"
	$(BIN)/pytest --numprocesses $(WORKERS) --maxprocesses 4 --dist worksteal $(ARGS)

lint: $(VENV)/.test-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.test-ready  ## into ./site; make docs ARGS="--site-dir somewhere"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

format: $(VENV)/.test-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# In an environment of its own, which has the packages that we are compared with. BENCH="routing cost" chooses some,
# MODEL=FILE.gguf is the language model of `reader`, ARGS=--all adds the long form.
bench: $(BENCH_VENV)/.ready  ## make bench DATA=path/to/data; make bench QUICK=1
	$(BENCH_VENV)/bin/python benchmarks/run.py $(if $(QUICK),--quick) $(if $(DATA),--data "$(DATA)") $(if $(MODEL),--model "$(MODEL)") $(if $(BENCH),--only $(BENCH)) $(ARGS)

figures:  ## copies the figures of README.md and docs/figures.md from benchmarks/RESULTS.md
	$(PYTHON) benchmarks/figures.py

# Ten minutes on two cores. A small one: make fleet ARGS="--threads 20 --kills 2"
fleet: $(VENV)/.test-ready  ## many workers on Postgres and Valkey, killed while they work
	$(BIN)/python benchmarks/fleet $(ARGS)

# Run the tests afterwards: the file says that they pass with what it names.
constraints: pyproject.toml  ## writes constraints.txt anew: the newest versions of all that the tests need
	rm -rf $(NEWEST_VENV)
	$(PYTHON) -m venv $(NEWEST_VENV)
	$(NEWEST_VENV)/bin/python -m pip --disable-pip-version-check -qq install --upgrade $(NEW_PIP)
	$(NEWEST_VENV)/bin/python -m pip --disable-pip-version-check -qq install --editable ".[all]" --group test
	$(NEWEST_VENV)/bin/python -m pip freeze --exclude-editable > constraints.txt
	rm -rf $(NEWEST_VENV)

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(NEWEST_VENV) build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find langchain_ctxwin tests benchmarks -type d -name __pycache__ -prune -exec rm -rf {} +

# Two stamps, so that the demo on a fresh clone does not wait for the test tools.
$(VENV)/.demo-ready: pyproject.toml $(CONSTRAINTS) $(BIN)/python
	@echo "installing the package into $(VENV) (once)"
	@$(PIP) install $(CONSTRAINED) --editable .
	@touch $@

$(VENV)/.test-ready: pyproject.toml $(CONSTRAINTS) $(BIN)/python
	@echo "installing the package and its test tools into $(VENV) (once)"
	@$(PIP) install --upgrade $(NEW_PIP)
	@$(PIP) install $(CONSTRAINED) --editable ".[all]" --group test
	@touch $@ $(VENV)/.demo-ready

$(BENCH_VENV)/.ready: pyproject.toml $(BENCH_VENV)/bin/python
	@echo "installing the package and its peers into $(BENCH_VENV) (once)"
	@$(BENCH_VENV)/bin/python -m pip --disable-pip-version-check -qq install --upgrade $(NEW_PIP)
	@$(BENCH_VENV)/bin/python -m pip --disable-pip-version-check -qq install --editable ".[agents,anthropic,exact,otel,reload]" --group bench
	@touch $@

$(BIN)/python $(BENCH_VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or run make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), at least Python 3.11 is needed: run make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(@:/bin/python=)
