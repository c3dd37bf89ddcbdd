//! The loop of the bridge: stdin and stdout on one side, the connection to the gateway on the other.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::bridge::{Bridge, Effect, PostError, Settings};
use super::client::{Connection, GatewayClient, RequestError};
use super::editor::{self, Editor, Lines};
use super::path_map::PathMap;
use super::tasks::{Locator, Report, Tasks};
use crate::jsonrpc::RpcError;
use crate::outgoing::{Backoff, Client};
use crate::shutdown::Shutdown;
use crate::translate::ClientProtocol;

/// The maximum number of lines that a reader or writer of stdio holds.
const QUEUE_LINES: usize = 16;
/// The size of lines for an editor that does not read, above which the streams are not read.
const MAX_UNREAD_BYTES: usize = 1 << 20;
/// The time for unsent messages and unwritten lines after the end of stdin.
const END_GRACE: Duration = Duration::from_secs(1);
/// A connection that lasted this long was stable: the next reconnect begins with the shortest delay.
const STABLE: Duration = Duration::from_secs(5);

/// The settings of `attach`.
pub struct Options {
    pub locator: Arc<dyn Locator>,
    pub http: Client,
    /// Ask the gateway to accept the folders of new sessions.
    pub allow_folders: bool,
    /// The command of this process, for terminal methods of sign-ins.
    pub command: Vec<String>,
    /// The existing session that the editor's `session/new` loads instead of creating one.
    pub session: Option<String>,
    pub paths: PathMap,
    /// The protocol of the editor, if it is not ACP.
    pub protocol: Option<Box<dyn ClientProtocol>>,
    /// A name under which the gateway recognizes this process.
    pub client: String,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            allow_folders,
            session,
            paths,
            protocol,
            client,
            ..
        } = self;
        f.debug_struct("Options")
            .field("allow_folders", allow_folders)
            .field("session", session)
            .field("paths", paths)
            .field("protocol", protocol)
            .field("client", client)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    #[error(
        "the gateway rejects this client ({0}): check the key in ACP_GATEWAY_KEY or --key-file, and the URL"
    )]
    Denied(String),
    #[error("could not read stdin")]
    Stdin(#[source] io::Error),
}

/// Serves the editor until `input` ends or `stop` resolves.
pub async fn run(
    options: Options,
    (input, output): (
        impl AsyncRead + Send + Unpin + 'static,
        impl AsyncWrite + Send + Unpin + 'static,
    ),
    stop: impl Future<Output = ()>,
) -> Result<(), AttachError> {
    let Options {
        locator,
        http,
        allow_folders,
        command,
        session,
        paths,
        protocol,
        client,
    } = options;
    let http = GatewayClient::new(http);
    let shutdown = Shutdown::new();
    let (lines, inputs) = mpsc::channel(QUEUE_LINES);
    let reader = BufReader::with_capacity(64 << 10, input);
    drop(shutdown.spawn_client(editor::read(reader, lines)));
    let (output_lines, unwritten) = mpsc::channel(QUEUE_LINES);
    let writer = shutdown.spawn_client(editor::write(output, unwritten));
    let settings = Settings {
        session: session.map(Into::into),
        paths,
        allow_folders,
        sign_in: command,
    };
    let driver = Driver {
        bridge: Bridge::new(settings, client),
        tasks: Tasks::new(http.clone(), locator, shutdown),
        connection: None,
        former: None,
        backoff: Backoff::default(),
        connected_at: None,
        renewal: Renewal::NotNeeded,
        paused: None,
        editor: Editor::new(protocol),
        denied: None,
        last_failure: String::new(),
    };
    driver
        .run(inputs, (output_lines, writer), (http, stop))
        .await
}

/// The replacement of a key that the gateway rejects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Renewal {
    NotNeeded,
    /// The next connection uses another key.
    Requested,
    /// The current connection uses another key. If the gateway rejects it at once, the bridge ends.
    Done,
}

struct Driver {
    bridge: Bridge,
    tasks: Tasks,
    connection: Option<Connection>,
    /// The connection before the current one, which the gateway still has.
    former: Option<Connection>,
    backoff: Backoff,
    connected_at: Option<Instant>,
    renewal: Renewal,
    /// No message is sent until then.
    paused: Option<Instant>,
    editor: Editor,
    /// Why the gateway does not accept this client.
    denied: Option<String>,
    /// The last failure in the log. A failure that repeats is logged once.
    last_failure: String,
}

impl Driver {
    async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Lines>,
        (lines, mut writer): (mpsc::Sender<Bytes>, JoinHandle<io::Result<()>>),
        (http, stop): (GatewayClient, impl Future<Output = ()>),
    ) -> Result<(), AttachError> {
        tokio::pin!(stop);
        let mut ends_at: Option<Instant> = None;
        let mut failure = None;
        loop {
            self.apply_effects();
            self.send_next();
            if (self.denied.is_some() || self.editor.is_ending()) && ends_at.is_none() {
                ends_at = Some(Instant::now() + END_GRACE);
            }
            let is_done = self.editor.is_written() && !self.bridge.has_unsent();
            if ends_at.is_some_and(|end| is_done || end <= Instant::now()) {
                break;
            }
            let may_receive = self.editor.unwritten_bytes() <= MAX_UNREAD_BYTES;
            tokio::select! {
                permit = lines.reserve(), if !self.editor.is_written() => {
                    if let (Ok(permit), Some(line)) = (permit, self.editor.next_line()) {
                        permit.send(line);
                    }
                }
                line = inputs.recv(), if may_receive && ends_at.is_none() => match line {
                    Some(Ok(line)) => {
                        for input in self.editor.received(line) {
                            self.bridge.line(input);
                        }
                    }
                    None => ends_at = Some(Instant::now() + END_GRACE),
                    Some(Err(error)) => {
                        failure = Some(AttachError::Stdin(error));
                        break;
                    }
                },
                report = self.tasks.next(), if may_receive => self.report(report),
                () = wait_until(self.paused) => self.paused = None,
                () = wait_until(ends_at) => {}
                () = &mut stop => break,
                // The editor has closed its end of stdout.
                _ = &mut writer => break,
            }
        }
        self.tasks.end();
        drop(lines);
        let written = async {
            if !writer.is_finished() {
                drop(timeout(END_GRACE, writer).await);
            }
        };
        let deleted = async {
            if let Some(connection) = &self.connection {
                http.delete(connection).await;
            }
        };
        tokio::join!(written, deleted);
        match (failure, self.denied) {
            (Some(failure), _) => Err(failure),
            (None, Some(reason)) => Err(AttachError::Denied(reason)),
            (None, None) => Ok(()),
        }
    }

    fn apply_effects(&mut self) {
        while let Some(effect) = self.bridge.next_effect() {
            match effect {
                Effect::Write(line) => {
                    for input in self.editor.write(line) {
                        self.bridge.line(input);
                    }
                }
                Effect::Connect => self.connect(),
                Effect::OpenStream { session, last } => {
                    if let Some(connection) = &self.connection {
                        self.tasks.open_stream(connection, session, last);
                    }
                }
                Effect::CloseStream(session) => self.tasks.close_stream(&session),
                Effect::Pause => self.paused = Some(Instant::now() + self.backoff.next_delay()),
            }
        }
    }

    fn connect(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.former = Some(connection);
        }
        let lasted = self.connected_at.take().map(|since| since.elapsed());
        let delay = match lasted {
            Some(lasted) if lasted >= STABLE => {
                self.backoff.reset();
                self.backoff.next_delay()
            }
            None if self.last_failure.is_empty() => Duration::ZERO,
            _ => self.backoff.next_delay(),
        };
        let body = self.bridge.initialize_request();
        let renew_key = self.renewal == Renewal::Requested;
        if renew_key {
            self.renewal = Renewal::Done;
        }
        self.tasks.connect(delay, renew_key, body);
    }

    fn send_next(&mut self) {
        if self.paused.is_some() {
            return;
        }
        if let Some(connection) = &self.connection
            && let Some(post) = self.bridge.next_post()
        {
            self.tasks.post(connection, post);
        }
    }

    fn report(&mut self, report: Report) {
        match report {
            Report::Connected(Ok(Ok((connection, result)))) => self.connected(connection, result),
            Report::Connected(Ok(Err(error))) => self.rejected(error),
            Report::Posted(Ok(posted)) => {
                if matches!(posted, Err(PostError::Lost | PostError::Gone)) {
                    self.log_failure("the gateway has ended the connection");
                }
                let is_stable = self
                    .connected_at
                    .is_some_and(|since| since.elapsed() >= STABLE);
                if posted.is_ok() && is_stable {
                    self.backoff.reset();
                }
                self.bridge.posted(posted);
            }
            Report::Opened(session) => self.bridge.opened(&session),
            Report::Received { session, event } => {
                self.bridge
                    .received(session.as_deref(), event.id, &event.data);
            }
            Report::Posted(Err(RequestError::Failed(reason))) => {
                self.log_failure(&reason);
                self.bridge.posted(Err(PostError::Lost));
            }
            Report::Connected(Err(RequestError::Failed(reason)))
            | Report::Ended(RequestError::Failed(reason)) => {
                self.log_failure(&reason);
                self.bridge.lost();
            }
            Report::Connected(Err(RequestError::Denied(reason)))
            | Report::Posted(Err(RequestError::Denied(reason)))
            | Report::Ended(RequestError::Denied(reason)) => {
                self.denied(reason);
            }
        }
    }

    /// The gateway rejects the key. A key that the gateway has created itself is replaced once.
    fn denied(&mut self, reason: String) {
        let is_stable = self
            .connected_at
            .is_some_and(|since| since.elapsed() >= STABLE);
        if self.tasks.renews_keys() && (is_stable || self.renewal == Renewal::NotNeeded) {
            self.log_failure("the gateway rejects its key of this process");
            self.renewal = Renewal::Requested;
            return self.bridge.lost();
        }
        self.bridge
            .denied(&format!("the gateway rejects this client: {reason}"));
        self.denied = Some(reason);
    }

    fn connected(&mut self, connection: Connection, result: Box<RawValue>) {
        if !self.last_failure.is_empty() {
            tracing::info!("connected to the gateway again");
            self.last_failure.clear();
        }
        if let Some(former) = self.former.take() {
            self.tasks.forget(former);
        }
        self.connection = Some(connection);
        self.connected_at = Some(Instant::now());
        self.bridge.connected(Ok(result));
    }

    fn rejected(&mut self, error: RpcError) {
        self.last_failure.clone_from(&error.message);
        self.bridge.connected(Err(error));
    }

    fn log_failure(&mut self, reason: &str) {
        if self.last_failure != reason {
            tracing::warn!(reason, "no connection to the gateway; retrying");
            reason.clone_into(&mut self.last_failure);
        }
    }
}

/// Waits for ever without a time.
async fn wait_until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
