# Everything here works from a fresh clone: the first target that needs it makes .venv (the only step that uses the
# network), and makes it anew when pyproject.toml or the lock in requirements/ change.

DEMO_MEASUREMENTS ?= 16# mappings measured by `make demo`, the single devices included
DEMO_MINUTES ?= 3# of single devices, searchers and comparison, each of which has half of them however slow the machine is
WORKERS ?= 2
TEST_PROCESSES ?= 3# each takes whole files of tests, many of which wait; 0 runs them all in one, where a debugger works
RUNS ?= 20# of all tests by `make soak`
BENCH ?= main-job
FUZZ_RUNS ?= 100000# inputs of each kind of file that `make fuzz` has Atheris make
PYTHON ?=# an interpreter to use instead of the newest one found
LOCK_ARGS ?=# e.g. --upgrade, or --upgrade-package NAME; without, `make lock` keeps every version that still fits

VENV := .venv
BIN := $(VENV)/bin
VERSIONS := 3.13 3.12 3.11
PYENV_ROOT ?= $(HOME)/.pyenv
PYTHONS := $(VERSIONS:%=python%) python3
IN_RANGE := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))

ifndef EXTRA
EXTRA := $(shell if nvidia-smi -L 2>/dev/null | grep -q '^GPU' || ls /dev/nvidia[0-9]* >/dev/null 2>&1; \
	then echo gpu; else echo cpu; fi)
endif
STAMP := $(VENV)/.installed-$(EXTRA)
LOCK := requirements/$(EXTRA).txt
UV := uv==0.13.9# makes the locks, and installs what they name
PIP := -m pip install --disable-pip-version-check
HASHED := --require-hashes --only-binary :all:
ALONE := $(if $(shell command -v flock),flock Makefile)# several set-ups at once write the same placer.egg-info

# Sets `found` to the first interpreter that works.
FIND_PYTHON = found=; \
	for python in $(or $(PYTHON),$(PYTHONS)); do \
		if "$$python" -c '$(IN_RANGE)' >/dev/null 2>&1; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo 'make: no Python 3.11, 3.12 or 3.13 with venv works here (tried $(or $(PYTHON),$(PYTHONS)));' \
			'install one, or name it: make PYTHON=/path/to/python3.12' >&2; \
		exit 2; \
	fi

unexport PYTHONDONTWRITEBYTECODE# else each of hundreds of processes would compile what it imports

.NOTPARALLEL:
.PHONY: help setup demo test test-slow nightly soak pythons fuzz browser lint check bench bench-all lock licences clean distclean

help:
	@echo 'make demo    search a placement of the InceptionV3 training step over two workers; results in out/demo'
	@echo 'make test    run the quick tests, in a few minutes; make test-slow runs the others, make nightly all the rest'
	@echo 'make pythons run the quick tests with each of Python 3.11, 3.12 and 3.13 that is installed'
	@echo 'make soak    run the quick tests 20 times (RUNS=20), for hours, and count what fails now and then'
	@echo 'make fuzz    try a million hostile files, stores and command lines'
	@echo 'make browser install Chromium for the slow tests of the report page (Debian, as root)'
	@echo 'make check   what CI runs: ruff, ruff format, mypy, lint-imports, make test and make test-slow'
	@echo 'make bench   run and record a benchmark (BENCH=main-job); make bench-all records all, for hours, and resumes'
	@echo 'make lock    name anew what make setup installs, with hashes, after pyproject.toml changed'
	@echo 'make licences list the licences of all that make setup installs'
	@echo 'make clean   remove caches and out/demo; make distclean removes .venv, too'

setup: $(STAMP)

demo: $(STAMP)
	$(BIN)/placer search inception_v3 --workers $(WORKERS) \
		--measurements $(DEMO_MEASUREMENTS) --minutes $(DEMO_MINUTES) \
		--out out/demo --report out/demo/report.html --trace out/demo/trace.json --gantt out/demo/step.png

TEST := $(BIN)/pytest -m 'not slow' -n $(TEST_PROCESSES) --dist loadfile --durations=15 $(PYTEST_ARGS)

test: $(STAMP)
	$(TEST)

test-slow: $(STAMP)
	$(BIN)/pytest -m 'slow and not nightly' -n $(TEST_PROCESSES) --dist loadfile --durations=15 $(PYTEST_ARGS)

nightly: $(STAMP)
	$(BIN)/pytest -m nightly -n $(TEST_PROCESSES) --dist loadfile $(PYTEST_ARGS)

# The quick tests RUNS times, whatever comes of them; with HOG=1 beside a process that never rests. Each run's outcome is kept
# in benchmarks/soak.jsonl, of which `placer bench faults` takes those of its own commit.
soak: $(STAMP)
	$(BIN)/python -m experiments.soak $(RUNS) $(if $(HOG),hog) -- $(TEST)

# The quick tests with every supported Python that is installed, each in an environment of its own. Their set-ups run at the
# same time. VERSIONS="3.12 3.13" takes these alone.
pythons:
	@tried=; for version in $(VERSIONS); do \
		found=; for python in python$$version $(PYENV_ROOT)/versions/$$version.*/bin/python; do \
			if "$$python" -c '$(IN_RANGE)' >/dev/null 2>&1; then found=$$python; break; fi; \
		done; \
		if [ -z "$$found" ]; then echo "make: no python$$version with venv works here; left out"; continue; fi; \
		mkdir -p out && $(MAKE) setup VENV=.venv-$$version PYTHON="$$found" >out/setup-$$version.log 2>&1 & \
		tried="$$tried $$version:$$found"; \
	done; \
	wait; for each in $$tried; do \
		$(MAKE) test VENV=.venv-$${each%%:*} PYTHON="$${each#*:}" || exit 1; \
	done

# A hundred times as many hostile files, stores and command lines as `make test-slow` tries, which takes about half an hour;
# then as many as FUZZ_RUNS of each kind of file that Atheris makes, guided by what they reach.
fuzz: $(STAMP)
	PLACER_FUZZ=1000000 $(BIN)/pytest -o faulthandler_timeout=0 tests/fuzz -n $(TEST_PROCESSES) --dist load $(PYTEST_ARGS)
	$(BIN)/python -m experiments.fuzz.guided all $(FUZZ_RUNS) out/fuzz

# For the tests marked `browser`; without root: make test-slow PYTEST_ARGS="-m 'slow and not browser and not nightly'"
browser:
	@if ! command -v chromium >/dev/null || ! command -v chromedriver >/dev/null; then \
		apt-get update -qq -o Acquire::Retries=3 && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends \
			chromium chromium-driver fonts-dejavu-core >/dev/null; \
	fi

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test test-slow

bench: $(STAMP)
	$(BIN)/placer bench $(BENCH) --record

# Takes hours, and goes on where it was stopped as long as the commit is the same.
bench-all: $(STAMP)
	$(BIN)/placer bench all --record --runs out/bench

# The stamp's name tells the two TensorFlow builds apart: they share files, so one never replaces the other in place.
# A .venv of another kind, or one whose interpreter is gone, is made anew. Every package is the one whose hash the lock
# names (docs/decisions/032-locks.md); nothing is built but Placer itself, with the setuptools of the lock. uv works less than
# pip does. Where it fails, pip is tried, because it heeds settings that uv does not know, such as a mirror of PyPI.
$(STAMP): pyproject.toml $(LOCK)
	@if [ -e $(VENV) ] && { [ -n "$$(ls $(VENV)/.installed-* 2>/dev/null | grep -vx '$(STAMP)')" ] \
		|| ! $(BIN)/python -c '$(IN_RANGE)' >/dev/null 2>&1; }; then rm -rf $(VENV); fi
	@if [ ! -e $(VENV) ]; then \
		$(FIND_PYTHON); \
		echo "making $(VENV) with $$("$$found" --version), TensorFlow for $(EXTRA)"; \
		"$$found" -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; \
	fi
	@rm -f $(VENV)/.installed-*
	@$(BIN)/python $(PIP) --quiet --upgrade --target $(VENV)/uv $(HASHED) -r requirements/uv.txt \
		&& $(VENV)/uv/bin/uv pip install --python $(BIN)/python --compile-bytecode $(HASHED) -r $(LOCK) \
		|| { echo 'make: to install with uv failed; trying pip' >&2; $(BIN)/python $(PIP) $(HASHED) -r $(LOCK); }
	$(ALONE) $(BIN)/python $(PIP) --no-index --no-deps --no-build-isolation -e .
	@echo 'compiling the simulator and the searchers'
	$(BIN)/python -m search.offline.prepare
	@touch $@

# For every supported Python and every platform at once; the versions that both locks have are the same. Then each Python
# is asked whether it finds a wheel of everything, without installing it.
lock:
	@rm -rf out/lock && mkdir -p out && $(FIND_PYTHON); "$$found" -m venv out/lock
	out/lock/bin/python $(PIP) --only-binary :all: '$(UV)'
	echo '$(UV)' | $(COMPILE) - -o requirements/uv.txt
	$(COMPILE) --extra cpu --extra dev $(LOCK_ARGS) pyproject.toml -o requirements/cpu.txt
	$(COMPILE) --extra gpu --extra dev $(LOCK_ARGS) pyproject.toml -o requirements/gpu.txt -c requirements/cpu.txt
	for extra in cpu gpu; do for version in $(VERSIONS); do \
		out/lock/bin/uv pip install --quiet --no-config --dry-run --target out/lock/none $(HASHED) \
			--python-version $$version --python-platform linux -r requirements/$$extra.txt || exit 1; \
	done; done
	@rm -rf out/lock

COMPILE := UV_CUSTOM_COMPILE_COMMAND='make lock' out/lock/bin/uv pip compile --quiet --no-config --universal \
	--python-version 3.11 --only-binary :all: --generate-hashes --no-annotate

# Fails where one is a licence that Placer's own (see LICENSE) could not be combined with.
licences: $(STAMP)
	$(BIN)/pip-licenses --order=license --with-urls --partial-match \
		--fail-on='GNU General Public;GNU Affero;AGPL;GPL-2.0-only;GPL-3.0'

clean:
	rm -rf out/demo build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis .import_linter_cache
	find placer surrogate search experiments tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf .venv .venv-*
