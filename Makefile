# The ways in for people who work on Marey. Each sets up what it needs first (scripts/setup.sh; nothing the second time).
# Settings: MAREY_PYTHON, MAREY_TORCH (scripts/setup.sh), ARGS (demo, bench), FUZZ_SECONDS, SOAK_SECONDS, JOBS.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

export JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 120
PYTHON := .venv/bin/python
# The build tree's command line and package come first, whatever else is installed. Tests run side by side, so PyTorch has
# one thread in each.
RUN := PATH="$(CURDIR)/build/dev/bin:$(CURDIR)/.venv/bin:$$PATH" PYTHONPATH="$(CURDIR)/build/dev/python"

.PHONY: help
help: ## Say what there is
	@awk -F ':.*## ' '/^## /{printf "\n%s\n", substr($$0, 4)} /^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' Makefile

## Every day

.PHONY: demo
demo: build ## Train a small GRPO model on this machine, record two mini-batches of it and show what came out
	$(RUN) $(PYTHON) examples/grpo/train.py $(ARGS)

.PHONY: build
build: setup ## Build everything; leaves .venv/bin/python, which imports marey, and .venv/bin/marey
	@scripts/build.sh

.PHONY: check
check: unit ## At every change: build, unit tests, lint of what changed (under a minute)
	@scripts/lint.sh --changed

.PHONY: format
format: setup ## Format the code
	@scripts/lint.sh --fix

.PHONY: clean
clean: ## Remove what was built (not .venv)
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache

## The whole test run and its parts

.PHONY: test
test: setup ## Everything that must pass before a change goes in
	@scripts/test.sh

.PHONY: unit
unit: build ## C++ unit tests, and misuse that must not compile
	@ctest --test-dir build/dev -j $(JOBS) --output-on-failure --no-tests=error --progress

.PHONY: pytest
pytest: build ## End-to-end tests, and tests of what is installed; ARGS="-k name" chooses
	@$(RUN) OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n $(JOBS) --dist loadgroup $(ARGS) tests

.PHONY: e2e
e2e: build ## The end-to-end tests alone
	@$(RUN) OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n $(JOBS) --dist loadgroup -m "not install" $(ARGS) tests

.PHONY: lint
lint: setup ## Format, ruff, mypy, the arrows between the parts, shell scripts
	@scripts/lint.sh

.PHONY: tidy
tidy: build ## clang-tidy on the recording core and the public headers; ARGS="src/cli/main.cpp" chooses
	@scripts/tidy.sh $(ARGS)

.PHONY: asan
asan: setup ## Unit tests and the C++ example under AddressSanitizer and UBSan
	@scripts/sanitize.sh asan

.PHONY: tsan
tsan: setup ## Unit tests and the C++ example under ThreadSanitizer
	@scripts/sanitize.sh tsan

.PHONY: fuzz
fuzz: setup ## Every fuzz target, for FUZZ_SECONDS each
	@scripts/fuzz.sh $(FUZZ_SECONDS)

.PHONY: soak
soak: build ## Open and close windows under load for SOAK_SECONDS: nothing lost uncounted, memory flat
	@$(RUN) $(PYTHON) scripts/soak.py --seconds $(SOAK_SECONDS)

.PHONY: bench
bench: setup ## Measure every row of the design's speed table
	@scripts/bench.sh $(ARGS)

.PHONY: setup
setup:
	@scripts/setup.sh
