//! The transport to a remote agent over HTTP with Server-Sent Events: a POST for each message of the gateway, a
//! stream for the connection and one for each session (ACP, RFD "streamable HTTP and WebSocket transport").
//!
//! Messages are posted one after another, because the protocol depends on their order. The response to a call is a message
//! on a stream.
//!
//! Read in this order: `routes` (the session of a message), `host` (requests), `streams`, and the loops in this file.
//!
//! Constraints and rejected alternatives:
//!
//! - A POST with an unknown outcome ends the connection, because a second POST could run a prompt twice.
//! - A silent stream is lost only if the host has sent a keep-alive before. The RFD does not require keep-alives.
//! - The transport uses HTTP/1.1, although the RFD requires HTTP/2. The servers of the official SDKs use HTTP/1.1. Each
//!   stream has its own connection, so no stream waits for another.
//! - The named client of `/acp`, as `attach` uses it: other hosts do not support names.

mod host;
mod routes;
mod streams;
#[cfg(test)]
mod tests;

use std::sync::{Arc, MutexGuard, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::value::RawValue;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

pub(in crate::agent) use self::host::Host;
use self::host::RequestFailure;
use self::routes::{Effect, Routes};
use self::streams::{Follower, QUEUED_REPORTS, RESUME_TIMEOUT, Report, Streams};
use super::Channel;
use super::link::{CLOSED, INCOMING_BYTES, LineQueue, Link, RemoteTransport, to_line};
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::QueuedLine;
use outgoing::{Backoff, Event};
use wire::acp::error_code;
use wire::jsonrpc::{self, MAX_DEPTH, Message, RpcError, without_line_end};

/// The time in which the agent can still send messages after the gateway has closed the connection.
const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// The time for queued messages after the gateway has closed the connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Why the host did not open a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::agent) enum StartRejection {
    Status(StatusCode),
    /// The response has no `Acp-Connection-Id`.
    NotAcp,
}

pub(in crate::agent) type StartOutcome = Arc<OnceLock<StartRejection>>;

/// Opens the transport to a host. The first line of the gateway, `initialize`, opens the connection.
pub(in crate::agent) fn open(
    host: Host,
    shutdown: &Shutdown,
) -> (Channel<DuplexStream>, StartOutcome) {
    let (queue, lines) = LineQueue::new();
    let (incoming, output) = tokio::io::duplex(INCOMING_BYTES);
    let link = Arc::new(Link::default());
    let outcome = StartOutcome::default();
    let task = Task {
        host: Arc::new(host),
        link: Arc::clone(&link),
        outcome: outcome.clone(),
        shutdown: shutdown.clone(),
    };
    shutdown.spawn(task.run(lines, output).in_current_span());
    let channel = Channel {
        incoming,
        outgoing: Arc::new(queue),
        transport: Box::new(RemoteTransport(link)),
        offset: None,
        pending: None,
    };
    (channel, outcome)
}

struct Task {
    host: Arc<Host>,
    link: Arc<Link>,
    outcome: StartOutcome,
    shutdown: Shutdown,
}

impl Task {
    async fn run(self, mut lines: mpsc::Receiver<QueuedLine>, mut output: DuplexStream) {
        let opened = tokio::select! {
            opened = self.initialize(&mut lines, &mut output) => opened,
            () = self.link.closing() => Err(CLOSED.to_owned()),
        };
        let (follower, reports) = match opened {
            Ok(opened) => opened,
            Err(reason) => return self.link.end(reason),
        };
        let host = Arc::clone(&self.host);
        let connection = follower.connection.clone();
        let streams = Streams::open(follower, &self.shutdown);
        let closed_late = async {
            self.link.closing().await;
            sleep(CLOSE_TIMEOUT).await;
        };
        let reason = tokio::select! {
            reason = streams.receive(reports, output) => reason,
            reason = streams.send(lines, &self.link) => reason,
            () = closed_late => CLOSED.to_owned(),
        };
        drop(streams);
        if self.link.is_closing() {
            host.delete(&connection).await;
            self.link.end(CLOSED.to_owned());
        } else {
            self.link.end(reason);
            host.delete(&connection).await;
        }
    }

    /// Sends the first line, and passes its response on. Returns the reason of a failure.
    async fn initialize(
        &self,
        lines: &mut mpsc::Receiver<QueuedLine>,
        output: &mut DuplexStream,
    ) -> Result<(Follower, mpsc::Receiver<Report>), String> {
        let line = lines.recv().await.ok_or(CLOSED)?;
        let opened = self.host.initialize(without_line_end(line.bytes())).await;
        let (connection, body) = opened.map_err(|failure| match failure {
            RequestFailure::Status { status, .. } => {
                self.reject(StartRejection::Status(status));
                failure.reason()
            }
            RequestFailure::NotReceived(reason) | RequestFailure::Lost(reason) => reason,
        })?;
        let response = jsonrpc::parse(&body, MAX_DEPTH);
        let is_error = matches!(
            response,
            Ok(Message::Response {
                outcome: Err(_),
                ..
            })
        );
        if connection.is_none() && !is_error {
            self.reject(StartRejection::NotAcp);
            return Err("the response to initialize has no Acp-Connection-Id".to_owned());
        }
        let written = output.write_all(&to_line(&body)).await;
        written.map_err(|_| CLOSED)?;
        let connection = connection.ok_or("the agent rejected the connection")?;
        let (reports, received) = mpsc::channel(QUEUED_REPORTS);
        let follower = Follower {
            host: Arc::clone(&self.host),
            connection,
            routes: Arc::default(),
            reports,
        };
        Ok((follower, received))
    }

    fn reject(&self, rejection: StartRejection) {
        // The first rejection ends the task.
        let _ = self.outcome.set(rejection);
    }
}

impl Streams {
    fn routes(&self) -> MutexGuard<'_, Routes> {
        lock_or_abort(self.follower.routes.lock())
    }

    /// Passes the agent's messages on as lines. Returns the reason of the end.
    async fn receive(
        &self,
        mut reports: mpsc::Receiver<Report>,
        mut output: DuplexStream,
    ) -> String {
        while let Some(report) = reports.recv().await {
            let line = match report {
                Report::Received { session, event } => {
                    self.route(session.as_ref(), &event);
                    to_line(&event.data)
                }
                Report::Rejected(line) => line,
                Report::Ended(reason) => return reason,
            };
            if output.write_all(&line).await.is_err() {
                break;
            }
        }
        CLOSED.to_owned()
    }

    /// Opens and closes streams for a message of the agent. Other readers report an invalid message.
    fn route(&self, session: Option<&Arc<str>>, event: &Event) {
        let Ok(message) = serde_json::from_slice::<&RawValue>(&event.data) else {
            return;
        };
        let effect = self.routes().received(session, event.id.is_some(), message);
        match effect {
            Effect::None => {}
            Effect::Open(session) => drop(self.open_session(&session)),
            Effect::Close(session) => self.close_session(&session),
        }
    }

    /// Posts lines. Returns the reason of the end.
    async fn send(&self, mut queued: mpsc::Receiver<QueuedLine>, link: &Link) -> String {
        let mut is_closing = false;
        loop {
            let next = tokio::select! {
                biased;
                () = link.closing(), if !is_closing => {
                    is_closing = true;
                    queued.close();
                    continue;
                }
                next = queued.recv() => next,
            };
            let Some(next) = next else { break };
            if let Err(reason) = self.post(without_line_end(next.bytes())).await {
                return reason;
            }
            next.delivered();
        }
        if self.routes().has_calls() {
            sleep(CLOSE_GRACE).await;
        }
        CLOSED.to_owned()
    }

    /// Posts a line. A call that the host rejects gets an error. Returns the reason if the connection is lost.
    async fn post(&self, line: Bytes) -> Result<(), String> {
        let Ok(message) = serde_json::from_slice::<&RawValue>(&line) else {
            return Ok(());
        };
        let (session, call) = self.routes().sent(message);
        if let Some(session) = &session {
            self.opened(session).await;
        }
        let follower = &self.follower;
        let deadline = Instant::now() + RESUME_TIMEOUT;
        let mut backoff = Backoff::default();
        let failure = loop {
            let session = session.as_deref();
            let posted = follower
                .host
                .post(&follower.connection, session, line.clone());
            match posted.await {
                Ok(()) => return Ok(()),
                Err(failure) if failure.is_retryable() && Instant::now() < deadline => {
                    sleep(backoff.next_delay()).await;
                }
                Err(failure) => break failure,
            }
        };
        let Some(call) = call else {
            return Err(failure.reason());
        };
        if failure.is_of_connection() {
            return Err(failure.reason());
        }
        self.routes().forget(&call);
        // The connection can have ended.
        let report = Report::Rejected(rejected(&call, &failure));
        let _ = follower.reports.send(report).await;
        Ok(())
    }
}

/// The error response to a call.
fn rejected(call: &str, failure: &RequestFailure) -> Vec<u8> {
    let error = RpcError {
        code: error_code::INTERNAL,
        message: failure.to_string(),
        data: None,
    };
    let id = serde_json::from_str(call).unwrap_or(RawValue::NULL);
    jsonrpc::error(id, &error).to_vec()
}
