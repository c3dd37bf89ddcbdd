//! The delay between two attempts.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(5);

/// Doubles the delay after each attempt, with a random part, so that many clients do not reconnect at the same moment.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub fn reset(&mut self) {
        self.attempts = 0;
    }

    /// The delay before the next attempt: between a half and the whole of the current step.
    pub fn next_delay(&mut self) -> Duration {
        let step = FIRST
            .saturating_mul(1 << self.attempts.min(16))
            .min(LONGEST);
        self.attempts = self.attempts.saturating_add(1);
        // Without randomness, the whole step is a valid delay too.
        let random = getrandom::u32().unwrap_or(u32::MAX);
        step / 2 + (step / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest() {
        let mut backoff = Backoff::default();
        for whole in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            let delay = backoff.next_delay();
            let whole = Duration::from_millis(whole);
            assert!(
                whole / 2 <= delay && delay <= whole,
                "{delay:?} of {whole:?}"
            );
        }
        backoff.reset();
        assert!(backoff.next_delay() <= FIRST);
    }
}
