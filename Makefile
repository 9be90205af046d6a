# The commands of the project. Each makes what it needs, its virtual environment included, and each can be repeated.
#
#   make demo       train GoogLeNet through the pool: a table     DEMO="--model alexnet" passes options
#   make test       the tests                                                        TEST="-k pack" passes options
#                   ROOM=prediction: those of one room; COVERAGE=1: with coverage, which must reach 90 %
#   make thorough   all tests, those marked slow too, with 75 times as many examples of each property: hours
#   make soak       random programs through the pools, by a new seed: minutes        OPERATIONS=1e9 for days
#   make experiments  the paper's figures, into build/experiments: hours, or about half an hour with QUICK=1; goes on
#                     where it was interrupted                                   EXPERIMENTS="--device cpu" passes options
#   make gpu-check  the first hour on a GPU: what machine this is, then the tests in order, until one fails; into
#                   build/gpu-check.txt
#   make gpu-test   the tests that need a CUDA device: training through CupyPool, bit by bit
#   make torch-test   training through TorchPool, bit by bit, and orders of PyTorch's graphs, in an environment of its own
#                     with a CPU build of torch; skips where there is none
#   make torch-versions   the same with the oldest PyTorch that is served, and the newest: 10 GB of downloads
#   make device-test  the tests of device code, on a simulated device with CuPy's wheels for ROCm and for CUDA, each in an
#                     environment of its own; skips where there is no such wheel   TEST="-k streams" passes options
#   make device-cupy-tests  CuPy's own tests there, with its pool and with CupyPool  CUPY_TESTS="memory graphs" for these only
#   make device-run   a program of yours on the simulated device                   RUN="script.py arguments"
#                     DEVICE_BUILD=cuda: with CuPy for CUDA, in this one and the two before
#   make lint       ruff, mypy --strict, clang-format, clang-tidy, cython-lint       ANALYZE=1 adds clang's analyzer
#   make docs       the documentation; warnings are errors, examples are run
#   make door       README's commands and code as typed, in a fresh clone and environment: minutes
#   make lines      how many lines of code there are, by room; fails where tools/lines.txt allows fewer
#   make dist       a source distribution and a wheel, and the checks that an index would make
#   make asan tsan  the C++ cores under AddressSanitizer + UBSan, and under ThreadSanitizer
#   make clean      remove everything that was made
#
#   PYTHON=python3.12 chooses the interpreter, VENV=.venv312 the place of the environment.

SHELL := bash
# Some tests start Python, hundreds of times in all: without bytecode each compiles everything again.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
VENV ?= .venv
DEMO ?=
TEST ?=
ROOM ?=
QUICK ?=
EXPERIMENTS ?=
OPERATIONS ?= 1_000_000
ANALYZE ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
INSTALL := $(PIP) install --build-constraint build-constraints.txt --editable

ROOMS := $(shell cat tools/rooms.txt)
CORES := $(shell find $(ROOMS) -path '*/core/*' -name '*.cpp')
HEADERS := $(shell find $(ROOMS) -name '*.hpp')
# What an installation depends on: change one of these and the next command installs again.
BUILD_INPUTS := setup.py setup.cfg pyproject.toml build-constraints.txt tools/rooms.txt tools/stubs.py $(CORES) $(HEADERS) \
	$(shell find $(ROOMS) -name '*.pyx' -o -name '*.pxi')

.PHONY: help demo test thorough soak experiments gpu-check gpu-test lint door lines docs docs-html docs-examples dist asan tsan clean FORCE
.DELETE_ON_ERROR:

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

# --- the environment ---------------------------------------------------------------------------------------------------

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { \
		echo "stowplan: missing: $(PYTHON); expected Python 3.10 or later (choose one with make PYTHON=...)" >&2; exit 1; }
	@$(PYTHON) tools/preflight.py
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade pip
	@touch $@

$(VENV)/.demo: $(VENV)/.made $(BUILD_INPUTS)
	@$(BIN)/python tools/preflight.py
	@echo "installing stowplan and what the demo needs into $(VENV)"
	@$(INSTALL) '.[chainer]'
	@touch $@

$(VENV)/.experiments: $(VENV)/.made $(BUILD_INPUTS)
	@$(BIN)/python tools/preflight.py
	@echo "installing stowplan and what the experiments need into $(VENV)"
	@$(INSTALL) '.[chainer,cupy,experiments]'
	@touch $@

$(VENV)/.development: $(VENV)/.made $(BUILD_INPUTS)
	@$(BIN)/python tools/preflight.py
	@echo "installing stowplan and its development tools into $(VENV)"
	@$(INSTALL) '.[chainer,mpi,cupy,experiments,dask,mip,flow,onnx,report,test,lint,docs,dist]'
	@touch $@ $(VENV)/.demo $(VENV)/.experiments

# --- the commands ------------------------------------------------------------------------------------------------------

demo: $(VENV)/.demo
	@$(BIN)/stowplan demo $(DEMO)

test: $(VENV)/.development
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" \
		$(if $(ROOM),tests/$(ROOM)) $(if $(COVERAGE),--cov --cov-report=term --cov-fail-under=90) $(TEST)

thorough: $(VENV)/.development
	STOWPLAN_HYPOTHESIS=thorough $(BIN)/python -m pytest -n auto --dist worksteal $(TEST)

soak: $(VENV)/.development
	@for pool in numpy cupy native torch-cuda "native --process" "torch-cuda --process"; do \
		$(BIN)/python -m tests.properties.soak --operations $(OPERATIONS) --pool $$pool || exit 1; \
	done

experiments: $(VENV)/.experiments
	@for figure in memory heuristic growth schedule time; do \
		$(BIN)/python -m experiments.$$figure $(if $(QUICK),--quick) $(EXPERIMENTS) || exit 1; \
	done

gpu-check: $(VENV)/.development
	@$(BIN)/python -m tools.gpu_check

gpu-test: $(VENV)/.development
	$(BIN)/python -m pytest -m gpu -rs -s tests/gpu $(TEST)

SOURCES := $(shell find $(ROOMS) tests/core tests/device -name '*.cpp' -o -name '*.hpp')
CYTHON := $(shell find $(ROOMS) -name '*.pyx' -o -name '*.pxi')

lint: $(VENV)/.development $(patsubst %.cpp,build/tidy/%.checked,$(CORES))
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(SOURCES)
	PATH="$(BIN):$$PATH" $(BIN)/cython-lint --max-line-length 120 $(CYTHON)

door:
	@$(PYTHON) -m tools.door

lines:
	@$(PYTHON) -m tools.lines

docs: docs-html docs-examples

docs-html: $(VENV)/.development
	$(BIN)/python -m sphinx -n -W --keep-going -q -b html docs docs/_build/html

docs-examples: docs-html
	$(BIN)/python -m sphinx -W --keep-going -q -b doctest -d docs/_build/html/.doctrees docs docs/_build/doctest

dist: $(VENV)/.development
	@rm -rf dist
	STOWPLAN_BUILT=$(CURDIR)/build/extensions $(BIN)/python -m build --quiet
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/twine check --strict dist/*

# --- the C++ cores alone -----------------------------------------------------------------------------------------------
# What was compiled or checked stays valid until the file, a header that it reads, or the command changes; ccache, where
# there is one, keeps the objects of other checkouts, too. make -j2 helps.

STRESS := $(patsubst tests/core/%.cpp,%,$(wildcard tests/core/*_stress.cpp))
LAUNCHER ?= $(notdir $(shell command -v ccache))
LANGUAGE := -std=c++17 $(addprefix -I,$(sort $(dir $(HEADERS))))
COMPILE := $(CXX) $(LANGUAGE) -O1 -g1 -Wall -Wextra -fno-omit-frame-pointer -pthread -DSTOWPLAN_DEBUG=1
ASAN := $(COMPILE) -fsanitize=address,undefined -fno-sanitize-recover=all
TSAN := $(COMPILE) -fsanitize=thread
TIDY := $(BIN)/clang-tidy --quiet $(if $(ANALYZE),--checks='clang-analyzer-*') --warnings-as-errors='*'

build/asan/command: COMMAND := $(ASAN)
build/tsan/command: COMMAND := $(TSAN)
build/tidy/command: COMMAND := $(TIDY) -- $(LANGUAGE)
build/%/command: FORCE
	@mkdir -p $(@D)
	@[ "$$(cat $@ 2>/dev/null)" = "$(COMMAND)" ] || echo "$(COMMAND)" >$@

build/asan/%.o: %.cpp build/asan/command
	@mkdir -p $(@D)
	$(LAUNCHER) $(ASAN) -MMD -MP -c $< -o $@

build/tsan/%.o: %.cpp build/tsan/command
	@mkdir -p $(@D)
	$(LAUNCHER) $(TSAN) -MMD -MP -c $< -o $@

build/tidy/%.checked: %.cpp .clang-tidy build/tidy/command | $(VENV)/.development
	@mkdir -p $(@D)
	@$(CXX) $(LANGUAGE) -MM -MP -MT $@ -MF $(@:.checked=.d) $<
	$(TIDY) $< -- $(LANGUAGE)
	@touch $@

-include $(shell find build/asan build/tsan build/tidy -name '*.d' 2>/dev/null)

# Every tests/core/*_stress.cpp is a program of its own, linked with all cores; it fails by its exit status.
.SECONDARY:

build/asan/%_stress: build/asan/tests/core/%_stress.o $(CORES:%.cpp=build/asan/%.o)
	$(ASAN) $^ -o $@

build/tsan/%_stress: build/tsan/tests/core/%_stress.o $(CORES:%.cpp=build/tsan/%.o)
	$(TSAN) $^ -o $@

asan: $(STRESS:%=run-asan-%)
tsan: $(STRESS:%=run-tsan-%)
asan tsan:
	@test -n "$^" || { echo "stowplan: no tests/core/*_stress.cpp: nothing was tested" >&2; exit 1; }

run-asan-%: build/asan/% FORCE
	ASAN_OPTIONS=detect_leaks=1 $<

run-tsan-%: build/tsan/% FORCE
	TSAN_OPTIONS=halt_on_error=1 $<

# --- PyTorch -----------------------------------------------------------------------------------------------------------

TORCH ?= torch==2.13.0
TORCH_VENV ?= .venv-torch
TORCH_BIN := $(TORCH_VENV)/bin
TORCH_PIP := $(TORCH_BIN)/python -m pip --quiet --disable-pip-version-check

.PHONY: torch-test

$(TORCH_VENV)/.made:
	@echo "making $(TORCH_VENV)"
	@$(PYTHON) -m venv $(TORCH_VENV)
	@$(TORCH_PIP) install --upgrade pip
	@touch $@

# Only where pip finds a build for CPUs alone: those for CUDA bring several GB.
torch-test: $(TORCH_VENV)/.made
	@version=$$($(TORCH_PIP) install --dry-run --ignore-installed --no-deps --report - '$(TORCH)' \
		| $(TORCH_BIN)/python -c 'import json, sys; print(json.load(sys.stdin)["install"][0]["metadata"]["version"])') \
		|| version="not at all"; \
	if [[ "$$version" != *+cpu ]]; then \
		echo "stowplan: torch-test SKIPPED, nothing was tested: pip finds $(TORCH) $$version;" \
			"expected a version ending in +cpu (choose one with make TORCH=...)" >&2; \
	else \
		$(MAKE) --no-print-directory torch-run; \
	fi

.PHONY: torch-run torch-versions

torch-run: $(TORCH_VENV)/.torch
	OMP_NUM_THREADS=1 $(TORCH_BIN)/python -m pytest -n auto --dist worksteal -p no:logging -m "not slow" tests/integrations/torch $(TEST)

# Builds for CUDA, some 5 GB each, which import without a GPU.
torch-versions:
	@for torch in oldest=torch==2.11.0 newest=torch; do \
		$(MAKE) --no-print-directory TORCH=$${torch#*=} TORCH_VENV=.venv-torch-$${torch%%=*} torch-run || exit 1; \
	done

$(TORCH_VENV)/.torch: $(TORCH_VENV)/.made $(BUILD_INPUTS)
	@$(PYTHON) tools/preflight.py
	@echo "installing stowplan and $(TORCH) into $(TORCH_VENV)"
	@$(TORCH_PIP) install --build-constraint build-constraints.txt --editable '.[torch-test]' '$(TORCH)'
	@touch $@

# --- CuPy on a simulated device ----------------------------------------------------------------------------------------

# Two builds of CuPy, each in an environment of its own: for ROCm, and the last one for CUDA that finds its libraries
# when it is loaded. Tests of the simulated runtime, of experiments, of schedules and commands, and with a driver of their
# own, run with the first one alone.
DEVICE_BUILD ?= rocm
DEVICE_TESTS := tests/device tests/gpu tests/contracts/test_cupy_backend.py
ifeq ($(DEVICE_BUILD),cuda)
DEVICE := cupy-cuda12x==12.3.0
DEVICE_VENV ?= .venv-cuda12
DEVICE_TESTS += $(addprefix --ignore=,$(wildcard tests/device/test_runtime_*.py) \
	tests/device/test_device_experiment.py tests/device/test_cuda_driver.py \
	$(addprefix tests/gpu/test_,gpu_check.py scheduler_gpu.py scripts_gpu.py))
else
DEVICE := cupy-rocm-7-0==14.2.0
DEVICE_VENV ?= .venv-device
endif
DEVICE_BIN := $(DEVICE_VENV)/bin
DEVICE_PIP := $(DEVICE_BIN)/python -m pip --quiet --disable-pip-version-check
SIMULATED := $(DEVICE_BIN)/python -m tests.device.simulated
# What depends on how a device counts memory runs with HIP's small pages, too.
SMALL_PAGES := SIMHIP_PAGE=4096 SIMHIP_GRANULARITY=512
SMALL_PAGES_TESTS := $(addprefix tests/gpu/test_,device_memory_gpu.py cupy_pool_gpu.py streams_gpu.py takes_no_more_gpu.py)
RUN ?=
CUPY_TESTS ?=

.PHONY: device-test device-test-of device-run device-cupy-tests

$(DEVICE_VENV)/.made:
	@echo "making $(DEVICE_VENV)"
	@$(PYTHON) -m venv $(DEVICE_VENV)
	@$(DEVICE_PIP) install --upgrade pip
	@touch $@

device-test:
	@for build in rocm cuda; do $(MAKE) --no-print-directory device-test-of DEVICE_BUILD=$$build || exit 1; done

# There are wheels for some Pythons on x86-64 only.
device-test-of: $(DEVICE_VENV)/.made
	@if ! $(DEVICE_PIP) install --dry-run --only-binary :all: --no-deps '$(DEVICE)' >/dev/null; then \
		echo "stowplan: device-test SKIPPED, nothing was tested: pip finds no wheel of $(DEVICE) for this Python" >&2; \
	else \
		$(MAKE) --no-print-directory $(DEVICE_VENV)/.device && \
		$(SIMULATED) -m pytest -n auto --dist worksteal -m "not slow" $(DEVICE_TESTS) $(TEST) \
			$(if $(TEST),,&& SIMHIP_SCHEDULE=eager $(SIMULATED) -m pytest tests/gpu/test_heap_traces_gpu.py) \
			$(if $(TEST)$(filter cuda,$(DEVICE_BUILD)),,&& $(SMALL_PAGES) $(SIMULATED) -m pytest -n auto -m "not slow" $(SMALL_PAGES_TESTS)); \
	fi

device-run: $(DEVICE_VENV)/.device
	@$(SIMULATED) $(RUN)

device-cupy-tests: $(DEVICE_VENV)/.device
	$(DEVICE_BIN)/python -m tests.device.cupy_tests $(CUPY_TESTS)

$(DEVICE_VENV)/.device: $(DEVICE_VENV)/.made $(BUILD_INPUTS)
	@$(PYTHON) tools/preflight.py
	@echo "installing stowplan, $(DEVICE) and Chainer into $(DEVICE_VENV)"
	@$(DEVICE_PIP) install --build-constraint build-constraints.txt --editable '.[chainer,device-test]' '$(DEVICE)'
	@touch $@

clean:
	rm -rf $(VENV) $(TORCH_VENV) .venv-device .venv-cuda12 build dist *.egg-info docs/_build .coverage coverage.xml .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(ROOMS) '(' -name '*.so' -o -name '*.pyi' ')' -delete
