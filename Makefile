# Two commands: `make demo` and `make test`. Both make their own environment once and reuse it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := .make/installed
NATIVE := $(wildcard CMakeLists.txt beamtree/native/src/*.cpp beamtree/native/src/*.hpp)
CXX    ?= g++
CHECK  := $(CXX) -std=c++20 -g -O1 -march=native -pthread -fno-omit-frame-pointer tests/native/exercise_kernels.cpp

.PHONY: demo test lint types imports unit format image-check native sanitize experiments report clean

demo: $(STAMP)
	@$(BIN)/beamtree demo

test: lint types imports unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

unit: $(STAMP)
	$(BIN)/python -m pytest

# The Dockerfile's install steps in a fresh environment: what is in it, how large, does it serve.
image-check: $(STAMP)
	$(BIN)/python -m tests.deploy.image_check

# Compile the kernels anew into the environment.
native: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps --editable .
	$(BIN)/python -c "import beamtree.native._kernels"

# Every kernel over odd sizes: reads past an end, undefined behaviour, data races.
sanitize:
	@mkdir -p build
	$(CHECK) -fsanitize=address,undefined -fno-sanitize-recover=undefined -o build/kernels-address && build/kernels-address
	$(CHECK) -fsanitize=thread -o build/kernels-thread && build/kernels-thread

SETTINGS := experiments/settings
SHARED := $(SETTINGS)/faithful-% $(SETTINGS)/small-% $(SETTINGS)/best-ml-1m.toml $(SETTINGS)/best-amazon-8cat.toml
# All settings but the trials', with their seeds: hours. What is finished is skipped, what was stopped goes on. Then the page of results.
experiments: $(STAMP)
	$(BIN)/python -m experiments.run $(filter-out $(SHARED), $(wildcard $(SETTINGS)/*-ml-1m.toml)) --seeds 0 1 2
	$(BIN)/python -m experiments.run $(wildcard $(SETTINGS)/sensitivity-*.toml)
	$(BIN)/python -m experiments.run $(filter-out $(SHARED), $(wildcard $(SETTINGS)/*-amazon-8cat.toml))
	$(MAKE) report

# docs/results.md and its figures from the lines in results/.
report: $(STAMP)
	$(BIN)/python -m experiments.report

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@mkdir -p $(@D) && touch $@

clean:
	rm -rf $(VENV) .make build
