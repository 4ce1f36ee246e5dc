# Commands that do all of their own set-up on a fresh Debian machine.

.PHONY: check test gate trust bench

XTASK = cargo run --locked --quiet --package xtask --

# After each change, within two minutes when warm: formatting, tidy checks, lints, unit tests.
check:
	@./scripts/setup test
	$(XTASK) check

# Whether it works here: formatting, tidy checks, all tests but long ones and those of the web
# services in `examples`.
test:
	@./scripts/setup test
	$(XTASK) test

# What CI runs: `make test`, and then, whatever that found, lints, documentation, the tests that it
# left out, models, versions of rusqlite, our scripts beside plain SQLite, torture, fuzzing, published
# clients of the server.
gate:
	@./scripts/setup gate
	@$(MAKE) --no-print-directory test; tested=$$?; $(XTASK) gate && exit $$tested

# For a release, more than a day: the torture at the amounts of docs/trust.md, bugs planted into
# copies of the engine, which it must find, and mutants, which the tests must.
trust:
	@./scripts/setup trust
	$(XTASK) trust

# The main job, in five minutes after the build: durable transactions per second beside raw SQLite
# and PostgreSQL. `make bench ARGS=--full` measures every cell, `ARGS=--quick` takes a minute.
bench:
	@./scripts/setup bench
	cargo run --locked --release --package monolite-cli --features developer -- bench tps $(ARGS)
