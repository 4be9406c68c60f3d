# Each target installs what it needs: `make run` starts a broker, `make test` runs every test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES_BUILT := pyproject.toml setup.py $(wildcard $(foreach room,protocol/records server/net storage/batches storage/files cleaner/kernel,$(addprefix $(room)/*.,pyx pxd pxi h)))

.PHONY: help run pipeline test iceberg quick lint demo bench soak differential wheel clean

help:  ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

run: $(VENV)/.installed  ## Start a broker on 127.0.0.1:9092, its HTTP endpoint on 127.0.0.1:9644, its data in ./data
	$(BIN)/kompakt serve

# A test run starts hundreds of Python processes: without cached bytecode, each would compile its imports.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest

pipeline: $(VENV)/.installed-pipeline  ## Install PySpark for `kompakt pipeline`, and fetch its jars once
	$(BIN)/kompakt pipeline jars

# Number of processes that share the test files; 0 runs them in this process, sorted by name. Many tests
# wait for other processes, so two cores have work for four. Those of `make quick` do not wait.
TEST_PROCESSES ?= 4
QUICK_PROCESSES ?= 3

test: $(VENV)/.installed-dev  ## Run every test; tests whose tools are missing are skipped with the reason
	$(PYTEST) -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

# Iceberg has no runtime for the PySpark that the tests use. This one comes before it on the path. It leaves
# sockets to the garbage collector.
PYSPARK_41 := $(VENV)/pyspark-4.1.1
iceberg: $(PYSPARK_41)  ## Tests of tables on Spark 4.1, which Iceberg has a runtime for; with KOMPAKT_SOAK=1 the long one, too
	PYTHONPATH=$(CURDIR)/$(PYSPARK_41) $(PYTEST) -n 0 -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning \
	    tests/pipeline/tables/formats tests/pipeline/tables/test_job.py tests/pipeline/tables/events \
	    $(if $(KOMPAKT_SOAK),tests/pipeline/tables/test_captured_changes.py) $(PYTEST_ARGS)

# Protocol, storage and server without the tests that start processes or two brokers, take seconds each, or run a
# whole broker for many cases, and without those that send a request, or the largest request, for every API and every array of it. A test of seconds in
# a quick file is marked `not_quick` (tests/harness/examples.py).
NOT_QUICK := protocol/fuzz server/test_broker.py server/test_disk_faults.py \
    server/test_descriptor_bound.py server/admin/test_pass_history.py server/test_policy_changes.py \
    server/topics/test_growth.py server/coordination/groups/consumer/test_group_model.py \
    server/coordination/groups/test_kafka_answers.py server/coordination/transactions/test_kafka_answers.py \
    server/test_metadata_damage.py server/test_metadata_crash_states.py server/test_full_disk_start.py \
    server/test_fenced_process.py server/standby/test_fenced_apis.py \
    server/standby/test_fenced_source.py server/standby/test_taking_over.py \
    server/standby/test_peers_of_brokers.py server/test_connection_limits.py server/test_refusals.py \
    server/handlers/test_produce_malformed.py \
    server/replication/test_mirroring.py server/replication/groups/test_group_sync.py \
    server/replication/test_acl_sync.py server/replication/test_mirror_simulation.py \
    server/replication/test_broker_resyncs.py server/replication/test_empty_batches.py \
    server/replication/verify/test_verifications.py \
    server/test_large_requests.py server/test_large_groups.py server/test_waiting_requests.py \
    server/test_fenced_broker.py server/test_tls_broker.py server/test_deleted_topic_space.py \
    server/net/test_connection_memory.py server/security/quotas/test_quota_limits.py \
    server/security/test_large_denials.py \
    server/security/test_api_rules.py server/security/test_many_acls.py server/admin/test_http_access.py \
    server/admin/test_lease_routes.py server/erasure/test_erasures.py \
    server/handlers/test_delete_records.py \
    server/lookup/test_changes.py server/lookup/test_value_decoding.py server/fetching/test_session_model.py \
    server/test_live_topic_configs.py server/snapshots server/live_records/test_record_routes.py \
    server/admin/test_compaction_explain.py server/handlers/test_find_coordinator.py server/test_http_inputs.py \
    server/test_ledger.py server/net/test_tls_transport.py server/net/test_busy_descriptors.py \
    server/security/test_authorization.py server/security/sasl/test_tokens.py server/runtime/test_tasks.py \
    server/test_bad_input_over_tls.py server/coordination/groups/test_holds.py storage/test_on_disk_page.py \
    server/durability/test_unkeyed_appends.py server/events/test_compaction_events.py \
    server/fetching/test_sessions.py server/lookup/test_get.py server/net/test_listener.py \
    server/handlers/test_mirror_requests.py server/handlers/test_sasl_authenticate.py protocol/records/test_inflate.py \
    server/coordination/groups/test_offset_commands.py server/metadata/test_embedded_store.py \
    server/shortcut/test_fetch.py server/handlers/test_create_topics.py server/handlers/test_txn_offset_commit.py \
    server/net/test_first_step.py server/handlers/test_latest_views.py server/handlers/test_topic_ids.py \
    server/durability/test_log_clock.py server/topics/test_topics.py server/handlers/test_internal_topics.py \
    server/admin/test_compaction_routes.py server/handlers/test_alter_client_quotas.py \
    server/runtime/test_loop_watch.py server/runtime/test_memory_upkeep.py storage/log/test_log_threads.py \
    storage/batches/test_recompress.py storage/segment/test_files.py
QUICK_TESTS := tests/protocol tests/storage tests/server tests/metrics \
    $(addprefix --ignore=tests/,$(NOT_QUICK))

quick: $(VENV)/.installed-dev  ## Unit tests of protocol, storage and server without processes and with few examples: about a minute
	KOMPAKT_QUICK=1 $(PYTEST) -n $(QUICK_PROCESSES) -q $(QUICK_TESTS) $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev  ## ruff, mypy --strict, the import contracts, unused code, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/vulture
	$(BIN)/codespell

demo: $(VENV)/.installed-demo  ## Real flights through real clients, the cleaner and Spark; compared with pandas
	$(BIN)/python -m demo

bench: $(VENV)/.installed-dev  ## Measure figures as ratios to the machine's own limit
	$(BIN)/python -m bench

SOAK_KILLS ?= 500
SOAK_CRASH_STATES ?= 200000
SOAK_FAULTS ?= 100000
SOAK_FUZZ_RUNS ?= 200000
SOAK_RECORDS ?= 50000000
SOAK_TRANSACTION_HISTORIES ?= 1000
SOAK_CLEAN_KILLS ?= 30
SOAK_TABLE_HISTORIES ?= 50
SOAK_STREAMS_KILLS ?= 40
SOAK_WRONG_PASSWORDS ?= 1000000
SOAK_REPLOG_SEEDS ?= 20000
SOAK_MIRROR_SEEDS ?= 5000
SOAK_MIRROR_RECORDS ?= 5000000
SOAK_FEATURE_RECORDS ?= 50000000
SOAK_CAPTURED_CHANGES ?= 5000000

soak: $(VENV)/.installed-dev  ## Run the long crash, kill, fuzz and property tests; writes bench/results/soak.txt
	KOMPAKT_SOAK=1 KOMPAKT_ATTACK_SOAK=1 KOMPAKT_KILLS=$(SOAK_KILLS) KOMPAKT_CRASH_STATES=$(SOAK_CRASH_STATES) \
	KOMPAKT_FAULTS=$(SOAK_FAULTS) KOMPAKT_FUZZ_RUNS=$(SOAK_FUZZ_RUNS) KOMPAKT_SOAK_RECORDS=$(SOAK_RECORDS) \
	KOMPAKT_TRANSACTION_HISTORIES=$(SOAK_TRANSACTION_HISTORIES) KOMPAKT_CLEAN_KILLS=$(SOAK_CLEAN_KILLS) \
	KOMPAKT_TABLE_HISTORIES=$(SOAK_TABLE_HISTORIES) KOMPAKT_STREAMS_KILLS=$(SOAK_STREAMS_KILLS) KOMPAKT_WRONG_PASSWORDS=$(SOAK_WRONG_PASSWORDS) \
	KOMPAKT_REPLOG_SEEDS=$(SOAK_REPLOG_SEEDS) KOMPAKT_MIRROR_SEEDS=$(SOAK_MIRROR_SEEDS) \
	KOMPAKT_MIRROR_RECORDS=$(SOAK_MIRROR_RECORDS) KOMPAKT_FEATURE_RECORDS=$(SOAK_FEATURE_RECORDS) \
	KOMPAKT_CAPTURED_CHANGES=$(SOAK_CAPTURED_CHANGES) $(PYTEST) -v -rP --show-capture=stdout --timeout=7200 --color=no --durations=20 \
	    tests/crash tests/cleaner/fuzz tests/cleaner/test_races.py tests/protocol/fuzz tests/properties \
	    tests/cli/standby/test_mutated_answers.py tests/cli/standby/test_mutated_coordinator_answers.py \
	    tests/pipeline/test_clean_kills.py tests/pipeline/tables/test_table_histories.py \
	    tests/pipeline/test_delta_upkeep.py tests/pipeline/test_pipeline_page.py tests/pipeline/test_company_page.py \
	    tests/pipeline/test_recipes_page.py tests/pipeline/spark/test_spark_submit.py \
	    tests/pipeline/tables/test_captured_changes.py tests/pipeline/load/test_load_kills.py tests/test_wheel.py \
	    tests/conformance/test_streams.py tests/server/test_bad_input_over_tls.py tests/replog/test_simulation.py \
	    tests/server/replication/test_mirror_simulation.py tests/server/test_metadata_damage.py $(PYTEST_ARGS) > bench/results/soak.txt; \
	    status=$$?; tail -40 bench/results/soak.txt; exit $$status

DIFFERENTIAL_SEEDS ?= 5

differential: $(VENV)/.installed-dev  ## Compare Apache Kafka's own cleaner with ours over generated workloads; writes bench/results/differential.json
	$(BIN)/python -m tests.differential --seeds $(DIFFERENTIAL_SEEDS) $(if $(DIFFERENTIAL_SEED),--seed $(DIFFERENTIAL_SEED)) --json > bench/results/differential.json; \
	    status=$$?; cat bench/results/differential.json; exit $$status

wheel: $(VENV)/.installed-dev  ## Build the wheel into dist/
	$(BIN)/python -m build --wheel

clean:  ## Remove build products; ./data stays
	rm -rf $(VENV) build dist *.egg-info
	find protocol storage cleaner \( -name '*.so' -o -name '*.c' \) -delete

$(VENV)/bin/python:
	@sh .ci/check-machine "$(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { echo "Python's venv module is missing: install it with 'apt-get install python3-venv'." >&2; exit 1; }

PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
REQUIREMENTS := $(BIN)/python .ci/requirements

# Only this rule builds. distutils keeps its products in build/, so a change compiles only the modules it
# touches. With the modules in place, pip only registers the checkout.
$(VENV)/.installed: $(VENV)/bin/python $(SOURCES_BUILT)
	@sh .ci/check-machine "$(PYTHON)"
	@echo "Installing what Kompakt needs into $(VENV) ..."
	@$(REQUIREMENTS) build > $(VENV)/requirements-build && $(PIP_INSTALL) -r $(VENV)/requirements-build
	@$(REQUIREMENTS) run > $(VENV)/requirements-run && $(PIP_INSTALL) -r $(VENV)/requirements-run
	$(BIN)/python setup.py --quiet build_ext --inplace
	@KOMPAKT_MODULES=in-place $(PIP_INSTALL) --no-build-isolation --no-deps -e .
	@touch $@

$(PYSPARK_41): $(VENV)/.installed-dev
	@echo "Installing PySpark 4.1.1 into $@ ..."
	@rm -rf $@.part && $(PIP_INSTALL) --no-deps --target $@.part pyspark==4.1.1 && touch $@.part && rm -rf $@ && mv $@.part $@

# The additional packages of an extra.
$(VENV)/.installed-pipeline: EXTRA := pipeline
$(VENV)/.installed-demo: EXTRA := demo
$(VENV)/.installed-dev: EXTRA := dev
$(VENV)/.installed-dev $(VENV)/.installed-demo $(VENV)/.installed-pipeline: $(VENV)/.installed
	@echo "Installing what its extra \"$(EXTRA)\" needs into $(VENV) ..."
	@$(REQUIREMENTS) $(EXTRA) > $(VENV)/requirements-$(EXTRA) && $(PIP_INSTALL) -r $(VENV)/requirements-$(EXTRA)
	@touch $@
