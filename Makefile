# Needs Python 3.11 or newer and make; with a C++ compiler the kernels are compiled. Everything is installed into .venv, or
# with PYTHON=python3.13 into .venv-python3.13, and each target installs only what it needs.
PYTHON ?= python3
VENV := .venv$(if $(filter command environment,$(firstword $(origin PYTHON))),-$(notdir $(PYTHON)))
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
RUN := $(BIN)/python
LINT := .venv-lint
LINT_RUN := $(LINT)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/*)
MODULES := $(sort $(wildcard src/gibbsot/*.py src/gibbsot/*/*.py src/gibbsot/*/*/*.py))
TORCH := torch==2.13.0
PIP := -m pip install --quiet --disable-pip-version-check
PYTEST := $(RUN) -m pytest --numprocesses auto --dist loadfile

.PHONY: demo toys paper docs dist lint format test test-all test-warnings test-minimum test-no-compiler \
	test-free-threaded fuzz faults peers nightly bench bench-nmf bench-models bench-scaling measurements sanitize clean FORCE

demo: $(VENV)/package
	@echo "Fitting 200 handwritten fives (some seconds)"
	@$(RUN) examples/nmf.py --out demo

toys: $(VENV)/bench
	$(RUN) examples/toys.py --out demo

# the paper's figures and claims measured again, in build/paper/report.html: under ten minutes, with QUICK=1 about one;
# NAMES="figure1 table" for some of them
paper: $(VENV)/paper
	$(RUN) -m paper $(NAMES) $(if $(QUICK),--quick) --out build/paper

# the fast tests, and nothing else
test: $(VENV)/test
	$(PYTEST) -m "not slow"

# the checks, which change nothing and see neither torch nor other extras: in an environment of their own
lint: $(LINT)/done
	$(LINT_RUN)/ruff check
	$(LINT_RUN)/ruff format --check
	$(LINT_RUN)/mypy
	PYTHONPATH=src $(LINT_RUN)/lint-imports --no-cache
	$(LINT_RUN)/vulture
	PYTHONPATH=src $(LINT_RUN)/python -W ignore tools/check_docstrings.py

format: $(LINT)/done
	$(LINT_RUN)/ruff check --fix
	$(LINT_RUN)/ruff format

# the fast tests with the newest packages, where deprecations of others are errors, too
test-warnings: $(VENV)/test
	$(RUN) $(PIP) --upgrade --upgrade-strategy eager 'gibbsot[test]'
	$(PYTEST) -m "not slow" -W error::DeprecationWarning -W error::PendingDeprecationWarning -W error::FutureWarning

# all tests, with torch, JAX and the other extras, and a coverage figure
test-all: $(VENV)/test-all
	$(PYTEST) --cov --cov-report=term:skip-covered

# The fast tests in an environment of their own, with the lowest versions that pyproject.toml allows (which new versions
# of other packages deprecate).
TESTS := "pytest>=8" "pytest-xdist>=3.5" "hypothesis>=6.100"
MINIMUM := build/minimum
test-minimum:
	rm -rf $(MINIMUM) && $(PYTHON) -m venv $(MINIMUM)
	$(PYTHON) tools/minimum_versions.py > $(MINIMUM)/constraints.txt
	$(MINIMUM)/bin/python -m pip install --quiet --constraint $(MINIMUM)/constraints.txt '.[cli,parquet,dask,pot,anndata]' $(TESTS)
	GIBBSOT_TEST_NATIVE=1 $(MINIMUM)/bin/python -m pytest --numprocesses auto --dist loadfile -m "not slow" \
		-W ignore::DeprecationWarning tests

# The fast tests without the global interpreter lock, in an environment of their own: PYTHON=python3.14t. What others import
# does not bring the lock back.
FREE := build/free-threaded
test-free-threaded:
	rm -rf $(FREE) && $(PYTHON) -m venv $(FREE)
	$(FREE)/bin/python -m pip install --quiet '.[test]'
	PYTHON_GIL=0 GIBBSOT_TEST_NATIVE=1 $(FREE)/bin/python -m pytest --numprocesses auto --dist loadfile -m "not slow" tests

# the same tests without a compiler, in an environment of their own; conftest.py leaves out what needs kernels
test-no-compiler:
	CC=/bin/false CXX=/bin/false $(MAKE) test VENV=.venv-no-compiler
	.venv-no-compiler/bin/python -W ignore -c 'from gibbsot.core import native; assert native.name() == "numpy"'

# every exact solver on N small problems, from SEED on, against rational arithmetic; then N mutated files for every
# reader, for at most SECONDS
N ?= 10000
SEED ?= 0
SECONDS ?= 1800
fuzz: $(VENV)/test
	$(RUN) tests/fuzz.py $(N) $(SEED)
	$(RUN) tests/fuzz_files.py $(N) $(SEED) $(SECONDS)

# killed, stopped and paused processes, a full disk and damaged checkpoints while a fit runs; see tests/faults.py
KILLS ?= 100
RUNS ?= 5
faults: $(VENV)/test
	$(RUN) tests/faults.py --kills $(KILLS) --runs $(RUNS) --seed $(SEED)

# the tests of POT, SciPy, GUDHI, pyemd and torchcfm with our functions in place: see tools/peers.py; NAMES="POT SciPy" for
# some of them, NAMES=POT:emd for some tests of one. torchcfm and energyflow would install another torch and another NumPy:
# they come without dependencies. What cannot be installed, such as offline, is named by the table.
peers: $(VENV)/peers
	$(RUN) tools/peers.py $(NAMES)

# The kernels under the address and undefined-behaviour sanitizers, with GCC on Linux, in a build of their own. Without
# `site` (-S) the editable installation is not found, only the copy in build/sanitize. The baseline and, where
# the machine has it, AVX-512 are run: the tests choose both, the fuzzed problems the better one.
SANITIZE := build/sanitize
FUZZED ?= 1000
sanitize: $(VENV)/test
	$(RUN) -m pip install --quiet --no-deps --upgrade --target $(SANITIZE)/site . -C build-dir=$(SANITIZE)/cmake \
		-C cmake.define.GIBBSOT_SANITIZE=ON -C install.strip=false
	export GIBBSOT_TEST_NATIVE=1 ASAN_OPTIONS=detect_leaks=0 \
		LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
		PYTHONPATH="$(SANITIZE)/site:$$($(RUN) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" && \
	$(RUN) -S -m pytest -m "not slow" tests/core/test_native.py tests/costs/test_costs.py tests/costs/test_points.py \
		tests/core/test_philox.py tests/sampling/test_sampler.py tests/oracle/test_oracle.py \
		tests/exact/test_simplex.py tests/exact/test_coarse_to_fine.py tests/exact/test_graph.py \
		tests/costs/test_graph.py tests/test_diagrams.py && \
	$(RUN) -S tests/fuzz.py $(FUZZED) 0 dense crossed points line graph pairs

# the site, in docs/_build/html, looked at in a browser where there is one; first the tables that are older than their code
docs: $(VENV)/docs
	@$(RUN) tools/measurements.py --stale
	$(RUN) -m sphinx -W --keep-going -b html docs docs/_build/html
	$(RUN) -m pytest tests/test_site.py

# wheel and sdist, each installed and tried in an environment of its own
DIST := build/dist-test
dist: $(VENV)/dist
	rm -rf dist $(DIST)
	$(RUN) -m build
	$(RUN) -m twine check --strict dist/*
	for file in dist/*.whl dist/*.tar.gz; do \
		rm -rf $(DIST) && $(PYTHON) -m venv $(DIST) && \
		$(DIST)/bin/python -m pip install --quiet "$$file" && \
		( cd $(DIST) && bin/python -I -c 'from gibbsot.core import native; assert native.name() != "numpy"' && \
		bin/python -I $(CURDIR)/tools/run_page.py $(CURDIR)/docs/quickstart.md ) || exit 1; done

# what would take continuous integration too long
nightly: test-all sanitize fuzz faults bench bench-nmf bench-models bench-scaling

# rewrites the tables of docs/benchmarks.md; the larger problems of the exact engine are for `measurements`
bench: $(VENV)/bench
	$(RUN) tools/measurements.py engine accuracy solve growth exact_engine

# every figure of README and site again, for hours; NAMES="solve topics" for some of them
measurements: $(VENV)/bench $(VENV)/peers
	$(RUN) $(PIP) 'gibbsot[examples,scanpy,jax]'
	$(RUN) tools/measurements.py $(NAMES)

bench-nmf: $(VENV)/bench
	$(RUN) benchmarks/nmf.py

bench-models: $(VENV)/bench $(VENV)/torch
	$(RUN) benchmarks/barycenter.py
	$(RUN) benchmarks/geometry.py
	$(RUN) benchmarks/labels.py
	$(RUN) benchmarks/torch_loss.py
	$(RUN) benchmarks/losses.py
	$(RUN) benchmarks/couplings.py

bench-scaling: $(VENV)/bench
	$(RUN) benchmarks/scaling.py
	$(RUN) benchmarks/stream.py

# The package and its command line. Build tools are in the environment, so that a second build starts from the first.
# Here only the kernels for the best instruction set of this machine are compiled.
EDITABLE := -m pip install --verbose --no-compile --no-build-isolation -C build-dir=$(VENV)/build --editable
LOGGED := >> $(VENV)/compile.log 2>&1 || { tail -n 40 $(VENV)/compile.log; exit 1; }
$(VENV)/package: $(SOURCES) $(VENV)/modules
	@echo "Creating the environment $(VENV)"
	@$(PYTHON) -m venv $(VENV) && rm -f $(VENV)/compile.log
	@echo "Installing what the package needs"
	@$(RUN) $(PIP) --no-compile 'scikit-build-core>=0.11,<2' 'nanobind>=2.4,<4' \
		$$(command -v cmake >/dev/null || echo cmake) $$(command -v ninja make >/dev/null || echo ninja)
	@echo "Compiling the kernels (about a minute with two cores)"
	@$(RUN) $(EDITABLE) '.[cli]' -C cmake.define.GIBBSOT_KERNELS=best $(LOGGED)
	@touch $@

# the kernels of all instruction sets, which the tests compare
$(VENV)/kernels: $(VENV)/package
	@echo "Compiling the kernels of the other instruction sets (about a minute with two cores)"
	@$(RUN) $(EDITABLE) . --no-deps -C cmake.define.GIBBSOT_KERNELS=all $(LOGGED)
	@touch $@

# An editable installation keeps the paths of its modules: it is made again when one is added, moved or removed.
# The stamp is written only if the list differs.
$(VENV)/modules: FORCE
	@mkdir -p $(VENV)
	@echo '$(MODULES)' | cmp -s - $@ || echo '$(MODULES)' > $@

$(VENV)/test: $(VENV)/kernels
	@echo "Installing what the tests need"
	@$(RUN) $(PIP) 'gibbsot[test]'
	@touch $@

$(LINT)/done: tools/lint-requirements.txt
	@echo "Creating the environment $(LINT)"
	@$(PYTHON) -m venv $(LINT)
	@$(LINT_RUN)/python $(PIP) -r tools/lint-requirements.txt
	@touch $@

$(VENV)/docs: $(VENV)/test
	$(RUN) $(PIP) 'gibbsot[docs]'
	touch $@

$(VENV)/dist: $(VENV)/package
	$(RUN) $(PIP) build twine
	touch $@

$(VENV)/bench: $(VENV)/package
	$(RUN) $(PIP) 'gibbsot[bench]'
	touch $@

$(VENV)/peers: $(VENV)/test $(VENV)/torch
	$(RUN) $(PIP) 'gibbsot[peers]' && $(RUN) $(PIP) --no-deps torchcfm energyflow wasserstein wurlitzer && touch $@ || \
		echo "some libraries could not be installed"

$(VENV)/paper: $(VENV)/package
	$(RUN) $(PIP) 'gibbsot[pot]'
	touch $@

$(VENV)/test-all: $(VENV)/test $(VENV)/torch
	$(RUN) $(PIP) 'gibbsot[test-all]'
	touch $@

# wheels of this version exist for Python 3.11 on most machines; elsewhere the tests of torch may be skipped
$(VENV)/torch: $(VENV)/package
	$(RUN) $(PIP) '$(TORCH)' || { echo "$(TORCH) could not be installed: its tests are skipped"; \
		$(RUN) -c 'import sys; sys.exit(sys.version_info[:2] == (3, 11))'; }
	touch $@

clean:
	rm -rf .venv* build demo dist docs/_build docs/gallery docs/api/generated .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
