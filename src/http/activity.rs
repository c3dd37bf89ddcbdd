//! How busy a connection is: its open requests, and since when there is none.

use std::sync::{Arc, Mutex, MutexGuard};

use http::Version;
use tokio::time::Instant;

use crate::shutdown::sound;

/// A cheap handle on a connection's requests.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    requests: usize,
    /// When the last request ended, or the connection began.
    idle_since: Instant,
    /// The last request came by HTTP/2.
    multiplexed: bool,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Open { requests: 0, idle_since: Instant::now(), multiplexed: false })))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        sound(self.0.lock())
    }

    /// A request has come; it is open until its guard is dropped.
    pub(super) fn begin(&self, version: Version) -> RequestGuard {
        let mut open = self.open();
        open.requests += 1;
        open.multiplexed = version >= Version::HTTP_2;
        drop(open);
        RequestGuard(self.clone())
    }

    /// Whether requests share the connection, by HTTP/2.
    pub(super) fn multiplexed(&self) -> bool {
        self.open().multiplexed
    }

    /// An answer whose request is over is still on its way.
    pub(super) fn writes(&self) {
        self.open().idle_since = Instant::now();
    }

    /// `None` while a request is open.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let open = self.open();
        (open.requests == 0).then_some(open.idle_since)
    }
}

/// An open request.
#[derive(Debug)]
pub(super) struct RequestGuard(Activity);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut open = self.0.open();
        open.requests -= 1;
        if open.requests == 0 {
            open.idle_since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_requests() {
        let activity = Activity::new();
        assert_eq!(activity.idle_since(), Some(Instant::now()));
        let (one, two) = (activity.begin(Version::HTTP_11), activity.begin(Version::HTTP_2));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(activity.idle_since(), None);
        drop(one);
        assert_eq!(activity.idle_since(), None, "there is another");
        drop(two);
        assert_eq!(activity.idle_since(), Some(Instant::now()));
    }
}
