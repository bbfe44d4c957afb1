//! The load line's arithmetic: at every level the sum of what is held, after any number of operations in any order.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::sync::Barrier;

use plimsoll_core::{Bound, Budget, Charge, Scope};
use plimsoll_testkit::rng::Rng;

const PROCESS: u64 = 100_000;
const GROUP: u64 = 60_000;
const CONNECTION: u64 = 25_000;

/// A leaf that one thread uses, and what must be held there.
struct Leaf {
    budget: Budget,
    charges: Vec<(Charge, u64)>,
}

impl Leaf {
    fn new(group: &Budget) -> Self {
        Self { budget: group.child(Bound::at_most(CONNECTION)), charges: Vec::new() }
    }

    fn held(&self) -> u64 {
        self.charges.iter().map(|(_, bytes)| bytes).sum()
    }

    /// One random operation; says whether there was room for it.
    fn operate(&mut self, rng: &mut Rng) -> bool {
        let amount = rng.below(rng.clone().size(6_000)) as u64;
        if self.charges.is_empty() || rng.one_in(8) {
            return match self.budget.try_charge(amount) {
                Ok(charge) => {
                    self.charges.push((charge, amount));
                    true
                }
                Err(_) => false,
            };
        }
        let at = rng.below(self.charges.len());
        let (charge, bytes) = &mut self.charges[at];
        match rng.below(7) {
            0 => match charge.try_grow(amount) {
                Ok(()) => *bytes += amount,
                Err(_) => return false,
            },
            1 => {
                charge.shrink(amount);
                *bytes = bytes.saturating_sub(amount);
            }
            2 => match charge.try_resize(amount) {
                Ok(()) => *bytes = amount,
                Err(no_room) => {
                    assert!(amount > *bytes, "making a charge smaller needs no room: {no_room}");
                    return false;
                }
            },
            3 => {
                let part = charge.split(amount);
                let moved = amount.min(*bytes);
                *bytes -= moved;
                self.charges.push((part, moved));
            }
            4 => {
                let (other, moved) = self.charges.swap_remove(at);
                match self.charges.first_mut() {
                    Some((charge, bytes)) => {
                        charge.merge(other).unwrap();
                        *bytes += moved;
                    }
                    None => self.charges.push((other, moved)),
                }
            }
            5 => self.charges.push((self.budget.empty_charge(), 0)),
            _ => drop(self.charges.swap_remove(at)),
        }
        true
    }

    fn check(&self) {
        assert_eq!(self.budget.held(), self.held());
        for (charge, bytes) in &self.charges {
            assert_eq!(charge.bytes(), *bytes);
        }
    }
}

#[test]
fn after_each_of_a_million_operations_every_level_holds_the_sum_of_its_charges() {
    let process = Budget::new(Bound::at_most(PROCESS));
    let groups = [process.child(Bound::at_most(GROUP)), process.child(Bound::at_most(GROUP))];
    let mut leaves: Vec<Leaf> = (0..6).map(|index| Leaf::new(&groups[index / 3])).collect();
    let mut rng = Rng::new(1);
    // What each leaf must hold, and the most that each level ever did.
    let mut held = [0; 6];
    let mut peaks = [0; 3];
    let mut refused = 0;
    for round in 0..1_000_000 {
        let at = rng.below(leaves.len());
        refused += u64::from(!leaves[at].operate(&mut rng));
        held[at] = leaves[at].held();
        let sums = [held[..3].iter().sum(), held[3..].iter().sum::<u64>(), held.iter().sum()];
        assert_eq!([groups[0].held(), groups[1].held(), process.held()], sums);
        assert_eq!(leaves[at].budget.held(), held[at]);
        assert!(held[at] <= CONNECTION && sums[0] <= GROUP && sums[1] <= GROUP && sums[2] <= PROCESS);
        for (peak, sum) in peaks.iter_mut().zip(sums) {
            *peak = (*peak).max(sum);
        }
        if round % 1_000 == 0 {
            leaves[at].check();
            leaves[at].charges.truncate(40);
            held[at] = leaves[at].held();
        }
    }
    assert!((10_000..900_000).contains(&refused), "{refused} operations found no room");
    assert_eq!([groups[0].peak(), groups[1].peak(), process.peak()], peaks);
    leaves.iter_mut().for_each(|leaf| leaf.charges.clear());
    assert_eq!((process.held(), groups[0].held(), groups[1].held()), (0, 0, 0));
    assert!(leaves.iter().all(|leaf| leaf.budget.held() == 0));
}

#[test]
fn from_two_threads_every_level_holds_the_sum_and_nothing_passes_a_limit() {
    let process = Budget::new(Bound::at_most(PROCESS));
    let groups = [process.child(Bound::at_most(GROUP)), process.child(Bound::at_most(GROUP))];
    let barrier = Barrier::new(2);
    let work = |seed: u64| {
        // A leaf in each group: the two threads share every level above.
        let mut leaves = [Leaf::new(&groups[0]), Leaf::new(&groups[1])];
        let mut rng = Rng::new(seed);
        for round in 0..20 {
            for _ in 0..10_000 {
                let leaf = &mut leaves[rng.below(2)];
                leaf.operate(&mut rng);
                assert_eq!(leaf.budget.held(), leaf.held(), "a leaf is its thread's alone");
                assert!(process.held() <= PROCESS);
            }
            leaves.iter_mut().for_each(|leaf| leaf.charges.truncate(20));
            let sums = leaves.each_ref().map(Leaf::held);
            // Both stand still, and each sees at least its own share on every level.
            barrier.wait();
            assert!(groups[0].held() >= sums[0] && groups[1].held() >= sums[1]);
            assert_eq!(process.held(), groups[0].held() + groups[1].held());
            leaves.iter().for_each(Leaf::check);
            barrier.wait();
            if round % 2 == 0 {
                leaves.iter_mut().for_each(|leaf| leaf.charges.clear());
                barrier.wait();
                assert_eq!((process.held(), groups[0].held(), groups[1].held()), (0, 0, 0));
                barrier.wait();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(2));
        scope.spawn(|| work(3));
    });
    assert_eq!((process.held(), groups[0].held(), groups[1].held()), (0, 0, 0));
    assert!(process.peak() <= PROCESS && groups[0].peak() <= GROUP && groups[1].peak() <= GROUP);
}

#[test]
fn a_charge_that_is_freed_by_another_thread_or_a_panic_is_given_back() {
    let process = Budget::new(Bound::at_most(100));
    let charge = process.child(Bound::Unbounded).try_charge(60).unwrap();
    std::thread::spawn(move || drop(charge)).join().unwrap();
    assert_eq!(process.held(), 0);
    let leaf = process.child(Bound::Unbounded);
    let panicked = std::panic::catch_unwind(|| {
        let _charge = leaf.try_charge(60).unwrap();
        std::panic::resume_unwind(Box::new("a handler's panic"));
    });
    assert!(panicked.is_err());
    assert_eq!(process.held(), 0);
}

#[test]
fn a_charge_outlives_the_handles_of_its_budget() {
    let process = Budget::new(Bound::at_most(100));
    let charge = {
        let group = process.child(Bound::at_most(80));
        group.child(Bound::at_most(70)).try_charge(60).unwrap()
    };
    assert_eq!(process.held(), 60);
    assert!(process.try_charge(41).is_err());
    drop(charge);
    assert_eq!(process.held(), 0);
}

#[test]
fn who_has_no_room_is_told_which_level_and_holds_nothing_on_any() {
    let process = Budget::new(Bound::at_most(100));
    let group = process.child(Bound::at_most(80));
    let leaf = group.child(Bound::at_most(50));
    let other = process.child(Bound::Unbounded);
    for (held, asked, scope) in [(0, 51, Scope::Connection), (40, 45, Scope::Group), (70, 40, Scope::Process)] {
        let budget = if scope == Scope::Process { &other } else { &group };
        let _held = budget.try_charge(held).unwrap();
        let refused = leaf.try_charge(asked).unwrap_err();
        assert_eq!((refused.scope, refused.asked), (scope, asked));
        assert!(refused.held + refused.asked > refused.limit);
        assert_eq!((leaf.held(), process.held()), (0, held));
        // Exactly what is left is granted.
        let left = refused.limit - refused.held;
        let charge = leaf.try_charge(left).unwrap();
        assert_eq!(process.held(), held + left);
        assert!(leaf.try_charge(1).is_err());
        drop(charge);
    }
}
