# Two commands for users: `make deploy` and `make test`. Everything they need, they install.

INVENTORY ?= inventories/lab.py
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
UNIT := tests/unit tests/operations tests/render
APT := bubblewrap caddy chromium-headless-shell python3-venv git logrotate netplan.io nftables openssh-client \
	prometheus prometheus-alertmanager restic shellcheck sudo systemd

# A program that tests start many times is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: deploy test style words types lint check near-tests unit-tests mutants lab-parts lab-tests soak cuts cluster-faults webui clients bench lab-down help

help:
	@echo "make deploy                                   lab up, then deploy to it"
	@echo "make deploy INVENTORY=inventories/spark.py    deploy to your Sparks"
	@echo "make check                                    lint, types, the quick tests near what you changed"
	@echo "make test                                     everything that CI runs"
	@echo "make mutants [COUNT=60] [SEED=1]              change the product at random, see a test fail, about 15 minutes"
	@echo "make soak                                     320 switches with faults, 25 to 40 minutes"
	@echo "make cuts [POINTS=10] [SEED=N]                kill deploys at random points, about 12 minutes"
	@echo "make cluster-faults                           every fault on each rank of a cluster"
	@echo "make webui                                    the real Open WebUI before a gateway, in Chromium"
	@echo "make clients                                  the real Codex, Claude Code, opencode, Continue, aider before a gateway"
	@echo "make bench                                    cost of a no-op deploy, a switch, a diff, a copy, the gateway"
	@echo "make lab-down                                 stop the lab"

# Debian's own Python, to which python3-venv belongs. One that pyenv built without optimisations took a
# third longer (431 unit tests, 92 s and 68 s, 2026-11-30). pip installs uv, and uv the rest in a tenth of
# pip's time. Both check every hash; the project itself is installed from this folder.
$(STAMP): requirements/dev.txt pyproject.toml
	lab/bootstrap $(APT)
	test -x $(BIN)/python || /usr/bin/python3 -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements/dev.txt >$(VENV)/uv.txt
	$(BIN)/python -m pip install -qq --disable-pip-version-check --require-hashes -r $(VENV)/uv.txt
	$(BIN)/uv pip install --quiet --python $(VENV) --require-hashes -r requirements/dev.txt
	$(BIN)/uv pip install --quiet --python $(VENV) --no-deps --editable .
	touch $@

deploy: $(STAMP)
ifeq ($(INVENTORY),inventories/lab.py)
	$(BIN)/lockstep lab up
endif
	$(BIN)/pyinfra -y $(INVENTORY) deploy.py

style: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Names and first words of docstrings, by docs/words.md.
words: $(STAMP)
	$(BIN)/python tests/words.py

types: $(STAMP)
	$(BIN)/mypy

lint: style words types

# The loop of a day: what is near the files that differ from origin/main, or from the last commit.
check: style words
	$(MAKE) --no-print-directory --jobs=2 --output-sync=line types near-tests

near-tests: $(STAMP)
	tests=$$($(BIN)/python tests/nearest_tests.py) && $(PYTEST) --dist worksteal -m "not slow" $$tests

# More workers than cores: some wait for agents and time-outs while others use the processor. Lab
# tests wait more, so they get one worker more.
WORKERS = $(shell expr $$(nproc) + 1)
PYTEST = $(BIN)/pytest -q --durations=10 -n $(WORKERS)

unit-tests: $(STAMP)
	$(PYTEST) --dist worksteal $(ONLY) $(UNIT)

lab-tests: WORKERS = $(shell expr $$(nproc) + 2)
lab-tests: lab-parts
	$(PYTEST) --dist loadfile --no-loadscope-reorder tests/lab

lab-parts: $(STAMP)
	$(BIN)/lockstep lab build

# The tests that need no lab run beside the download of its parts and its first deploy. No failed test
# is tried again: one that fails at times hides a race, its own or the product's.
test: $(STAMP)
	$(MAKE) --no-print-directory --jobs=3 --output-sync=line lab-tests lint unit-tests

COUNT ?= 60
mutants: $(STAMP)
	$(BIN)/python tests/mutating.py --count $(COUNT) $(if $(SEED),--seed $(SEED))

soak: $(STAMP)
	$(BIN)/python tests/proofs/soaking.py

POINTS ?= 10
cuts: $(STAMP)
	$(BIN)/python tests/proofs/cutting.py --points $(POINTS) $(if $(SEED),--seed $(SEED))

cluster-faults: $(STAMP)
	$(BIN)/python tests/proofs/cluster_faults.py

webui: $(STAMP)
	PYTHONPATH=.:tests/helpers:tests/helpers/gateway:tests/helpers/onhost \
	$(BIN)/python tests/proofs/clients/real_webui.py

clients: $(STAMP)
	PYTHONPATH=. $(BIN)/python tests/proofs/clients/real_clients.py

# On the lab, whatever the environment's INVENTORY is.
bench: $(STAMP)
	$(MAKE) --no-print-directory deploy INVENTORY=inventories/lab.py
	@code=0; for name in noop switch diff copy gateway; do \
	echo "== $$name"; $(BIN)/python -m benchmarks.$$name || code=1; done; exit $$code

lab-down: $(STAMP)
	$(BIN)/lockstep lab down
