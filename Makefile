# Two commands do all the set-up: `make app` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
RUN    := $(VENV)/bin/
# Threads that wait for work sleep instead of spinning: on shared cores spinning costs many times the work.
export OMP_WAIT_POLICY := PASSIVE

.PHONY: app test check test-gpu bench gallery screenshots clean

app: $(VENV)/app.done        ## open Pattern Studio at http://localhost:8501
	$(RUN)pattern-studio app

test: $(VENV)/test.done      ## checks, then the whole test suite
	$(MAKE) check
	$(RUN)python -m pytest -n 2 --dist loadscope --timeout 600

check: $(VENV)/test.done     ## formatting, lint, import directions and types
	$(RUN)ruff format --check .
	$(RUN)ruff check .
	$(RUN)lint-imports
	$(RUN)pyright --pythonpath $(RUN)python

test-gpu:                    ## the kernels, the analyzer, what chooses tiles and what exports are read by, on this machine's GPU and its CUDA torch
	$(PYTHON) -m pytest --ignore tests/attention_core/distributed tests/attention_core tests/metrics/test_gpu.py tests/exporters/test_gpu_consumers.py tests/learned/test_choose.py tests/learned/test_programs.py
	CUDA_VISIBLE_DEVICES= $(PYTHON) -m pytest tests/attention_core/distributed  # ranks on the CPU; on cards: benchmarks.distributed_run

bench:                       ## ours and peers in one run, results as JSON
	$(PYTHON) -m benchmarks.run

gallery: $(VENV)/test.done   ## render every named pattern, and which library holds which preset
	$(RUN)python -m gallery.matrix
	$(RUN)python -m gallery.build

screenshots: $(VENV)/test.done  ## every page of the app, light and dark, into gallery/screenshots
	$(RUN)python -m gallery.screenshots

$(VENV)/app.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --constraint constraints.txt --editable '.[app]'
	touch $@

$(VENV)/test.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)python -m pip install --quiet --constraint constraints.txt --editable '.[app,models,test]'
	command -v chromium >/dev/null || (apt-get update -qq && apt-get install -y -qq chromium)
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .hypothesis .ruff_cache
