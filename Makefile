# Few verbs. Everything lives in .venv; repeated calls reuse what is installed.
VENV := .venv
PY := $(VENV)/bin/python
GPU_PY := python3

.PHONY: demo test test-core lint generate docs mutate seeds matrix soak bench bench-gpu clean reproduce-all extract-versions

demo: $(VENV)/.core ## the founding case: refuted, then proved with the remedy
	@tools/demo.sh

test: $(VENV)/.engine ## everything, the real engine included
	tools/test.sh

test-core: $(VENV)/.tests ## what needs no engine, nor the programs that read alert rules
	$(PY) -m pytest -m "not engine and not source" --ignore=tests/engine --ignore=tests/alerts

lint: $(VENV)/.engine
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/checker rules --check
	$(PY) -m checker.docs --check

generate: $(VENV)/.engine ## rewrite what is generated and committed
	$(PY) -m checker.compile
	$(PY) -m checker.kept
	$(VENV)/bin/checker rules
	$(PY) -m checker.docs

docs: $(VENV)/.tests ## the documentation as a site, in build/docs; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict

mutate: $(VENV)/.core ## every mutant of the spec, each where it acts; the figures are committed
	tools/mutate.sh

seeds: $(VENV)/.core ## everything of the bundled profile under twenty seeds; the table is committed
	$(PY) bench/seeds.py | tee bench/figures/seeds.txt

matrix: $(VENV)/.core ## every bundled profile, kept and searched anew; growth; certificates; the figures are committed
	$(PY) bench/matrix.py | tee bench/figures/matrix.txt

soak: $(VENV)/.engine ## 2,000 pauses, updates and flushes under load on the real engine, each output compared
	QUIESCE_SOAK_CYCLES=2000 $(PY) -m pytest -q tests/engine/test_soak.py

reproduce-all: $(VENV)/.engine ## every counterexample of the bundled profiles on the real engine; the table is committed
	$(PY) bench/reproduce.py

extract-versions: $(VENV)/.core ## what extraction says of older versions of SGLang; downloads about 60 MB, and removes it
	tools/extract.sh 0.5.22 0.5.20 | tee bench/results/extract-versions.txt

bench: $(VENV)/.engine
	$(PY) bench/run.py

bench-gpu: ## the census on a GPU; its python3 needs torch and Triton, and nothing of .venv
	timeout 480 $(GPU_PY) bench/gpu.py

$(VENV)/.core: pyproject.toml tools/setup.sh
	tools/setup.sh core

$(VENV)/.tests: pyproject.toml tools/setup.sh $(VENV)/.core
	tools/setup.sh tests

$(VENV)/.engine: pyproject.toml tools/setup.sh $(VENV)/.core
	tools/setup.sh engine

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
