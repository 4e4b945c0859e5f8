# Two commands: `make demo` and `make test`. Both make their own environment once and reuse it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := .make/installed
NATIVE := $(wildcard CMakeLists.txt beamtree/native/src/*.cpp beamtree/native/src/*.hpp)
CXX    ?= g++
CHECK  := $(CXX) -std=c++20 -g -O1 -march=native -pthread -fno-omit-frame-pointer tests/native/exercise_kernels.cpp

TOOLS  := .make/tools
DOCS   := .make/docs
LOCK   := $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command 'make lock' --no-emit-index-url --constraint constraints.txt $(UPGRADE)
PAGE   := beamtree/serving/page

.PHONY: demo test lint types imports unit format image-check native wheel wheels sanitize fuzz fuzz-guided fuzz-sanitized soak docs notebooks compare-check lock audit sbom pin-images experiments report clean

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

# dist/: the source distribution, and from it a wheel whose kernels run on any CPU of this architecture; then the check that a
# clean environment installs the wheel without an index and recommends. Its glibc tag is that of this machine's compiler.
wheel: $(STAMP) $(TOOLS)/installed
	@rm -rf build/wheel dist && mkdir -p dist
	$(TOOLS)/bin/uv build --quiet --python $(BIN)/python --no-build-isolation --out-dir build/wheel
	cp build/wheel/*.tar.gz dist
	if [ "$$(uname)" = Linux ]; then PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" auditwheel repair --wheel-dir dist build/wheel/*.whl; else cp build/wheel/*.whl dist; fi
	$(BIN)/python -m tests.install.wheel_check dist/*.whl

# dist/: wheels for every supported Python by cibuildwheel, in the manylinux image with its older glibc; needs docker on Linux.
wheels: $(TOOLS)/installed
	$(TOOLS)/bin/cibuildwheel --output-dir dist

# Compile the kernels anew into the environment.
native: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -c "import beamtree.native._kernels"

# Every kernel over odd sizes: reads past an end, undefined behaviour, data races.
sanitize:
	@mkdir -p build
	$(CHECK) -fsanitize=address,undefined -fno-sanitize-recover=undefined -o build/kernels-address && build/kernels-address
	$(CHECK) -fsanitize=thread -o build/kernels-thread && build/kernels-thread

# A real server under load with kills, a full disk, locks and reloads; SECONDS=3600 for an hour. `make test` runs some seconds of it.
SECONDS ?= 600
soak: $(STAMP)
	$(BIN)/python -m tests.serving.soak --seconds $(SECONDS)

# requirements/*.lock from pyproject.toml and requirements/*.in; versions stay as they are unless UPGRADE=--upgrade.
# torch is not in them: CPU and CUDA builds of one version have different hashes. constraints.txt has its version.
lock: $(TOOLS)/installed
	echo "torch; sys_platform == 'never'" | $(LOCK) pyproject.toml --extra dev --override - --no-emit-package torch --output-file requirements/test.lock
	$(LOCK) pyproject.toml --extra serve --constraint requirements/test.lock --output-file requirements/image.lock
	echo "torch; sys_platform == 'never'" | $(LOCK) pyproject.toml --extra ray --override - --no-emit-package torch --constraint requirements/test.lock --output-file requirements/cluster.lock
	$(LOCK) requirements/build.in --constraint requirements/test.lock --output-file requirements/build.lock
	$(LOCK) requirements/tools.in --output-file requirements/tools.lock
	$(LOCK) requirements/docs.in --constraint requirements/test.lock --output-file requirements/docs.lock

# Known weaknesses of everything that is locked, and of the page's build tools. Fails where one is known or a package could not be looked up.
audit: $(TOOLS)/installed
	for lock in image cluster build test tools docs; do $(TOOLS)/bin/pip-audit --strict --require-hashes --disable-pip --requirement requirements/$$lock.lock || exit 1; done
	cd $(PAGE) && npm audit --package-lock-only

# The documentation site in build/site, which needs nothing from the network; a warning is an error.
docs: $(DOCS)/installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --quiet

# Run the notebooks and keep what they print; needs ml-100k (beamtree data get ml-100k).
notebooks: $(DOCS)/installed
	@rm -rf build/notebooks && mkdir -p build/notebooks && cp docs/notebooks/*.ipynb build/notebooks
	cd build/notebooks && for one in *.ipynb; do ../../$(DOCS)/bin/python -m nbconvert --log-level WARN --to notebook --execute --inplace $$one || exit 1; done
	$(DOCS)/bin/python docs/site/clean_notebooks.py build/notebooks/*.ipynb
	cp build/notebooks/*.ipynb docs/notebooks

# An environment of its own that also sees what the tests' environment has.
$(DOCS)/installed: requirements/docs.lock $(STAMP)
	@test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --require-hashes --requirement $<
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" > $$($(DOCS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/tests.pth
	@touch $@

# Every system of the comparison on MovieLens 100k, a minute each; goes on where it stopped.
compare-check: $(STAMP)
	$(BIN)/python -m tests.compare.check

# What the image holds, as CycloneDX. The page holds no package: npm only brings what builds it.
sbom: $(TOOLS)/installed
	@mkdir -p build
	$(TOOLS)/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json requirements/image.lock

# The base images by digest, in the Dockerfiles and the compose file; needs docker and its registry.
pin-images: $(STAMP)
	$(BIN)/python -m tests.deploy.pin_images

$(TOOLS)/installed: requirements/tools.lock
	@test -x $(TOOLS)/bin/python || $(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/bin/python -m pip install --quiet --require-hashes --requirement requirements/tools.lock
	@touch $@

# Spoilt models by the thousand: first those that the coverage of the loader leads to, then random ones under sanitizers.
FUZZ_EXAMPLES ?= 20000
FUZZ := build/fuzz
fuzz: fuzz-guided fuzz-sanitized

# libFuzzer prints how much code was reached. What reached more stays in build/guided/corpus, where the next run begins.
fuzz-guided: $(STAMP)
	$(BIN)/python -m tests.fuzz.guided --runs $(FUZZ_EXAMPLES) --folder build/guided

# With kernels that check every access to memory: the environment is that of the tests, with another build of this package
# in front of it.
fuzz-sanitized: $(STAMP)
	@rm -rf $(FUZZ) && mkdir -p $(FUZZ)
	$(PYTHON) -m venv --without-pip $(FUZZ)/venv
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $$($(FUZZ)/venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/tests.pth
	$(BIN)/python -m pip install --quiet --no-deps --target $(FUZZ) --config-settings=cmake.define.BEAMTREE_ISA=native --config-settings=cmake.define.BEAMTREE_SANITIZE=address,undefined .
	cp -r tests pyproject.toml $(FUZZ)
	cd $(FUZZ) && LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" ASAN_OPTIONS=detect_leaks=0 BEAMTREE_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) venv/bin/python -m pytest --timeout 0 tests/fuzz/test_loading.py

# The comparison of all systems and the paper's experiments on one log: hours. What is finished is kept, what was stopped goes on.
DATA ?= ../shared/data
LOG  ?= ml-1m
INSTANCES ?= 150000
MINUTES ?= 10
ON = $(DATA)/$(LOG)/interactions.parquet --items $(DATA)/$(LOG)/items.parquet
experiments: $(STAMP)
	$(BIN)/beamtree compare $(ON) --budget-minutes $(MINUTES) --out results/compare/$(LOG)
	for name in results sequential tree-updating negatives branching dimension; do $(BIN)/beamtree reproduce $$name --data $(ON) --instances $(INSTANCES) --paper --out results/reproduce/$$name-$(LOG) || exit 1; done
	for name in adaptive perturbation; do $(BIN)/python -m research.reproduce $$name --data $(ON) --instances $(INSTANCES) --paper --out results/reproduce/$$name-$(LOG) || exit 1; done
	$(MAKE) report

# docs/results.md and its figures from what is in results/.
report: $(STAMP)
	$(BIN)/python -m experiments.report

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(STAMP): pyproject.toml constraints.txt requirements/build.lock requirements/test.lock $(NATIVE)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements/build.lock --requirement requirements/test.lock
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@mkdir -p $(@D) && touch $@

clean:
	rm -rf $(VENV) .make build dist
