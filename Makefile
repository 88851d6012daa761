# The two commands: `make quickstart` and `make test`. Everything else is a step of these, or for people who change Pacer.
.DEFAULT_GOAL := help
.PHONY: help setup build all test test-full fuzz kernel-benchmarks quickstart install format check-format tidy clean

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
QUICKSTART ?=
SECONDS ?= 30

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' Makefile

setup: ## install what the build needs and is missing
	@tools/setup.sh

build: setup ## build the program: build/bin/pacer
	@cmake --preset release -Wno-dev > /dev/null
	@cmake --build build --target pacer --parallel $(JOBS)

all: setup
	@cmake --preset release -Wno-dev > /dev/null
	@cmake --build build --parallel $(JOBS)

test: ## build everything and run all tests
	@tools/setup.sh --packages
	@$(MAKE) --no-print-directory all
	@cd build && ctest --output-on-failure

test-full: ## the same with the tests that take longer
	@tools/setup.sh --packages
	@$(MAKE) --no-print-directory all
	@cd build && PACER_TEST_FULL=1 ctest --output-on-failure -C Full

fuzz: ## run every fuzz target (SECONDS=30), with clang
	@tools/fuzz.sh --seconds $(SECONDS) --jobs $(JOBS)

kernel-benchmarks: setup ## build the programs that time single kernels: build/bin/bench_* (bench/README.md)
	@cmake --preset release -Wno-dev > /dev/null
	@cmake --build build --target kernel_benchmarks --parallel $(JOBS)

quickstart: build ## from a real model to a trained draft, a measured speed-up and a report (QUICKSTART='--minutes 5')
	@build/bin/pacer quickstart $(QUICKSTART)

install: build ## install the program, the libraries and the CMake package (PREFIX=/usr/local)
	@cmake --build build --parallel $(JOBS) --target pacer_installed
	@cmake --install build --prefix "$(PREFIX)"

format: ## format all sources with the pinned clang-format
	@tools/setup.sh --tools
	@tools/format.sh

check-format:
	@tools/setup.sh --tools
	@tools/format.sh --check

tidy: all ## clang-tidy on the files changed since it last passed, without a time limit; records success in .ci/tidy_passed
	@tools/setup.sh --tools
	@tools/tidy.sh --record

clean: ## remove what was built; what was fetched into .deps stays
	rm -rf build build-debug build-asan build-tsan build-fuzz
