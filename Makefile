# `make demo` and `make test` set themselves up; ARGS="..." goes to the program.
BIN := .venv/bin
ARGS ?=
# two cores; the tests of one file share fixtures: they stay in one worker, the rooms that take longest first
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# the nodes run in real time: by themselves, so that no other test takes their processor; two fleets at a time where
# nodes may have real-time priority, which keeps the start of one from the control of the other. Fast DDS 3.2 can deadlock in
# discovery (eProsima/Fast-DDS issue 6502), which nothing in the process can interrupt: the time-out ends the worker,
# and that test runs again in a new one. So does one that failed while the machine stalled; no other that fails
ROS_WORKERS := $(shell chrt --rr 1 true 2>/dev/null && echo 2 || echo 1)
ROS_PYTEST := $(BIN)/python -m pytest -n $(ROS_WORKERS) --dist loadfile --no-loadscope-reorder --timeout-method=thread \
	-p tests.ros_domains -p tests.machine_stalls --reruns 2 --only-rerun "^MachineStallError: "
ROS_ROOMS := tests/ros tests/bench/fault_matrix tests/bench/calibration
# no simulated fleets and nothing compiled, but the smoke test of each verb
FAST_ROOMS := tests/test_cli.py tests/test_verbs.py tests/hardware tests/runs/recording tests/runs/alignment \
	$(addprefix tests/deploy/,admission contract files fleet launch station station_page)
# paths in ARGS select the passes that have something to do; the other words go to both
PATHS := $(filter tests%,$(ARGS))
WORDS := $(filter-out tests%,$(ARGS))
ROS_PATHS := $(if $(PATHS),$(filter $(addsuffix %,$(ROS_ROOMS)),$(PATHS)),$(ROS_ROOMS))
OTHER_PATHS := $(if $(PATHS),$(filter-out $(addsuffix %,$(ROS_ROOMS)),$(PATHS)),$(addprefix --ignore=,$(ROS_ROOMS)) tests)
# with ARGS="-k ..." one of the two runs may well have nothing to do, which pytest ends with 5
NOTHING_IS_FINE = || { [ $$? -eq 5 ] && $(if $(ARGS),true,false); }
OTHER_PASS = $(if $(OTHER_PATHS),$(PYTEST) $(1) $(OTHER_PATHS) $(WORDS) $(NOTHING_IS_FINE))
ROS_PASS = $(if $(ROS_PATHS),$(ROS_PYTEST) $(1) $(ROS_PATHS) $(WORDS) $(NOTHING_IS_FINE))

# A sourced system ROS would be mixed with the one in .venv.
unexport PYTHONPATH PYTHONHOME AMENT_PREFIX_PATH COLCON_PREFIX_PATH LD_LIBRARY_PATH RMW_IMPLEMENTATION
# Without bytecode each node and each worker compiles its imports again: 2 s of processor time instead of 0.5 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-fast test-all bench lint format types architecture results margins scenarios pretrained docs lock clean

help:
	@echo "make demo      train, evaluate, export, drive over ROS 2, replay, report"
	@echo "make test      the tests but the slow ones;  make test-fast  those that need no simulation"
	@echo "make test-all  all tests"
	@echo "make bench     speed of simulation (testudo bench robot --policy FILE times the robot side)"
	@echo "make types     pyright: strict on hardware and deploy, basic elsewhere"
	@echo "make lint      ruff (rules and format) and the import contracts;  make format  lets ruff repair what it can"
	@echo "make architecture  the picture of packages and rooms;  make results  the page of figures;  make margins  the shield's table;  make scenarios  what scenarios declare;  make pretrained  the policies that ship (ARGS=\"runs/mine\" ships a run);  make docs  the site, in build/site"
	@echo "make lock      newest versions into requirements.lock"
	@echo "make clean     removes what was made, runs/ excepted"

setup:
	@tools/setup.sh

demo: setup
	$(BIN)/testudo demo $(ARGS)

test: setup
	$(call OTHER_PASS,-m "not slow")
	$(call ROS_PASS,-m "not slow")

test-fast: setup
	$(PYTEST) -m "not slow and not ros" $(FAST_ROOMS) $(WORDS)

test-all: export TESTUDO_HYPOTHESIS_PROFILE = full
test-all: setup
	$(call OTHER_PASS)
	$(call ROS_PASS)

bench: setup
	$(BIN)/testudo bench sim $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/basedpyright --warnings

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

architecture: setup
	$(BIN)/python tools/architecture.py

results: setup
	$(BIN)/python tools/results.py

margins: setup
	$(BIN)/python tools/margins.py

scenarios: setup
	$(BIN)/python tools/scenario_pages.py

pretrained: setup
	$(BIN)/python tools/pretrained.py $(ARGS)

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# without the extra `gpu`, whose CUDA libraries are gigabytes: docs/accelerators.md says how to add it
lock: setup
	$(BIN)/uv pip compile pyproject.toml --quiet --upgrade --extra train --extra ros --extra dev --extra rerun --extra ray --extra planners --extra crazyflie \
		--universal --python-version 3.12 \
		--no-annotate --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --output-file requirements.lock
	@tools/setup.sh

clean:
	rm -rf .venv .setup.lock build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
