//! A clock for expiry that tolerates jumps of the wall clock.
//!
//! An operator or an empty battery may set the wall clock wrong by years, and it may be correct again an hour
//! later. Data that expired meanwhile cannot be restored. Therefore the clock compares the wall clock with
//! the monotonic clock of the machine. It accepts a jump only after the settle time. Until then, time
//! continues from the value before the jump.
//!
//! Each jump has its own settle time. A further jump, or a machine that is suspended every night, does not
//! delay the others.
//!
//! Deletions use the earliest possible time, and new lifetimes use the latest one. The monotonic clock must count
//! suspended time (`CLOCK_BOOTTIME`). Limits by size do not use this clock.

use std::collections::VecDeque;
use std::process::abort;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::clock::{Ids, Timestamp};
use super::limits::Limits;

/// Jumps within this fraction of the settle time are merged, which limits their number.
const MERGE_FRACTION: u32 = 32;

#[derive(Debug)]
pub struct Expiry {
    ids: Ids,
    /// The difference between the clocks that counts as a jump.
    jump_threshold: Duration,
    /// The time that a jump must persist before it is accepted.
    settle_time: Duration,
    state: Mutex<ClockState>,
}

/// The last values of both clocks. Wall clock times are in milliseconds.
#[derive(Debug)]
struct ClockState {
    last_wall: i64,
    last_monotonic: Instant,
    /// Jumps that are not accepted yet, oldest first.
    jumps: VecDeque<Jump>,
}

/// A jump of the wall clock, in milliseconds.
#[derive(Debug)]
struct Jump {
    delta: i64,
    started: Instant,
    /// The settle time counts from here.
    updated: Instant,
}

impl Expiry {
    pub fn new(ids: Ids, limits: &Limits) -> Self {
        Self::starting_from(ids, limits, None)
    }

    /// Continues from the last time that an earlier process recorded. If the clock differs much from that
    /// time, the gateway was stopped for long or the clock jumped. The two cases cannot be distinguished, so
    /// the difference counts as a jump.
    pub fn starting_from(ids: Ids, limits: &Limits, last: Option<Timestamp>) -> Self {
        let (wall, at) = (ids.now().as_millis(), ids.monotonic());
        let (jump, settle) = (limits.clock_jump_threshold, limits.clock_settle_timeout);
        let mut seen = ClockState {
            last_wall: wall,
            last_monotonic: at,
            jumps: VecDeque::new(),
        };
        let by = last.map_or(0, |last| wall.saturating_sub(last.as_millis()));
        if by.saturating_abs() > millis(jump) {
            seen.record_jump(by, millis(jump), settle);
        }
        Self {
            ids,
            jump_threshold: jump,
            settle_time: settle,
            state: Mutex::new(seen),
        }
    }

    /// The earliest time that it can be now. Data that expires after this time must be kept.
    pub fn earliest_now(&self) -> Timestamp {
        self.bounds().0
    }

    /// The latest time that it can be now. New expiry times count from here.
    pub fn latest_now(&self) -> Timestamp {
        self.bounds().1
    }

    fn bounds(&self) -> (Timestamp, Timestamp) {
        let mut seen = self.lock();
        let (wall, at) = (self.ids.now().as_millis(), self.ids.monotonic());
        let expected = seen
            .last_wall
            .saturating_add(millis(at.saturating_duration_since(seen.last_monotonic)));
        let jumped = wall.saturating_sub(expected);
        (seen.last_wall, seen.last_monotonic) = (wall, at);
        if jumped.saturating_abs() > millis(self.jump_threshold) {
            seen.record_jump(jumped, millis(self.jump_threshold), self.settle_time);
            tracing::warn!(
                by_seconds = jumped / 1000,
                "the wall clock jumped: expiry is suspended until the jump is accepted or reverted"
            );
        }
        seen.jumps
            .retain(|jump| at.saturating_duration_since(jump.updated) < self.settle_time);
        let ahead = seen
            .jumps
            .iter()
            .fold(0, |sum: i64, jump| sum.saturating_add(jump.delta));
        let believed = wall.saturating_sub(ahead);
        (
            Timestamp::from_millis(wall.min(believed)),
            Timestamp::from_millis(wall.max(believed)),
        )
    }

    /// A poisoned lock aborts the process. This layer cannot use `lock_or_abort`, which a higher layer
    /// defines.
    fn lock(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(|_| abort())
    }
}

impl ClockState {
    /// Records a jump. A jump in the opposite direction cancels the last jumps; the remainder of such a jump
    /// keeps its age.
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
            Some(_) | None => self.jumps.push_back(Jump {
                delta: by,
                started: at,
                updated: at,
            }),
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
            let ids = Ids::new(hand.clone());
            Self {
                clock: hand,
                expiry: Expiry::starting_from(ids, &Limits::default(), last),
            }
        }

        fn shift_wall_clock(&self, by: i64) {
            self.clock.0.fetch_add(by, Ordering::Relaxed);
        }

        /// Advances both clocks.
        async fn advance(&self, span: Duration) {
            self.shift_wall_clock(millis(span));
            tokio::time::advance(span).await;
        }

        /// The bounds in milliseconds since the start: earliest, latest.
        fn now(&self) -> (i64, i64) {
            (
                self.expiry.earliest_now().as_millis() - START,
                self.expiry.latest_now().as_millis() - START,
            )
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reverted_clock_jump_expires_nothing() {
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
                assert_eq!(
                    house.now(),
                    (began.0 + millis(HOUR), began.1 + millis(HOUR))
                );
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
        assert_eq!(
            house.now(),
            (0, millis(YEARS)),
            "new expiry times count from the time before the jump"
        );
        house.advance(HOUR).await;
        house.shift_wall_clock(millis(YEARS));
        assert_eq!(
            house.now(),
            (millis(YEARS + HOUR), millis(YEARS + HOUR)),
            "the clock is correct again"
        );
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
            assert!(
                least >= millis(passed.saturating_sub(2 * 8 * HOUR)),
                "{} hours",
                least / millis(HOUR)
            );
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
        assert_eq!(
            house.now(),
            (millis(29 * HOUR), millis(29 * HOUR)),
            "the first jump has persisted for a day"
        );
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
        // The jumps within a day of the monotonic clock, and within one merge interval.
        let open = 24 * 12 + 24 * 12 / MERGE_FRACTION + 1;
        assert!(house.now().0 >= millis(passed) - millis(open * 2 * HOUR));
    }
}
