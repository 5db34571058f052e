# Everything a fresh clone needs: `make demo` and `make test` set themselves up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# MB of JSON in the traces of `make bench`; ALSO: sizes that only perfkit reads, to check that time is linear.
MB ?= 500
ALSO ?= 50
# Numbers of ranks of `make strategies`.
WORLDS ?= 2 4 8
# Where `make gpu` writes its runs.
GPU_RUNS ?= traces/gpu
# Tests run in parallel, on one worker more than there are cores (of which eight count), because many tests wait. The
# tests of a file share a worker, and so its fixtures.
# Files start in order of collection: the long ones, in tests/integration, come first.
CORES := $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))
WORKERS ?= $(shell echo $$(($(CORES) + 1)))
# Of the slow tests more wait: for a limit of time, for ranks that hang, for a launcher.
SLOW_WORKERS ?= $(shell echo $$(($(CORES) + 2)))
PARALLEL := --dist loadfile --no-loadscope-reorder
PYTEST := $(BIN)/python -m pytest
HTA := $(VENV)/.hta
DEEPSPEED := $(VENV)/.deepspeed
TRACKERS := $(VENV)/.trackers
DOCS := $(VENV)/.docs
DEMO := demo-$(shell date -u +%Y%m%d-%H%M%S)

# Where the environment forbids compiled files, every start of perfkit and of pytest would compile all modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo hta test slow check lint docs bench gpu strategies whatif clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	@echo "Installing into $(VENV); PyTorch is large, this takes a minute or more ..."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[run,mpi,dask,test]'
	touch $@

demo: $(READY) ## Train a small GPT on two ranks, with delays put into one of them and into its input, and print what was found
	$(BIN)/mpiexec -n 2 $(BIN)/perfkit run gpt --source hdf5 --read per-sample --steps 16 --schedule warmup=1,active=6 --name $(DEMO) \
		--inject rank=1,phase=forward,delay=60ms --inject phase=data_loading,delay=40ms
	@echo
	@echo "For these commands, first: source $(BIN)/activate"

test: $(READY) ## Run the tests (WORKERS=1 to run one at a time; minutes on two cores)
	$(PYTEST) -n $(WORKERS) $(PARALLEL) -m 'not slow'

# Holistic Trace Analysis pulls in fifty packages, needed only by the tests that compare with it.
$(HTA): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[hta]' && touch $@ \
		|| echo "Holistic Trace Analysis cannot be installed here: its tests are skipped"

$(DEEPSPEED): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[transformers,lightning,deepspeed]' \
		&& touch $@ || echo "transformers, Lightning and DeepSpeed cannot be installed here: their tests are skipped"

$(TRACKERS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[tensorboard,mlflow,wandb]' \
		&& touch $@ || echo "The clients of TensorBoard, MLflow and W&B cannot be installed here: their tests are skipped"

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]' && touch $@

# The variable silences advice about the successors of mkdocs.
docs: $(DOCS) ## Build the documentation as a site, site/index.html; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

# Files without such tests are not even imported. Tests that compare wall times come last, one at a time.
with_tests = $(sort $(shell grep -rl --include='test_*.py' 'mark\.$(1)' tests))

hta: $(HTA) ## Install Holistic Trace Analysis, for perfkit hta and --cross-check hta

slow: $(READY) $(HTA) $(DEEPSPEED) $(TRACKERS) ## Run the tests that take longer
	$(PYTEST) -n $(SLOW_WORKERS) $(PARALLEL) -m 'slow and not timing' $(call with_tests,slow)
	$(PYTEST) -m timing $(call with_tests,timing)

lint: $(READY) ## Check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# Property tests try more examples here than in `make test`. Types take one core for minutes: the fast tests run beside.
check: export HYPOTHESIS_PROFILE := full
check: $(DOCS) ## Everything that CI checks
	$(MAKE) -j2 lint docs test
	$(MAKE) slow

bench: $(READY) ## Measure reading traces (MB=500 ALSO="50 2000" TRACE=FILE), many runs, ranks, input sources, the monitor, the profiler, and who is late; minutes
	$(BIN)/python -m tests.benchmarks.bench_trace $(TRACE) --megabytes $(MB) --also $(ALSO)
	$(BIN)/python -m tests.benchmarks.bench_graph
	$(BIN)/python -m tests.benchmarks.bench_cache
	$(BIN)/python -m tests.benchmarks.bench_ranks
	$(BIN)/perfkit input --sample-size 43K --threads 1 --data-dir traces/.data/bench
	for chunk in 1 32; do $(BIN)/perfkit input --source hdf5 --hdf5-chunk $$chunk --hdf5-compression gzip \
	    --sample-size 43K --threads 1 --data-dir traces/.data/bench; done
	rm -r traces/.data/bench
	$(BIN)/python -m torch.distributed.run --standalone --nproc-per-node 2 -m tests.benchmarks.bench_collectives
	$(BIN)/python -m tests.benchmarks.bench_monitor
	$(BIN)/python -m tests.benchmarks.bench_profiler_cost
	$(BIN)/python -m tests.benchmarks.bench_stragglers
	$(BIN)/python -m tests.benchmarks.bench_pipelines
	$(BIN)/python -m tests.benchmarks.bench_savings --cases 60

gpu: ## On a machine with a GPU, with the torch that is there: known faults, and what perfkit says of them (no network; nine minutes)
	PYTHONPATH=$(CURDIR):$(CURDIR)/workloads $(PYTHON) -m tests.gpu $(GPU_RUNS)

strategies: $(READY) ## Train with every strategy on 2, 4 and 8 ranks, compare losses, times, memory, and write docs/strategies.md; minutes
	$(BIN)/python -m tests.benchmarks.bench_strategies --ranks $(WORLDS) --write docs/strategies.md

whatif: $(READY) ## Predict changes of runs, make them for real, and write docs/whatif.md (Linux, as root; ten minutes)
	$(BIN)/python -m tests.benchmarks.bench_whatif --write docs/whatif.md

clean: ## Remove the environment and caches; traces and reports stay
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
