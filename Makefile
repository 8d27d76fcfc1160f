# Everything runs in .venv. Stamp files inside it remember what is installed, so a second run installs nothing.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first that runs and is new enough, 3.11 before others: the one the tests run on.
PYTHON ?= $(shell for p in python3.11 python3 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Each example of the suite has new shapes, for which XLA compiles: quickly, and with no other tests beside it, so that it stays
# within the suite's deadline.
SUITE_XLA_FLAGS := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false
# More options for pip, such as the index of a torch build without CUDA.
PIP_FLAGS ?=
JOBS ?= 2
PYTEST_FLAGS ?=
SUITE ?=
EXAMPLES ?= 20
SUITE_JOBS ?= 1
BACKENDS ?= numpy jax torch tensorflow
SECONDS ?= 60
SEED ?=
ONLY ?= *

export TF_CPP_MIN_LOG_LEVEL ?= 3

.PHONY: help demo test test-more test-distributed test-browser test-pages page-tools test-python sweep-models sweep-transpile fuzz sweep-convert mutants clients client-suites matrix lint format types stubs bench bench-growth docs docs-serve suite suite-checkout clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /make \1|/' | awk -F'|' '{printf "  %-18s %s\n", $$1, $$2}'

demo: $(VENV)/.base  ## one network, trained on every installed framework; installs NumPy only
	$(BIN)/python examples/demo.py

test: $(VENV)/.all  ## all tests; installs the four frameworks, as pinned in constraints.txt
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup $(PYTEST_FLAGS)

# Modes in which users run and `make test` does not, because they compile for long: see CONTRIBUTING.md.
NARROW_TESTS := tests/test_ops.py::test_native tests/test_x64.py
test-more: $(VENV)/.all  ## the tests of compiled functions with inductor, those of JAX and TensorFlow with XLA's own flags, ops on JAX without x64, properties and fuzzing with new seeds
	TRELLIS_TORCH_COMPILER=inductor $(BIN)/python -m pytest -n $(JOBS) tests --backend torch -k 'compiled' $(PYTEST_FLAGS)
	XLA_FLAGS= $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup tests/rows tests/test_composites.py tests/test_precision.py --backend jax --backend tensorflow $(PYTEST_FLAGS)
	JAX_ENABLE_X64=0 $(BIN)/python -m pytest -n $(JOBS) $(NARROW_TESTS) --backend jax $(PYTEST_FLAGS)
	TRELLIS_SEED=random $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup tests/test_properties.py $(PYTEST_FLAGS)
	$(MAKE) fuzz

KILLS ?= 50
test-distributed: $(VENV)/.all  ## workers killed at random, KILLS times per backend; four processes; installs MPI
	$(BIN)/python -m pytest tests/test_distributed.py -m "sweep or not sweep" $(PYTEST_FLAGS)
	for backend in $(BACKENDS); do $(BIN)/python tests/distributed_faults.py $$backend --kills $(KILLS) || exit 1; done

test-browser: $(VENV)/.all  ## the page of the matrix in a headless browser: needs chromium and chromedriver
	$(BIN)/python -m pytest tests/test_matrix_browser.py -m browser $(PYTEST_FLAGS)

AXE := build/axe/node_modules/axe-core/package.json
test-pages: docs $(AXE)  ## the site, the demo and the matrix in a headless browser: links, accessibility, screens; needs chromium and npm
	$(BIN)/python examples/demo.py > /dev/null
	$(BIN)/python -m pytest tests/test_pages_browser.py -m browser $(PYTEST_FLAGS)

page-tools: $(AXE)  ## axe-core, for the tests of pages

$(AXE):
	npm install --silent --no-audit --no-fund --prefix build/axe axe-core@4

sweep-models: $(VENV)/.all  ## every model of tests/zoo.py through calls, training, freezing and files, and every layer over layouts of memory, on every backend
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup tests/test_zoo.py -m "sweep or not sweep" $(PYTEST_FLAGS)
	printf '%s\n' $(BACKENDS) | PYTHONPATH=$(CURDIR) OMP_NUM_THREADS=1 xargs -P $(JOBS) -I{} $(BIN)/python tests/crash_search.py {}

fuzz: $(VENV)/.all  ## random calls, programs and layers on the four, compared: make fuzz SECONDS=1200 [SEED=7] [BACKENDS="numpy torch"] [ONLY='conv*']
	cd tests && PYTHONPATH=$(CURDIR) $(CURDIR)/$(BIN)/python -m fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) --backends $(BACKENDS) --only '$(ONLY)'

sweep-transpile: $(VENV)/.all  ## convert models of transformers and diffusers to NumPy, JAX and TensorFlow, with every sample of op_db; writes docs/transpile-models.md
	$(BIN)/python -m pytest tests/test_transpile_op_db.py tests/test_transpile_training.py tests/test_transpile_modules.py -m sweep $(PYTEST_FLAGS)
	cd tests && PYTHONPATH=$(CURDIR) $(CURDIR)/$(BIN)/python sweep_transpile.py $(if $(OTHERS),--others) $(if $(filter-out *,$(ONLY)),--only $(ONLY))

# The longest first; xargs fails if one of them does.
CONVERTERS := "keras jax" flax haiku "keras tensorflow" "keras torch" torch
sweep-convert: $(VENV)/.all  ## every model of tests/zoo.py in torch, Haiku, Flax and Keras on its three frameworks, and native modules in ours: make sweep-convert [ONLY='*tied*']
	printf '%s\n' $(CONVERTERS) | ONLY='$(ONLY)' PYTHONPATH=$(CURDIR) OMP_NUM_THREADS=1 xargs -P $(JOBS) -I{} sh -c \
	  'set -- {}; KERAS_BACKEND=$${2:-tensorflow} $(BIN)/python -X faulthandler tests/convert_sweep.py $$1 --only "$$ONLY"'

mutants: $(VENV)/.all  ## seeded faults, one at a time: does a test notice each? make mutants [JOBS=2] [ONLY='adam*']
	$(BIN)/python tests/mutants.py --jobs $(JOBS) --only '$(ONLY)'

CLIENT_RUNS := $(VENV)/clients
clients: $(VENV)/.all  ## SciPy, scikit-learn and array-api-extra on tl.Arrays, beside array-api-strict and torch; written to docs/clients.md
	mkdir -p $(CLIENT_RUNS)
	cd tests && for column in numpy jax torch tensorflow strict native; do \
	  echo "== $$column"; \
	  JAX_ENABLE_X64=1 PYTHONPATH=$(CURDIR) $(CURDIR)/$(BIN)/python -m clients $$column > $(CURDIR)/$(CLIENT_RUNS)/$$column.jsonl || exit 1; \
	done; PYTHONPATH=$(CURDIR) $(CURDIR)/$(BIN)/python -m clients --report $(CURDIR)/$(CLIENT_RUNS)/*.jsonl

LIBRARY ?= tensorly
client-suites: $(VENV)/.all  ## the own tests of tensorly, array-api-extra or pot on Trellis: make client-suites LIBRARY=pot SUITE=path/to/POT/test [BACKENDS="numpy torch"]
	for backend in $(BACKENDS); do \
	  echo "== $(LIBRARY) on $$backend"; \
	  OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR) $(BIN)/python tests/library_suites.py $(LIBRARY) $$backend $(SUITE); \
	done

matrix: $(VENV)/.all  ## the conformance matrix on every backend, written to docs/matrix and README.md
	-XLA_FLAGS="$$XLA_FLAGS" $(BIN)/trellis matrix run --jobs $(JOBS)  # set, if to nothing: XLA as users have it, not as in the tests
	$(BIN)/trellis matrix report

lint: $(VENV)/.all  ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.all  ## ruff: repair what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.all  ## pyright over the package and the tests; pyright and mypy over what users' type checkers see
	$(BIN)/pyright
	$(BIN)/mypy

stubs: $(VENV)/.all  ## write the stubs of the package from its sources
	$(BIN)/python tests/stubs.py

bench: $(VENV)/.bench  ## beside the frameworks' own: small calls, layers, training, converted models; writes docs/performance.md
	$(BIN)/python benchmarks/page.py
	for backend in tensorflow jax torch; do KERAS_BACKEND=$$backend $(BIN)/python benchmarks/converters_keras.py || exit 1; done

bench-growth: $(VENV)/.bench  ## how cost grows with depth, leaves and ops, ours and native on one plot; writes pictures for docs/performance.md
	$(BIN)/python benchmarks/page.py growth growth_training

docs: $(VENV)/.docs  ## the site, in build/site; warnings are errors
	NO_COLOR=1 $(BIN)/sphinx-build -q -W --keep-going -b html docs build/site

docs-serve: docs  ## the site on http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

suite: suite-checkout $(VENV)/.suite  ## the official array API tests: make suite SUITE=path/to/array-api-tests [BACKENDS="numpy torch"]
	cd $(SUITE) && failed=; for backend in $(BACKENDS); do \
	  echo "== array-api-tests on $$backend"; \
	  TRELLIS_BACKEND=$$backend ARRAY_API_TESTS_MODULE=trellis JAX_ENABLE_X64=1 XLA_FLAGS="$(SUITE_XLA_FLAGS)" PYTHONPATH=$(CURDIR) \
	    $(CURDIR)/$(BIN)/python -m pytest array_api_tests -q -n $(SUITE_JOBS) --max-examples $(EXAMPLES) -p no:cacheprovider \
	    --xfails-file $(CURDIR)/tests/array_api_suite/$$backend.txt $(PYTEST_FLAGS) \
	    || failed="$$failed $$backend"; \
	done; test -z "$$failed" || { echo "failed on:$$failed"; exit 1; }

suite-checkout:
	@test -d "$(SUITE)/array_api_tests" || { \
	  echo "make suite: SUITE=$(SUITE) is not a checkout of array-api-tests;"; \
	  echo "  git clone --recurse-submodules https://github.com/data-apis/array-api-tests, then make suite SUITE=that/directory"; \
	  exit 2; }

# The oldest and newest Pythons that the classifiers name; NumPy alone, because not every framework has wheels for each.
PYTHONS ?= 3.12 3.13 3.14
test-python: $(VENV)/.all  ## the tests that need NumPy alone on other Pythons: make test-python [PYTHONS="3.12 3.14"]
	for version in $(PYTHONS); do $(BIN)/python tests/other_pythons.py $$version || exit 1; done

clean:  ## remove .venv and caches
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed: install it, or make PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)

# pip install only adds: after .all, .base is newer than its prerequisites too, so that a demo leaves the frameworks alone.
$(VENV)/.base: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet $(PIP_FLAGS) -c constraints.txt -e .
	@touch $@

$(VENV)/.all: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) install --quiet $(PIP_FLAGS) -c constraints.txt -e '.[torch,jax,tensorflow-cpu,mpi,ray,test,clients,dev]'
	@touch $(VENV)/.base $@

$(VENV)/.bench $(VENV)/.suite $(VENV)/.docs: $(VENV)/.%: $(VENV)/.all
	$(PIP) install --quiet $(PIP_FLAGS) -c constraints.txt -e '.[$*]'
	@touch $@
