//! Scratch.
use std::time::{Duration, Instant};
fn main() {
    for on in [true, false] {
        for clients in [8, 64, 256] {
            let dir = tempfile::tempdir().unwrap();
            let db = monolite::Options::new()
                .ids_given_out_ahead(on)
                .open(dir.path().join("db"))
                .unwrap();
            db.write(|tx| tx.execute_batch("CREATE TABLE parent(id INTEGER PRIMARY KEY, x); CREATE TABLE child(id INTEGER PRIMARY KEY AUTOINCREMENT, parent REFERENCES parent, x)")).wait().unwrap();
            let before = db.stats();
            let end = Instant::now() + Duration::from_secs(3);
            let done: u64 = std::thread::scope(|s| {
                let threads: Vec<_> = (0..clients)
                    .map(|_| {
                        s.spawn(|| {
                            let mut done = 0;
                            while Instant::now() < end {
                                let tx = db.transaction().unwrap();
                                let Ok(id) = tx
                                    .query_row(
                                        "INSERT INTO parent(x) VALUES (1) RETURNING id",
                                        (),
                                        |r| r.get::<_, i64>(0),
                                    )
                                    .wait()
                                else {
                                    continue;
                                };
                                std::thread::sleep(Duration::from_millis(5));
                                if tx
                                    .execute("INSERT INTO child(parent, x) VALUES (?1, 2)", [id])
                                    .wait()
                                    .is_err()
                                {
                                    continue;
                                }
                                if tx.last_insert_rowid().wait().is_err() {
                                    continue;
                                }
                                if tx.commit().wait().is_ok() {
                                    done += 1
                                }
                            }
                            done
                        })
                    })
                    .collect();
                threads.into_iter().map(|t| t.join().unwrap()).sum()
            });
            let after = db.stats();
            println!(
                "ahead {on}, {clients} clients: {}/s, conflicts {}/s, given {}",
                done / 3,
                (after.transaction_conflicts - before.transaction_conflicts) / 3,
                after.ids_given_out
            );
            db.close().unwrap();
        }
    }
}
