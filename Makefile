# Every target sets up what it needs itself (tools/bootstrap.sh), and does so in well under a second when nothing changed.
ready := sh tools/bootstrap.sh
python := .venv/bin/python
.DEFAULT_GOAL := help
.PHONY: help setup build fmt check test slow fuzz run bench bench-queue bench-broker bench-log bench-spark docs wheel clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{printf "%-20s %s\n", $$1, $$2}'
run: ## see serai work: a queue, a server, Spark over both; DEMO_SECONDS=20 keeps the server up so long
	@$(ready) run && $(python) -m tools.run $(ARGS)
setup: ## make .venv with everything the other targets need, but the benchmarks' peers
	@$(ready) check
build: ## compile the core in place
	@$(ready) run
fmt: ## format and sort imports
	@$(ready) check && $(python) -m tools.check --fix
check: ## ruff, mypy, import contracts, stubs, laws, documents: under 20 seconds
	@$(ready) check && $(python) -m tools.check
test: ## the whole suite; FAST=1 leaves out the slow tests and Spark, ARGS="-k name" is passed on to pytest
	@$(ready) test && $(python) -m tools.test $(if $(FAST),--fast) $(ARGS)
slow: ## only the slow tests
	@$(ready) test && $(python) -m tools.test --slow $(ARGS)
fuzz: ## each fuzz target for SECONDS=60
	@$(ready) fuzz && $(python) -m tools.fuzz --seconds $(or $(SECONDS),60)
bench: bench-queue bench-broker bench-log bench-spark ## every benchmark
bench-queue: ## the queue beside its peers, ratios and JSON
	@$(ready) bench && $(python) -m benchmarks.queue $(ARGS)
bench-broker: ## the broker through its port, beside its peers: each line of its goals, met or not
	@$(ready) bench-broker && $(python) -m benchmarks.broker $(ARGS)
bench-log: ## the partition log against its goals, ratios and JSON
	@$(ready) run && $(python) -m benchmarks.log $(ARGS)
bench-spark: ## the source and the sink beside Spark's own, ratios and JSON; about twenty minutes, ARGS=--quick in three
	@$(ready) test && $(python) -m benchmarks.spark $(ARGS)
docs: ## write the generated parts of the documents
	@$(ready) check && $(python) -m tools.docs && $(python) docs/generate.py
wheel: ## dist/*.whl and the source archive
	@$(ready) build && $(python) -m build
clean: ## remove what was built; ALL=1 removes .venv too
	@rm -rf build dist src/serai/_core/*.so .venv/.stamps .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .serai-run $(if $(ALL),.venv)
