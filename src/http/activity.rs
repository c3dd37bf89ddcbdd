//! How busy a connection is: its open requests, since when there is none, and for how long it may have none.

use std::sync::{Arc, Mutex, MutexGuard};

use http::Version;
use tokio::time::Instant;

use crate::shutdown::lock_or_abort;
use crate::types::Limits;

/// A cheap handle on a connection's requests.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Mutex<ActivityState>>);

#[derive(Debug)]
struct ActivityState {
    requests: usize,
    /// When the last request ended, or the connection began.
    idle_since: Instant,
    /// When something came that may be the next one's head.
    head_since: Option<Instant>,
    /// What comes first belongs to the last request: its body, which may have been answered before it was read.
    body_remainder: bool,
    /// How the last request came.
    version: Option<Version>,
}

impl Activity {
    pub(super) fn new() -> Self {
        let idle_since = Instant::now();
        let open = ActivityState { requests: 0, idle_since, head_since: None, body_remainder: false, version: None };
        Self(Arc::new(Mutex::new(open)))
    }

    /// For a connection that has served a request over HTTP/1.1.
    pub(super) fn after_request() -> Self {
        let activity = Self::new();
        activity.lock().version = Some(Version::HTTP_11);
        activity
    }

    fn lock(&self) -> MutexGuard<'_, ActivityState> {
        lock_or_abort(self.0.lock())
    }

    /// A request has come, perhaps with a body; it is open until its guard is dropped.
    pub(super) fn begin(&self, version: Version, body: bool) -> RequestGuard {
        let mut open = self.lock();
        open.requests += 1;
        open.head_since = None;
        open.body_remainder = body;
        open.version = Some(version);
        drop(open);
        RequestGuard(self.clone())
    }

    /// Whether requests share the connection, by HTTP/2.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.lock().is_multiplexed()
    }

    /// Something came.
    pub(super) fn bytes_received(&self) {
        let mut open = self.lock();
        if open.requests == 0 && !std::mem::take(&mut open.body_remainder) {
            open.head_since.get_or_insert_with(Instant::now);
        }
    }

    /// An answer whose request is over is still on its way.
    pub(super) fn response_in_progress(&self) {
        let mut open = self.lock();
        open.idle_since = Instant::now();
        // A head that came meanwhile is read after it.
        open.head_since = open.head_since.map(|_| open.idle_since);
    }

    /// When to look at it next; `None` when its time without a request is over. `hurry` when others may want its place.
    pub(super) fn next_check(&self, limits: &Limits, crowded: bool) -> Option<Instant> {
        let now = Instant::now();
        // A head may be begun meanwhile, and places become few.
        let soon = now + limits.header;
        self.request_deadline(limits, crowded).map_or(Some(soon), |end| (now < end).then_some(end.min(soon)))
    }

    /// By when there has to be a request; `None` while one is open.
    pub(super) fn request_deadline(&self, limits: &Limits, crowded: bool) -> Option<Instant> {
        let open = self.lock();
        let idle = if crowded { limits.header.min(limits.connection_idle) } else { limits.connection_idle };
        match *open {
            ActivityState { requests: 1.., .. } => None,
            ActivityState { version: None, idle_since, .. } => Some(idle_since + limits.header),
            // Over HTTP/2 what comes may be about anything.
            ActivityState { head_since: Some(since), .. } if !open.is_multiplexed() => Some(since + limits.header),
            ActivityState { idle_since, .. } => Some(idle_since + idle),
        }
    }
}

impl ActivityState {
    fn is_multiplexed(&self) -> bool {
        self.version >= Some(Version::HTTP_2)
    }
}

/// An open request.
#[derive(Debug)]
pub(super) struct RequestGuard(Activity);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let mut open = self.0.lock();
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

    /// Seconds from now until there has to be a request.
    fn seconds_left(activity: &Activity, crowded: bool) -> Option<u64> {
        Some((activity.request_deadline(&limits(), crowded)? - Instant::now()).as_secs())
    }

    async fn advance(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_open_requests() {
        let activity = Activity::new();
        assert_eq!(seconds_left(&activity, false), Some(10), "for its first");
        let (one, two) = (activity.begin(Version::HTTP_11, false), activity.begin(Version::HTTP_11, false));
        advance(5).await;
        assert_eq!(seconds_left(&activity, false), None);
        drop(one);
        assert_eq!(seconds_left(&activity, false), None, "there is another");
        drop(two);
        assert_eq!((seconds_left(&activity, false), seconds_left(&activity, true)), (Some(100), Some(10)));
        advance(4).await;
        assert_eq!((seconds_left(&activity, false), seconds_left(&activity, true)), (Some(96), Some(6)));
        let look = |hurry| Some((activity.next_check(&limits(), hurry)? - Instant::now()).as_secs());
        assert_eq!((look(false), look(true)), (Some(10), Some(6)), "a head may come, and others");
        advance(6).await;
        assert_eq!((look(false), look(true)), (Some(10), None));
        activity.response_in_progress();
        assert_eq!((seconds_left(&activity, false), seconds_left(&activity, true)), (Some(100), Some(10)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_partial_head_has_its_own_timeout() {
        let activity = Activity::new();
        advance(4).await;
        activity.bytes_received();
        assert_eq!(seconds_left(&activity, false), Some(6), "the first one has what is left of its own");
        let request = activity.begin(Version::HTTP_11, false);
        activity.bytes_received();
        drop(request);
        assert_eq!(seconds_left(&activity, false), Some(100), "what came before was of the request");
        advance(50).await;
        activity.bytes_received();
        advance(3).await;
        activity.bytes_received();
        assert_eq!(seconds_left(&activity, false), Some(7), "from its first byte");
        activity.response_in_progress();
        assert_eq!(seconds_left(&activity, false), Some(10), "an answer before it is still on its way");
        drop(activity.begin(Version::HTTP_11, true));
        activity.bytes_received();
        assert_eq!(seconds_left(&activity, false), Some(100), "the rest of a body that nobody wanted");
        activity.bytes_received();
        assert_eq!(seconds_left(&activity, false), Some(10));
        drop(activity.begin(Version::HTTP_2, false));
        activity.bytes_received();
        assert_eq!(seconds_left(&activity, false), Some(100), "a ping is no head");
    }
}
