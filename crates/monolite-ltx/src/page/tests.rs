//! Sizes, the lock page, and which page may follow which.

use super::*;

#[test]
fn sizes_are_powers_of_two_of_sqlites_range() {
    for good in [512, 1024, 4096, 32_768, 65_536] {
        assert_eq!(PageSize::new(good).unwrap().get(), good);
    }
    for bad in [0, 1, 256, 511, 513, 4095, 65_535, 131_072, u32::MAX] {
        assert!(PageSize::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn lock_page_is_around_the_first_gibibyte() {
    for (size, page) in [(512, 2_097_153), (4096, 262_145), (65_536, 16_385)] {
        assert_eq!(PageSize::new(size).unwrap().lock_page().get(), page);
    }
}

#[test]
fn page_numbers_are_those_of_sqlite() {
    assert_eq!(Pgno::new(0), None);
    assert_eq!(Pgno::new(u32::MAX), None);
    assert_eq!(Pgno::new(1).unwrap().get(), 1);
    assert_eq!(Pgno::new(u32::MAX - 1), Some(Pgno::MAX));
}

fn accept(order: &mut PageOrder, number: u32) -> Result<(), String> {
    order.accept(Pgno::new(number).unwrap())
}

#[test]
fn changes_rise_and_stay_within_the_database() {
    let mut order = PageOrder::new(PageSize::MIN, 9, false);
    assert_eq!(order.end(), Ok(()));
    for number in [2, 3, 9] {
        accept(&mut order, number).unwrap();
        assert_eq!(order.end(), Ok(()));
    }
    assert_eq!(accept(&mut order, 9).unwrap_err(), "page 9 after page 9");
    assert_eq!(accept(&mut order, 3).unwrap_err(), "page 3 after page 9");
    assert_eq!(accept(&mut order, 10).unwrap_err(), "page 10 of a database of 9 pages");
}

#[test]
fn snapshot_has_all_pages_but_the_lock_page() {
    let lock = PageSize::MAX.lock_page().get();
    let mut order = PageOrder::new(PageSize::MAX, lock + 1, true);
    assert!(accept(&mut order, 2).unwrap_err().contains("must have all"));
    for number in 1..lock {
        assert!(order.end().is_err());
        accept(&mut order, number).unwrap();
    }
    assert!(accept(&mut order, lock).unwrap_err().contains("lock page"));
    assert_eq!(
        order.end().unwrap_err(),
        format!("a snapshot of {} pages without page {0}", lock + 1)
    );
    accept(&mut order, lock + 1).unwrap();
    assert_eq!(order.end(), Ok(()));
}

#[test]
fn snapshot_may_end_with_the_lock_page() {
    let lock = PageSize::MAX.lock_page().get();
    let mut order = PageOrder::new(PageSize::MAX, lock, true);
    for number in 1..lock {
        accept(&mut order, number).unwrap();
    }
    assert_eq!(order.end(), Ok(()));
}

#[test]
fn order_ends_at_the_largest_page_there_can_be() {
    let mut order = PageOrder::new(PageSize::MIN, Pgno::MAX.get(), false);
    order.accept(Pgno::MAX).unwrap();
    assert_eq!(order.end(), Ok(()));
    assert!(order.accept(Pgno::MAX).is_err());
}
