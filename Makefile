# Everything runs in .venv, which is made and filled on first use. Only python3 (3.11 or newer) and make are needed.
PYTHON ?= python3
JOBS ?= 2
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt

# A stamp carries the check sum of what decides the installation: repeated runs install nothing.
SUM := $(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)
CORE := $(VENV)/core-$(SUM)
LINT := $(VENV)/lint-$(SUM)
DEV := $(VENV)/dev-$(SUM)
DOCS := $(VENV)/docs-$(SUM)

# One thread per process: tests run in processes, and threads that spin cost more than they give.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1

.PHONY: help demo test slow lint format bench docs pages clean

help:            ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(CORE)    ## memorize a table that ships with Python, certify it, look at it
	@$(PY) -m byheart.demo

test: $(DEV)     ## the tests, in two processes (JOBS=n for n)
	@NUMBA_NUM_THREADS=$${NUMBA_NUM_THREADS:-1} $(PY) -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

slow: $(DEV)     ## the tests that take long
	@$(PY) -m pytest -q -m slow $(ARGS)

lint: $(LINT)    ## style, types, packages, spelling, phrases, links
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports
	@$(VENV)/bin/codespell src docs tests checker tools experiments benchmarks README.md CONTRIBUTING.md CHANGELOG.md
	@$(PY) tools/check_text.py

format: $(LINT)  ## let ruff mend what it can
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

bench: $(DEV)    ## the measurements of benchmarks/, one after the other
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(PY) $$file; done

docs: $(DOCS)    ## the site, in site/
	@$(PY) -m tools.pages --check
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

pages: $(CORE)  ## write the pages again that are made from registries
	@$(PY) -m tools.pages

clean:           ## remove what make made
	rm -rf $(VENV) site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "byheart needs Python 3.11 or newer, this is " + sys.version)'
	@echo "making $(VENV)" && $(PYTHON) -m venv $(VENV)

define install
	@echo "installing $(1) (first time only)"
	@$(PIP) -e "$(1)"
	@rm -f $(VENV)/$(2)-* && touch $@
endef

$(CORE): | $(PY)
	$(call install,.[build],core)

$(LINT): | $(PY)
	$(call install,.[lint],lint)

$(DEV): | $(PY)
	$(call install,.[dev],dev)
	@rm -f $(VENV)/core-* $(VENV)/lint-* && touch $(CORE) $(LINT)

$(DOCS): | $(PY)
	$(call install,.[docs],docs)
