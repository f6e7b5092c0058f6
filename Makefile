# Two commands do everything: `make run` to use it, `make test` to check it.
.DEFAULT_GOAL := help
.PHONY: help run stop build deb wheel site test quick bench mutants sanitize lint clean

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

run: ## set up, mount ./data at ./mnt, play a first session, leave the mount up
	@scripts/prepare.sh
	@scripts/first-session.sh

stop: ## unmount ./mnt
	@scripts/stop.sh

build: ## set up only; leaves the command at .venv/bin/topicfs
	@scripts/prepare.sh
	@echo ".venv/bin/topicfs is ready"

deb: ## a Debian package of this machine's release, in dist/
	@scripts/prepare.sh packages
	@scripts/deb.sh

wheel: ## a wheel for any Linux, in dist/
	@scripts/prepare.sh
	@scripts/wheel.sh

site: ## the documentation as a site, in dist/site
	@scripts/prepare.sh site
	@mkdir -p dist && .venv/bin/python scripts/site_pages.py dist/site

test: ## set up, then lint, types, import directions and every test
	@scripts/prepare.sh tests
	@scripts/test.sh

quick: ## set up, then lint, types, import directions and the tests of a minute and a half: none that mounts or needs Java or Spark
	@scripts/prepare.sh tests
	@scripts/test.sh quick

bench: ## set up, measure beside references, and draw the pages of docs/performance again (20 minutes)
	@scripts/prepare.sh tests
	@.venv/bin/python -m benchmarks --json docs/performance/figures.json \
		--plots docs/performance --page docs/performance.md --page docs/performance/tables.md --page README.md

mutants: ## set up, make each small mistake of a list, and name those that no test notices (an hour)
	@scripts/prepare.sh tests
	@.venv/bin/python -m tests.mutants

sanitize: ## set up, and read hostile batches by a codec compiled with AddressSanitizer and UBSan
	@scripts/prepare.sh tests
	@scripts/sanitize.sh

lint: ## reformat, then everything of `make test` that runs no test
	@scripts/prepare.sh tests
	@.venv/bin/ruff check --fix . && .venv/bin/ruff format .
	@git grep -lIz '' | xargs -0 .venv/bin/codespell
	@.venv/bin/mypy
	@.venv/bin/lint-imports

clean: ## unmount, and remove what was built (./data stays)
	@scripts/stop.sh
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .mutants
	@find storage coordination replication inspection migration fusefs topicfs pipeline testing tests \( -name '*.so' -o -name '*.c' -o -name __pycache__ \) -prune -exec rm -rf {} +
