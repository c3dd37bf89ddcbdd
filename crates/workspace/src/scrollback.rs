//! The last output of a terminal.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base::shutdown::lock_or_abort;

/// The size that a terminal may use when the others have exhausted the budget.
const MIN_BYTES: usize = 16 << 10;

/// The bytes that all scrollbacks may use together. Beyond it, the oldest output is discarded.
const MAX_TOTAL_BYTES: usize = 64 << 20;

/// The bytes that all scrollbacks may use together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ScrollbackBudget(Arc<AtomicUsize>);

impl Default for ScrollbackBudget {
    fn default() -> Self {
        Self::new(MAX_TOTAL_BYTES)
    }
}

impl ScrollbackBudget {
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Reserves up to this number of bytes. Returns the reserved number.
    fn reserve(&self, bytes: usize) -> usize {
        let reserve = |free: usize| Some(free - bytes.min(free));
        let before = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve);
        before.map_or(0, |free| bytes.min(free))
    }
}

/// A cheap handle of one terminal's scrollback.
#[derive(Debug, Clone)]
pub struct Scrollback(Arc<Mutex<Buffer>>);

#[derive(Debug)]
struct Buffer {
    text: VecDeque<u8>,
    /// The number of all bytes so far.
    total: u64,
    limit: usize,
    reserved: usize,
    budget: ScrollbackBudget,
}

impl Scrollback {
    /// Keeps the last `limit` bytes, from the start of a character, as far as the budget allows.
    pub fn new(limit: usize, budget: ScrollbackBudget) -> Self {
        let kept = Buffer {
            text: VecDeque::new(),
            total: 0,
            limit,
            reserved: 0,
            budget,
        };
        Self(Arc::new(Mutex::new(kept)))
    }

    pub(super) fn push(&self, text: &str) {
        lock_or_abort(self.0.lock()).push(text);
    }

    /// The kept text, and whether earlier output was discarded.
    pub fn snapshot(&self) -> (String, bool) {
        let (bytes, total) = {
            let mut kept = lock_or_abort(self.0.lock());
            (kept.text.make_contiguous().to_vec(), kept.total)
        };
        let cut = total > bytes.len() as u64;
        (String::from_utf8_lossy(&bytes).into_owned(), cut)
    }
}

impl Buffer {
    fn push(&mut self, text: &str) {
        self.total += text.len() as u64;
        let last = &text[text.ceil_char_boundary(text.len().saturating_sub(self.limit))..];
        if last.len() < text.len() {
            self.text.clear();
        }
        let needed = (self.text.len() + last.len()).min(self.limit);
        if needed > self.reserved {
            self.reserved += self.budget.reserve(needed - self.reserved);
        }
        let room = self.reserved.max(MIN_BYTES.min(self.limit));
        let last = &last[last.ceil_char_boundary(last.len().saturating_sub(room))..];
        let surplus = (self.text.len() + last.len()).saturating_sub(room);
        self.text.drain(..surplus.min(self.text.len()));
        while self.text.front().is_some_and(|byte| byte & 0xC0 == 0x80) {
            self.text.pop_front();
        }
        self.text.extend(last.as_bytes());
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.reserved, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scrollback(limit: usize) -> Scrollback {
        Scrollback::new(limit, ScrollbackBudget::new(1 << 20))
    }

    #[test]
    fn the_last_bytes_from_a_character_s_start() {
        let kept = scrollback(4);
        kept.push("ab");
        assert_eq!(kept.snapshot(), ("ab".to_owned(), false));
        kept.push("éé");
        assert_eq!(kept.snapshot(), ("éé".to_owned(), true));
        kept.push("x");
        assert_eq!(kept.snapshot(), ("éx".to_owned(), true));
        kept.push("a longer one €");
        assert_eq!(kept.snapshot(), (" €".to_owned(), true));
        let nothing = scrollback(0);
        nothing.push("x");
        assert_eq!(nothing.snapshot(), (String::new(), true));
    }

    #[test]
    fn scrollbacks_share_the_budget_with_a_minimum_each() {
        let budget = ScrollbackBudget::new(100 << 10);
        let first = Scrollback::new(80 << 10, budget.clone());
        let second = Scrollback::new(80 << 10, budget.clone());
        let third = Scrollback::new(80 << 10, budget.clone());
        for kept in [&first, &second, &third] {
            for _ in 0..100 {
                kept.push(&"x".repeat(1 << 10));
            }
        }
        let sizes = [&first, &second, &third].map(|kept| kept.snapshot().0.len());
        assert_eq!(sizes, [80 << 10, 20 << 10, MIN_BYTES]);
        drop(first);
        third.push("y");
        third.push(&"z".repeat(40 << 10));
        assert_eq!(
            third.snapshot().0.len(),
            MIN_BYTES + 1 + (40 << 10),
            "released bytes are available to others"
        );
        drop((second, third));
        assert_eq!(budget.0.load(Ordering::Relaxed), 100 << 10);
    }

    proptest! {
        #[test]
        fn scrollback_is_a_suffix_of_the_output(pieces: Vec<String>, limit in 0_usize..32) {
            let kept = scrollback(limit);
            for piece in &pieces {
                kept.push(piece);
            }
            let all = pieces.concat();
            let (shown, cut) = kept.snapshot();
            prop_assert!(shown.len() <= limit && all.ends_with(&shown), "{:?} of {:?}", shown, all);
            prop_assert_eq!(cut, shown.len() < all.len());
            prop_assert!(all.len() <= limit || shown.len() + 4 > limit);
        }
    }
}
