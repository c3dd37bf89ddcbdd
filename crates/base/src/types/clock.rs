//! Sources of time and new ids. They are injected, so that tests can control them.
//!
//! The clock returns wall clock time for `time` members and for expiry. Timers use tokio's clock.

use std::collections::VecDeque;
use std::fmt;
use std::process::abort;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;
use uuid::Uuid;

use super::cursor::Epoch;
use super::ids::SessionId;

/// Milliseconds since 1970-01-01T00:00:00Z. The text form is RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
#[display("{:.3}", self.to_jiff())]
pub struct Timestamp(i64);

impl Timestamp {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> i64 {
        self.0
    }

    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// The time since another time; zero if that time is later.
    pub fn since(self, earlier: Self) -> Duration {
        let millis = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(millis).unwrap_or_default())
    }
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }

    fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }

    /// Formats the time for the `Date` header (RFC 9110).
    pub fn http_date(self) -> String {
        let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
        // The printer fails only for years before 0.
        printer
            .timestamp_to_rfc9110_string(&self.to_jiff())
            .unwrap_or_default()
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>()
            .map(|moment| Self(moment.as_millisecond()))
    }
}

text_form!(Timestamp);

pub trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Timestamp;

    /// A monotonic time, for comparison with the wall clock.
    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "only this function reads the wall clock"
    )]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Includes the time for which the machine was suspended. Timers do not include it.
    fn monotonic(&self) -> Instant {
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        let awake = read(ClockId::Monotonic);
        Instant::now() + read(ClockId::Boottime).saturating_sub(awake)
    }
}

/// Calls a macro with the table of limits: see `base::declare_limits`.
#[macro_export]
macro_rules! clock_limits {
    ($($consumer:tt)+) => {
        $($consumer)+! {
            clock: ClockLimits {
                ["testing"] {
                    /// The step of the wall clock that counts as a jump. Nothing expires by age until the jump has
                    /// persisted for `clock_settle_timeout`.
                    clock_jump_threshold: Duration = Duration::from_hours(1), time;
                    clock_settle_timeout: Duration = Duration::from_hours(24), time_or_zero;
                }
            }
        }
    };
}
clock_limits!(crate::declare_limits);

/// The source of new ids, keys and epochs. One pointer, because each stream has one.
#[derive(Debug, Clone)]
pub struct Ids(Arc<IdSource>);

#[derive(Debug)]
struct IdSource {
    clock: Arc<dyn Clock>,
    limits: ClockLimits,
}

impl Ids {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::with_limits(clock, ClockLimits::default())
    }

    pub fn with_limits(clock: Arc<dyn Clock>, limits: ClockLimits) -> Self {
        Self(Arc::new(IdSource { clock, limits }))
    }

    pub fn system() -> Self {
        Self::system_with(ClockLimits::default())
    }

    pub fn system_with(limits: ClockLimits) -> Self {
        Self::with_limits(Arc::new(SystemClock), limits)
    }

    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// A monotonic time, for comparison with [`now`](Self::now).
    pub fn monotonic(&self) -> Instant {
        self.0.clock.monotonic()
    }

    pub fn session(&self) -> SessionId {
        SessionId::from_uuid(self.uuid())
    }

    /// A new UUID v7, for sessions and for `X-Request-Id`.
    pub fn uuid(&self) -> Uuid {
        let random: [u8; 10] = random();
        let millis = u64::try_from(self.now().as_millis()).unwrap_or_default();
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    pub fn epoch(&self) -> Epoch {
        Epoch::of_bytes(random())
    }

    /// The number of a new store: see [`SessionId::in_shard`].
    pub fn shard(&self) -> u16 {
        u16::from_be_bytes(random())
    }

    /// 256 random bits for keys and tickets.
    pub fn secret(&self) -> [u8; 32] {
        random()
    }
}

/// A random UUID (v4).
pub fn random_uuid() -> Uuid {
    uuid::Builder::from_random_bytes(random()).into_uuid()
}

/// Unpredictable bytes from the random number generator of the kernel.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel returns random numbers");
    bytes
}

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
    /// Continues from `last`, the last time that an earlier process recorded. If the clock differs much from that
    /// time, the gateway was stopped for long or the clock jumped. The two cases cannot be distinguished, so
    /// the difference counts as a jump.
    pub fn new(ids: Ids, last: Option<Timestamp>) -> Self {
        let wall = ids.now().as_millis();
        let at = ids.monotonic();
        let jump_threshold = ids.0.limits.clock_jump_threshold;
        let settle_time = ids.0.limits.clock_settle_timeout;
        let mut seen = ClockState {
            last_wall: wall,
            last_monotonic: at,
            jumps: VecDeque::new(),
        };
        let by = last.map_or(0, |last| wall.saturating_sub(last.as_millis()));
        if by.saturating_abs() > millis(jump_threshold) {
            seen.record_jump(by, millis(jump_threshold), settle_time);
        }
        Self {
            ids,
            jump_threshold,
            settle_time,
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
        let wall = self.ids.now().as_millis();
        let at = self.ids.monotonic();
        let expected = seen
            .last_wall
            .saturating_add(millis(at.saturating_duration_since(seen.last_monotonic)));
        let jumped = wall.saturating_sub(expected);
        seen.last_wall = wall;
        seen.last_monotonic = at;
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
    use super::*;

    #[test]
    fn the_monotonic_clock_includes_suspend_time() {
        let slept = |now: Instant| {
            let awake = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
            let steady = SystemClock.monotonic().duration_since(now);
            let all = Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap();
            (steady, all.saturating_sub(awake))
        };
        let (steady, all) = slept(Instant::now());
        assert!(
            steady >= all.saturating_sub(Duration::from_secs(5))
                && steady <= all + Duration::from_secs(5)
        );
    }

    #[test]
    fn timestamps_are_rfc_3339_with_milliseconds() {
        let time = Timestamp::from_millis(1_795_299_303_123);
        assert_eq!(time.to_string(), "2026-11-21T22:15:03.123Z");
        assert_eq!(time.http_date(), "Sat, 21 Nov 2026 22:15:03 GMT");
        assert_eq!(
            Timestamp::from_millis(0).to_string(),
            "1970-01-01T00:00:00.000Z"
        );
        let back: Timestamp = serde_json::from_str("\"2026-11-21T22:15:03.123Z\"").unwrap();
        assert_eq!(back, time);
    }
}

#[cfg(test)]
mod expiry_tests {
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
                expiry: Expiry::new(ids, last),
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
                let began = house.now();
                let by = millis(by) * sign;
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
        let mut passed = Duration::ZERO;
        let step = Duration::from_mins(5);
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
