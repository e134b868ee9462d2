# Every command a developer or a user needs. `make help` lists them.

SHELL := /bin/bash
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3.14 python3; do \
	command -v $$name >/dev/null && $$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$name; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCHMARKS := P1 P2 P3 P4 P5 P6 P7 P8 P9 P10 P11 P12 P13 P14 P15 GROUPS MACHINES QUORUM SEEDING CAPACITY F1 F2 F3 F4 F5 F6 F7 F8 F9
COMPILED := setup.py tools/build_batch.py src/legato/amqp/_batch.c src/legato/amqp/_batch.h
ARGS ?=

# The checks run beside the tests, and what they found is printed at the end. Up to three tests that failed on a
# machine as busy as that run again, alone.
define PYTEST_BESIDE_CHECK
checked=$$(mktemp); rm -f .pytest_cache/v/cache/lastfailed; \
	$(MAKE) --no-print-directory check >"$$checked" 2>&1 & check=$$!; \
	$(BIN)/python -m pytest -q -n auto --dist loadfile $(1); tested=$$?; \
	wait $$check; correct=$$?; cat "$$checked"; rm -f "$$checked"; \
	if [ $$tested = 1 ]; then $(BIN)/python -m tools.retry_alone; tested=$$?; fi; \
	exit $$((tested ? tested : correct))
endef

# The tests start some thousand processes: none of them compiles Legato anew, even where Python is told to keep nothing.
export PYTHONDONTWRITEBYTECODE :=
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

.PHONY: help install demo test test-replicated test-full check unit attacks bench-logins chaos log-chaos machine-chaos drill-chaos bench browser contract audit-checks cli-reference site audit-dependencies faces fuzz attack-fairness fleet kills message-states lock wheels clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-zA-Z%-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Create .venv with the locked versions and Legato itself

define CHECK_PYTHON
if [ -z "$(PYTHON)" ]; then \
	echo "Legato needs Python 3.11 or newer: install it, or name one: make PYTHON=/path/to/python3.11 ..." >&2; \
	exit 1; \
fi
endef

$(INSTALLED): requirements.lock pyproject.toml $(COMPILED)
	@$(CHECK_PYTHON)
	@$(PYTHON) tools/check_machine.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --requirement requirements.lock
	@# What builds it is in the lock file too: nothing is fetched whose hash is not known.
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(INSTALLED) ## Flights through a broker that is killed twice; options in ARGS="--kills 3"
	@$(BIN)/legato demo $(ARGS)

test: $(INSTALLED) ## Everything before a push, in about eight minutes
	@$(PYTEST_BESIDE_CHECK)

test-full: $(INSTALLED) ## The same, slow tests too, and each property test with all of its examples
	@$(call PYTEST_BESIDE_CHECK,--hypothesis-profile=full)

check: $(INSTALLED) ## Lint, format, types, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/python -m tools.make_faces --check
	@$(BIN)/mypy
	@$(BIN)/pyright --pythonpath $(BIN)/python
	@$(BIN)/lint-imports --no-cache

unit: $(INSTALLED) ## The tests that need no socket and no disk, in seconds
	@$(BIN)/python -m pytest -q tests/unit tests/conformance

fuzz: $(INSTALLED) ## 50,000 mutated inputs for a broker; options in ARGS="--inputs 5000 --users"
	@$(BIN)/python -m tests.support.fuzz $(ARGS)

attacks: $(INSTALLED) ## Attacks on a broker, a good client beside each; options in ARGS="--only 22" or ARGS=--list
	@$(BIN)/python -m tests.attacks $(ARGS)

bench-logins: $(INSTALLED) ## What a login costs, and 2,000 at once cost others; options in ARGS="--at-once 500"
	@$(BIN)/python -m tests.attacks.logins $(ARGS)

attack-fairness: $(INSTALLED) ## Attackers at full speed beside a good client; options in ARGS="--seconds 30 --only churn"
	@$(BIN)/python -m tests.support.attack_fairness $(ARGS)

chaos: $(INSTALLED) ## Twenty demo runs with random kill instants
	@$(BIN)/python -m legato.demo.chaos --runs 20 $(ARGS)

fleet: $(INSTALLED) ## 1,000 groups on 300 machines: spread, moves, a million clients back; options in ARGS="--groups 100"
	@$(BIN)/python -m simulator.fleet $(ARGS)

kills: $(INSTALLED) ## A Celery worker and a FastStream service through 20 kills of the broker each, counted by the ledger
	@for service in celery faststream; do \
		$(BIN)/python -m tests.stress.service_kills $$service --kills 20 --audit $(ARGS) || exit 1; done

log-chaos: $(INSTALLED) ## Servers of a replicated log killed, stopped, cut off, wiped, damaged for ten minutes; options in ARGS="--minutes 60 --seed 7"
	@$(BIN)/python -m tests.stress.log_chaos $(ARGS)

test-replicated: $(INSTALLED) ## The client's failover over brokers with a replicated log and stores of their own
	$(BIN)/python -m pytest -q -n 2 --replicated $(addprefix tests/integration/client/test_,failover.py failover_contracts.py \
		failover_contracts_in_flight.py failover_contracts_told.py duplicates_failover.py transactions.py returning.py) $(ARGS)

machine-chaos: $(INSTALLED) ## Three machines, each a broker and a log server, through kills, cuts, wipes, clocks, full disks, upgrades for ten minutes; options in ARGS="--minutes 60 --seed 7"
	@$(BIN)/python -m tests.stress.machine_chaos $(ARGS)

drill-chaos: $(INSTALLED) ## A drill of 30 minutes, Java clients beside Python ones; options in ARGS="--minutes 5"
	@$(BIN)/python -m interop.run_drill --minutes 30 --every 1.5 \
		--faults all,kill,kill,kill,kill-both,kill-client --json drill-out/result.json $(ARGS)

bench: $(addprefix bench-,$(BENCHMARKS)) ## All benchmarks

bench-%: $(INSTALLED) ## One benchmark, such as bench-P1; its last line is one JSON object
	@$(BIN)/python -m bench.$(shell echo $* | tr A-Z a-z) $(ARGS)

browser: $(INSTALLED) ## The console and the page of an audit in a real browser, which is got if there is none
	$(BIN)/python -m pip install --quiet 'playwright>=1.50'
	@command -v chromium chromium-browser >/dev/null || apt-get install --yes chromium || \
		$(BIN)/python -m playwright install --with-deps chromium
	$(BIN)/python -m tools.get_axe
	$(BIN)/python -m pytest -q tests/integration/test_report_page.py tests/integration/console/test_browser.py

contract: $(INSTALLED) ## Write docs/reference/contract.md: which test shows which line
	@$(BIN)/python tools/contract_table.py

message-states: $(INSTALLED) ## Write docs/reference/message-states.md from the table in the core
	@$(BIN)/python -m tools.message_states_page

cli-reference: $(INSTALLED) ## Write docs/reference/cli.md from the commands of `legato`
	@$(BIN)/python -m tools.cli_page

site: $(INSTALLED) ## The documentation as a site in build/site, to read in a browser; PROJECT_URL=https://... for links to sources
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in build/site: open build/site/index.html, or run python3 -m http.server --directory build/site"

wheels: ## Wheels of Legato and of its engine in dist/, tried in new environments; PROJECT_URL=https://... for links
	@$(CHECK_PYTHON)
	@$(PYTHON) tools/check_machine.py --for wheels
	@$(PYTHON) -m tools.make_wheels $(ARGS)

faces: $(INSTALLED) ## Write the client's public classes from their steps
	@$(BIN)/python -m tools.make_faces

audit-checks: $(INSTALLED) ## Write docs/reference/audit-checks.md from the checks of an audit
	@$(BIN)/python -m tools.audit_checks_page

lock: ## Write requirements.lock with hashes, by pip-compile; the newest versions with ARGS=--upgrade
	$(PYTHON) tools/lock.py $(ARGS)

audit-dependencies: ## Look for known vulnerabilities of the locked versions; needs pypi.org or, with ARGS="-s osv", osv.dev
	@$(CHECK_PYTHON)
	@$(PYTHON) tools/audit_dependencies.py $(ARGS)

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) build dist demo-out drill-out .mypy_cache .ruff_cache .pytest_cache .hypothesis
