//! Chance that repeats: a seed gives the same schedule on every machine.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). Not for secrets.

#![allow(clippy::panic, reason = "asking for a number below zero is a mistake in the test")]

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// The generator of this seed.
    pub const fn new(seed: u64) -> Self {
        Rng { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 up to and without `bound`.
    ///
    /// # Panics
    ///
    /// If `bound` is zero.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "there is no number below zero");
        // The high half of the product; the bias of 2^-64 x bound does not matter to a schedule.
        ((u128::from(self.next_u64()) * bound as u128) >> 64) as usize
    }

    /// True once in `times` calls, on average.
    ///
    /// # Panics
    ///
    /// If `times` is zero.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// A size from 1 to `most`. Small ones are as likely as large ones, by orders of magnitude, because both find
    /// mistakes.
    ///
    /// # Panics
    ///
    /// If `most` is zero.
    pub fn size(&mut self, most: usize) -> usize {
        assert!(most > 0, "there is no size from one to zero");
        let magnitude = self.below(most.ilog2() as usize + 1);
        (1 << magnitude) + self.below((1 << magnitude).min(most - (1 << magnitude) + 1))
    }

    /// Sizes of chunks, none of them zero and none above 64 KiB, that add up to `total`.
    pub fn chunks(&mut self, total: usize) -> Vec<usize> {
        let mut chunks = Vec::new();
        let mut left = total;
        while left > 0 {
            let size = self.size(left.min(64 * 1024));
            chunks.push(size);
            left -= size;
        }
        chunks
    }

    /// Puts the items into another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_reference() {
        let mut rng = Rng::new(1_234_567);
        let first = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut rng = Rng::new(1);
        let mut seen = [false; 10];
        for _ in 0..1_000 {
            seen[rng.below(10)] = true;
        }
        assert_eq!(seen, [true; 10]);
    }

    #[test]
    fn sizes_reach_from_one_to_the_most() {
        for most in [1, 2, 3, 7, 8, 9, 100] {
            let mut rng = Rng::new(2);
            let mut seen = vec![false; most + 1];
            for _ in 0..20_000 {
                seen[rng.size(most)] = true;
            }
            assert!(!seen[0] && seen[1..].iter().all(|seen| *seen), "{most}");
        }
    }

    #[test]
    fn chunks_add_up() {
        for seed in 0..100 {
            let chunks = Rng::new(seed).chunks(100_000);
            assert_eq!(chunks.iter().sum::<usize>(), 100_000);
            assert!(chunks.iter().all(|chunk| (1..=64 * 1024).contains(chunk)));
            assert_eq!(chunks, Rng::new(seed).chunks(100_000));
        }
        assert!(Rng::new(0).chunks(0).is_empty());
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<usize> = (0..50).collect();
        Rng::new(3).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
