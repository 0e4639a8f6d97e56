# gpuctl: everything a contributor or CI runs. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PYTEST ?= pytest --numprocesses auto --dist loadfile
BIN := $(CURDIR)/.venv/bin
INSTALLED := build/installed
export PATH := $(BIN):$(PATH)

.PHONY: help
help: ## Show what can be made
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 16

.PHONY: bootstrap
bootstrap: $(INSTALLED) ## Install into .venv, then show what tuning this machine would change
	gpuctl tune-nodes --inventory localhost --check --diff

.PHONY: test
test: packages lint molecule ## Run everything CI runs: lint, the roles, all tests
	$(PYTEST)

.PHONY: unit
unit: $(INSTALLED) ## Run the tests that need no hosts
	$(PYTEST) tests/unit tests/contracts

.PHONY: lint
lint: $(INSTALLED) ## Check style, types, layers, YAML, roles and shell files
	ruff check
	ruff format --check
	mypy
	lint-imports
	yamllint --strict .
	ansible-lint --offline
	git ls-files --cached --others --exclude-standard -- .ci/run '*.sh' | xargs shellcheck

.PHONY: format
format: $(INSTALLED) ## Rewrite the Python files as `make lint` wants them
	ruff check --fix
	ruff format

.PHONY: molecule
molecule: packages $(INSTALLED) ## Run every role's scenarios on real hosts
	for scenario in roles/*/molecule/*/molecule.yml; do
	  [ -e "$$scenario" ] || continue
	  role="$${scenario%%/molecule/*}"
	  (cd "$$role" && molecule test --scenario-name "$$(basename "$$(dirname "$$scenario")")")
	done

.PHONY: bench
bench: packages $(INSTALLED) ## Time gpuctl beside plain Ansible, mitogen, pyinfra and bare ssh
	python -m bench

.PHONY: clean
clean: ## Remove what was installed and built
	rm -rf .venv build dist .ansible .hypothesis .*_cache

# The system packages behind the test hosts, where we may install them.
.PHONY: packages
packages:
	@missing=$$(comm -13 <(dpkg-query -Wf '$${Package}\n' 2>/dev/null | sort) <(sort tests/rig/packages.txt))
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
	  apt-get update -qq
	  DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$missing
	fi

$(INSTALLED): .venv/pyvenv.cfg pyproject.toml hatch_build.py galaxy.yml
	python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	python -m pip install --quiet --disable-pip-version-check --editable . --group dev --group bench
	touch $@

.venv/pyvenv.cfg:
	$(PYTHON) -m venv .venv

# Recipes are whole scripts, so that loops and conditions read as such.
.ONESHELL:
