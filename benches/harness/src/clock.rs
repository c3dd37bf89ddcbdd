//! The monotonic clock shared by all processes of the machine.

use rustix::time::{ClockId, Timespec, clock_gettime};

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds since a fixed moment.
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or_default() * SECOND
        + u64::try_from(time.tv_nsec).unwrap_or_default()
}

/// Sleeps until a moment of `now`. Returns at once if it is in the past.
pub(crate) fn sleep_until(moment: u64) {
    let until = Timespec {
        tv_sec: i64::try_from(moment / SECOND).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(moment % SECOND).unwrap_or_default(),
    };
    while now() < moment
        && rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until).is_err()
    {}
}
