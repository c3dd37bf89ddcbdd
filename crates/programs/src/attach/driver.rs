//! The loop of the bridge: stdin and stdout on one side, the connection to the gateway on the other.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until, timeout};

use super::bridge::{Bridge, Effect, Post, PostError, Settings};
use super::client::{Connection, RequestError, Target, initialize};
use super::path_map::PathMap;
use crate::stdio::{self, Lines, MAX_LINE_BYTES, Unwritten};
use crate::translate::{ClientProtocol, Translated, receive};
use base::shutdown::Shutdown;
use outgoing::{Backoff, Client, Event};
use wire::jsonrpc::RpcError;

const QUEUE_LINES: usize = 16;
/// The time for unsent messages and unwritten lines after the end of stdin.
const END_GRACE: Duration = Duration::from_secs(1);
/// A connection that lasted this long was stable: the next reconnect begins with the shortest delay.
const STABLE: Duration = Duration::from_secs(5);

pub struct Options {
    pub locator: Arc<dyn Locator>,
    pub http: Client,
    pub allow_folders: bool,
    /// The command of this process, for terminal methods of sign-ins.
    pub command: Vec<String>,
    /// The existing session that the editor's `session/new` loads instead of creating one.
    pub session: Option<String>,
    pub paths: PathMap,
    pub protocol: Box<dyn ClientProtocol>,
    /// A name under which the gateway recognizes this process.
    pub client: String,
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
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    stop: impl Future<Output = ()>,
) -> Result<(), AttachError> {
    let shutdown = Shutdown::new();
    let inputs = Lines::read(&shutdown, input, MAX_LINE_BYTES);
    let (output_lines, unwritten) = mpsc::channel(QUEUE_LINES);
    let writer = shutdown.spawn_client(stdio::write(output, unwritten));
    let settings = Settings {
        session: options.session.map(Into::into),
        paths: options.paths,
        allow_folders: options.allow_folders,
        sign_in: options.command,
    };
    let driver = Driver {
        bridge: Bridge::new(settings, options.client),
        tasks: Tasks::new(Arc::new(options.http), options.locator, shutdown),
        connection: None,
        previous: None,
        backoff: Backoff::default(),
        connected_at: None,
        renewal: Renewal::NotNeeded,
        paused: None,
        editor: options.protocol,
        to_editor: Unwritten::default(),
        denied: None,
        last_failure: String::new(),
    };
    driver.run(inputs, output_lines, writer, stop).await
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
    previous: Option<Connection>,
    backoff: Backoff,
    connected_at: Option<Instant>,
    renewal: Renewal,
    /// No message is sent until then.
    paused: Option<Instant>,
    editor: Box<dyn ClientProtocol>,
    to_editor: Unwritten,
    denied: Option<String>,
    /// The last failure in the log. A failure that repeats is logged once.
    last_failure: String,
}

impl Driver {
    async fn run(
        mut self,
        mut inputs: Lines,
        lines: mpsc::Sender<Bytes>,
        mut writer: JoinHandle<io::Result<()>>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), AttachError> {
        tokio::pin!(stop);
        let mut ends_at: Option<Instant> = None;
        let mut failure = None;
        loop {
            self.apply_effects();
            self.send_next();
            if (self.denied.is_some() || self.editor.has_ended()) && ends_at.is_none() {
                ends_at = Some(Instant::now() + END_GRACE);
            }
            let is_done = self.to_editor.lines.is_empty() && !self.bridge.has_unsent();
            if ends_at.is_some_and(|end| is_done || end <= Instant::now()) {
                break;
            }
            let may_receive = self.to_editor.has_room();
            tokio::select! {
                permit = lines.reserve(), if !self.to_editor.lines.is_empty() => {
                    if let (Ok(permit), Some(line)) = (permit, self.to_editor.pop()) {
                        permit.send(line);
                    }
                }
                line = inputs.next(), if may_receive && ends_at.is_none() => match line {
                    Some(Ok(line)) => {
                        let translated = receive(&mut *self.editor, line);
                        self.pass_on(translated);
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
                let _ = timeout(END_GRACE, writer).await;
            }
        };
        let deleted = async {
            if let Some(connection) = &self.connection {
                connection.delete().await;
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
                    let translated = self.editor.agent_line(line);
                    self.pass_on(translated);
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

    fn pass_on(&mut self, translated: Translated) {
        for line in translated.to_client {
            self.to_editor.push(line);
        }
        for message in translated.to_agent {
            self.bridge.message(message);
        }
    }

    fn connect(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.previous = Some(connection);
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
            Report::Connected(Ok((connection, result))) => self.connected(connection, result),
            Report::Connected(Err(error)) => {
                self.last_failure.clone_from(&error.message);
                self.bridge.connected(Err(error));
            }
            Report::Posted(Ok(posted)) => {
                if matches!(posted, Err(PostError::Lost | PostError::Gone)) {
                    self.log_failure("the gateway has ended the connection");
                }
                if posted.is_ok() && self.is_stable() {
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
            Report::Ended(RequestError::Failed(reason)) => {
                self.log_failure(&reason);
                self.bridge.lost();
            }
            Report::Posted(Err(RequestError::Denied(reason)))
            | Report::Ended(RequestError::Denied(reason)) => self.denied(reason),
        }
    }

    fn is_stable(&self) -> bool {
        self.connected_at
            .is_some_and(|since| since.elapsed() >= STABLE)
    }

    fn denied(&mut self, reason: String) {
        let may_renew = self.is_stable() || self.renewal == Renewal::NotNeeded;
        if self.tasks.locator.renews_keys() && may_renew {
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
        if let Some(previous) = self.previous.take() {
            self.tasks.forget(previous);
        }
        self.connection = Some(connection);
        self.connected_at = Some(Instant::now());
        self.bridge.connected(Ok(result));
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

const QUEUE_MESSAGES: usize = 16;

/// The gateway of the bridge. The methods block.
pub trait Locator: Send + Sync {
    /// Finds the gateway, or returns the reason why there is none now. Called before each connection, because the address
    /// and the key can change. `renew_key`: the gateway has rejected the key of the last call.
    fn locate(&self, renew_key: bool) -> Result<Target, String>;

    /// Whether the gateway creates another key in place of a rejected one.
    fn renews_keys(&self) -> bool;

    fn allow(&self, folders: &[String]) -> Result<(), AllowError>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowError {
    Rejected(String),
    /// Another attempt can succeed.
    Failed(String),
}

#[derive(Debug)]
enum Report {
    Connected(Result<(Connection, Box<RawValue>), RpcError>),
    Posted(Result<Result<(), PostError>, RequestError>),
    Opened(Box<str>),
    Received {
        session: Option<Box<str>>,
        event: Event,
    },
    /// There is no connection, or a stream of it has ended.
    Ended(RequestError),
}

/// Starts tasks for the current connection, and receives their reports. The reports of earlier connections are dropped.
struct Tasks {
    http: Arc<Client>,
    locator: Arc<dyn Locator>,
    shutdown: Shutdown,
    reporter: mpsc::Sender<Report>,
    reports: mpsc::Receiver<Report>,
    running: Vec<AbortHandle>,
    streams: HashMap<Box<str>, AbortHandle>,
}

impl Tasks {
    fn new(http: Arc<Client>, locator: Arc<dyn Locator>, shutdown: Shutdown) -> Self {
        let (reporter, reports) = mpsc::channel(QUEUE_MESSAGES);
        Self {
            http,
            locator,
            shutdown,
            reporter,
            reports,
            running: Vec::new(),
            streams: HashMap::new(),
        }
    }

    async fn next(&mut self) -> Report {
        match self.reports.recv().await {
            Some(report) => report,
            None => std::future::pending().await,
        }
    }

    fn end(&mut self) {
        (self.reporter, self.reports) = mpsc::channel(QUEUE_MESSAGES);
        let streams = std::mem::take(&mut self.streams).into_values();
        for task in self.running.drain(..).chain(streams) {
            task.abort();
        }
    }

    /// Spawns a task, which reports to the driver until the connection ends.
    fn spawn<F>(&mut self, task: impl FnOnce(mpsc::Sender<Report>) -> F) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = task(self.reporter.clone());
        self.shutdown.spawn_client(task).abort_handle()
    }

    /// Ends the current connection, and opens another one after `delay`.
    fn connect(&mut self, delay: Duration, renew_key: bool, body: Bytes) {
        self.end();
        let locator = Arc::clone(&self.locator);
        let shutdown = self.shutdown.clone();
        let http = Arc::clone(&self.http);
        let task = self.spawn(|reporter| async move {
            tokio::time::sleep(delay).await;
            let locate = move || locator.locate(renew_key);
            let located = shutdown.spawn_blocking(locate).await;
            let connected = match located.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(target) => initialize(http, target, body).await,
                Err(reason) => Err(RequestError::Failed(reason)),
            };
            let report = connected.map_or_else(Report::Ended, Report::Connected);
            let _ = reporter.send(report).await;
        });
        self.running.push(task);
    }

    fn post(&mut self, connection: &Connection, post: Post) {
        let connection = connection.clone();
        let locator = Arc::clone(&self.locator);
        let shutdown = self.shutdown.clone();
        let task = self.spawn(|reporter| async move {
            let folders = post.folders.clone();
            let mut allowed = Ok(());
            if !folders.is_empty() {
                let allow = move || locator.allow(&folders);
                let asked = shutdown.spawn_blocking(allow).await;
                allowed = asked.unwrap_or_else(|error| Err(AllowError::Failed(error.to_string())));
            }
            let posted = match allowed {
                Ok(()) => connection.post(post).await,
                Err(AllowError::Rejected(reason)) => Ok(Err(PostError::InvalidFolder(reason))),
                Err(AllowError::Failed(reason)) => Err(RequestError::Failed(reason)),
            };
            let _ = reporter.send(Report::Posted(posted)).await;
        });
        self.running.retain(|task| !task.is_finished());
        self.running.push(task);
    }

    fn open_stream(
        &mut self,
        connection: &Connection,
        session: Option<Box<str>>,
        last: Option<String>,
    ) {
        let connection = connection.clone();
        let of = session.clone();
        let task = self.spawn(|reporter| async move {
            let ended = follow(&connection, of, last, &reporter).await;
            let _ = reporter.send(Report::Ended(ended)).await;
        });
        match session {
            Some(session) => {
                if let Some(previous) = self.streams.insert(session, task) {
                    previous.abort();
                }
            }
            None => self.running.push(task),
        }
    }

    fn close_stream(&mut self, session: &str) {
        if let Some(task) = self.streams.remove(session) {
            task.abort();
        }
    }

    fn forget(&mut self, connection: Connection) {
        // The task ends within the timeout of the request.
        self.spawn(|_| async move { connection.delete().await });
    }
}

/// Reads a stream until it ends. A full queue of reports stops the reads, and thus the gateway.
async fn follow(
    connection: &Connection,
    session: Option<Box<str>>,
    last: Option<String>,
    reporter: &mpsc::Sender<Report>,
) -> RequestError {
    let opened = connection.stream(session.as_deref(), last.as_deref());
    let mut stream = match opened.await {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    if let Some(session) = &session {
        let _ = reporter.send(Report::Opened(session.clone())).await;
    }
    loop {
        match stream.next().await {
            Ok(event) => {
                let session = session.clone();
                let _ = reporter.send(Report::Received { session, event }).await;
            }
            Err(end) => return RequestError::Failed(end.to_string()),
        }
    }
}
