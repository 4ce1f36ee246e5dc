# Two commands, each of which does all of its own set-up on a fresh Debian machine.

.PHONY: test bench

# The gate: formatting, tidy checks, lints, documentation, tests.
test:
	@./scripts/setup test
	cargo run --locked --quiet --package xtask -- ci

# The main job: durable transactions per second beside raw SQLite and PostgreSQL.
bench:
	@./scripts/setup bench
	cargo run --locked --release --package monolite-cli -- bench tps $(ARGS)
