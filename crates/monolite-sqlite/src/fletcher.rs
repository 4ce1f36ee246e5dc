//! Owns the checksum that SQLite uses in two places: over the frames of a WAL, and over pages in
//! the format of its checksum VFS.
//!
//! # Algorithm
//! Two sums over pairs of 32-bit words, modulo 2^32: for each pair `(a, b)`, `first += a + second`,
//! then `second += b + first`. Each step can be undone, so a change that is confined to one pair
//! of words, any single flipped bit among them, always changes the result.

/// The order of the bytes in the words that are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

/// The two running sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub(crate) first: u32,
    pub(crate) second: u32,
}

impl Sums {
    /// Sums as a WAL stores them: two big-endian words.
    pub(crate) fn from_wal(bytes: [u8; 8]) -> Sums {
        let [a, b, c, d, e, f, g, h] = bytes;
        Sums { first: u32::from_be_bytes([a, b, c, d]), second: u32::from_be_bytes([e, f, g, h]) }
    }

    /// The same as a WAL stores them.
    pub(crate) fn to_wal(self) -> [u8; 8] {
        (u64::from(self.first) << 32 | u64::from(self.second)).to_be_bytes()
    }

    /// Sums as a page stores them: two little-endian words.
    pub(crate) fn to_page(self) -> [u8; 8] {
        (u64::from(self.second) << 32 | u64::from(self.first)).to_le_bytes()
    }

    /// Goes on over `bytes`, whose length is a multiple of eight.
    #[must_use]
    pub(crate) fn over(self, bytes: &[u8], order: Order) -> Sums {
        match order {
            Order::Little => self.over_words(bytes, u32::from_le_bytes),
            Order::Big => self.over_words(bytes, u32::from_be_bytes),
        }
    }

    fn over_words(self, bytes: &[u8], word: impl Fn([u8; 4]) -> u32) -> Sums {
        let Sums { mut first, mut second } = self;
        let (pairs, _) = bytes.as_chunks::<8>();
        for [a, b, c, d, e, f, g, h] in pairs {
            first = first.wrapping_add(word([*a, *b, *c, *d])).wrapping_add(second);
            second = second.wrapping_add(word([*e, *f, *g, *h])).wrapping_add(first);
        }
        Sums { first, second }
    }
}

#[test]
fn every_flipped_bit_of_a_page_changes_the_sums() {
    let page: Vec<u8> = (0..512_u32).map(|i| (i * i / 7) as u8).collect();
    let right = Sums::default().over(&page, Order::Little);
    for bit in 0..page.len() * 8 {
        let mut flipped = page.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_ne!(Sums::default().over(&flipped, Order::Little), right, "bit {bit}");
    }
}
