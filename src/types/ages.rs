//! How late it is, for what ends by its age. A wall clock that jumps ends nothing.
//!
//! The wall clock may be set by years, by hand or by a battery that is empty, and be set right an hour later. What was
//! deleted meanwhile is gone. So a jump against the machine's monotonic clock is believed only once it has held for a
//! while; until then time goes on from before it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::clock::{Ids, Timestamp};
use super::limits::Limits;

#[derive(Debug)]
pub struct Ages {
    ids: Ids,
    /// What the clock may differ by between two looks without having jumped.
    jump: Duration,
    /// How long a jump has to hold.
    settle: Duration,
    seen: Mutex<Seen>,
}

/// All times in milliseconds.
#[derive(Debug)]
struct Seen {
    wall: i64,
    at: Instant,
    /// By how much the wall clock is ahead of what is believed.
    ahead: i64,
    jumped_at: Instant,
}

impl Ages {
    pub fn new(ids: Ids, limits: &Limits) -> Self {
        Self::since(ids, limits, None)
    }

    /// Goes on from the last time that is known of an earlier life. When the clock is far ahead of that the gateway may
    /// have rested, or the clock may have jumped: nobody can tell, so it counts as a jump.
    pub fn since(ids: Ids, limits: &Limits, last: Option<Timestamp>) -> Self {
        let (wall, at) = (ids.now().as_millis(), Instant::now());
        let (jump, settle) = (limits.clock_jump, limits.clock_settle);
        let ahead = last.map_or(0, |last| wall.saturating_sub(last.as_millis()));
        let ahead = if ahead > millis(jump) { ahead } else { 0 };
        Self { ids, jump, settle, seen: Mutex::new(Seen { wall, at, ahead, jumped_at: at }) }
    }

    /// It is not earlier than this: what has not ended by then is not deleted yet.
    pub fn at_least(&self) -> Timestamp {
        self.now().0
    }

    /// It is not later than this: what is to last counts from here.
    pub fn at_most(&self) -> Timestamp {
        self.now().1
    }

    fn now(&self) -> (Timestamp, Timestamp) {
        // Numbers that are each whole, whoever panicked.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, at) = (self.ids.now().as_millis(), Instant::now());
        let expected = seen.wall.saturating_add(millis(at - seen.at));
        let jumped = wall.saturating_sub(expected);
        (seen.wall, seen.at) = (wall, at);
        if jumped.saturating_abs() > millis(self.jump) {
            seen.ahead = seen.ahead.saturating_add(jumped);
            seen.jumped_at = at;
            tracing::warn!(
                by_seconds = jumped / 1000,
                "the wall clock has jumped: nothing ends by its age for a while, unless it jumps back"
            );
        }
        if seen.ahead.saturating_abs() <= millis(self.jump) || at - seen.jumped_at >= self.settle {
            seen.ahead = 0;
        }
        let believed = wall.saturating_sub(seen.ahead);
        (Timestamp::from_millis(wall.min(believed)), Timestamp::from_millis(wall.max(believed)))
    }
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::types::Clock;
    use crate::types::clock::SystemEntropy;

    const HOUR: Duration = Duration::from_hours(1);
    const YEARS: Duration = Duration::from_hours(10 * 365 * 24);
    const START: i64 = 1_795_299_303_000;

    #[derive(Debug)]
    struct Hand(AtomicI64);

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    struct House {
        hand: Arc<Hand>,
        ages: Ages,
    }

    impl House {
        fn new(last: Option<Timestamp>) -> Self {
            let hand = Arc::new(Hand(AtomicI64::new(START)));
            let ids = Ids::new(hand.clone(), Arc::new(SystemEntropy));
            Self { hand, ages: Ages::since(ids, &Limits::default(), last) }
        }

        fn set(&self, by: i64) {
            self.hand.0.fetch_add(by, Ordering::Relaxed);
        }

        /// Both clocks go on.
        async fn passes(&self, span: Duration) {
            self.set(millis(span));
            tokio::time::advance(span).await;
        }

        /// Milliseconds since the start: at least, at most.
        fn now(&self) -> (i64, i64) {
            (self.ages.at_least().as_millis() - START, self.ages.at_most().as_millis() - START)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_and_comes_back_has_ended_nothing() {
        let house = House::new(None);
        for by in [5 * HOUR, YEARS] {
            for sign in [1, -1] {
                let (began, by) = (house.now(), millis(by) * sign);
                house.set(by);
                let (least, most) = house.now();
                assert_eq!((least, most), (began.0 + by.min(0), began.1 + by.max(0)));
                house.passes(HOUR).await;
                assert_eq!(house.now().0, began.0 + by.min(0) + millis(HOUR));
                house.set(-by);
                assert_eq!(house.now(), (began.0 + millis(HOUR), began.1 + millis(HOUR)));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_that_holds_for_long_is_believed() {
        let house = House::new(None);
        house.set(millis(YEARS));
        assert_eq!(house.now().0, 0);
        house.passes(23 * HOUR).await;
        assert_eq!(house.now().0, millis(23 * HOUR));
        house.passes(2 * HOUR).await;
        assert_eq!(house.now().0, millis(YEARS + 25 * HOUR));
    }

    #[tokio::test(start_paused = true)]
    async fn small_steps_and_long_pauses_between_looks_are_no_jumps() {
        let house = House::new(None);
        house.set(millis(HOUR) / 2);
        assert_eq!(house.now().0, millis(HOUR) / 2);
        house.passes(YEARS).await;
        assert_eq!(house.now().0, millis(HOUR) / 2 + millis(YEARS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_far_from_the_last_event_counts_as_a_jump() {
        let last = START - millis(YEARS);
        let house = House::new(Some(Timestamp::from_millis(last)));
        assert_eq!(house.now(), (-millis(YEARS), 0));
        house.passes(24 * HOUR).await;
        assert_eq!(house.now(), (millis(24 * HOUR), millis(24 * HOUR)));
        let near = House::new(Some(Timestamp::from_millis(START - 60_000)));
        assert_eq!(near.now(), (0, 0));
    }
}
