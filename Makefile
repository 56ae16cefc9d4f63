# `make compare` and `make test` each set up everything they need in .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: compare test lint bench bench-gradients

compare: .venv/ready
	$(BIN)/anodev2 compare

test: .venv/ready
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src

# Freed memory is kept: else page faults fall on one side of a ratio or the other.
KEEP_MEMORY := MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=8589934592 \
	MALLOC_TOP_PAD_=268435456

bench: .venv/ready
	$(KEEP_MEMORY) $(BIN)/python benchmarks/step.py --rounds 15

bench-gradients: .venv/ready
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(KEEP_MEMORY) $(BIN)/python benchmarks/gradients.py
	$(BIN)/python benchmarks/curves.py --picture docs/gradients.png
	$(BIN)/python benchmarks/adjoint.py --picture docs/adjoint.png

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "anodev2 needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train,cluster,dev]'
	touch $@
