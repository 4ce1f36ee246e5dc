//! Owns what binds otherwise: `||` comes before `+`, `*` and their like in SQLite, and behind them
//! in PostgreSQL.

use super::Lint;

impl Lint<'_> {
    /// Whether an operand of the `||` at `at` is beside an operator of numbers, too.
    pub(super) fn is_beside_arithmetic(&self, at: usize) -> bool {
        let (mut behind, mut before) = (self.end_of_operand(at + 2), at);
        while self.is_concatenation(behind) {
            behind = self.end_of_operand(behind + 2);
        }
        while let Some(start) = self.start_of_operand(before) {
            before = start;
            match before.checked_sub(2) {
                Some(sign) if self.is_concatenation(sign) => before = sign,
                _ => break,
            }
        }
        self.is_arithmetic(behind)
            || before
                .checked_sub(1)
                .is_some_and(|sign| self.is_arithmetic(sign) && self.is_operator(sign))
    }

    fn is_concatenation(&self, at: usize) -> bool {
        self.is_sign(at, b'|') && self.is_sign(at + 1, b'|')
    }

    fn is_arithmetic(&self, at: usize) -> bool {
        let is = |sign| self.is_sign(at, sign);
        let is_minus = is(b'-') && !self.is_sign(at + 1, b'>');
        is_minus || b"+*/%&".iter().any(|sign| is(*sign))
    }

    /// What is behind the operand that begins at `at`.
    fn end_of_operand(&self, mut at: usize) -> usize {
        while b"+-~".iter().any(|sign| self.is_sign(at, *sign)) {
            at += 1;
        }
        loop {
            at += match self.is_sign(at, b'(') {
                true => self.rest(at + 1, "").len() + 2,
                false => 1,
            };
            match self.is_sign(at, b'.') {
                true => at += 1,
                false if self.is_sign(at, b'(') => {}
                false => return at,
            }
        }
    }

    /// Where the operand begins that ends before `end`; none where there is none.
    fn start_of_operand(&self, end: usize) -> Option<usize> {
        let mut at = end.checked_sub(1)?;
        loop {
            if self.is_sign(at, b')') {
                let mut depth = 0_i32;
                let is_open = |at: &usize| {
                    depth +=
                        i32::from(self.is_sign(*at, b')')) - i32::from(self.is_sign(*at, b'('));
                    depth == 0
                };
                at = (0..=at).rev().find(is_open)?;
                let is_call = at > 0 && !self.word(at - 1).is_empty() && self.is_operator(at);
                at -= usize::from(is_call);
            }
            if at < 2 || !self.is_sign(at - 1, b'.') {
                return Some(at);
            }
            at -= 2;
        }
    }
}
