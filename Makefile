# `make run` starts the app and `make test` checks everything; both set up what they need first.

PORT ?= 8501
BIN := .venv/bin
PYTHON ?= $(firstword $(foreach python,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
	$(python) -c 'import sys; sys.version_info >= (3, 11) and print("$(python)")' 2>/dev/null)))

.PHONY: setup chromium run test check fix traces golden bench bench-app load measure draws screenshots site

setup: .venv/installed
	@$(BIN)/python -m models.fetch

run: setup
	@echo "DraftScope: http://localhost:$(PORT)  (Ctrl-C stops it; PORT=8600 make run takes another port)"
	@$(BIN)/python -m pages.parts.serve --server.port $(PORT) --server.headless true

test: setup chromium .venv/scale
	@$(MAKE) --no-print-directory check

# The browser tests drive a Chromium from the system; where none is and root may install one, it does.
chromium:
	@test -n "$$CHROMIUM" || command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "Installing Chromium for the browser tests" && \
		apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq -y install chromium fonts-noto-cjk >/dev/null; } || \
		echo "No Chromium: the browser tests will be skipped (apt install chromium fonts-noto-cjk, or name one in CHROMIUM)"

check:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright
	$(BIN)/python -m pytest

fix:
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

traces:
	$(BIN)/python -m spec_core.record

golden:
	$(BIN)/python -m spec_core.golden tests/golden

bench:
	$(BIN)/python -m spec_core.bench --prompts assets/prompts/bench.jsonl --limit 20 --tokens 96 \
		--temperature 0 --methods all --ratios --json bench.json

bench-app:
	$(BIN)/python -m tests.bench_app --json bench-app.json

# Forty readers on one server for five minutes, and what it survives; SMALL=1 only tries the command.
load:
	$(BIN)/python -m tests.load --json load.json $(if $(SMALL),--toy --clients 6 --live 2 --seconds 20 --runs 6)

# The latency lab's recording of this machine.
measure:
	$(BIN)/python -m spec_core.measure --context 64,256,1024 --far 128,512,2048,4096 \
		--budgets 8,16,32,59,128,256 --json assets/measurements

# Thousands of draws by every method against the target's exact law, for the lesson on losslessness.
draws:
	$(BIN)/python -m spec_core.experiment --prompt story --after 18,30 --draws 2000

screenshots:
	$(BIN)/python -m tests.browser.shots

# The static site: lessons, races and steps as plain files; APP=https://… links to a running app.
site: setup
	@rm -rf build/site
	@$(BIN)/python -m pages.parts.site $(if $(APP),--app $(APP))

# Installs again only when a requirements file is newer than the last install that succeeded.
.venv/installed: requirements.txt requirements-dev.txt requirements-replay.txt | .venv/bin/python
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements-dev.txt
	@touch $@

# Ray, which only the tests need on a machine that decodes for itself.
.venv/scale: requirements-scale.txt .venv/installed
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements-scale.txt
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { \
		echo "DraftScope needs Python 3.11 or newer, and none was found."; \
		echo "Install one, or name it: make setup PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; \
		echo "$(PYTHON) could not create .venv; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
