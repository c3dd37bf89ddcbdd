//! How late it is, for what ends by its age. A wall clock that jumps ends nothing.
//!
//! The wall clock may be set by years, by hand or by a battery that is empty, and be set right an hour later. What was
//! deleted meanwhile is gone. So a jump against the machine's steady clock is believed only once it has held for a
//! while; until then time goes on from before it. Each jump has its own while: one more of them, or a machine that
//! is suspended every night, does not make the others wait again.

use std::collections::VecDeque;
use std::process::abort;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::clock::{Ids, Timestamp};
use super::limits::Limits;

/// Jumps that came within this part of `settle` are one, so that they are few.
const MERGE_FRACTION: u32 = 32;

#[derive(Debug)]
pub struct Expiry {
    ids: Ids,
    /// What the clock may differ by between two looks without having jumped.
    jump_threshold: Duration,
    /// How long a jump has to hold.
    settle_time: Duration,
    state: Mutex<ClockState>,
}

/// Times of the wall clock in milliseconds.
#[derive(Debug)]
struct ClockState {
    last_wall: i64,
    last_monotonic: Instant,
    /// What is not believed yet, the oldest first.
    jumps: VecDeque<Jump>,
}

/// How far the wall clock went at once.
#[derive(Debug)]
struct Jump {
    delta: i64,
    started: Instant,
    /// From here on it has to hold.
    updated: Instant,
}

impl Expiry {
    pub fn new(ids: Ids, limits: &Limits) -> Self {
        Self::starting_from(ids, limits, None)
    }

    /// Goes on from the last time that is known of an earlier life. When the clock is far from that the gateway may
    /// have rested, or the clock may have jumped: nobody can tell, so it counts as a jump.
    pub fn starting_from(ids: Ids, limits: &Limits, last: Option<Timestamp>) -> Self {
        let (wall, at) = (ids.now().as_millis(), ids.monotonic());
        let (jump, settle) = (limits.clock_jump, limits.clock_settle);
        let mut seen = ClockState { last_wall: wall, last_monotonic: at, jumps: VecDeque::new() };
        let by = last.map_or(0, |last| wall.saturating_sub(last.as_millis()));
        if by.saturating_abs() > millis(jump) {
            seen.record_jump(by, millis(jump), settle);
        }
        Self { ids, jump_threshold: jump, settle_time: settle, state: Mutex::new(seen) }
    }

    /// It is not earlier than this: what has not ended by then is not deleted yet.
    pub fn earliest_now(&self) -> Timestamp {
        self.bounds().0
    }

    /// It is not later than this: what is to last counts from here.
    pub fn latest_now(&self) -> Timestamp {
        self.bounds().1
    }

    fn bounds(&self) -> (Timestamp, Timestamp) {
        let mut seen = self.lock();
        let (wall, at) = (self.ids.now().as_millis(), self.ids.monotonic());
        let expected = seen.last_wall.saturating_add(millis(at.saturating_duration_since(seen.last_monotonic)));
        let jumped = wall.saturating_sub(expected);
        (seen.last_wall, seen.last_monotonic) = (wall, at);
        if jumped.saturating_abs() > millis(self.jump_threshold) {
            seen.record_jump(jumped, millis(self.jump_threshold), self.settle_time);
            tracing::warn!(
                by_seconds = jumped / 1000,
                "the wall clock has jumped: nothing ends by its age for a while, unless it jumps back"
            );
        }
        seen.jumps.retain(|jump| at.saturating_duration_since(jump.updated) < self.settle_time);
        let ahead = seen.jumps.iter().fold(0, |sum: i64, jump| sum.saturating_add(jump.delta));
        let believed = wall.saturating_sub(ahead);
        (Timestamp::from_millis(wall.min(believed)), Timestamp::from_millis(wall.max(believed)))
    }

    /// A lock whose holder panicked is never taken again, as everywhere; this layer has no other way to end.
    fn lock(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(|_| abort())
    }
}

impl ClockState {
    /// Notes a jump. One that goes back takes the last ones with it, and what is left of those has held since then.
    fn record_jump(&mut self, mut by: i64, small: i64, settle: Duration) {
        while let Some(last) = self.jumps.back_mut()
            && (last.delta > 0) != (by > 0)
        {
            if last.delta.saturating_abs() > by.saturating_abs().saturating_add(small) {
                last.delta = last.delta.saturating_add(by);
                return;
            }
            by = by.saturating_add(last.delta);
            self.jumps.pop_back();
        }
        if by.saturating_abs() <= small {
            return;
        }
        let at = self.last_monotonic;
        match self.jumps.back_mut() {
            Some(last) if at.saturating_duration_since(last.started) < settle / MERGE_FRACTION => {
                last.delta = last.delta.saturating_add(by);
                last.updated = at;
            }
            Some(_) | None => self.jumps.push_back(Jump { delta: by, started: at, updated: at }),
        }
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
    struct TestClock(AtomicI64);

    impl Clock for TestClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.load(Ordering::Relaxed))
        }
    }

    struct Fixture {
        clock: Arc<TestClock>,
        expiry: Expiry,
    }

    impl Fixture {
        fn new(last: Option<Timestamp>) -> Self {
            let hand = Arc::new(TestClock(AtomicI64::new(START)));
            let ids = Ids::new(hand.clone(), Arc::new(SystemEntropy));
            Self { clock: hand, expiry: Expiry::starting_from(ids, &Limits::default(), last) }
        }

        fn shift_wall_clock(&self, by: i64) {
            self.clock.0.fetch_add(by, Ordering::Relaxed);
        }

        /// Both clocks go on.
        async fn advance(&self, span: Duration) {
            self.shift_wall_clock(millis(span));
            tokio::time::advance(span).await;
        }

        /// Milliseconds since the start: at least, at most.
        fn now(&self) -> (i64, i64) {
            (self.expiry.earliest_now().as_millis() - START, self.expiry.latest_now().as_millis() - START)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_that_is_reverted_expires_nothing() {
        let house = Fixture::new(None);
        for by in [5 * HOUR, YEARS] {
            for sign in [1, -1] {
                let (began, by) = (house.now(), millis(by) * sign);
                house.shift_wall_clock(by);
                let (least, most) = house.now();
                assert_eq!((least, most), (began.0 + by.min(0), began.1 + by.max(0)));
                house.advance(HOUR).await;
                assert_eq!(house.now().0, began.0 + by.min(0) + millis(HOUR));
                house.shift_wall_clock(-by);
                assert_eq!(house.now(), (began.0 + millis(HOUR), began.1 + millis(HOUR)));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_is_accepted_after_the_settle_time() {
        let house = Fixture::new(None);
        house.shift_wall_clock(millis(YEARS));
        assert_eq!(house.now().0, 0);
        house.advance(23 * HOUR).await;
        assert_eq!(house.now().0, millis(23 * HOUR));
        house.advance(2 * HOUR).await;
        assert_eq!(house.now().0, millis(YEARS + 25 * HOUR));
    }

    #[tokio::test(start_paused = true)]
    async fn small_steps_and_long_idle_times_are_not_jumps() {
        let house = Fixture::new(None);
        house.shift_wall_clock(millis(HOUR) / 2);
        assert_eq!(house.now().0, millis(HOUR) / 2);
        house.advance(YEARS).await;
        assert_eq!(house.now().0, millis(HOUR) / 2 + millis(YEARS));
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_far_from_the_last_event_counts_as_a_jump() {
        let last = START - millis(YEARS);
        let house = Fixture::new(Some(Timestamp::from_millis(last)));
        assert_eq!(house.now(), (-millis(YEARS), 0));
        house.advance(24 * HOUR).await;
        assert_eq!(house.now(), (millis(24 * HOUR), millis(24 * HOUR)));
        let near = Fixture::new(Some(Timestamp::from_millis(START - 60_000)));
        assert_eq!(near.now(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_before_the_last_event_counts_as_a_jump() {
        let house = Fixture::new(Some(Timestamp::from_millis(START + millis(YEARS))));
        assert_eq!(house.now(), (0, millis(YEARS)), "what is written now lasts from when it was before");
        house.advance(HOUR).await;
        house.shift_wall_clock(millis(YEARS));
        assert_eq!(house.now(), (millis(YEARS + HOUR), millis(YEARS + HOUR)), "the clock is right again");
    }

    #[tokio::test(start_paused = true)]
    async fn nightly_suspend_does_not_postpone_expiry() {
        let house = Fixture::new(None);
        let mut passed = Duration::ZERO;
        for _ in 0..30 {
            house.advance(16 * HOUR).await;
            house.shift_wall_clock(millis(8 * HOUR));
            passed += 24 * HOUR;
            let (least, most) = house.now();
            assert_eq!(most, millis(passed));
            assert!(least >= millis(passed.saturating_sub(2 * 8 * HOUR)), "{} hours", least / millis(HOUR));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reverted_jump_keeps_the_age_of_earlier_jumps() {
        let house = Fixture::new(None);
        house.shift_wall_clock(millis(5 * HOUR));
        assert_eq!(house.now().0, 0);
        house.advance(20 * HOUR).await;
        house.shift_wall_clock(millis(YEARS));
        assert_eq!(house.now().0, millis(20 * HOUR));
        house.advance(2 * HOUR).await;
        house.shift_wall_clock(-millis(YEARS));
        assert_eq!(house.now(), (millis(22 * HOUR), millis(27 * HOUR)));
        house.advance(2 * HOUR).await;
        assert_eq!(house.now(), (millis(29 * HOUR), millis(29 * HOUR)), "the first jump has held for a day");
    }

    #[tokio::test(start_paused = true)]
    async fn frequent_jumps_are_merged_and_accepted() {
        let house = Fixture::new(None);
        let (mut passed, step) = (Duration::ZERO, Duration::from_mins(5));
        for _ in 0..1000 {
            house.advance(step).await;
            house.shift_wall_clock(millis(2 * HOUR));
            passed += step + 2 * HOUR;
            house.now();
            assert!(house.expiry.lock().jumps.len() <= MERGE_FRACTION as usize + 1);
        }
        // Those of a day of the steady clock, and of the part in which they are one.
        let open = 24 * 12 + 24 * 12 / MERGE_FRACTION + 1;
        assert!(house.now().0 >= millis(passed) - millis(open * 2 * HOUR));
    }
}
