# Every target makes the environment first, once: `make quickstart` and `make test` work in a fresh clone, in any order.
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
READY   := $(VENV)/.ready
OLDEST  := .venv-oldest
WORKERS := -n 2 --dist=loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help quickstart test proofs lint bench docs clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The stamp is written last, so an interrupted installation is taken up again by the next `make`.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"paperformer needs Python 3.11 or newer, and $(PYTHON) is {sys.version.split()[0]}; call make PYTHON=/path/to/python3")'
	@echo "Installing into $(VENV): some minutes, most of them PyTorch."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,plots,tracking,langid,serve,demo]'
	@touch $@

# The oldest transformers that pyproject.toml admits, with what it wants older; all else is shared with $(VENV), which is
# not changed by it. The tests load published folders with both.
$(OLDEST)/.ready: $(READY)
	@rm -rf $(OLDEST)
	@$(BIN)/python -m venv --without-pip $(OLDEST)
	@$(BIN)/python -c 'import sys; print(*(path for path in sys.path if path.endswith("site-packages")), sep="\n")' \
		> "$$(echo $(OLDEST)/lib/python3.*/site-packages)/shared.pth"
	@version=$$(sed -n 's/^ *"transformers>=\([0-9.]*\),.*/\1/p' pyproject.toml) && \
	echo "Installing transformers $$version into $(OLDEST)." && \
	$(OLDEST)/bin/python -m pip install "transformers==$$version" > $(OLDEST)/pip.log 2>&1 || \
	{ echo "error: transformers $$version cannot be installed (no network?); $(OLDEST)/pip.log says why" >&2; exit 1; }
	@touch $@

quickstart: $(READY)  ## Train, score, save, load back and use a translation model and a language model (ARGS=--fast: shorter)
	$(BIN)/paperformer quickstart $(ARGS)

# By two workers with one thread each: the models are too small for more. A file's tests stay together, with the fixtures
# that they share, in the order of tests/conftest.py: the longest first. ARGS are run by one process, which begins sooner
# and can be debugged; long proofs that they name are run too.
test: $(READY) $(OLDEST)/.ready  ## Run the tests but long proofs, and list the slowest (ARGS="-k attention": some of them)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations=15 $(if $(ARGS),$(ARGS),-m "not proof" $(WORKERS))

proofs: $(READY) $(OLDEST)/.ready  ## Run all tests, the long proofs too (ARGS=--hypothesis-profile=thorough: four times the examples)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations=15 $(WORKERS) $(ARGS)

# mypy reads `paperformer.modeling` off a folder paperformer/modeling, not off pyproject.toml's package-dir.
# So it checks the tree of which the wheel is made; that tree is rebuilt each time, hence never stale.
lint: $(READY)  ## Check style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@rm -rf build/typecheck
	@$(BIN)/python -c 'import setuptools; setuptools.setup()' -q build_py --no-compile --build-lib build/typecheck
	cd build/typecheck && $(CURDIR)/$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../../.mypy_cache -p paperformer

bench: $(READY)  ## Measure training speed beside transformers' own model, same batches, same size
	$(BIN)/python benchmarks/training_speed.py $(ARGS)

# What the site is made with is no part of $(READY): the tests go without it.
docs: $(READY)  ## Build the documentation's site, to open as build/site/html/index.html
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs,plots]'
	$(BIN)/python docs/site/make_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file build/site/mkdocs.yml
	@echo build/site/html/index.html

clean:  ## Remove the environment, builds and caches; trained models in runs/ stay
	rm -rf $(VENV) $(OLDEST) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
