# Each target installs its packages into .venv once; `make` alone lists the targets.
SHELL := /bin/bash
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# DVC runs `dprepro` by name
export PATH := $(CURDIR)/$(BIN):$(PATH)

# OpenMP's default is to wait by spinning, which takes ten times as long beside any other process.
export OMP_WAIT_POLICY ?= PASSIVE

# The first new enough Python; `make PYTHON=/path/to/python3.12 demo` names another.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

# Test processes, one more than cores: some tests wait for a server or for a machine's timeout.
TESTERS = $$(($$(getconf _NPROCESSORS_ONLN) + 1))

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock pyproject.toml
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "make: needs Python 3.11 or newer, this is $$($(or $(PYTHON),python3) --version 2>&1);" \
			"name one with make PYTHON=/path/to/python" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# pip installs uv alone, and uv installs the rest in parallel; the lock's hashes are checked for all packages
	@awk '/^[^ ]/ {wanted = /^uv==/} wanted' requirements.lock >$(VENV)/uv.lock
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes -r $(VENV)/uv.lock
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: demo
demo: $(STAMP) ## first run: every method on scikit-learn's digits, three minutes
	@echo "One row of every method, from raw files to the report and MLflow: three minutes on two cores."
	@$(BIN)/python -c 'from pathlib import Path; from dprepro.stages.init import stages, without_audits; \
		Path("demo/dvc.yaml").write_text(without_audits(stages(Path("dvc.yaml").read_text())))'
	$(BIN)/dvc --cd demo repro
	@echo "The demo's report: $(CURDIR)/demo/reports/index.html"

.PHONY: test
test: $(STAMP) ## all checks: lint, types, tests
	$(MAKE) --no-print-directory --jobs 2 lint pytest

.PHONY: pytest
pytest: $(STAMP)
	$(BIN)/python -m pytest -n $(TESTERS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder

.PHONY: test-broad
test-broad: $(STAMP) ## every variant of every method through the whole pipeline, about fifteen minutes
	$(BIN)/python -m pytest -m broad

.PHONY: lint
lint: $(STAMP) ## style, order of imports, types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

.PHONY: report
report: $(STAMP) ## the report from the committed records; trains nothing
	$(BIN)/dvc repro --single-item --force report  # pages are not in git

# Not `dvc repro --pull --allow-missing`: that trains rows without results.
.PHONY: pull-report
pull-report: $(STAMP) ## data, models and results from the DVC remote, then the report; trains nothing
	$(BIN)/dvc pull --allow-missing dvc.yaml
	$(BIN)/dvc repro --single-item publish report

# Missing weights of valid rows stay missing, a failing row stops no other, and rows that wait for a GPU are left out.
.PHONY: repro
repro: $(STAMP) ## list the missing training runs, train them and render the report; ROWS="a b" JOBS=2
	$(BIN)/dprepro plan $(ROWS)
	-$(BIN)/dprepro repro $(ROWS) --jobs $(or $(JOBS),1)
	$(BIN)/dvc repro --single-item publish report

.PHONY: bench
bench: $(STAMP) ## the cost of a training step beside plain SGD and Opacus; ARGS="--only lenet5 --threads 2"
	$(BIN)/python -m benchmarks $(ARGS)

.PHONY: ui
ui: $(STAMP) ## MLflow's page over the committed records
	$(BIN)/dprepro ui

.PHONY: site
site: $(STAMP) ## documentation, API and report as one site with a search, in build/site; needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "$(BIN)/python -m http.server --directory build/site"

.PHONY: hooks
hooks: $(STAMP) ## check every commit, by pre-commit
	$(BIN)/pre-commit install

# Not a dependency of the stamp: new versions are a decision.
.PHONY: lock
lock: $(STAMP) ## write requirements.lock anew; fitting versions stay
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		$(addprefix --extra ,dev lab text vectors) --no-emit-index-url --custom-compile-command 'make lock' $(UPGRADE) --output-file requirements.lock pyproject.toml

.PHONY: upgrade
upgrade: ## the same with the newest versions; run `make test` afterwards
	$(MAKE) lock UPGRADE=--upgrade
