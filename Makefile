# Everything a contributor or CI runs; `make help` lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3)
# Tests of hosts and clusters wait more than they compute: one worker more than processors.
PYTEST ?= pytest --numprocesses $(shell expr $$(nproc) + 1) --dist loadfile --no-loadscope-reorder
# Unit tests share no hosts, so that any worker may take any of them. Each worker collects all tests: one a processor.
PYTEST_UNIT ?= pytest --numprocesses $(shell nproc) --dist worksteal
# A test that failed is tried once more, alone on the machine; three that fail twice end it.
PYTEST_AGAIN ?= pytest --last-failed --last-failed-no-failures none --maxfail 3 --verbose
QUICK_TESTS := tests/unit tests/contracts
INSTALLED := build/installed
# Runs in pods, by their Python.
IN_PODS := gpuctl/remote/supervisor $(wildcard gpuctl/cluster/*/pod) gpuctl/incident/pod plugins/module_utils/launch/process_tree.py \
           $(addprefix plugins/module_utils/gpuhost/,bounded_output.py host.py topology.py \
             $(addprefix facts/,counters.py io_counters.py io_limits.py limits.py login.py lustre.py peer_memory.py rdma.py \
               read_trial.py storage_load.py storage_users.py))
SCENARIOS := $(patsubst %/molecule.yml,%,$(wildcard roles/*/molecule/*/molecule.yml))
export PATH := $(CURDIR)/.venv/bin:$(PATH)
# If it is set, every worker and every program that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## List the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 16

.PHONY: bootstrap
bootstrap: $(INSTALLED) ## Install gpuctl into .venv and this machine's tools; show what tuning would change
	gpuctl bootstrap laptop || test $$? = 1 # something is missing, which its last line names
	gpuctl tune-nodes --inventory localhost --check --diff

.PHONY: test
test: packages kubernetes ## Run everything CI runs: lint, the roles' scenarios, all tests
	$(MAKE) --jobs=$(shell expr $$(nproc) + 2) --output-sync=target lint unit molecule # scenarios wait, the others compute
	$(PYTEST) tests $(QUICK_TESTS:%=--ignore=%) || \
	  { test $$? = 1; echo 'Failed above; a test that passes now needs mending all the same:'; \
	    $(PYTEST_AGAIN) tests $(QUICK_TESTS:%=--ignore=%); }

.PHONY: trials
trials: packages $(INSTALLED) ## Run the tests that take many minutes: NVIDIA's real packages, built by DKMS
	pytest -m trial tests/trials

.PHONY: unit
unit: $(INSTALLED) ## Run the quick tests: values, contracts
	$(PYTEST_UNIT) $(QUICK_TESTS)

.PHONY: lint
lint: $(INSTALLED) ## Check style, types, layers, YAML, roles and shell files
	ruff check --quiet
	ruff format --check --quiet
	mypy
	vermin --quiet --no-tips --violations --target=3.9- plugins/module_utils plugins/modules
	vermin --quiet --no-tips --violations --target=3.8- $(IN_PODS)
	lint-imports
	yamllint --strict .
	ansible-lint --offline
	git ls-files --cached --others --exclude-standard -- .ci/run '*.sh' | xargs shellcheck

.PHONY: format
format: $(INSTALLED) ## Format the Python files
	ruff check --fix
	ruff format

# One scenario alone: make roles/host_profile/molecule/default
.PHONY: molecule $(SCENARIOS)
molecule: $(SCENARIOS) ## Run the roles' scenarios on real hosts
$(SCENARIOS): packages $(INSTALLED)
	cd $(firstword $(subst /molecule/, ,$@)) && molecule test --scenario-name $(notdir $@)

.PHONY: bench
bench: packages $(INSTALLED) ## Time gpuctl beside plain Ansible, mitogen, pyinfra and bare ssh
	python -m bench

.PHONY: docs
docs: $(INSTALLED) ## Regenerate docs/tuning.md and the screenshots
	python docs/generate.py
	python -m docs.tmux_screens
	python -m docs.dash_screens

.PHONY: clean
clean: ## Remove what was installed and built
	rm -rf .venv build dist .ansible .hypothesis .*_cache

# The system packages behind the test hosts, where we may install them.
.PHONY: packages
packages:
	@missing=$$(comm -13 <(dpkg-query -Wf '$${db:Status-Status} $${Package}\n' | sed -n 's/^installed //p' | sort) \
	                     <(sort tests/rig/packages.txt)); \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  apt-get update -qq; \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$missing; \
	fi

# The control plane behind the tests of the Kubernetes commands, where this machine has none and can download one.
.PHONY: kubernetes
kubernetes: $(INSTALLED) ## Download the Kubernetes that the tests need (a mirror: GPUCTL_KUBERNETES_MIRROR=URL)
	@python -m tests.rig.kube.download $(if $(CI),,--optional)

$(INSTALLED): .venv/pyvenv.cfg pyproject.toml hatch_build.py galaxy.yml
	python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	python -m pip install --quiet --disable-pip-version-check --no-compile --editable . --group dev
	python -m compileall -qq -j 0 .venv/lib # as pip does it, but on all processors
	touch $@

.venv/pyvenv.cfg:
	$(PYTHON) -m venv .venv
