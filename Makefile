# `make demo` and `make test` need Python 3.10 or newer and make; with a C++ compiler the kernels are compiled.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
RUN := $(BIN)/python
SOURCES := pyproject.toml CMakeLists.txt $(wildcard native/*)

.PHONY: demo toys test bench bench-nmf bench-models bench-scaling lint clean

demo: $(VENV)/installed
	$(RUN) examples/nmf.py --out demo

toys: $(VENV)/installed
	$(RUN) examples/toys.py --out demo

test: $(VENV)/installed
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m pytest --numprocesses auto --dist loadfile

bench: $(VENV)/installed
	$(RUN) benchmarks/engine.py
	$(RUN) benchmarks/accuracy.py
	$(RUN) benchmarks/exact.py

bench-nmf: $(VENV)/installed
	$(RUN) benchmarks/nmf.py

bench-models: $(VENV)/installed
	$(RUN) benchmarks/barycenter.py
	$(RUN) benchmarks/labels.py
	$(RUN) benchmarks/torch_loss.py

bench-scaling: $(VENV)/installed
	$(RUN) benchmarks/scaling.py
	$(RUN) benchmarks/stream.py

lint: $(VENV)/installed
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format
	$(RUN) -m mypy

$(VENV)/installed: $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet --editable '.[test,lint]'
	touch $@

clean:
	rm -rf $(VENV) build demo dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
