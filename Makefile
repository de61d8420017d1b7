# Two commands matter: `make run` (the main job) and `make test` (every test). Each makes .venv and installs what it needs.
# PYTHON picks the interpreter the environment is made from (3.11 or newer); WORKERS the number of test processes.
PYTHON ?= python3
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: errors only; warnings about mirrors of an index say nothing about this project.
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check

# Packages that ship the network and the picture of the main job. Nothing in them is imported, so their own
# dependencies and bounds on Python stay out (--no-deps, --ignore-requires-python).
SAMPLES := rapidocr-onnxruntime==1.4.4 scikit-image==0.26.0
NETWORK := rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx
PICTURE := skimage/data/page.png

.PHONY: run test coverage lint types docs clean environment
.DELETE_ON_ERROR:

$(VENV)/made:
	$(PYTHON) .ci/make_environment.py $(VENV)
	touch $@

$(VENV)/for-run: $(VENV)/made pyproject.toml
	$(PIP) -e ".[cpu,onnx]"
	touch $@

$(VENV)/samples: $(VENV)/made
	$(PIP) --no-deps --only-binary :all: --ignore-requires-python $(SAMPLES)
	touch $@

$(VENV)/for-test: $(VENV)/for-run pyproject.toml
	$(PIP) -e ".[test]"
	touch $@

$(VENV)/for-lint: $(VENV)/for-test pyproject.toml
	$(PIP) -e ".[lint,docs]"
	touch $@

# The main job: every layer of a trained text detector through generated kernels, on a scanned page.
run: $(VENV)/for-run $(VENV)/samples
	packages=$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('platlib'))") && \
	$(BIN)/convloom model "$$packages/$(NETWORK)" --input "$$packages/$(PICTURE)" --chart build/layers.png

test: $(VENV)/for-test
	$(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

# The tests once more, with the share of lines and branches they reach.
coverage: $(VENV)/for-test
	$(BIN)/python -m pytest -n $(WORKERS) --cov=convloom --cov-report=term:skip-covered -q $(ARGS)

environment: $(VENV)/for-lint $(VENV)/samples

lint: $(VENV)/for-lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: $(VENV)/for-lint
	$(BIN)/pyright --pythonpath $(BIN)/python

docs: $(VENV)/for-lint
	$(BIN)/mkdocs build --strict --quiet --site-dir build/site

clean:
	rm -rf $(VENV) .bootstrap build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage*
