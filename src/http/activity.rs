//! The activity of a connection: its open requests, and the time limits while none is open.

use std::sync::{Arc, Mutex, MutexGuard};

use http::Version;
use tokio::time::Instant;

use crate::shutdown::sound;
use crate::types::Limits;

/// A cheap handle to the activity of one connection.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    requests: usize,
    /// When the last request ended, or when the connection began.
    idle_since: Instant,
    /// When bytes arrived that may be the start of the next head.
    head_since: Option<Instant>,
    /// The next bytes belong to the body of the last request, which may have been answered before its body
    /// was read.
    rest: bool,
    /// The HTTP version of the last request.
    version: Option<Version>,
}

impl Activity {
    pub(super) fn new() -> Self {
        let idle_since = Instant::now();
        let open = Open { requests: 0, idle_since, head_since: None, rest: false, version: None };
        Self(Arc::new(Mutex::new(open)))
    }

    /// For a connection that has already served a request over HTTP/1.1.
    pub(super) fn used() -> Self {
        let activity = Self::new();
        activity.open().version = Some(Version::HTTP_11);
        activity
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        sound(self.0.lock())
    }

    /// Records the start of a request, which may have a body. The request is open until the guard is dropped.
    pub(super) fn begin(&self, version: Version, body: bool) -> RequestGuard {
        let mut open = self.open();
        open.requests += 1;
        open.head_since = None;
        open.rest = body;
        open.version = Some(version);
        drop(open);
        RequestGuard(self.clone())
    }

    /// Whether requests share the connection (HTTP/2).
    pub(super) fn multiplexed(&self) -> bool {
        self.open().multiplexed()
    }

    /// Records that bytes arrived.
    pub(super) fn reads(&self) {
        let mut open = self.open();
        if open.requests == 0 && !std::mem::take(&mut open.rest) {
            open.head_since.get_or_insert_with(Instant::now);
        }
    }

    /// Records that a response is still being written after its request ended.
    pub(super) fn writes(&self) {
        let mut open = self.open();
        open.idle_since = Instant::now();
        // A head that arrived meanwhile is read only after the response.
        open.head_since = open.head_since.map(|_| open.idle_since);
    }

    /// The time of the next check. `None` if the time without a request has expired. `crowded` shortens the
    /// time, because other clients may need the connection slot.
    pub(super) fn look_again(&self, limits: &Limits, hurry: bool) -> Option<Instant> {
        let now = Instant::now();
        // Until then a head may begin, or connection slots may become scarce.
        let soon = now + limits.header;
        self.until(limits, hurry).map_or(Some(soon), |end| (now < end).then_some(end.min(soon)))
    }

    /// The time by which a request must arrive. `None` while a request is open.
    pub(super) fn until(&self, limits: &Limits, hurry: bool) -> Option<Instant> {
        let open = self.open();
        let idle = if hurry { limits.header.min(limits.connection_idle) } else { limits.connection_idle };
        match *open {
            Open { requests: 1.., .. } => None,
            Open { version: None, idle_since, .. } => Some(idle_since + limits.header),
            // With HTTP/2, arriving bytes need not be a head.
            Open { head_since: Some(since), .. } if !open.multiplexed() => Some(since + limits.header),
            Open { idle_since, .. } => Some(idle_since + idle),
        }
    }
}

impl Open {
    fn multiplexed(&self) -> bool {
        self.version >= Some(Version::HTTP_2)
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
            open.head_since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn limits() -> Limits {
        let (header, connection_idle) = (Duration::from_secs(10), Duration::from_secs(100));
        Limits { header, connection_idle, ..Limits::default() }
    }

    /// The number of seconds until a request must arrive.
    fn left(activity: &Activity, hurry: bool) -> Option<u64> {
        Some((activity.until(&limits(), hurry)? - Instant::now()).as_secs())
    }

    async fn seconds(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_requests() {
        let activity = Activity::new();
        assert_eq!(left(&activity, false), Some(10), "before the first request");
        let (one, two) = (activity.begin(Version::HTTP_11, false), activity.begin(Version::HTTP_11, false));
        seconds(5).await;
        assert_eq!(left(&activity, false), None);
        drop(one);
        assert_eq!(left(&activity, false), None, "another request is open");
        drop(two);
        assert_eq!((left(&activity, false), left(&activity, true)), (Some(100), Some(10)));
        seconds(4).await;
        assert_eq!((left(&activity, false), left(&activity, true)), (Some(96), Some(6)));
        let look = |hurry| Some((activity.look_again(&limits(), hurry)? - Instant::now()).as_secs());
        assert_eq!((look(false), look(true)), (Some(10), Some(6)), "a head may begin");
        seconds(6).await;
        assert_eq!((look(false), look(true)), (Some(10), None));
        activity.writes();
        assert_eq!((left(&activity, false), left(&activity, true)), (Some(100), Some(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_was_begun_has_its_own_time() {
        let activity = Activity::new();
        seconds(4).await;
        activity.reads();
        assert_eq!(left(&activity, false), Some(6), "the first head has the rest of its time");
        let request = activity.begin(Version::HTTP_11, false);
        activity.reads();
        drop(request);
        assert_eq!(left(&activity, false), Some(100), "earlier bytes belong to the request");
        seconds(50).await;
        activity.reads();
        seconds(3).await;
        activity.reads();
        assert_eq!(left(&activity, false), Some(7), "the time starts with the first byte");
        activity.writes();
        assert_eq!(left(&activity, false), Some(10), "the previous response is still being written");
        drop(activity.begin(Version::HTTP_11, true));
        activity.reads();
        assert_eq!(left(&activity, false), Some(100), "the bytes are the rest of an unread body");
        activity.reads();
        assert_eq!(left(&activity, false), Some(10));
        drop(activity.begin(Version::HTTP_2, false));
        activity.reads();
        assert_eq!(left(&activity, false), Some(100), "a ping is not a head");
    }
}
