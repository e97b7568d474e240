# The commands of this project; `make help` lists them. The work is in scripts: tests/e2e/setup installs what is needed,
# tests/run is `make test`, tests/e2e/with-docker provides an engine.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

MUSL := x86_64-unknown-linux-musl
TARGET_DIR := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
# Not make's own abspath, which takes a path with a blank for two.
BINARY := $(shell realpath -m '$(TARGET_DIR)/$(MUSL)/release/monky-deployd')

# What the binary says about its origin is the commit's, never this machine's: two builds of a commit are alike.
# Outside a git checkout (a source tarball) the caller's variables stand.
SOURCE_DATE_EPOCH := $(or $(shell git -C '$(CURDIR)' log -1 --format=%ct 2>/dev/null),$(SOURCE_DATE_EPOCH))
MONKY_DEPLOYD_COMMIT := $(or $(shell git -C '$(CURDIR)' rev-parse --verify -q HEAD 2>/dev/null),$(MONKY_DEPLOYD_COMMIT))
export SOURCE_DATE_EPOCH MONKY_DEPLOYD_COMMIT

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## the shipped binary: static, stripped, reproducible
	@tests/e2e/setup build
	@tests/e2e/build-musl '$(TARGET_DIR)'
	@ls -l '$(BINARY)'

# Without an engine the demo uses a stand-in and says so, so a machine that cannot have one (69) is no obstacle. The demo
# itself is built before: a private engine's namespace has no network.
.PHONY: demo
demo: build ## the agent's main job, step by step, with no estate
	@tests/e2e/setup engine || [ $$? = 69 ]
	@tests/demo/run --build
	@MONKY_DEPLOYD_BIN='$(BINARY)' tests/e2e/with-docker tests/demo/run

.PHONY: test
test: ## installs what it needs, then every check; E2E=require turns a skip into a failure
	@MONKY_DEPLOYD_BIN='$(BINARY)' tests/run

.PHONY: bench
bench: build ## the table of docs/BENCHMARKS.md, measured here
	@tests/e2e/setup all
	@MONKY_DEPLOYD_BIN='$(BINARY)' tests/bench/run

.PHONY: clean
clean: ## removes what was built; the downloads in the cache directory stay
	cargo clean
	rm -rf dist
