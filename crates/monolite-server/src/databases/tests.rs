//! Databases that open and close.

use super::*;

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_forked_is_told_as_open_behind_the_close_of_all() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("one.db");
    let databases = Databases::new(Data::File(path.clone()), None);
    let forked = databases.get(None, None).await.expect("it opens");
    databases.close_all().await;
    assert_eq!(databases.still_open(), Some(path));
    drop(forked);
    databases.close_all().await;
    assert_eq!(databases.still_open(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_counts_as_open_until_a_call_that_overruns_returns() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("one.db");
    let databases = Databases::new(Data::File(path.clone()), None);
    let used = databases.get(None, None).await.expect("it opens");
    let db = used.database().clone();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let limited = db.with_time_limit(Duration::from_millis(1));
    // As a function of SQLite that looks at no limit.
    let call = limited.write(move |_| Ok::<_, monolite::Error>(held.recv().is_err()));
    drop(used);
    databases.close_all().await;
    assert_eq!(databases.still_open(), Some(path));
    drop(release);
    let _ = call.await;
    until("it is closed", || databases.still_open().is_none()).await;
}

/// Begins `work`, and leaves it as a client does that goes away.
async fn leave(work: impl Future) {
    let _ = timeout(Duration::ZERO, work).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_leaves_is_done_before_the_next_one_comes() {
    let directory = tempfile::tempdir().expect("a directory");
    let databases = Databases::new(Data::Directory(directory.path().to_owned()), None);
    let life = Life::new();
    let enter = || async { life.enter(Phase::Stops).await.expect("it serves") };
    for at in 0..10 {
        let name = format!("n{at}");
        leave(databases.create(&name, enter().await)).await;
        drop(databases.get(Some(&name), None).await.expect("it was created"));
        databases.close_all().await;
        leave(databases.get(Some(&name), Some(enter().await))).await;
        drop(databases.get(Some(&name), None).await.expect("it was opened once"));
        leave(databases.delete(&name, enter().await)).await;
        let got = databases.get(Some(&name), None).await;
        assert_eq!(got.err().expect("it was deleted").code, "DATABASE_NOT_FOUND");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_fork_makes_counts_as_open_before_it_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, archive) = (directory.path().join("data"), directory.path().join("archive"));
    std::fs::create_dir(&data).expect("it is new");
    let config = toml::from_str(&format!("url = '{}'", archive.display())).expect("it is right");
    let fork = data.join("b.db");
    let databases = Arc::new(Databases::new(Data::Directory(data), Some(config)));
    let life = Life::new();
    let enter = || async { life.enter(Phase::Stops).await.expect("it serves") };
    databases.create("a", enter().await).await.expect("it is new");
    databases.close_all().await;
    databases.delete("a", enter().await).await.expect("it is not in use");
    let of_task = Arc::clone(&databases);
    let task = tokio::spawn(async move { of_task.fork("a", "b", None).await });
    let mut was_held = false;
    while !fork.exists() && !task.is_finished() {
        was_held |= databases.still_open().is_some_and(|path| path == fork);
    }
    task.await.expect("it does not panic").expect("the archive has it");
    assert!(was_held && databases.get(Some("b"), None).await.is_ok());
}

/// Creates the database `name`; the only one is created when it is opened.
async fn create(databases: &Databases, name: Option<&str>) {
    let Some(name) = name else { return };
    let entered = Life::new().enter(Phase::Stops).await.expect("it serves");
    databases.create(name, entered).await.expect("it is new");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_database_that_is_alone_or_has_a_lease_stays_open() {
    let cases = [(true, "", 1), (false, "", 0), (false, "lease_seconds = 60", 1)];
    for (is_alone, lease, stays) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("archive");
        let config = toml::from_str(&format!("url = '{}'\n{lease}", place.display()));
        let (data, name) = match is_alone {
            true => (Data::File(directory.path().join("alone.db")), None),
            false => (Data::Directory(directory.path().to_owned()), Some("one")),
        };
        let databases = Databases::new(data, Some(config.expect("it is right")));
        create(&databases, name).await;
        let used = databases.get(name, None).await.expect("it opens");
        let db = used.database().clone();
        drop(used);
        until("it is archived", || db.stats().archive.is_some_and(|it| it.lag_ms == 0)).await;
        databases.close_idle(Duration::ZERO);
        assert_eq!(databases.open_now().len(), stays, "{lease}");
        databases.close_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_database_stays_open_until_it_is_archived() {
    let directory = tempfile::tempdir().expect("a directory");
    let (place, away) = (directory.path().join("archive"), directory.path().join("away"));
    let config = toml::from_str(&format!("url = '{}'", place.display())).expect("it is right");
    let data = Data::Directory(directory.path().to_owned());
    let databases = Databases::new(data, Some(config));
    create(&databases, Some("one")).await;
    let used = databases.get(Some("one"), None).await.expect("it opens");
    let db = used.database().clone();
    drop(used);
    let lag = || db.stats().archive.expect("it has one").lag_ms;
    until("the first copy is there", || lag() == 0).await;
    assert_eq!(databases.away_archive().await, None);
    std::fs::rename(&place, &away).expect("it is there");
    let is_away = async || databases.away_archive().await.is_some();
    assert!(is_away().await, "its leader record is missed");
    std::fs::write(&place, "no directory").expect("it is free");
    assert!(is_away().await, "the store fails");
    let created = db.write(|tx| tx.execute_batch("CREATE TABLE t(x)")).await;
    created.expect("the disk is there");
    databases.close_idle(Duration::ZERO);
    assert_eq!(databases.open_now().len(), 1, "its archive lacks the table");
    let has_failed = || db.stats().archive.expect("it has one").last_error.is_some();
    until("the upload has failed", has_failed).await;
    assert!(is_away().await);
    std::fs::remove_file(&place).expect("it is there");
    std::fs::rename(&away, &place).expect("it is free");
    until("the table is archived", || lag() == 0).await;
    assert_eq!(databases.away_archive().await, None);
    databases.close_idle(Duration::ZERO);
    until("it is closed", || databases.still_open().is_none()).await;
}
