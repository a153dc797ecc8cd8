# `make` lists the targets. Everything is installed into .venv, from pyproject.toml and a package index.

# Each candidate is run, not only found: a pyenv shim is on PATH for versions that do not start.
OK_PYTHON := import sys, venv, ensurepip; print("fit" if sys.version_info >= (3, 11) else "old")
OWN_COMMANDS := from leasehold.cli.app import COMMANDS, KIT; print(*[name for name in COMMANDS if COMMANDS[name][0] != KIT])
NO_KIT := is a command of the test kit, which is not installed: pip install $(CURDIR)/testkit
VERSION := 3.5
CANDIDATES = $(if $(PYTHON),'$(PYTHON)',python3.13 python3.12 python3.11 python3)
BIN := .venv/bin
PEERS := tests/peers tests/versions
SHARED_OUT := --dist loadfile --no-loadscope-reorder
# PySpark comes as source: a wheel of 450 MB is built of it, and deflating what is packed already takes half a minute.
BUILDS := $(CURDIR)/.venv/builds.cfg

# Install what $(1) names. It shows what is large and how many packages come, and where pip fails the end of its log.
# pip would compile on one core; a few files do not compile, since they are templates or of another Python.
define install
@{ DIST_EXTRA_CONFIG='$(BUILDS)' $(BIN)/python -m pip install --no-compile --progress-bar off --disable-pip-version-check \
  $(1) 2>&1 || echo 'pip failed'; } \
| tee .venv/pip.log | while IFS= read -r line; do case "$$line" in \
  *'Downloading '*'('[0-9][0-9][0-9]*' MB)') echo "  downloading $${line#*Downloading }" ;; \
  'Installing collected packages:'*) set -- $$line; echo "  installing $$(($$# - 3)) packages" ;; \
  'pip failed') tail -n 20 .venv/pip.log >&2; exit 1 ;; \
esac; done
@$(BIN)/python -m compileall -q -j 0 .venv/lib > /dev/null 2>&1 || true
endef

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test more lint smoke pytest busy spark peers soak cover bench docs dist clean

help: ## list the targets
	@echo 'make TARGET [PYTHON=python3.12] [ARGS="…"]'
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: .venv/.demo ## install, and run the main job: a million events, two Spark applications, one is killed
	@$(BIN)/leasehold demo $(ARGS)

# Linters and the bare install run beside the tests and keep one core busy for a minute; what they say of a fault is
# printed when they end.
test: .venv/.dev ## install, and run linters, types, import layers, the bare install and a test of each promise: 6 minutes
	@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; trap 'kill $$linters; exit 130' INT TERM; \
	{ $(MAKE) --no-print-directory lint smoke > "$$said" 2>&1 || { cat "$$said"; false; }; } & linters=$$!; \
	$(MAKE) --no-print-directory .venv/.ready && \
	$(BIN)/python -m tests.gate 'not more and not timing and not soak and not peers' $(SHARED_OUT) $(ARGS); tests=$$?; \
	if wait $$linters; then tail -n 1 "$$said"; else echo 'lint or smoke failed: what they said is above'; tests=1; fi; \
	exit $$tests

more: .venv/.ready ## all other tests that need nothing but packages: 16 minutes
	$(BIN)/python -m tests.gate '(more or timing) and not soak and not peers' $(SHARED_OUT) $(ARGS)

lint: .venv/.dev ## linter, formatter, types, import layers and wording
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --check --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.wording

smoke: .venv/.made ## a bare install, without any extra and the test kit, runs --help and imports
	@set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(BIN)/python -m venv "$$folder"; \
	"$$folder/bin/python" -m pip install --quiet --disable-pip-version-check .; \
	"$$folder/bin/python" -W error -c 'import leasehold'; \
	commands=$$("$$folder/bin/python" -c '$(OWN_COMMANDS)'); \
	for command in '' $$commands; do "$$folder/bin/leasehold" $$command --help > /dev/null; done; \
	for command in serve simulate; do \
	  "$$folder/bin/leasehold" --help | grep -q "^  $$command "; \
	  code=0; said=$$("$$folder/bin/leasehold" $$command 2>&1) || code=$$?; \
	  [ "$$code $$said" = "1 leasehold: leasehold $$command $(NO_KIT)" ] || { echo "$$said" >&2; exit 1; }; \
	done; \
	echo 'the bare install runs'

# What fails, here and in `peers`, runs once more at the end, alone: tests/gate.py.
pytest: .venv/.ready ## tests of `test` and `more` alone: make pytest ARGS="tests/cli -k send"
	$(BIN)/python -m tests.gate 'not soak and not peers' $(SHARED_OUT) $(ARGS)

# A test that passes only on a quiet machine fails here. Three runs in a row that name nothing flaky are the proof.
busy: .venv/.ready ## `pytest` beside one busy process a core, to find tests that a slow machine breaks: 30 minutes
	@burners=; for core in $$(seq $$(nproc)); do while :; do :; done & burners="$$burners $$!"; done; \
	trap 'kill $$burners' EXIT; $(MAKE) --no-print-directory pytest

spark: .venv/.ready ## a short run on another PySpark, in an environment of its own: make spark VERSION=3.5
	$(BIN)/pytest -m 'peers or soak' tests/versions -k 'spark-$(VERSION)' $(ARGS)

peers: .venv/.ready ## the tests beside real parts from the system's packages, as far as they can be had: 16 minutes
	$(BIN)/python -m tests.gate peers -n 4 --dist loadgroup --no-loadscope-reorder $(if $(findstring tests/,$(ARGS)),,$(PEERS)) $(ARGS)

soak: .venv/.ready ## the slow campaigns: hours; make soak ARGS=tests/faults
	$(BIN)/pytest -m soak --hypothesis-profile='new examples' $(ARGS)

cover: .venv/.ready ## branch coverage of both packages, with the processes that tests start (goal: 92 %): make cover ARGS=tests/sinks
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -m 'not soak and not peers and not timing' -n 5 $(SHARED_OUT) $(ARGS); \
	passed=$$?; $(BIN)/coverage combine --quiet && $(BIN)/coverage report; exit $$passed

bench: .venv/.dev ## measure, and print a table of ratios with the machine named
	@$(BIN)/python bench/run.py $(ARGS)

docs: .venv/.docs ## install what it takes, and build the documentation as a site, with search, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict $(ARGS)
	@echo 'built: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site, and open http://127.0.0.1:8000/'

dist: .venv/.dev ## build wheels and source distributions, of Leasehold and its test kit, into dist/, and check them as an index does
	@rm -rf dist
	@for folder in . testkit; do $(BIN)/python -m build --outdir dist $$folder > /dev/null || exit 1; done
	@$(BIN)/python -m twine check --strict dist/*

clean: ## remove what these targets made, .venv included
	rm -rf .venv .venvs .demo build dist artifacts spark-warehouse .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
	find src testkit tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# An environment that works is kept, whoever made it; one that does not is made anew.
.venv/.made:
	@if [ "$$($(BIN)/python -c '$(OK_PYTHON)' 2>/dev/null)" != fit ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  for python in $(CANDIDATES); do \
	    if [ "$$("$$python" -c '$(OK_PYTHON)' 2>/dev/null)" = fit ]; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$${found-}" ]; then \
	    echo "Leasehold needs Python 3.11 or newer with its venv module; none of these is one:" $(CANDIDATES) >&2; \
	    echo "Install it (Debian: python3.11 and python3.11-venv), or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	  fi; \
	  echo "making .venv with $$("$$found" --version)"; \
	  rm -rf .venv && "$$found" -m venv .venv; \
	fi
	@printf '[bdist_wheel]\ncompression = stored\n' > '$(BUILDS)'
	@touch $@

.venv/.dev: .venv/.made pyproject.toml testkit/pyproject.toml
	@echo 'installing leasehold[dev] and leasehold-testkit (a few minutes the first time)'
	$(call install,-e '.[dev]' -e ./testkit)
	@touch $@ .venv/.demo .venv/.docs

.venv/.ready: .venv/.dev tests/class_archive.py tests/ready.py
	@$(BIN)/python -m tests.ready
	@touch $@

.venv/.demo: .venv/.made pyproject.toml
	@echo 'installing leasehold[demo] (a few minutes the first time)'
	$(call install,-e '.[demo]')
	@touch $@

.venv/.docs: .venv/.made pyproject.toml testkit/pyproject.toml
	@echo 'installing leasehold[docs] and leasehold-testkit (half a minute the first time)'
	$(call install,-e '.[docs]' -e ./testkit)
	@touch $@
