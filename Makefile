# `make demo` and `make test` set themselves up; ARGS="..." goes to the program.
BIN := .venv/bin
ARGS ?=
# two cores; the tests of one file share fixtures and, for ROS, a domain: they stay in one worker
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile
# the nodes run in real time: by themselves, so that no other test takes their processor
ROS_PYTEST := $(BIN)/python -m pytest
# with ARGS="-k ..." one of the two runs may well have nothing to do, which pytest ends with 5
NOTHING_IS_FINE = || { [ $$? -eq 5 ] && $(if $(ARGS),true,false); }

# A sourced system ROS would be mixed with the one in .venv.
unexport PYTHONPATH PYTHONHOME AMENT_PREFIX_PATH COLCON_PREFIX_PATH LD_LIBRARY_PATH RMW_IMPLEMENTATION

.PHONY: help setup demo test test-all bench lint format architecture docs lock clean

help:
	@echo "make demo      train, evaluate, export, drive over ROS 2, replay, report"
	@echo "make test      the tests but the slow ones"
	@echo "make test-all  all tests"
	@echo "make bench     speed of simulation (testudo bench robot --policy FILE times the robot side)"
	@echo "make lint      ruff and the import contracts;  make format  lets ruff mend what it can"
	@echo "make architecture  the picture of packages and rooms;  make docs  the site, in build/site"
	@echo "make lock      newest versions into requirements.lock"
	@echo "make clean     removes what was made, runs/ excepted"

setup:
	@tools/setup.sh

demo: setup
	$(BIN)/testudo demo $(ARGS)

test: setup
	$(PYTEST) -m "not slow and not ros" $(ARGS) $(NOTHING_IS_FINE)
	$(ROS_PYTEST) -m "ros and not slow" $(ARGS) $(NOTHING_IS_FINE)

test-all: setup
	$(PYTEST) -m "not ros" $(ARGS) $(NOTHING_IS_FINE)
	$(ROS_PYTEST) -m ros $(ARGS) $(NOTHING_IS_FINE)

bench: setup
	$(BIN)/testudo bench sim $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

architecture: setup
	$(BIN)/python tools/architecture.py

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# without the extra `gpu`, whose CUDA libraries are gigabytes: docs/accelerators.md says how to add it
lock: setup
	$(BIN)/uv pip compile pyproject.toml --quiet --upgrade --extra train --extra ros --extra dev --extra rerun --extra crazyflie \
		--universal --python-version 3.12 \
		--no-annotate --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --output-file requirements.lock
	@tools/setup.sh

clean:
	rm -rf .venv .setup.lock build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
