# make run    serve the embedded model on http://127.0.0.1:8000 (ARGS="--port 9000" adds flags)
# make test   lint, types, import rules and all tests, two test files at a time (JOBS=1: one)
# make agents real coding agents against headstart; needs Node's npm, installs them into .agents
#
# All make their own virtual environment in .venv and install what they need, once:
# a stamp file is renewed only when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
JOBS   ?= 2
AGENTS ?= .agents

BIN := $(VENV)/bin

# llama.cpp is compiled from source for this processor. Its picture and sound parts and its library
# of command-line tools are not used here; leaving them out more than halves the build. pip keeps the
# built wheel for the next environment. CMAKE_ARGS from outside (a GPU, say) comes first.
LLAMA_ONLY := -DLLAVA_BUILD=OFF $(if $(word 2,$(CURDIR)),,-DCMAKE_PROJECT_INCLUDE=$(CURDIR)/.ci/llama-only.cmake)
export CMAKE_ARGS := $(CMAKE_ARGS) $(LLAMA_ONLY)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
export PIP_DISABLE_PIP_VERSION_CHECK = 1

INSTALL := $(BIN)/python -m pip install --quiet --constraint constraints.txt

.PHONY: run test agents lint types install bench clean

run: $(VENV)/.installed-run
	$(BIN)/headstart serve --model embedded $(ARGS)

test: lint types
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile $(ARGS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench

types: $(VENV)/.installed-test
	$(BIN)/mypy

agents: $(VENV)/.installed-test $(AGENTS)/.installed
	HEADSTART_AGENTS=$(AGENTS) $(BIN)/python -m pytest tests/agents --timeout 600 $(ARGS)

bench: $(VENV)/.installed-bench
	$(BIN)/python bench/prefix_reuse.py $(ARGS)

install: $(VENV)/.installed-test

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "headstart needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) -V 2>&1`. Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-run: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing headstart into $(VENV). The first time, llama.cpp is compiled: some minutes." >&2
	$(INSTALL) --editable '.[embedded]'
	@touch $@

$(VENV)/.installed-test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing headstart and its test tools into $(VENV). The first time, llama.cpp is compiled: some minutes." >&2
	$(INSTALL) --editable '.[embedded,test]'
	@touch $@ $(VENV)/.installed-run

$(VENV)/.installed-bench: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[embedded,test,bench]'
	@touch $@ $(VENV)/.installed-run $(VENV)/.installed-test

$(AGENTS)/.installed: tests/agents/package.json
	@command -v npm >/dev/null || { echo "make agents needs npm, which comes with Node 20 or newer; install Node, then try again." >&2; exit 1; }
	@mkdir -p $(AGENTS)
	cp tests/agents/package.json $(AGENTS)/
	npm install --prefix $(AGENTS) --no-package-lock --no-fund --no-audit
	@touch $@

clean:
	rm -rf $(VENV) $(AGENTS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
