//! Logs connections that close because of a flood. A flood can use many connections, so the log is rate-limited.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::frame_limiter::Flood;
use crate::shutdown::lock_or_abort;

/// The shortest time between two lines.
const INTERVAL: Duration = Duration::from_secs(10);

/// The log of all connections.
#[derive(Debug, Clone, Default)]
pub(super) struct FloodLog(Arc<Mutex<Recent>>);

#[derive(Debug, Default)]
struct Recent {
    last_line: Option<Instant>,
    /// The floods since the last line.
    suppressed: u64,
}

impl FloodLog {
    pub(super) fn of_peer(&self, peer: SocketAddr) -> FloodReporter {
        FloodReporter {
            log: self.clone(),
            peer,
        }
    }

    /// The number of floods since the last line, if a line is due.
    fn next_line(&self, now: Instant) -> Option<u64> {
        let mut recent = lock_or_abort(self.0.lock());
        if recent.last_line.is_some_and(|last| now < last + INTERVAL) {
            recent.suppressed += 1;
            return None;
        }
        recent.last_line = Some(now);
        Some(std::mem::take(&mut recent.suppressed))
    }
}

/// Reports the floods of one connection.
#[derive(Debug)]
pub(super) struct FloodReporter {
    log: FloodLog,
    peer: SocketAddr,
}

impl FloodReporter {
    /// Logs a flood, or counts it for the next line.
    pub(super) fn report(&self, flood: Flood) {
        if let Some(suppressed) = self.log.next_line(Instant::now()) {
            tracing::warn!(
                peer = %self.peer,
                frame = %flood,
                suppressed,
                "closed an HTTP/2 connection: the client sent too many frames that make no progress"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_an_interval_counts_the_others() {
        let (log, now) = (FloodLog::default(), Instant::now());
        assert_eq!(log.next_line(now), Some(0));
        assert_eq!(
            (log.next_line(now), log.next_line(now + INTERVAL / 2)),
            (None, None)
        );
        assert_eq!(log.next_line(now + INTERVAL), Some(2));
    }
}
