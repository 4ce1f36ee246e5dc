//! Sums against known values, and the library's against the definition, bit by bit.

use super::*;

/// By the definition: one bit after the other.
fn slow(bytes: &[u8]) -> u64 {
    let mut crc = !0u64;
    for byte in bytes {
        crc ^= u64::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xD800_0000_0000_0000 } else { crc >> 1 };
        }
    }
    !crc
}

#[test]
fn check_value_is_that_of_the_catalogue() {
    assert_eq!(slow(b"123456789"), 0xb909_56c7_75a4_1001);
    let mut digest = Digest::new();
    digest.update(b"123456789");
    assert_eq!(digest.sum().bits(), 0xb909_56c7_75a4_1001);
}

#[test]
fn library_and_definition_agree_at_every_length_and_cut() {
    let bytes: Vec<u8> =
        (0..1500u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for length in 0..bytes.len() {
        let cut = length * 7 / 11;
        let mut digest = Digest::new();
        digest.update(&bytes[..cut]);
        digest.update(&bytes[cut..length]);
        assert_eq!(digest.sum().bits(), PRESENT | slow(&bytes[..length]), "{length}");
    }
}

#[test]
fn sums_of_pages_and_database_are_those_of_the_original() {
    // Computed with superfly/ltx: page 1 is 0 … 255 twice, page 2 zeros.
    let (one, two) = (Pgno::new(1).unwrap(), Pgno::new(2).unwrap());
    let page: Vec<u8> = (0..512).map(|i| i as u8).collect();
    assert_eq!(Checksum::of_page(one, &page).bits(), 0xc6f1_3286_cb62_cc9f);
    assert_eq!(Checksum::of_page(two, &[0; 512]).bits(), 0xef63_e89f_ecd9_9000);
    let mut database = DatabaseChecksum::empty(PageSize::MIN);
    database.toggle(one, &page);
    database.toggle(two, &[0; 512]);
    assert_eq!(database.value().bits(), 0xa992_da19_27bb_5c9f);
}

#[test]
fn lock_page_is_left_out() {
    let mut database = DatabaseChecksum::empty(PageSize::MAX);
    database.toggle(PageSize::MAX.lock_page(), &[1; 65_536]);
    assert_eq!(database.value(), Checksum::EMPTY_DATABASE);
}

#[test]
fn text_of_a_sum_is_read_back_and_nothing_else_is() {
    let sum = Checksum::from_bits(0x8000_0000_0000_00af).unwrap();
    assert_eq!(sum.to_string(), "80000000000000af");
    assert_eq!("80000000000000af".parse::<Checksum>().unwrap(), sum);
    for bad in ["", "80000000000000AF", "00000000000000af", "80000000000000afa", "+8000000000000af"]
    {
        assert!(bad.parse::<Checksum>().is_err(), "{bad}");
    }
}
