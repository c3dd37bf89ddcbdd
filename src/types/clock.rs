//! Sources of time and new ids. They are injected, so that tests can control them.
//!
//! The clock returns wall clock time for `time` members and for expiry. Timers use tokio's clock.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;
use uuid::Uuid;

use super::cursor::Epoch;
use super::ids::SessionId;

/// Milliseconds since 1970-01-01T00:00:00Z. The text form is RFC 3339 in UTC with milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
        Self(
            self.0
                .saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(
            self.0
                .saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
        )
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

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.to_jiff())
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

/// The clocks of the machine.
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

/// The source of new ids, keys and epochs.
#[derive(Debug, Clone)]
pub struct Ids(Arc<dyn Clock>);

impl Ids {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(clock)
    }

    pub fn system() -> Self {
        Self::new(Arc::new(SystemClock))
    }

    pub fn now(&self) -> Timestamp {
        self.0.now()
    }

    /// A monotonic time, for comparison with [`now`](Self::now).
    pub fn monotonic(&self) -> Instant {
        self.0.monotonic()
    }

    pub fn session(&self) -> SessionId {
        SessionId::from_uuid(self.uuid())
    }

    /// A new UUID v7, for sessions and for `X-Request-Id`.
    pub fn uuid(&self) -> Uuid {
        let random: [u8; 10] = random();
        let millis = u64::try_from(self.0.now().as_millis()).unwrap_or_default();
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// The epoch of a new store.
    pub fn epoch(&self) -> Epoch {
        Epoch::of_bytes(random())
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
