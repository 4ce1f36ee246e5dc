# Commands that do all of their own set-up on a fresh Debian machine.

.PHONY: test gate bench

# Whether it works here: formatting, tidy checks, tests.
test:
	@./scripts/setup test
	cargo run --locked --quiet --package xtask -- test

# What CI checks besides: lints, documentation, versions of rusqlite, our scripts beside plain
# SQLite, torture, fuzzing.
gate:
	@./scripts/setup test
	cargo run --locked --quiet --package xtask -- gate

# The main job: durable transactions per second beside raw SQLite and PostgreSQL.
bench:
	@./scripts/setup bench
	cargo run --locked --release --package monolite-cli -- bench tps $(ARGS)
