# Everything a person or CI does here is a target; `make help` lists them all.
# One environment, .venv, filled by pip from the lock files and nothing else: no resolver runs, every file is hashed.

PYTHON ?= python3
# The tests of one file stay on one process, so that what a module starts is started once. Half of them wait: three
# processes keep two cores busy (docs/decisions/0004).
PYTEST_ARGS ?= -n 3 --dist loadfile

VENV := .venv
# A real vLLM has its own: three gigabytes, and versions of its own of much that we use.
VLLM_VENV := .venv-vllm
# Debian's Prometheus, unpacked and not installed: its promtool fires the alert rules.
PROMETHEUS := .prometheus
# The wheel as hosts have it, one environment a side, each from its lock file.
HOSTS := .hosts
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-compile
LOCKED := $(PIP) --require-hashes
UV_COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --custom-compile-command "make locks"

# What the bench builds and finds lies apart. Each rival has an environment of its own, so that none changes another's.
BENCH := .bench
ENGINE := $(BENCH)/bin/mock-engine $(BENCH)/bin/load
RIVALS := aiohttp_script openai_sdk httpx_client litellm_batch celery_rows
CC := cc
C_FLAGS := -std=c17 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -Wshadow -Wconversion

# What a test measured, on the terminal.
FIGURES := -o log_cli=true -o log_cli_level=INFO -o log_cli_format="%(name)s: %(message)s"

# Some shells forbid Python to keep what it compiled; every process would then compile everything at its start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install worker demo venv wheel test test-50k test-million test-long test-races test-fuzz test-vllm test-alerts test-page test-tenants test-tenants-quick test-tls test-hosts test-docker docker-engine docker-stop lint types imports format docs docs-check check locks clean \
	chaos chaos-quick bench bench-quick bench-full bench-memory bench-scale bench-vllm bench-rivals bench-locks

help: ## list every target
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.user ## make .venv with all that running gpuyard needs: every part, and the small model

worker: $(VENV)/.worker ## make .venv with what a GPU machine needs, and no more

demo: $(VENV)/.user ## start everything on this machine, send a batch to a real model, print the answers, stop
	$(BIN)/python examples/demo.py

wheel: $(VENV)/.hatchling ## the wheel, and the lists of what a server and a worker need beside it, into dist/
	mkdir -p dist && rm -f dist/gpuyard-*.whl
	$(BIN)/python -m hatchling build --target wheel --directory dist
	cp locks/server.txt locks/worker.txt dist/

venv: $(VENV)/.dev ## make .venv with all that development needs

test: $(VENV)/.dev ## run all tests (SQLite and PostgreSQL); PYTEST_ARGS="tests/domain -x" narrows
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-long: $(VENV)/.dev ## the second forms of the slow tests: fleets without a broker, the kill test on PostgreSQL
	$(BIN)/python -m pytest -m long tests

test-50k: $(VENV)/.dev ## the tests of large batches with 50,000 rows instead of some thousands; prints their figures
	GPUYARD_TEST_ROWS=50000 $(BIN)/python -m pytest tests/e2e/test_lost_workers.py tests/e2e/test_default_timings.py \
		tests/e2e/test_retries.py \
		$(FIGURES)

test-million: $(VENV)/.dev $(ENGINE) ## a batch of 1,000,000 rows through the SDK, every line checked; prints time, memory, disk (4 GB)
	$(BIN)/python -m benchmarks million

test-races: $(VENV)/.dev ## a thousand races of threads on each database, and 300 orders of calls (half an hour on two cores)
	GPUYARD_TEST_RUNS=1000 GPUYARD_TEST_RACES=300 $(BIN)/python -m pytest -n 2 --dist load tests/services/test_race_runs.py tests/services/test_races.py

test-fuzz: $(VENV)/.dev ## bad input at length: 300 calls a route, 20,000 input files
	GPUYARD_TEST_EXAMPLES=300 GPUYARD_TEST_FILES=20000 $(BIN)/python -m pytest tests/api/test_bad_input.py \
		tests/api/test_bad_bytes.py tests/worker/test_reading_agrees.py --timeout 3600

test-vllm: $(VENV)/.dev $(VLLM_VENV)/.made ## the tests against a real vLLM on the CPU (3.5 GB, once; 8 GB of memory)
	GPUYARD_TEST_VLLM=$(abspath $(VLLM_VENV)) $(BIN)/python -m pytest -m vllm tests/vllm \
		$(FIGURES)

test-alerts: $(VENV)/.dev $(PROMETHEUS)/.made ## fire every alert rule by Prometheus' own promtool (20 MB from Debian, once)
	GPUYARD_TEST_PROMTOOL=$(abspath $(PROMETHEUS))/usr/bin/promtool $(BIN)/python -m pytest -m alerts tests/alerts

test-page: $(VENV)/.dev ## the page for people in a real browser (Debian: apt-get install chromium chromium-driver)
	$(BIN)/python -m pytest -m page tests/dashboard

test-hosts: $(VENV)/.dev $(HOSTS)/.made wheel ## three GPU hosts in network namespaces, installed from the wheel; one is cut off (root; five minutes)
	for side in control worker; do $(HOSTS)/$$side/bin/python -m pip --disable-pip-version-check install --quiet --no-deps \
		--force-reinstall dist/gpuyard-*.whl || exit 1; done
	GPUYARD_TEST_HOSTS=$(abspath $(HOSTS)) $(BIN)/python -m pytest -m hosts tests/hosts \
		$(FIGURES)

docker-engine: ## a Docker engine with Compose for test-docker, from Debian where there is none (root)
	tests/docker/engine.sh start

test-docker: $(VENV)/.dev docker-engine ## the images, the whole stack and the queues in containers (five minutes, 2 GB)
	tests/docker/engine.sh images $(BIN)/python
	tests/docker/engine.sh run $(BIN)/python -m pytest -m docker tests/docker -n 2 --dist loadfile --durations 15

docker-stop: ## end the Docker engine that docker-engine started
	tests/docker/engine.sh stop

test-tenants: $(VENV)/.dev ## an org that tries every bound for a minute, beside an honest one; on SQLite, then PostgreSQL (six minutes)
	GPUYARD_TEST_ATTACK_SECONDS=60 GPUYARD_TEST_ATTACKS="$(ONLY)" $(BIN)/python -m pytest -m "tenants and (long or not long)" tests/tenants $(FIGURES)

test-tenants-quick: $(VENV)/.dev ## the same for 20 seconds on SQLite, as CI runs it
	GPUYARD_TEST_ATTACKS="$(ONLY)" $(BIN)/python -m pytest -m tenants tests/tenants $(FIGURES)

test-tls: $(VENV)/.dev ## TLS on both legs, what a broker account can do, and a real nginx in front (Debian: nginx-light, redis-server)
	$(BIN)/python -m pytest -m "proxy or long or not long" tests/broker/test_broker_acl.py tests/cli/test_broker_accounts.py \
		tests/e2e/test_broker_accounts.py tests/e2e/test_behind_a_proxy.py

CHAOS_OPTIONS = $(if $(SEED),--seed $(SEED)) $(if $(DATABASE),--database $(DATABASE)) $(if $(TIMES),--times $(TIMES))

chaos: $(VENV)/.dev ## the kill test with damaged contents, 20,000 rows in five minutes; SEED=7 DATABASE=postgresql TIMES=10; writes docs/operate/faults.md
	$(BIN)/python -m tests.chaos full --write $(CHAOS_OPTIONS)

chaos-quick: $(VENV)/.dev ## the same in half a minute, as CI runs it
	$(BIN)/python -m tests.chaos quick $(CHAOS_OPTIONS)

lint: $(VENV)/.dev ## ruff: all rules and the format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev ## mypy, strict
	$(BIN)/mypy

imports: $(VENV)/.dev ## the walls between the rooms
	$(BIN)/lint-imports

check: lint types imports docs-check ## everything but the tests

format: $(VENV)/.dev ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev ## write the generated pages of docs/reference anew
	$(BIN)/python docs/_generate.py

docs-check: $(VENV)/.dev ## fail when a generated page is not what the code says
	$(BIN)/python docs/_generate.py --check

bench: $(VENV)/.dev $(ENGINE) bench-rivals ## measure everything beside its rivals (ten minutes), write docs/performance.md
	$(BIN)/python -m benchmarks standard --write

bench-full: $(VENV)/.dev $(ENGINE) bench-rivals ## the same with as many rows and rounds as the targets name (half an hour)
	$(BIN)/python -m benchmarks full --write

bench-quick: $(VENV)/.dev $(ENGINE) $(BENCH)/rivals/aiohttp_script/.made ## ratios that only a real regression misses (CI)
	$(BIN)/python -m benchmarks quick

bench-memory: $(VENV)/.dev $(ENGINE) ## peak memory with 1,000,000 rows beside 10,000 (a quarter of an hour, 4 GB of disk)
	$(BIN)/python -m benchmarks memory

bench-scale: $(VENV)/.dev ## claims and sweeps with 1,000,000 queued jobs and 10,000 workers on PostgreSQL
	$(BIN)/python -m benchmarks scale

bench-vllm: $(VENV)/.dev $(VLLM_VENV)/.made ## a batch on a real vLLM beside `vllm run-batch` (a quarter of an hour)
	$(BIN)/python -m benchmarks vllm

bench-rivals: $(RIVALS:%=$(BENCH)/rivals/%/.made) ## make the rivals' environments

bench-locks: $(VENV)/.dev ## pin the rivals' newest versions anew (needs a package index)
	for rival in $(RIVALS); do (cd benchmarks/rivals/$$rival && ../../../$(BIN)/uv pip compile --quiet --upgrade --universal \
		--python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --custom-compile-command "make bench-locks" \
		requirements.in --output-file requirements.txt) || exit 1; done

locks: $(VENV)/.dev ## pin the newest allowed versions anew (needs a package index)
	$(UV_COMPILE) --upgrade pyproject.toml --all-extras --group build --output-file locks/dev.txt
	$(UV_COMPILE) --upgrade pyproject.toml --extra server --extra embedded --extra postgres --extra flower --extra local \
		--extra examples --group build --constraints locks/dev.txt --output-file locks/user.txt
	$(UV_COMPILE) --upgrade pyproject.toml --group build --constraints locks/dev.txt --output-file locks/worker.txt
	$(UV_COMPILE) --upgrade pyproject.toml --extra server --extra postgres --extra flower --group build \
		--constraints locks/dev.txt --output-file locks/server.txt
	$(UV_COMPILE) --upgrade --no-deps --group pyproject.toml:model --output-file locks/model.txt
	$(UV_COMPILE) --upgrade --no-deps --group pyproject.toml:llama --constraints locks/dev.txt --output-file locks/llama.txt

clean: ## remove the environments and all caches
	rm -rf $(VENV) $(VLLM_VENV) $(PROMETHEUS) $(BENCH) $(HOSTS) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gpuyard needs Python 3.11 or newer; name one: make PYTHON=python3.12 ...")'
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "this Python cannot make an environment; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Every environment of ours can build the wheel; where there is none, the smallest that can.
$(VENV)/.hatchling: $(VENV)/.made locks/worker.txt
	@$(BIN)/python -c 'import hatchling' 2>/dev/null || $(LOCKED) --requirement locks/worker.txt
	@touch $@

$(HOSTS)/.made: locks/server.txt locks/worker.txt
	@echo "installing what a server and a worker need into $(HOSTS) (50 MB, once)"
	$(PYTHON) -m venv $(HOSTS)/control
	$(PYTHON) -m venv $(HOSTS)/worker
	$(HOSTS)/control/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --requirement locks/server.txt
	$(HOSTS)/worker/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --requirement locks/worker.txt
	@touch $@

$(VLLM_VENV)/.made: tests/vllm/requirements.txt tests/vllm/naming/pyproject.toml
	@echo "installing vLLM for the CPU into $(VLLM_VENV) (3.5 GB, once)"
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --requirement tests/vllm/requirements.txt
	@# What a text model never needs, and what may not fit the PyTorch that was found.
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps tests/vllm/naming
	@touch $@

$(PROMETHEUS)/.made:
	@command -v apt-get dpkg-deb >/dev/null || { echo "promtool comes from Debian, and this system has no apt-get"; exit 1; }
	@mkdir -p $(@D)
	cd $(@D) && { apt-get --quiet --quiet download prometheus || { apt-get --quiet --quiet update && apt-get --quiet --quiet download prometheus; }; }
	cd $(@D) && dpkg-deb --fsys-tarfile prometheus_*.deb | tar --extract ./usr/bin/promtool && rm prometheus_*.deb
	@touch $@

$(VENV)/.worker: $(VENV)/.made locks/worker.txt pyproject.toml
	$(LOCKED) --requirement locks/worker.txt
	$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.user: $(VENV)/.made locks/user.txt locks/model.txt pyproject.toml
	@echo "installing into $(VENV) (about 150 MB to fetch, once)"
	$(LOCKED) --requirement locks/user.txt --requirement locks/model.txt
	$(PIP) --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.made locks/dev.txt locks/model.txt pyproject.toml
	@echo "installing into $(VENV) (about 210 MB to fetch, once)"
	$(LOCKED) --requirement locks/dev.txt --requirement locks/model.txt
	$(PIP) --no-build-isolation --editable .
	@touch $@

$(BENCH)/bin/mock-engine: $(wildcard benchmarks/engine/*.c benchmarks/engine/*.h)
	@mkdir -p $(@D)
	$(CC) $(C_FLAGS) -o $@ $(filter %.c,$^)

$(BENCH)/bin/load: benchmarks/load/load.c
	@mkdir -p $(@D)
	$(CC) $(C_FLAGS) -o $@ $^

$(BENCH)/rivals/%/.made: benchmarks/rivals/%/requirements.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --requirement $<
	@touch $@
