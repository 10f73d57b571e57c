# The only commands people and CI run. Each target sets itself up; nothing needs to be installed by hand but Python 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
SOURCES := $(shell find proto sandbox_agent host_client -name '*.py' -o -name '*.proto') pyproject.toml README.md
PROTOS := $(sort $(wildcard proto/sandbox_api/v1/*.proto))
MESSAGES_ONLY := error payload
CODE := proto sandbox_agent host_client tests benchmarks docs

.DEFAULT_GOAL := help
.PHONY: help demo test test-clis check fmt proto bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: .venv/installed ## Move four real sessions between two sandboxes on this machine, end to end
	@$(BIN)/python docs/demo.py

test: .venv/installed ## Run the tests against the installed wheel
	$(BIN)/pytest -m "not clis"

test-clis: .venv/installed ## Run the real coding CLIs offline, move their sessions and resume them
	$(BIN)/pytest -m clis -s tests/e2e

check: .venv/installed ## Lint, types, layers, generated code, formatting
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@rm -rf build/proto && mkdir -p build/proto
	@$(call protoc,build/proto)
	@for file in $$(cd build/proto && find . -type f); do \
	  cmp build/proto/$$file proto/$$file || { echo "generated code is out of date: run 'make proto'"; exit 1; }; done
	$(BIN)/pytest -q tests/contract

fmt: .venv/installed ## Format the code and sort imports
	$(BIN)/ruff check --fix --select I $(CODE)
	$(BIN)/ruff format $(CODE)

proto: .venv/installed ## Generate the contract's code
	$(call protoc,proto)

bench: .venv/installed ## Measure against cp, tar and a Node script, side by side; writes build/bench.json
	@$(BIN)/python -m benchmarks

clean: ## Remove what the other targets made
	rm -rf .venv build dist

# Messages without a service get no gRPC module.
define protoc
$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) $(PROTOS) && \
rm -f $(foreach name,$(MESSAGES_ONLY),$(1)/sandbox_api/v1/$(name)_pb2_grpc.py)
endef

.venv/dependencies: constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt hatchling editables
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --no-build-isolation '.[host,dev]'
	@touch $@

.venv/installed: .venv/dependencies $(SOURCES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --force-reinstall .
	@touch $@
