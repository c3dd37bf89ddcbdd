//! Rate-limits the log messages about input of an agent that the gateway discards.

/// A counter that logs at every power of two.
#[derive(Debug, Default)]
pub(in crate::session) struct DiscardCounter(u64);

impl DiscardCounter {
    /// Increments the counter. Returns the count if it should be logged.
    pub(in crate::session) fn increment(&mut self) -> Option<u64> {
        self.0 += 1;
        self.0.is_power_of_two().then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_at_powers_of_two() {
        let mut dropped = DiscardCounter::default();
        let logged: Vec<u64> = (0..1_000_000).filter_map(|_| dropped.increment()).collect();
        assert_eq!(logged[..4], [1, 2, 4, 8]);
        assert_eq!(logged.len(), 20);
    }
}
