//! Sources of time, randomness and new ids. They are injected, so that tests can control them.
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
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_millisecond(self.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
    }

    /// Formats the time for the `Date` header (RFC 9110).
    pub fn http_date(self) -> String {
        let printer = jiff::fmt::rfc2822::DateTimePrinter::new();
        // The printer fails only for years before 0.
        printer.timestamp_to_rfc9110_string(&self.to_jiff()).unwrap_or_default()
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.to_jiff())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<jiff::Timestamp>().map(|moment| Self(moment.as_millisecond()))
    }
}

pub trait Clock: Send + Sync + fmt::Debug {
    fn now(&self) -> Timestamp;

    /// A monotonic time, for comparison with the wall clock.
    fn monotonic(&self) -> Instant {
        Instant::now()
    }
}

pub trait Entropy: Send + Sync + fmt::Debug {
    /// Fills `bytes` with unpredictable random data.
    fn fill(&self, bytes: &mut [u8]);
}

/// The clocks of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "only this function reads the wall clock")]
    fn now(&self) -> Timestamp {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Includes the time for which the machine was suspended. Timers do not include it.
    fn monotonic(&self) -> Instant {
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        let awake = read(ClockId::Monotonic);
        Instant::now() + read(ClockId::Boottime).saturating_sub(awake)
    }
}

/// The kernel's random number generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel returns random numbers");
    }
}

/// The source of new ids, keys and epochs.
#[derive(Debug, Clone)]
pub struct Ids {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
}

impl Ids {
    pub fn new(clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self { clock, entropy }
    }

    pub fn system() -> Self {
        Self::new(Arc::new(SystemClock), Arc::new(SystemEntropy))
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// A monotonic time, for comparison with [`now`](Self::now).
    pub fn monotonic(&self) -> Instant {
        self.clock.monotonic()
    }

    pub fn session(&self) -> SessionId {
        SessionId::from_uuid(self.uuid())
    }

    /// A new UUID v7, for sessions and for `X-Request-Id`.
    pub fn uuid(&self) -> Uuid {
        let mut random = [0; 10];
        self.entropy.fill(&mut random);
        let millis = u64::try_from(self.clock.now().as_millis()).unwrap_or_default();
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// The token of a new store: 6 characters of base 32.
    pub fn epoch(&self) -> Epoch {
        const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let mut random = [0; 6];
        self.entropy.fill(&mut random);
        let text: String = random.iter().map(|b| char::from(ALPHABET[usize::from(b % 32)])).collect();
        text.parse().expect("the alphabet is valid in an epoch")
    }

    /// 256 random bits for keys and tickets.
    pub fn secret(&self) -> [u8; 32] {
        let mut random = [0; 32];
        self.entropy.fill(&mut random);
        random
    }
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
            steady >= all.saturating_sub(Duration::from_secs(5)) && steady <= all + Duration::from_secs(5)
        );
    }

    #[test]
    fn timestamps_are_rfc_3339_with_milliseconds() {
        let time = Timestamp::from_millis(1_795_299_303_123);
        assert_eq!(time.to_string(), "2026-11-21T22:15:03.123Z");
        assert_eq!(time.http_date(), "Sat, 21 Nov 2026 22:15:03 GMT");
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        let back: Timestamp = serde_json::from_str("\"2026-11-21T22:15:03.123Z\"").unwrap();
        assert_eq!(back, time);
    }
}
