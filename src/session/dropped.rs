//! Rate-limits the log messages about input of an agent that the gateway discards.

/// A counter that logs at every power of two.
#[derive(Debug, Default)]
pub(super) struct Dropped(u64);

impl Dropped {
    /// Increments the counter. Returns the count if it should be logged.
    pub(super) fn one_more(&mut self) -> Option<u64> {
        self.0 += 1;
        self.0.is_power_of_two().then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_are_twenty_lines() {
        let mut dropped = Dropped::default();
        let told: Vec<u64> = (0..1_000_000).filter_map(|_| dropped.one_more()).collect();
        assert_eq!(told[..4], [1, 2, 4, 8]);
        assert_eq!(told.len(), 20);
    }
}
