# Every target does all of its own set-up: a machine with Python 3.11 or later, make, git and a package index is enough.
# Set-up writes to standard error; what a target prints itself is all that reaches standard output.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
ENVIRONMENT := $(VENV)/.complete
WHEELS := build/wheels/.complete
PACKAGES := build/packages/.complete
SAMPLES := build/samples/.complete
SERVERS := build/servers/.complete

# Files that a build reads. Caches and build results are not among them, or nothing would ever be up to date.
sources = $(shell find $(1) -type f -not -name '*.pyc' -not -path '*/build/*' -not -path '*/dist/*' 2>/dev/null)
# Of the whole lane alone: a part of the tests covers a part of the code. A file's tests stay together, as its fixtures do.
WHOLE_LANE := --cov --cov-report=term:skip-covered --numprocesses=auto --maxprocesses=4 --dist=loadfile
PLUGINS := $(patsubst plugins/%/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(ENVIRONMENT): requirements/bootstrap.sh requirements/uv.txt requirements/dev.txt host/pyproject.toml sdk/pyproject.toml
	@requirements/bootstrap.sh $(VENV)
	@touch $@

$(WHEELS): $(ENVIRONMENT) $(call sources,sdk)
	@rm -rf $(@D)
	@$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir $(@D) sdk 1>&2
	@touch $@

# First-party plugins in the form in which anybody's are delivered; digests of packages are never committed. The revision
# is the time of the newest source, counted from 2025: it grows with every edit, and equal sources give equal packages.
$(PACKAGES): $(WHEELS) $(call sources,plugins) $(call sources,sdk) $(call sources,host/hotbay/packages)
	@rm -rf $(@D).new
	@mkdir -p $(@D).new
	@set -e; rev=$$(($$(stat -c %Y $(filter-out $(WHEELS),$^) | sort -n | tail -n 1) - 1735689600)); \
		for plugin in $(PLUGINS); do $(BIN)/hotbay pack plugins/$$plugin --rev $$rev --out $(@D).new/$$plugin 1>&2; done
	@rm -rf $(@D)
	@mv $(@D).new $(@D)
	@touch $@

# The demo's scorer in two versions: beside the bundled packages and not among them, so that publishing one is an event.
$(SAMPLES): $(WHEELS) $(call sources,plugins/samples) $(call sources,host/hotbay/packages)
	@rm -rf $(@D).new
	@set -e; for version in 1 2; do $(BIN)/hotbay pack plugins/samples/least-loaded/v$$version --rev $$version \
		--out $(@D).new/least-loaded/v$$version 1>&2; done
	@rm -rf $(@D)
	@mv $(@D).new $(@D)
	@touch $@

# Real servers and tools for tests, unpacked and not installed.
$(SERVERS): requirements/servers.sh
	@requirements/servers.sh $(@D)
	@touch $@

.PHONY: setup
setup: $(PACKAGES) $(SAMPLES) ## only the set-up: environment, SDK wheel, first-party packages

.PHONY: demo
demo: $(PACKAGES) $(SAMPLES) ## real requests, real model servers, a swap and a kill under load (ARGS=--json, ARGS=--sabotage, TRACE=FILE)
	@$(BIN)/hotbay demo $(if $(TRACE),--trace '$(TRACE)') $(ARGS)

.PHONY: run
run: $(PACKAGES) ## the host and its gateway (ARGS="-c FILE")
	@$(BIN)/hotbay run $(ARGS)

.PHONY: test
test: $(PACKAGES) $(SERVERS) ## every test but the slow ones, with coverage, on all cores (ARGS="tests/unit -q": these, without)
	@PATH="$(CURDIR)/build/servers/usr/bin:$$PATH" $(BIN)/python -m pytest -m 'not slow' $(or $(ARGS),$(WHOLE_LANE))

.PHONY: test-slow
test-slow: $(PACKAGES) $(SAMPLES) $(SERVERS) ## the slow tests: proofs under load (SCALE=0.1 shortens them; ARGS="-k zero_drop")
	@PATH="$(CURDIR)/build/servers/usr/bin:$$PATH" $(BIN)/python -m pytest -m slow --proof-scale $(or $(SCALE),1) $(ARGS)

.PHONY: lint
lint: $(ENVIRONMENT) ## ruff, mypy --strict, import contracts, declared dependencies; fails at the end
	@failed=; step() { "$$@" || failed="$$failed $$*,"; }; \
		step $(BIN)/ruff check .; \
		step $(BIN)/ruff format --check .; \
		step $(BIN)/mypy; \
		step $(BIN)/lint-imports --no-logo; \
		for distribution in host sdk; do (cd $$distribution && ../$(BIN)/deptry .) || failed="$$failed deptry $$distribution,"; done; \
		test -z "$$failed" || { echo "lint failed:$${failed%,}" 1>&2; exit 1; }

.PHONY: format
format: $(ENVIRONMENT) ## rewrite the code as lint expects it
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

.PHONY: bench
bench: $(PACKAGES) ## figures beside the machine's floor, into build/bench (ARGS="--only G1", --list)
	@$(BIN)/python -m benchmarks.run $(ARGS)

.PHONY: wheel
wheel: $(PACKAGES) $(SAMPLES) ## both wheels into dist/, the host's with the first-party packages inside
	@rm -rf build/host dist
	@mkdir -p build/host/hotbay dist
	@cp -R host/LICENSE host/README.md host/pyproject.toml build/host/
	@(cd host && find hotbay -type f -not -name '*.pyc' -not -path 'hotbay/_bundled/*') | \
		while read -r file; do mkdir -p "build/host/$${file%/*}" && cp "host/$$file" "build/host/$$file"; done
	@mkdir -p build/host/hotbay/_bundled
	@cp -R build/packages build/samples build/wheels build/host/hotbay/_bundled/
	@find build/host/hotbay/_bundled -name '.*' -type f -delete
	@$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist build/host 1>&2
	@cp build/wheels/*.whl dist/
	@rm -f dist/.gitignore
	@ls dist

.PHONY: requirements
requirements: $(ENVIRONMENT) ## resolve again and rewrite requirements/*.txt (ARGS=--upgrade)
	@$(BIN)/uv lock --quiet $(ARGS)
	@$(BIN)/uv export --quiet --frozen --format requirements-txt --all-packages --all-groups --no-emit-workspace \
		--no-header --no-annotate --output-file requirements/dev.txt 1>&2
	@$(BIN)/uv export --quiet --frozen --format requirements-txt --only-group bootstrap --no-emit-workspace \
		--no-header --no-annotate --output-file requirements/uv.txt 1>&2
	@! grep -nE '://|^--' requirements/dev.txt requirements/uv.txt

.PHONY: clean
clean: ## remove everything that make made
	@rm -rf $(VENV) build dist .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
