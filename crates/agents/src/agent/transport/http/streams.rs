//! The streams of a connection. A stream whose messages have ids is resumed after a cut.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::host::{Host, RequestFailure};
use super::routes::Routes;
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::text::strip_controls;
use outgoing::{Backoff, Event, EventStream, StreamEnd};

/// The time for attempts to open or to resume a stream. Then the connection is lost.
pub(super) const RESUME_TIMEOUT: Duration = Duration::from_secs(30);
/// A stream that lasted this long was stable: the next attempt begins with the shortest delay.
const STABLE: Duration = Duration::from_secs(5);
/// The maximum number of session streams. The least recently used one without an open call is closed.
const MAX_SESSION_STREAMS: usize = 32;
/// The maximum number of messages that wait for the reader of the connection.
pub(super) const QUEUED_REPORTS: usize = 4;

#[derive(Debug)]
pub(super) enum Report {
    /// A message of the agent on the stream of a session or of the connection.
    Received {
        session: Option<Arc<str>>,
        event: Event,
    },
    /// The error response to a call that the host rejected.
    Rejected(Vec<u8>),
    /// A stream is lost, and the connection with it.
    Ended(String),
}

/// The open streams. Dropping the value ends them.
#[derive(Debug)]
pub(super) struct Streams {
    pub(super) follower: Follower,
    shutdown: Shutdown,
    connection: AbortHandle,
    /// The least recently used one first.
    sessions: Mutex<Vec<SessionStream>>,
}

#[derive(Debug)]
struct SessionStream {
    session: Arc<str>,
    task: AbortHandle,
    is_open: watch::Receiver<bool>,
}

#[derive(Debug, Clone)]
pub(super) struct Follower {
    pub(super) host: Arc<Host>,
    pub(super) connection: HeaderValue,
    pub(super) routes: Arc<Mutex<Routes>>,
    pub(super) reports: mpsc::Sender<Report>,
}

#[derive(Debug, Default)]
struct Position {
    has_received: bool,
    /// The id of the last message. `None` if it had none.
    last: Option<HeaderValue>,
}

impl Streams {
    pub(super) fn open(follower: Follower, shutdown: &Shutdown) -> Self {
        let connection = spawn(&follower, shutdown, None).0;
        Self {
            follower,
            shutdown: shutdown.clone(),
            connection,
            sessions: Mutex::default(),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Vec<SessionStream>> {
        lock_or_abort(self.sessions.lock())
    }

    /// Opens the stream of a session, if it is not open. Returns when the host has opened it, or when it has ended.
    pub(super) async fn opened(&self, session: &Arc<str>) {
        let mut is_open = self.open_session(session);
        // The end of a stream is reported. Then the connection ends.
        let _ = is_open.wait_for(|is_open| *is_open).await;
    }

    pub(super) fn open_session(&self, session: &Arc<str>) -> watch::Receiver<bool> {
        let mut sessions = self.sessions();
        let mut streams = sessions.iter();
        let known = streams.position(|stream| stream.session == *session);
        let stream = if let Some(index) = known {
            sessions.remove(index)
        } else {
            let (task, is_open) = spawn(&self.follower, &self.shutdown, Some(Arc::clone(session)));
            SessionStream {
                session: Arc::clone(session),
                task,
                is_open,
            }
        };
        let is_open = stream.is_open.clone();
        sessions.push(stream);
        if sessions.len() > MAX_SESSION_STREAMS {
            let routes = lock_or_abort(self.follower.routes.lock());
            // The last one is the requested stream.
            let mut others = sessions[..MAX_SESSION_STREAMS].iter();
            let unused = others.position(|stream| !routes.is_in_use(&stream.session));
            sessions.remove(unused.unwrap_or_default()).task.abort();
        }
        is_open
    }

    pub(super) fn close_session(&self, session: &str) {
        self.sessions().retain(|stream| {
            let is_kept = *stream.session != *session;
            if !is_kept {
                stream.task.abort();
            }
            is_kept
        });
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.connection.abort();
        for stream in self.sessions().drain(..) {
            stream.task.abort();
        }
    }
}

fn spawn(
    follower: &Follower,
    shutdown: &Shutdown,
    session: Option<Arc<str>>,
) -> (AbortHandle, watch::Receiver<bool>) {
    let (opened, is_open) = watch::channel(false);
    let follower = follower.clone();
    let follow = async move {
        let reason = follower.follow(session.as_ref(), &opened).await;
        // The connection can have ended.
        let _ = follower.reports.send(Report::Ended(reason)).await;
    };
    let task = shutdown.spawn(follow.in_current_span());
    (task.abort_handle(), is_open)
}

impl Follower {
    /// Reads a stream, and opens it again after a cut. Returns the reason of its end.
    async fn follow(&self, session: Option<&Arc<str>>, opened: &watch::Sender<bool>) -> String {
        let mut position = Position::default();
        let mut backoff = Backoff::default();
        let mut closed_since = Instant::now();
        let name = session.map(|session| &**session);
        loop {
            let last = position.last.clone();
            match self.host.stream(&self.connection, name, last).await {
                Ok(stream) => {
                    opened.send_replace(true);
                    let opened_at = Instant::now();
                    let (end, received) = self.read(stream, session, &mut position).await;
                    if !self.can_resume(session, &position) || matches!(end, StreamEnd::TooLarge(_))
                    {
                        return reason(&end);
                    }
                    tracing::debug!(reason = %end, session = name, "resuming a stream of an agent");
                    if received || opened_at.elapsed() >= STABLE {
                        closed_since = Instant::now();
                        backoff.reset();
                    }
                }
                Err(failure) => {
                    if !is_retryable(&failure) || closed_since.elapsed() >= RESUME_TIMEOUT {
                        return failure.reason();
                    }
                }
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// Reads an open stream to its end. Returns whether it had a message.
    async fn read(
        &self,
        mut stream: EventStream,
        session: Option<&Arc<str>>,
        position: &mut Position,
    ) -> (StreamEnd, bool) {
        let mut received = false;
        loop {
            let event = match stream.next().await {
                Ok(event) => event,
                Err(end) => return (end, received),
            };
            received = true;
            position.has_received = true;
            let id = event.id.as_deref().filter(|id| !id.is_empty());
            position.last = id.and_then(|id| HeaderValue::try_from(id).ok());
            // The connection can have ended.
            let session = session.cloned();
            let _ = self.reports.send(Report::Received { session, event }).await;
        }
    }

    /// Whether the host can continue a stream behind its last message. Before the first message of a stream, the position is
    /// unknown, so only a stream without a possible message can be opened again.
    fn can_resume(&self, session: Option<&Arc<str>>, position: &Position) -> bool {
        let is_idle = || {
            let routes = lock_or_abort(self.routes.lock());
            !position.has_received && session.is_none() && routes.is_connection_stream_idle()
        };
        position.last.is_some() || is_idle()
    }
}

/// Whether another attempt to open a stream can succeed. An attempt never repeats a message.
fn is_retryable(failure: &RequestFailure) -> bool {
    match failure {
        RequestFailure::NotReceived(_) | RequestFailure::Lost(_) => true,
        RequestFailure::Status { status, .. } => {
            // 409: the host has not noticed the end of the previous stream.
            status.is_server_error()
                || [StatusCode::CONFLICT, StatusCode::TOO_MANY_REQUESTS].contains(status)
        }
    }
}

fn reason(end: &StreamEnd) -> String {
    match end {
        StreamEnd::Closed => "the agent ended a stream".to_owned(),
        StreamEnd::TooLarge(_) => "a message of the agent exceeds max_line_bytes".to_owned(),
        StreamEnd::Silent(_) | StreamEnd::Lost(_) => strip_controls(&end.to_string()).into_owned(),
    }
}
