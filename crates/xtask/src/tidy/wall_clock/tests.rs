//! Each way to read the wall clock, where it must not be and where it may.

use super::*;

fn findings_at(path: &str, source: &str) -> Vec<String> {
    check(&Tree::of(&[(path, source)])).iter().map(ToString::to_string).collect()
}

#[test]
fn each_way_to_read_the_wall_clock_is_found() {
    for source in [
        "fn f() { std::time::SystemTime::now(); }",
        "fn f() { Timestamp::now(); }",
        "fn f() { jiff::Zoned::now(); }",
        "fn f() { let then = UNIX_EPOCH.elapsed(); }",
        "use chrono::Utc;",
        "fn f() { clock_gettime(ClockId::Realtime); }",
        "const A: &str = \"DELETE FROM a WHERE end <= unixepoch('now')\";",
        "const A: &str = \"SELECT CURRENT_TIMESTAMP\";",
        "fn f() { run(\"UPDATE a SET b = unixepoch()\"); }",
    ] {
        for product in PRODUCTS {
            let path = format!("crates/{product}/src/a.rs");
            let found = findings_at(&path, &format!("\n{source}"));
            assert_eq!(found.len(), 1, "{source}: {found:?}");
            assert!(found[0].starts_with(&format!("{path}:2: ")), "{found:?}");
        }
    }
}

#[test]
fn time_that_passes_and_what_is_said_of_a_clock_is_fine() {
    for source in [
        "fn f() { Instant::now().elapsed(); clock.now(); }",
        "//! chrono, SystemTime::now()\n/// `unixepoch('now')`\nfn f() {}",
        "fn f(at: SystemTime) { at.duration_since(UNIX_EPOCH); }",
        "const A: &str = \"it is full now\";",
    ] {
        let found = findings_at("crates/monolite/src/a.rs", source);
        assert_eq!(found, Vec::<String>::new(), "{source}");
    }
}

#[test]
fn rooms_tests_and_what_is_no_product_may_read_it() {
    let source = "fn f() { SystemTime::now(); }";
    let room = format!("crates/{}", ROOMS[0].0);
    let may = ["crates/monolite-bench/src/a.rs", "crates/monolite/src/a/tests.rs", room.as_str()];
    for path in may {
        assert_eq!(findings_at(path, source), Vec::<String>::new(), "{path}");
    }
}
