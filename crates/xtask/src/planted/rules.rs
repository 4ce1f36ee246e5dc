//! Owns the bugs that a unit test finds: for each rule what breaks it, and the test that must fail.

use super::Bug;

/// Each with the test, as its package names it.
pub(super) const RULES: [(&str, Bug); 34] = [
    (
        "write::writer::tests::failing_member_rolls_back_alone",
        Bug {
            name: "what a failed member wrote stays",
            file: "crates/monolite/src/write/writer.rs",
            changes: &[(
                "        let must_be_undone = entry.failed && wrote;",
                "        let must_be_undone = false;",
            )],
        },
    ),
    (
        "write::writer::tests::deferred_foreign_key_is_its_members_failure_alone",
        Bug {
            name: "deferred foreign keys are looked at by the commit alone",
            file: "crates/monolite/src/write/writer.rs",
            changes: &[(
                "wrote && !entry.failed && \
                 self.connection.foreign_keys().have_deferred_violation()",
                "wrote && false",
            )],
        },
    ),
    (
        "write::writer::tests::a_deferral_of_foreign_keys_ends_with_its_member",
        Bug {
            name: "a deferral of foreign keys outlives its member",
            file: "crates/monolite/src/write/writer.rs",
            changes: &[(
                "        let ended = self.connection.foreign_keys().end_deferral();",
                "        let ended: rusqlite::Result<()> = Ok(());",
            )],
        },
    ),
    (
        "statements::\
         what_sqlite_may_prepare_deep_while_it_runs_is_run_on_the_stack_of_the_connection",
        Bug {
            name: "statements that took much stack run where there may be little",
            file: "crates/monolite-sqlite/src/statements.rs",
            changes: &[(
                "kept.is_heavy || kept.traits.has(Traits::VIRTUAL)",
                "kept.traits.has(Traits::VIRTUAL)",
            )],
        },
    ),
    (
        "write::writer::tests::member_without_foreign_keys_has_a_transaction_to_itself",
        Bug {
            name: "foreign keys stay off behind a member without them",
            file: "crates/monolite/src/write/writer.rs",
            changes: &[("        self.connection.foreign_keys().resume();\n", "")],
        },
    ),
    (
        "write::writer::tests::\
         closure_that_runs_once_without_foreign_keys_is_not_run_again_for_room",
        Bug {
            name: "a closure that runs once is acknowledged although it found no room",
            file: "crates/monolite/src/write/writer.rs",
            changes: &[("entry.overrule(uncommitted.of_once());", "drop(uncommitted);")],
        },
    ),
    (
        "transaction::pool::tests::\
         a_connection_has_foreign_keys_on_again_behind_a_transaction_without_them",
        Bug {
            name: "foreign keys stay off on the connection of a transaction without them",
            file: "crates/monolite/src/transaction/connection.rs",
            changes: &[("            self.reader.connection.foreign_keys().resume();\n", "")],
        },
    ),
    (
        "write::writer::tests::closure_that_runs_once_cannot_be_undone_by_a_later_neighbour",
        Bug {
            name: "a closure that runs once has others behind it in its batch",
            file: "crates/monolite/src/write/writer.rs",
            changes: &[(
                "            if !entry.member.is_repeatable() {
                return self.run_once",
                "            if false {
                return self.run_once",
            )],
        },
    ),
    (
        "write::writer::tests::failure_is_answered_from_a_run_in_its_final_place",
        Bug {
            name: "a failure is answered from a run among neighbours that run again",
            file: "crates/monolite/src/write/writer.rs",
            changes: &[(
                "        if is_final {
            open.out.push(culprit);",
                "        if is_final || true {
            open.out.push(culprit);",
            )],
        },
    ),
    (
        "write::writer::tests::member_over_its_time_limit_fails_alone",
        Bug {
            name: "a member has as much time as it takes",
            file: "crates/monolite/src/write/writer.rs",
            changes: &[(
                "        let is_late = self.connection.interruption().take_late()
            || time > limit
            || collected == Collected::Taken;",
                "        let is_late = false;",
            )],
        },
    ),
    (
        "write::writer::tests::only_what_an_empty_wal_cannot_hold_is_too_large",
        Bug {
            name: "what the rest of the WAL cannot hold is too large",
            file: "crates/monolite/src/write/writer/refusals.rs",
            changes: &[(
                "            LimitHit::TooLarge | LimitHit::NoRoomLeft => Uncommitted::Full(hit),",
                "            LimitHit::TooLarge | LimitHit::NoRoomLeft => {
                Uncommitted::Full(LimitHit::TooLarge)
            }",
            )],
        },
    ),
    (
        "vfs::tests::held_frames_are_dropped_when_the_write_lock_is_released",
        Bug {
            name: "frames are held across the release of the write lock",
            file: "crates/monolite-sqlite/src/vfs/gather.rs",
            changes: &[(
                "            self.releases = releases;
",
                "            self.releases = releases;
            return;
",
            )],
        },
    ),
    (
        "vfs::tests::random_transactions_agree_with_the_model",
        Bug {
            name: "a commit is published while its frames are held",
            file: "crates/monolite-sqlite/src/vfs/gather.rs",
            changes: &[(
                "            self.changed.shrink_to(KEPT_PAGES);
            self.flush(lower)?;",
                "            self.changed.shrink_to(KEPT_PAGES);",
            )],
        },
    ),
    (
        "vfs::tests::random_transactions_agree_with_the_model",
        Bug {
            name: "frames below the append point are held",
            file: "crates/monolite-sqlite/src/vfs/gather.rs",
            changes: &[(
                "        at >= self.append_point && self.releases.is_some()",
                "        at <= u64::MAX && self.releases.is_some()",
            )],
        },
    ),
    (
        "vfs::tests::random_transactions_agree_with_the_model",
        Bug {
            name: "a read that fails to flush drops what is held",
            file: "crates/monolite-sqlite/src/vfs/gather.rs",
            changes: &[("            self.held = held;", "            drop(held);")],
        },
    ),
    (
        "vfs::tests::a_failed_commit_does_not_come_back_after_a_crash",
        Bug {
            name: "a write that fails keeps what is held",
            file: "crates/monolite-sqlite/src/vfs/gather.rs",
            changes: &[(
                "        if written.is_err() {
            self.held = Vec::new();",
                "        if false {
            self.held = Vec::new();",
            )],
        },
    ),
    (
        "vfs::tests::random_transactions_agree_with_the_model",
        Bug {
            name: "what was overwritten is still kept for readers",
            file: "crates/monolite-sqlite/src/vfs/gather.rs",
            changes: &[(
                "        self.control.recent().inspect(|recent| recent.forget(at));",
                "        let _ = at;",
            )],
        },
    ),
    (
        "connection::overlay::tests::the_self_test_passes_with_and_without_frames",
        Bug {
            name: "an overlay's second header is another",
            file: "crates/monolite-sqlite/src/vfs/overlay.rs",
            changes: &[(
                "            words[HEADER_WORDS + at].store(*word, Relaxed);
",
                "",
            )],
        },
    ),
    (
        "connection::overlay::tests::a_snapshot_stays_while_the_wal_grows_is_copied_and_restarts",
        Bug {
            name: "an overlay has the live header",
            file: "crates/monolite-sqlite/src/vfs/overlay.rs",
            changes: &[
                ("self.private.set_header(snapshot);", "self.private.set_header(snapshot, &live);"),
                (
                    "fn set_header(&self, snapshot: &Snapshot)",
                    "fn set_header(&self, snapshot: &Snapshot, live: &Table<'_>)",
                ),
                (
                    "            words[at].store(*word, Relaxed);",
                    "            let word = &live.words[at].load(Relaxed);
            words[at].store(*word, Relaxed);",
                ),
            ],
        },
    ),
    (
        "connection::overlay::tests::a_snapshot_stays_while_the_wal_grows_is_copied_and_restarts",
        Bug {
            name: "an overlay takes frames for copied that the live header tells of",
            file: "crates/monolite-sqlite/src/vfs/overlay.rs",
            changes: &[
                ("self.private.set_header(snapshot);", "self.private.set_header(snapshot, &live);"),
                (
                    "fn set_header(&self, snapshot: &Snapshot)",
                    "fn set_header(&self, snapshot: &Snapshot, live: &Table<'_>)",
                ),
                (
                    "        let backfilled = if snapshot.uses_wal() { 0 } else { last_frame };",
                    "        let copied = live.words[BACKFILLED].load(Relaxed);
        let backfilled = if snapshot.uses_wal() { copied } else { last_frame };",
                ),
            ],
        },
    ),
    (
        "connection::overlay::tests::a_guard_that_ignores_the_wal_has_overlays_that_ignore_it",
        Bug {
            name: "an overlay reads a WAL that its snapshot ignores",
            file: "crates/monolite-sqlite/src/vfs/overlay.rs",
            changes: &[(
                "        let backfilled = if snapshot.uses_wal() { 0 } else { last_frame };",
                "        let backfilled = 0;",
            )],
        },
    ),
    (
        "connection::overlay::tests::a_snapshot_stays_while_the_wal_grows_is_copied_and_restarts",
        Bug {
            name: "an overlay keeps frames of an earlier generation of the WAL",
            file: "crates/monolite-sqlite/src/vfs/overlay.rs",
            changes: &[(
                "self.entered.filter(|(generation, _)| *generation == salts)",
                "self.entered",
            )],
        },
    ),
    (
        "connection::overlay::tests::an_overlay_sees_its_own_writes_and_nobody_else_does",
        Bug {
            name: "an overlay enters no frames that came later",
            file: "crates/monolite-sqlite/src/vfs/overlay.rs",
            changes: &[(
                "        let table = self.table();
        if last >",
                "        if known.is_some() {
            return;
        }
        let table = self.table();
        if last >",
            )],
        },
    ),
    (
        "connection::overlay::tests::an_overlay_writes_nothing_even_when_told_to",
        Bug {
            name: "an overlay writes to the WAL",
            file: "crates/monolite-sqlite/src/vfs/overlay.rs",
            changes: &[(
                "struct Shown {
    below: Box<dyn File>,
}

impl File for Shown {
    fn below(&mut self) -> Option<&mut dyn File> {
        Some(&mut *self.below)
    }

    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        let outcome = self.below.read(lower, buf, at);
        if_pinned(lower, outcome)
    }

    fn write(&mut self, _lower: &mut LowerFile, _data: &[u8], _at: u64) -> Result {
        Err(IoError::WRITE)
    }
",
                "struct Shown {
    below: Box<dyn File>,
}

impl File for Shown {
    fn below(&mut self) -> Option<&mut dyn File> {
        Some(&mut *self.below)
    }

    fn read(&mut self, lower: &mut LowerFile, buf: &mut [u8], at: u64) -> Result {
        let outcome = self.below.read(lower, buf, at);
        if_pinned(lower, outcome)
    }

    fn write(&mut self, lower: &mut LowerFile, data: &[u8], at: u64) -> Result {
        self.below.write(lower, data, at)
    }
",
            )],
        },
    ),
    (
        "connection::overlay::tests::what_the_guard_no_longer_pins_is_refused",
        Bug {
            name: "an overlay does not look at its pin",
            file: "crates/monolite-sqlite/src/vfs/overlay.rs",
            changes: &[
                ("lower.is_shown_pinned() == Some(false)", "false"),
                ("        if snapshot.is_pinned() {", "        if true {"),
                ("lock.takes() && lower.is_shown_pinned() != Some(true)", "false"),
            ],
        },
    ),
    (
        "copy::tests::an_image_has_the_content_of_its_moment",
        Bug {
            name: "a page is written before a copy has taken it",
            file: "crates/monolite-sqlite/src/vfs/moment.rs",
            changes: &[(
                "        let page = self.page_bytes as u64;
        let end",
                "        if to != u64::MAX {
            return;
        }
        let page = self.page_bytes as u64;
        let end",
            )],
        },
    ),
    (
        "copy::tests::an_image_has_the_content_of_its_moment",
        Bug {
            name: "a page is cut off before a copy has taken it",
            file: "crates/monolite-sqlite/src/vfs/moment.rs",
            changes: &[(
                "        let page = self.page_bytes as u64;
        let end",
                "        if to == u64::MAX {
            return;
        }
        let page = self.page_bytes as u64;
        let end",
            )],
        },
    ),
    (
        "copy::tests::an_image_has_the_content_of_its_moment",
        Bug {
            name: "a copy takes a page a second time",
            file: "crates/monolite-sqlite/src/vfs/moment.rs",
            changes: &[(
                "state.is_over || state.fault.is_some() || state.is_taken(index)",
                "state.is_over || state.fault.is_some()",
            )],
        },
    ),
    (
        "copy::tests::an_image_has_the_content_of_its_moment",
        Bug {
            name: "a copy has none of the pages in the WAL",
            file: "crates/monolite-sqlite/src/copy.rs",
            changes: &[("            moment.take(pgno, &page)?;", "            let _ = pgno;")],
        },
    ),
    (
        "copy::tests::where_the_content_is_is_found_out_behind_the_snapshot",
        Bug {
            name: "a copy looks at the WAL before it has a snapshot",
            file: "crates/monolite-sqlite/src/copy.rs",
            changes: &[
                (
                    "        #[cfg(test)]
        tests::meanwhile();
",
                    "        let seen = other.checkpoint(CheckpointMode::Look);
        #[cfg(test)]
        tests::meanwhile();
",
                ),
                ("        match other.checkpoint(CheckpointMode::Look) {", "        match seen {"),
            ],
        },
    ),
    (
        "connection::tracking::tests::soundness::unchanged_pages_give_the_same_results",
        Bug {
            name: "a third of the pages are forgotten in what was read",
            file: "crates/monolite-sqlite/src/pcache.rs",
            changes: &[(
                "        if cache.is_recording && pgno != 1 {",
                "        if cache.is_recording && pgno != 1 && pgno % 3 != 0 {",
            )],
        },
    ),
    (
        "connection::tracking::tests::soundness::unchanged_pages_give_the_same_results",
        Bug {
            name: "a third of the pages that a transaction uses count as unused",
            file: "crates/monolite-sqlite/src/pcache.rs",
            changes: &[(
                "            is_pinned
        }
",
                "            is_pinned && pgno % 3 != 0
        }
",
            )],
        },
    ),
    (
        "connection::tracking::tests::kept::kept_pages_show_their_snapshot_and_no_other",
        Bug {
            name: "a third of the pages are kept although they have changed",
            file: "crates/monolite-sqlite/src/pcache.rs",
            changes: &[(
                "        control.is_some_and(|it| !it.changes()",
                "        pgno % 3 == 0 || control.is_some_and(|it| !it.changes()",
            )],
        },
    ),
    (
        "connection::tracking::tests::pages_written_before_the_commit_count_as_changed",
        Bug {
            name: "pages that were written before the commit count as unchanged",
            file: "crates/monolite-sqlite/src/connection/tracking.rs",
            changes: &[("self.spills() != self.0.spills_before.get()", "false")],
        },
    ),
];
