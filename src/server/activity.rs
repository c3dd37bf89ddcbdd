//! The activity of a connection: its open requests, and the time limits while none is open. The permit of the
//! connection counts the memory of the requests.

use std::sync::{Arc, Mutex, MutexGuard};

use http::Version;
use tokio::time::Instant;

use super::connection_limit::{ConnectionPermit, ReadPermission};
use crate::shutdown::lock_or_abort;
use crate::types::Limits;

/// A cheap handle to the activity of one connection.
#[derive(Debug, Clone)]
pub(super) struct Activity {
    state: Arc<Mutex<ActivityState>>,
    permit: ConnectionPermit,
}

#[derive(Debug)]
struct ActivityState {
    requests: usize,
    /// When the last request ended, or when the connection began.
    idle_since: Instant,
    /// When bytes arrived that may be the start of the next head.
    head_since: Option<Instant>,
    /// The next bytes belong to the body of the last request, which may have been answered before its body
    /// was read.
    body_remainder: bool,
    /// The HTTP version of the last request.
    version: Option<Version>,
}

impl Activity {
    pub(super) fn new(permit: ConnectionPermit) -> Self {
        let idle_since = Instant::now();
        let open = ActivityState {
            requests: 0,
            idle_since,
            head_since: None,
            body_remainder: false,
            version: None,
        };
        Self {
            state: Arc::new(Mutex::new(open)),
            permit,
        }
    }

    /// For a connection that has already served a request over HTTP/1.1.
    pub(super) fn after_request(permit: ConnectionPermit) -> Self {
        let activity = Self::new(permit);
        activity.lock().version = Some(Version::HTTP_11);
        activity
    }

    fn lock(&self) -> MutexGuard<'_, ActivityState> {
        lock_or_abort(self.state.lock())
    }

    /// Records the start of a request. `body`: whether the request has a body. The request is open until the guard is dropped.
    pub(super) fn begin(&self, version: Version, body: bool) -> RequestGuard {
        let mut open = self.lock();
        open.requests += 1;
        open.head_since = None;
        open.body_remainder = body;
        open.version = Some(version);
        drop(open);
        self.permit.request_started();
        RequestGuard(self.clone())
    }

    /// Whether requests share the connection (HTTP/2).
    pub(super) fn is_multiplexed(&self) -> bool {
        self.lock().is_multiplexed()
    }

    pub(super) fn read_permission(&self) -> ReadPermission {
        self.permit.read_permission(Instant::now())
    }

    /// Records that bytes arrived.
    pub(super) fn bytes_received(&self, bytes: usize) {
        self.permit.bytes_received(bytes);
        let mut open = self.lock();
        if open.requests == 0 && !std::mem::take(&mut open.body_remainder) {
            open.head_since.get_or_insert_with(Instant::now);
        }
    }

    /// Records that a response is still being written after its request ended.
    pub(super) fn response_in_progress(&self) {
        let mut open = self.lock();
        open.idle_since = Instant::now();
        // A head that arrived meanwhile is read only after the response.
        open.head_since = open.head_since.map(|_| open.idle_since);
    }

    /// The time of the next check. `None` if the time without a request has expired. `crowded` shortens the
    /// time, because other clients may need the connection slot.
    pub(super) fn next_check(&self, limits: &Limits, crowded: bool) -> Option<Instant> {
        let now = Instant::now();
        // Until then a head may begin, or connection slots may become scarce.
        let soon = now + limits.header_timeout;
        self.request_deadline(limits, crowded)
            .map_or(Some(soon), |end| (now < end).then_some(end.min(soon)))
    }

    /// The time by which a request must arrive. `None` while a request is open.
    pub(super) fn request_deadline(&self, limits: &Limits, crowded: bool) -> Option<Instant> {
        let open = self.lock();
        let idle = if crowded {
            limits.header_timeout.min(limits.connection_idle_timeout)
        } else {
            limits.connection_idle_timeout
        };
        match *open {
            ActivityState { requests: 1.., .. } => None,
            ActivityState {
                version: None,
                idle_since,
                ..
            } => Some(idle_since + limits.header_timeout),
            // With HTTP/2, arriving bytes need not be a head.
            ActivityState {
                head_since: Some(since),
                ..
            } if !open.is_multiplexed() => Some(since + limits.header_timeout),
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
        let Self(activity) = self;
        activity.permit.request_ended();
        let mut open = activity.lock();
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
        Limits {
            header_timeout: header,
            connection_idle_timeout: connection_idle,
            ..Limits::default()
        }
    }

    /// The number of seconds until a request must arrive.
    fn seconds_left(activity: &Activity, crowded: bool) -> Option<u64> {
        Some((activity.request_deadline(&limits(), crowded)? - Instant::now()).as_secs())
    }

    async fn advance(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_open_requests() {
        let activity = Activity::new(ConnectionPermit::unlimited());
        assert_eq!(
            seconds_left(&activity, false),
            Some(10),
            "before the first request"
        );
        let (one, two) = (
            activity.begin(Version::HTTP_11, false),
            activity.begin(Version::HTTP_11, false),
        );
        advance(5).await;
        assert_eq!(seconds_left(&activity, false), None);
        drop(one);
        assert_eq!(
            seconds_left(&activity, false),
            None,
            "another request is open"
        );
        drop(two);
        assert_eq!(
            (
                seconds_left(&activity, false),
                seconds_left(&activity, true)
            ),
            (Some(100), Some(10))
        );
        advance(4).await;
        assert_eq!(
            (
                seconds_left(&activity, false),
                seconds_left(&activity, true)
            ),
            (Some(96), Some(6))
        );
        let look =
            |hurry| Some((activity.next_check(&limits(), hurry)? - Instant::now()).as_secs());
        assert_eq!(
            (look(false), look(true)),
            (Some(10), Some(6)),
            "a head may begin"
        );
        advance(6).await;
        assert_eq!((look(false), look(true)), (Some(10), None));
        activity.response_in_progress();
        assert_eq!(
            (
                seconds_left(&activity, false),
                seconds_left(&activity, true)
            ),
            (Some(100), Some(10))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_partial_head_has_its_own_timeout() {
        let activity = Activity::new(ConnectionPermit::unlimited());
        advance(4).await;
        activity.bytes_received(1);
        assert_eq!(
            seconds_left(&activity, false),
            Some(6),
            "the first head has the rest of its time"
        );
        let request = activity.begin(Version::HTTP_11, false);
        activity.bytes_received(1);
        drop(request);
        assert_eq!(
            seconds_left(&activity, false),
            Some(100),
            "earlier bytes belong to the request"
        );
        advance(50).await;
        activity.bytes_received(1);
        advance(3).await;
        activity.bytes_received(1);
        assert_eq!(
            seconds_left(&activity, false),
            Some(7),
            "the time starts with the first byte"
        );
        activity.response_in_progress();
        assert_eq!(
            seconds_left(&activity, false),
            Some(10),
            "the previous response is still being written"
        );
        drop(activity.begin(Version::HTTP_11, true));
        activity.bytes_received(1);
        assert_eq!(
            seconds_left(&activity, false),
            Some(100),
            "the bytes are the rest of an unread body"
        );
        activity.bytes_received(1);
        assert_eq!(seconds_left(&activity, false), Some(10));
        drop(activity.begin(Version::HTTP_2, false));
        activity.bytes_received(1);
        assert_eq!(
            seconds_left(&activity, false),
            Some(100),
            "a ping is not a head"
        );
    }
}
