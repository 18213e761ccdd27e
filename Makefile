# SPDX-License-Identifier: GPL-2.0-only
# `make help` lists what can be made.

NODES ?= 2
PYTHON := build/venv/bin/python
KERNEL_OPTION := $(if $(KERNEL),--kernel "$(KERNEL)")
IN_MACHINE := $(PYTHON) -m nuksmlab run $(KERNEL_OPTION)
GUEST_TESTS := $(PYTHON) -m pytest -v -c lab/pyproject.toml -p no:cacheprovider lab/guest_tests

ENGINE_TESTS := $(PYTHON) -m pytest -v -c lab/pyproject.toml -p no:cacheprovider lab/engine_tests

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check unit kernel engine guest cost build clean setup-demo setup-test

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-8s %s\n", $$1, $$2 }' Makefile

demo: setup-demo build ## show the problem and the cure on NODES=2 nodes; KERNEL=/path/to/vmlinuz
	$(PYTHON) -m nuksmlab.demo --nodes $(NODES) $(KERNEL_OPTION)

test: check unit engine guest ## run everything: check, unit, engine, guest

check: setup-test ## check format, lints and types
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	build/venv/bin/ruff format --check lab
	build/venv/bin/ruff check lab
	cd lab && ../build/venv/bin/mypy
	shellcheck scripts/*.sh kernel/build.sh .ci/run

unit: setup-test build ## run the tests that need no machine
	cargo test --locked --workspace
	$(PYTHON) -m pytest -c lab/pyproject.toml lab/tests

kernel: setup-test ## build the engine's kernel (User-Mode Linux) and say where it is
	@kernel/build.sh um

engine: setup-test build ## run the engine's tests, on its own kernel
	$(PYTHON) -m nuksmlab uml --kernel "$$(kernel/build.sh um)" --memory-mib 512 --output build/engine -- $(ENGINE_TESTS)

guest: setup-test build ## run the program's tests in machines of two and four nodes
	$(IN_MACHINE) --nodes 2 --memory-mib 1024 --output build/guest-2 -- $(GUEST_TESTS) -m "not cost"
	$(IN_MACHINE) --nodes 4 --memory-mib 768 --output build/guest-4 -- $(GUEST_TESTS) -m "not cost"

cost: setup-test build ## measure a pass over 1 GiB of merged pages
	$(IN_MACHINE) --nodes 2 --memory-mib 2048 --output build/cost -- $(GUEST_TESTS) -m cost
	cat build/cost/cost.json

build: ## build the program and the tenant
	cargo build --locked --release
	$(MAKE) --no-print-directory -C lab/tenant OUT=$(CURDIR)/build

clean: ## remove what was built; fetched kernels stay in the cache
	rm -rf build target

setup-demo:
	scripts/setup.sh demo

setup-test:
	scripts/setup.sh test
