//! Pseudo-random numbers that a seed reproduces (splitmix64).

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A new seed at each run, or the one that a failed run has printed.
    #[expect(
        clippy::disallowed_methods,
        reason = "the test reads its own seed, and no configuration"
    )]
    pub(crate) fn seeded() -> (u64, Self) {
        let given = std::env::var("SEED")
            .ok()
            .map(|seed| seed.parse().expect("SEED is a number"));
        let seed = given.unwrap_or_else(|| RandomState::new().build_hasher().finish());
        (seed, Self(seed))
    }

    /// One that others beside it do not disturb.
    pub(crate) fn apart(&mut self) -> Self {
        Self(self.below(u64::MAX))
    }

    /// Any one of these.
    pub(crate) fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[usize::try_from(self.below(all.len() as u64)).expect("it is an index")]
    }

    /// Text without repetitions, which a store cannot compress.
    pub(crate) fn noise(&mut self, length: usize) -> String {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        std::iter::repeat_with(|| char::from(*self.one_of(LETTERS)))
            .take(length)
            .collect()
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// How often a random test repeats its case: `count` times in the gate, and a multiple of that with `ROUNDS`, which the part
/// `slow` of `scripts/test` sets.
#[expect(
    clippy::disallowed_methods,
    reason = "the test reads its own number of rounds, and no configuration"
)]
pub(crate) fn rounds(count: usize) -> usize {
    let factor = std::env::var("ROUNDS").map_or(1, |rounds| {
        rounds.parse::<usize>().expect("ROUNDS is a number")
    });
    count * factor
}
