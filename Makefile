# The few commands that people need. Each installs what it needs first; see README.md.
BUILD := build/release
JOBS  := $(shell nproc)

.PHONY: all deps build demo test dashboard-test bench exercises plots-venv check format sanitize fuzz clean

all: build

deps:
	@scripts/install_deps.sh

build: deps
	@cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)

# The main job on the model of this repository: three topics, three sets of experts.
demo: build
	@$(BUILD)/switchyard run models/demo --chat --temperature 0 -n 64 --moe-report \
	  -p "What does the command grep do?" \
	  -p "Was macht der Befehl ls?" \
	  -p "What is a river?"

# Format, floors, sizes and conditionals, then every test.
test: build
	@scripts/check_all.sh
	@ctest --preset release -j $(JOBS)

# The dashboard in headless Chromium against the server's own numbers; screenshots in build/release/dashboard. By hand: the
# browser takes 290 MB.
dashboard-test: build
	@scripts/install_deps.sh --dashboard
	@.venv/bin/python tests/server/dashboard_test.py $(BUILD)/switchyard $(BUILD)/dashboard

# clang-tidy and the tests under both sanitizers besides: much slower than `make test`, so by hand before a merge. CI
# runs the fuzz alone of these.
check: deps
	@scripts/check_all.sh --tidy
	@$(MAKE) --no-print-directory sanitize fuzz

sanitize: deps
	@for preset in asan tsan; do \
	  cmake --preset $$preset >/dev/null && cmake --build --preset $$preset -j $(JOBS) && \
	  ctest --preset $$preset || exit 1; done

fuzz: deps
	@cmake --preset fuzz >/dev/null
	@cmake --build --preset fuzz --target fuzz_targets -j $(JOBS)
	@scripts/run_fuzz.sh build/fuzz $(or $(FUZZ_SECONDS),60)

bench: deps
	@cmake --preset bench >/dev/null
	@cmake --build --preset bench -j $(JOBS)
	@bench/run.sh build/bench

# Measures the exercises and writes docs/exercises.md, its figures and a record; about ten minutes on a quiet machine.
exercises: build plots-venv
	@.venv/bin/python bench/exercises.py $(BUILD)

# Python with matplotlib in .venv: for figures alone, nothing else needs it.
plots-venv:
	@scripts/install_deps.sh --plots

format:
	@git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format -i

clean:
	rm -rf build
