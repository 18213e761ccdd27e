# SPDX-License-Identifier: GPL-2.0-only
# `make help` lists what can be made.

NODES ?= 2
SECONDS ?= 300
CONFIG ?= lab
# Of Linux, for our kernel: a folder of kernel/base.
VERSION := 6.12
PREFIX ?= /usr/local
# Ends by SIGTERM when make is killed, which tells nobody.
WITH_MAKE := setpriv --pdeathsig TERM
PYTHON := build/venv/bin/python
RUN := $(WITH_MAKE) $(PYTHON)
KERNEL_OPTION := $(if $(KERNEL),--kernel '$(KERNEL)')
OUR_KERNEL := $(filter nuksm nuksm-%,$(KERNEL))
IN_MACHINE := $(RUN) -m nuksmlab run $(KERNEL_OPTION)
OF_KERNEL := $(addprefix -,$(notdir $(KERNEL)))
OF_VERSION := $(if $(filter-out 6.12,$(VERSION)),-$(VERSION))
ON_ENGINE := $(RUN) -m nuksmlab run --kernel nuksm$(OF_VERSION)
TESTS := $(PYTHON) -m pytest -vv --durations 10 -c lab/pyproject.toml -p no:cacheprovider
GUEST_TESTS := $(TESTS) lab/guest_tests
SELFTESTS := lab/engine_tests/test_selftests.py
# ksm_functional_tests writes to itself by /proc, which newer kernels do not allow.
FOR_SELFTESTS := --nodes 2 --memory-mib 1024 --append proc_mem.force_override=always
ENGINE_TESTS := $(TESTS) lab/engine_tests --ignore $(SELFTESTS)
# What QUICK=1 leaves out takes half a minute or more each.
ON_NODES := not stress and not cost and not exhaustive and not windows and not tiers$(if $(QUICK), and not slow)
IN_GUESTS := not cost and not package and not vm$(if $(QUICK), and not slow)
# In machines of their own beside the others: they wait for looks or locks, need the
# program, or are many.
WAITING := looks replicas payers folding latecomers
WAITING_TESTS := $(WAITING:%=lab/engine_tests/test_%.py)
PROGRAM_TESTS := $(addprefix lab/engine_tests/,test_program.py test_domain_rules.py test_paper.py)
DOMAIN_TESTS := $(filter-out $(PROGRAM_TESTS),$(wildcard lab/engine_tests/test_domain*.py))

# Folders of the lab.
BUILT_BY_MAKE := tenant fuzz workloads plugin

# What is run is looked for there, wherever a user's Rust builds.
export CARGO_TARGET_DIR := $(CURDIR)/target
unexport CARGO_BUILD_TARGET CDPATH

# Some shells set these for themselves, and to other things.
$(foreach name,HOST NAME,$(if $(filter environment,$(origin $(name))),$(eval $(name) :=)))

# A line of a recipe is one command, by exec where it needs a shell, as for double quotes:
# make signals what it has started itself, and a shell that waits for another command would
# end alone.

# $(call put,FROM,TO): a copy, put there at once, if it is another one.
put = cmp -s $1 $2 || { cp $1 $2.new && mv $2.new $2; }

# What targets need; nothing, where nuksmlab.suite has seen to it.
READY := setup build

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-all check unit kernel kernel-deb kernel-check series engine engine-um engine-2 engine-domains $(WAITING:%=engine-%) engine-program engine-4 engine-tiers engine-debug selftests selftests-some stress guest guest-2 guest-4 vms counter package cost bench paper mutants build build-lab $(BUILT_BY_MAKE:%=build-%) program install uninstall deb clean setup setup-demo setup-deb setup-kernel setup-kernel-deb

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

demo: setup-demo build-lab ## show the problem and the cure on NODES=2 nodes; KERNEL=nuksm, nuksm-7.3, stock-7.3, or /path/to/vmlinuz
	$(WITH_MAKE) cargo build --locked --package nuksm
	@$(call put,target/debug/nuksm,build/nuksm-demo)
	$(RUN) -m nuksmlab.demo --nodes $(NODES) $(KERNEL_OPTION)

test: setup ## for everybody, and CI: check, unit, engine and program on two nodes, a minute of fuzz
	$(RUN) -m nuksmlab.suite test

test-all: setup ## before a change is called done: all tests, four nodes, kernels that check themselves
	$(RUN) -m nuksmlab.suite test-all

check: $(filter setup,$(READY)) ## check format, lints, types, and who imports whom
	cargo fmt --all --check
	$(WITH_MAKE) cargo clippy --locked --workspace --all-targets -- -D warnings
	scripts/layers.py
	build/venv/bin/ruff format --check --config lab/pyproject.toml lab scripts
	build/venv/bin/ruff check lab
	build/venv/bin/ruff check --config lab/pyproject.toml scripts
	cd lab && ../build/venv/bin/mypy
	shellcheck scripts/*.sh kernel/*.sh packaging/*.sh lab/nuksmlab/paper/*/*.sh .ci/run

unit: $(READY) ## run the tests that need no machine
	$(WITH_MAKE) cargo test --locked --workspace
	$(RUN) -m pytest -c lab/pyproject.toml lab/tests

kernel: $(if $(READY),setup-kernel) ## build our kernel and say where it is; CONFIG=lab, debug or kcsan, ARCH=um for User-Mode Linux, VERSION=6.12 or 7.3
	@$(WITH_MAKE) kernel/build.sh $(if $(filter um,$(ARCH)),um,$(CONFIG)) $(VERSION)

kernel-deb: setup-kernel-deb ## build our kernel as Debian packages, configured as this machine's; CONFIG_FILE=/path/to/config
	@exec env CONFIG_FILE='$(CONFIG_FILE)' $(WITH_MAKE) kernel/build.sh deb $(VERSION)

series: setup-kernel ## write the engine as patches for git am into build/series/VERSION
	@$(WITH_MAKE) kernel/series.sh $(VERSION)

engine: engine-um engine-2 engine-domains $(WAITING:%=engine-%) engine-program engine-4 engine-tiers engine-debug ## run the engine's tests, on its own kernels

engine-um: $(READY) # what needs no nodes, and the tests in the kernel
	$(RUN) -m nuksmlab uml --version $(VERSION) --memory-mib 512 --output build/engine-um$(OF_VERSION) -- $(ENGINE_TESTS) -m 'not stress and not cost and not windows and not tiers'

engine-2: $(READY)
	$(ON_ENGINE) --nodes 2 --memory-mib 768 --output build/engine-2$(OF_VERSION) -- $(ENGINE_TESTS) $(addprefix --ignore ,$(DOMAIN_TESTS) $(WAITING_TESTS) $(PROGRAM_TESTS)) -m '$(ON_NODES)'

engine-domains: $(READY)
	$(ON_ENGINE) --nodes 2 --memory-mib 768 --output build/$@$(OF_VERSION) -- $(TESTS) $(DOMAIN_TESTS) -m '$(ON_NODES)'

$(WAITING:%=engine-%): engine-%: $(READY)
	$(ON_ENGINE) --nodes 2 --memory-mib 768 --output build/$@$(OF_VERSION) -- $(TESTS) lab/engine_tests/test_$*.py -m '$(ON_NODES)'

engine-program: $(READY)
	$(ON_ENGINE) --nodes 2 --memory-mib 768 --output build/$@$(OF_VERSION) -- $(TESTS) $(PROGRAM_TESTS) -m '$(ON_NODES)'

engine-4: $(READY)
	$(ON_ENGINE) --nodes 4 --memory-mib 512 --output build/engine-4$(OF_VERSION) -- $(ENGINE_TESTS) -m '$(ON_NODES) and not anywhere'

engine-tiers: $(READY)
	$(ON_ENGINE) --nodes 2 --slow-tier --memory-mib 512 --output build/engine-tiers$(OF_VERSION) -- $(ENGINE_TESTS) -m tiers

# Races: only a kernel that checks its memory sees all of them.
engine-debug: $(READY)
	$(ON_ENGINE)-debug --nodes 2 --memory-mib 1024 --output build/engine-debug$(OF_VERSION) -- $(ENGINE_TESTS) -m windows

kernel-check: $(filter setup,$(READY)) ## ask the kernel's tools about the engine; compare what is without it with stock
	@$(WITH_MAKE) kernel/check.sh $(VERSION)

selftests-some: $(READY)
	$(RUN) -m nuksmlab.selftests build $(VERSION)
	$(ON_ENGINE) $(FOR_SELFTESTS) --output build/selftests-some$(OF_VERSION) -- $(TESTS) $(SELFTESTS) -m 'not exhaustive'

selftests: $(READY) ## run the kernel's own tests of KSM, on a stock kernel and on ours
	$(RUN) -m nuksmlab.selftests build $(VERSION)
	$(RUN) -m nuksmlab run --kernel stock-$(VERSION) $(FOR_SELFTESTS) --output build/selftests-stock$(OF_VERSION) -- $(TESTS) $(SELFTESTS)
	$(ON_ENGINE) $(FOR_SELFTESTS) --output build/selftests-engine$(OF_VERSION) -- $(TESTS) $(SELFTESTS)
	$(RUN) -m nuksmlab.selftests compare build/selftests-stock$(OF_VERSION) build/selftests-engine$(OF_VERSION)

stress: $(READY) ## everything at once, at random; NODES=2 or 4, SECONDS=300, KERNEL=nuksm-debug, nuksm-kcsan or nuksm-7.3-debug, SEED=
	$(RUN) -m nuksmlab.fuzz --kernel $(or $(KERNEL),nuksm$(OF_VERSION)-debug) --nodes $(NODES) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

guest: guest-2 guest-4 ## run the program's tests in machines of two and four nodes

guest-2: $(READY)
	$(IN_MACHINE) --nodes 2 --memory-mib 1024 --output build/guest-2$(OF_KERNEL) -- $(GUEST_TESTS) -m '$(IN_GUESTS)'

guest-4: $(READY)
	$(IN_MACHINE) --nodes 4 --memory-mib 768 --output build/guest-4$(OF_KERNEL) -- $(GUEST_TESTS) -m '$(IN_GUESTS) and not anywhere'

# Apart from `test`: nested guests need more of the emulator than it always gives.
vms: setup build ## virtual machines by KVM: is what they write merged, and as much as estimated?
	exec $(WITH_MAKE) kernel/build.sh lab $(VERSION) >build/vms-kernel
	exec $(IN_MACHINE) --nested --nodes 2 --memory-mib 1024 --output build/vms -- \
		env NUKSM_VM_KERNEL="$$(cat build/vms-kernel)" $(GUEST_TESTS) -m vm -s

counter: $(READY) ## test the counting of DRAM accesses, in a counting machine of four nodes
	exec $(WITH_MAKE) kernel/build.sh lab $(VERSION) >build/counter-kernel
	exec $(ON_ENGINE) --count --nested --nodes 4 --memory-mib 512 --output build/counter$(OF_VERSION) -- \
		env NUKSM_VM_KERNEL="$$(cat build/counter-kernel)" $(TESTS) lab/counter_tests

package: $(READY) deb ## test the Debian package and its unit, under systemd in a machine
	$(WITH_MAKE) packaging/deb.sh +upgrade
	exec $(RUN) -m nuksmlab.debian_root >build/debian-root
	exec $(IN_MACHINE) --nodes 2 --memory-mib 1024 --output build/package -- \
		$(PYTHON) -m nuksmlab.systemd "$$(cat build/debian-root)" \
		$(subst $(PYTHON),python3,$(GUEST_TESTS)) -m package

cost: setup build program ## measure a pass over 1 GiB of merged pages, serving 64 tenants, and what readers cost ksmd
	$(IN_MACHINE) --nodes 2 --memory-mib 2048 --output build/cost -- $(GUEST_TESTS) -m cost
	cat build/cost/*.json
	$(ON_ENGINE) --nodes 2 --memory-mib 768 --output build/cost-readers -- $(ENGINE_TESTS) -m cost -s

bench: setup build ## measure the engine's scans against stock's; QUICK=1 for ten minutes; VERSION=7.3 CPUS=2
	$(RUN) -m nuksmlab.bench all --version $(VERSION) $(if $(QUICK),--quick) $(if $(CPUS),--cpus $(CPUS))

paper: $(READY) $(if $(READY),program) ## reproduce the paper; QUICK=1 in small, EXPERIMENT=NAME one only, HOST=1 on this machine, with QUICK=1 a rehearsal of that
	exec $(RUN) -m nuksmlab.paper --kernel $(or $(KERNEL),nuksm) $(if $(QUICK),--quick) $(if $(HOST),--host) \
		$(if $(EXPERIMENT),--experiment $(EXPERIMENT)) $(if $(HARDWARE),--hardware "$(HARDWARE)")

mutants: $(READY) $(if $(READY),program) ## break the engine and the planner on purpose, and see who notices; NAME=, ALL=1 asks all tests
	$(RUN) -m $(if $(NAME)$(ALL),nuksmlab.mutants $(if $(ALL),--all) $(NAME),nuksmlab.suite mutants)

# Cargo links the program anew for its tests, which ask other crates for more features, and
# after each change: machines run a copy.
build: build-lab ## build what is tested: the program, the tenant, the fuzzer, the workloads and the counter
	$(WITH_MAKE) cargo test --locked --workspace --no-run
	@$(call put,target/debug/nuksm,build/nuksm)

build-lab: $(BUILT_BY_MAKE:%=build-%)

$(BUILT_BY_MAKE:%=build-%): build-%:
	$(WITH_MAKE) $(MAKE) --no-print-directory -C lab/$* OUT=$(CURDIR)/build

program: ## build the program as users have it
	$(WITH_MAKE) cargo build --locked --release --package nuksm

# By sudo, what was built before is installed: root may have no Rust.
install: $(if $(SUDO_USER),,program) ## install the program, its manual and its unit; PREFIX=/usr/local, DESTDIR=
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" packaging/install.sh install

uninstall: ## remove what install put there, but for a changed configuration
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" packaging/install.sh uninstall

deb: $(if $(READY),setup-deb) program ## make a Debian package in build/deb
	rm -rf build/deb
	$(WITH_MAKE) packaging/deb.sh

clean: ## remove what was built; fetched kernels stay in the cache
	rm -rf build target

setup-demo:
	$(WITH_MAKE) scripts/setup.sh demo $(if $(OUR_KERNEL),kernel)

setup-deb:
	$(WITH_MAKE) scripts/setup.sh deb

setup: ## install what all targets need, as far as it is missing
	$(WITH_MAKE) scripts/setup.sh test

setup-kernel:
	@exec $(WITH_MAKE) scripts/setup.sh kernel >&2

setup-kernel-deb:
	@exec $(WITH_MAKE) scripts/setup.sh kernel-deb >&2
