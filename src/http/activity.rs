//! How busy a connection is: its open requests, since when there is none, and for how long it may have none.

use std::sync::{Arc, Mutex, MutexGuard};

use http::Version;
use tokio::time::Instant;

use crate::shutdown::sound;
use crate::types::Limits;

/// A cheap handle on a connection's requests.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    requests: usize,
    /// When the last request ended, or the connection began.
    idle_since: Instant,
    /// When something came that may be the next one's head.
    head_since: Option<Instant>,
    /// What comes first belongs to the last request: its body, which may have been answered before it was read.
    rest: bool,
    /// How the last request came.
    version: Option<Version>,
}

impl Activity {
    pub(super) fn new() -> Self {
        let idle_since = Instant::now();
        let open = Open { requests: 0, idle_since, head_since: None, rest: false, version: None };
        Self(Arc::new(Mutex::new(open)))
    }

    /// For a connection that has served a request over HTTP/1.1.
    pub(super) fn used() -> Self {
        let activity = Self::new();
        activity.open().version = Some(Version::HTTP_11);
        activity
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        sound(self.0.lock())
    }

    /// A request has come, perhaps with a body; it is open until its guard is dropped.
    pub(super) fn begin(&self, version: Version, body: bool) -> RequestGuard {
        let mut open = self.open();
        open.requests += 1;
        open.head_since = None;
        open.rest = body;
        open.version = Some(version);
        drop(open);
        RequestGuard(self.clone())
    }

    /// Whether requests share the connection, by HTTP/2.
    pub(super) fn multiplexed(&self) -> bool {
        self.open().multiplexed()
    }

    /// Something came.
    pub(super) fn reads(&self) {
        let mut open = self.open();
        if open.requests == 0 && !std::mem::take(&mut open.rest) {
            open.head_since.get_or_insert_with(Instant::now);
        }
    }

    /// An answer whose request is over is still on its way.
    pub(super) fn writes(&self) {
        let mut open = self.open();
        open.idle_since = Instant::now();
        // A head that came meanwhile is read after it.
        open.head_since = open.head_since.map(|_| open.idle_since);
    }

    /// When to look at it next; `None` when its time without a request is over. `hurry` when others may want its place.
    pub(super) fn look_again(&self, limits: &Limits, hurry: bool) -> Option<Instant> {
        let now = Instant::now();
        // A head may be begun meanwhile, and places become few.
        let soon = now + limits.header;
        self.until(limits, hurry).map_or(Some(soon), |end| (now < end).then_some(end.min(soon)))
    }

    /// By when there has to be a request; `None` while one is open.
    pub(super) fn until(&self, limits: &Limits, hurry: bool) -> Option<Instant> {
        let open = self.open();
        let idle = if hurry { limits.header.min(limits.connection_idle) } else { limits.connection_idle };
        match *open {
            Open { requests: 1.., .. } => None,
            Open { version: None, idle_since, .. } => Some(idle_since + limits.header),
            // Over HTTP/2 what comes may be about anything.
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

    /// Seconds from now until there has to be a request.
    fn left(activity: &Activity, hurry: bool) -> Option<u64> {
        Some((activity.until(&limits(), hurry)? - Instant::now()).as_secs())
    }

    async fn seconds(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_requests() {
        let activity = Activity::new();
        assert_eq!(left(&activity, false), Some(10), "for its first");
        let (one, two) = (activity.begin(Version::HTTP_11, false), activity.begin(Version::HTTP_11, false));
        seconds(5).await;
        assert_eq!(left(&activity, false), None);
        drop(one);
        assert_eq!(left(&activity, false), None, "there is another");
        drop(two);
        assert_eq!((left(&activity, false), left(&activity, true)), (Some(100), Some(10)));
        seconds(4).await;
        assert_eq!((left(&activity, false), left(&activity, true)), (Some(96), Some(6)));
        let look = |hurry| Some((activity.look_again(&limits(), hurry)? - Instant::now()).as_secs());
        assert_eq!((look(false), look(true)), (Some(10), Some(6)), "a head may come, and others");
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
        assert_eq!(left(&activity, false), Some(6), "the first one has what is left of its own");
        let request = activity.begin(Version::HTTP_11, false);
        activity.reads();
        drop(request);
        assert_eq!(left(&activity, false), Some(100), "what came before was of the request");
        seconds(50).await;
        activity.reads();
        seconds(3).await;
        activity.reads();
        assert_eq!(left(&activity, false), Some(7), "from its first byte");
        activity.writes();
        assert_eq!(left(&activity, false), Some(10), "an answer before it is still on its way");
        drop(activity.begin(Version::HTTP_11, true));
        activity.reads();
        assert_eq!(left(&activity, false), Some(100), "the rest of a body that nobody wanted");
        activity.reads();
        assert_eq!(left(&activity, false), Some(10));
        drop(activity.begin(Version::HTTP_2, false));
        activity.reads();
        assert_eq!(left(&activity, false), Some(100), "a ping is no head");
    }
}
