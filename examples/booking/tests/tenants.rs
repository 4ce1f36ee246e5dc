//! Tenants are opened once, closed while idle, migrated, and moved while they book.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use booking::{Tenants, book, booked, migrations};
use tempfile::TempDir;

fn disks() -> (TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().expect("a directory");
    let disks: Vec<_> = ["a", "b"].map(|name| directory.path().join(name)).into();
    disks.iter().for_each(|disk| fs::create_dir(disk).expect("a disk"));
    (directory, disks)
}

fn rooms(tenants: &Tenants, tenant: &str) -> BTreeSet<String> {
    let booked = tenants.with(tenant, |db| Ok(booked(db, "2026-12-01")?));
    booked.expect("they are read").into_iter().map(|(room, _)| room).collect()
}

#[test]
fn no_booking_is_lost_while_tenants_are_opened_closed_and_moved() {
    let (_directory, disks) = disks();
    let tenants = Tenants::new(disks.clone(), migrations().unwrap());
    let names: Vec<_> = (0..6).map(|number| format!("tenant-{number}")).collect();
    names.iter().for_each(|name| tenants.create(name).unwrap());
    let is_over = AtomicBool::new(false);
    let done = thread::scope(|scope| {
        let (tenants, names, is_over) = (&tenants, &names, &is_over);
        let clients: Vec<_> = (0..4)
            .map(|client| {
                scope.spawn(move || {
                    let mut done = Vec::new();
                    for number in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let (tenant, room) = (number % names.len(), format!("{client}-{number}"));
                        let booking = tenants
                            .with(&names[tenant], |db| Ok(book(db, &room, "2026-12-01", "Ada")?));
                        booking.unwrap();
                        done.push((tenant, room));
                    }
                    done
                })
            })
            .collect();
        for turn in 0..60 {
            let name = &names[turn % names.len()];
            let at = disks.iter().position(|disk| disk.join(format!("{name}.db")).exists());
            if let Some(at) = at {
                tenants.relocate(name, &disks[1 - at]).unwrap();
            }
            tenants.close_idle(2).unwrap();
            thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(done.len() > 20);
    for (number, name) in names.iter().enumerate() {
        let of = done.iter().filter(|(tenant, _)| *tenant == number).map(|(_, room)| room.clone());
        assert_eq!(rooms(&tenants, name), of.collect());
    }
    tenants.close_idle(0).unwrap();
}

#[test]
fn a_migration_that_fails_for_one_tenant_is_told_and_done_for_the_others() {
    let (_directory, disks) = disks();
    let tenants = Tenants::new(disks.clone(), migrations().unwrap());
    for name in ["one", "two", "three"] {
        tenants.create(name).unwrap();
        tenants.with(name, |db| Ok(book(db, "1", "2026-12-01", name)?)).unwrap();
    }
    tenants.with("two", |db| Ok(book(db, "2", "2026-12-01", "")?)).unwrap();
    tenants.relocate("three", &disks[1]).unwrap();
    tenants.close_idle(0).unwrap();
    let index = "CREATE UNIQUE INDEX booking_day ON booking(day);";
    let more = migrations().unwrap().with("0002_one_room.sql", index).unwrap();
    let tenants = Tenants::new(disks, more);
    let failed = tenants.migrate_all(1).unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].0, "two");
    assert!(format!("{:#}", failed[0].1).contains("0002_one_room"), "{:#}", failed[0].1);
    for name in ["one", "three"] {
        let again = tenants.with(name, |db| Ok(book(db, "2", "2026-12-01", "")?));
        assert!(again.unwrap_err().to_string().contains("booking.day"));
    }
    tenants.close_idle(0).unwrap();
}

#[test]
fn names_that_are_no_files_and_interrupted_moves_are_refused() {
    let (_directory, disks) = disks();
    let tenants = Tenants::new(disks.clone(), migrations().unwrap());
    for name in ["", "../other", "A", "a/b", &"a".repeat(61)] {
        let refused = tenants.with(name, |_| Ok(())).unwrap_err();
        assert!(refused.to_string().contains("is no tenant"), "{refused}");
    }
    tenants.create("one").unwrap();
    assert!(tenants.create("one").unwrap_err().to_string().contains("exists already"));
    tenants.close_idle(0).unwrap();
    fs::copy(disks[0].join("one.db"), disks[1].join("one.db")).unwrap();
    let refused = tenants.with("one", |_| Ok(())).unwrap_err();
    assert!(refused.to_string().contains("was interrupted"), "{refused}");
    let refused = tenants.relocate("one", std::path::Path::new("/elsewhere")).unwrap_err();
    assert!(refused.to_string().contains("is no disk"), "{refused}");
}

#[test]
fn a_mistyped_or_lost_tenant_is_an_error_and_no_empty_database() {
    let (_directory, disks) = disks();
    let tenants = Tenants::new(disks.clone(), migrations().unwrap());
    tenants.create("one").unwrap();
    tenants.close_idle(0).unwrap();
    fs::remove_file(disks[0].join("one.db")).unwrap();
    for lost in ["one", "onne"] {
        let refused = tenants.with(lost, |_| Ok(())).unwrap_err();
        assert!(refused.to_string().contains("there is no"), "{refused}");
        assert!(tenants.relocate(lost, &disks[1]).is_err());
    }
    assert!(disks.iter().all(|disk| fs::read_dir(disk).unwrap().next().is_none()));
}
