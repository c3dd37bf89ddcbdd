//! The tasks of one connection to the gateway. Each reports to the driver.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::bridge::{Post, PostError};
use super::client::{Connection, GatewayClient, RequestError, Target};
use crate::jsonrpc::RpcError;
use crate::outgoing::Event;
use crate::shutdown::Shutdown;

/// The maximum number of messages that wait for the driver.
const QUEUE_MESSAGES: usize = 16;

/// The gateway of the bridge. The methods block.
pub trait Locator: Send + Sync {
    /// Finds the gateway, or returns the reason why there is none now. Called before each connection, because the address
    /// and the key can change. `renew_key`: the gateway has rejected the key of the last call.
    fn locate(&self, renew_key: bool) -> Result<Target, String>;

    /// Whether the gateway creates another key in place of a rejected one.
    fn renews_keys(&self) -> bool;

    /// Asks the gateway to accept folders of the editor.
    fn allow(&self, folders: &[String]) -> Result<(), AllowError>;
}

/// Why the gateway does not accept a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowError {
    Rejected(String),
    /// Another attempt can succeed.
    Failed(String),
}

/// The result of a task.
#[derive(Debug)]
pub(super) enum Report {
    Connected(Result<Result<(Connection, Box<RawValue>), RpcError>, RequestError>),
    Posted(Result<Result<(), PostError>, RequestError>),
    /// The stream of a session is open.
    Opened(Box<str>),
    Received {
        session: Option<Box<str>>,
        event: Event,
    },
    /// A stream has ended, or could not be opened.
    Ended(RequestError),
}

/// Starts tasks for the current connection, and receives their reports. The reports of earlier connections are dropped.
pub(super) struct Tasks {
    client: GatewayClient,
    locator: Arc<dyn Locator>,
    shutdown: Shutdown,
    /// Counts the connections.
    generation: u64,
    sender: mpsc::Sender<(u64, Report)>,
    reports: mpsc::Receiver<(u64, Report)>,
    running: Vec<AbortHandle>,
    streams: HashMap<Box<str>, AbortHandle>,
}

/// Sends the reports of a task.
#[derive(Debug, Clone)]
struct Reporter {
    generation: u64,
    sender: mpsc::Sender<(u64, Report)>,
}

impl Reporter {
    async fn send(&self, report: Report) {
        // The driver has ended.
        drop(self.sender.send((self.generation, report)).await);
    }
}

impl Tasks {
    pub(super) fn new(
        client: GatewayClient,
        locator: Arc<dyn Locator>,
        shutdown: Shutdown,
    ) -> Self {
        let (sender, reports) = mpsc::channel(QUEUE_MESSAGES);
        Self {
            client,
            locator,
            shutdown,
            generation: 0,
            sender,
            reports,
            running: Vec::new(),
            streams: HashMap::new(),
        }
    }

    /// The next report of the current connection.
    pub(super) async fn next(&mut self) -> Report {
        loop {
            match self.reports.recv().await {
                Some((generation, report)) if generation == self.generation => return report,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Ends all tasks of the current connection.
    pub(super) fn end(&mut self) {
        self.generation += 1;
        let streams = std::mem::take(&mut self.streams).into_values();
        for task in self.running.drain(..).chain(streams) {
            task.abort();
        }
    }

    fn spawn<F>(&mut self, task: impl FnOnce(GatewayClient, Reporter) -> F) -> AbortHandle
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let reporter = Reporter {
            generation: self.generation,
            sender: self.sender.clone(),
        };
        self.shutdown
            .spawn_client(task(self.client.clone(), reporter))
            .abort_handle()
    }

    pub(super) fn renews_keys(&self) -> bool {
        self.locator.renews_keys()
    }

    /// Ends the current connection, and opens another one after `delay`.
    pub(super) fn connect(&mut self, delay: Duration, renew_key: bool, body: Bytes) {
        self.end();
        let (locator, shutdown) = (Arc::clone(&self.locator), self.shutdown.clone());
        let task = self.spawn(|client, reporter| async move {
            tokio::time::sleep(delay).await;
            let located = shutdown
                .spawn_blocking(move || locator.locate(renew_key))
                .await;
            let connected = match located.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(target) => client.initialize(target, body).await,
                Err(reason) => Err(RequestError::Failed(reason)),
            };
            reporter.send(Report::Connected(connected)).await;
        });
        self.running.push(task);
    }

    pub(super) fn post(&mut self, connection: &Connection, post: Post) {
        let connection = connection.clone();
        let (locator, shutdown) = (Arc::clone(&self.locator), self.shutdown.clone());
        let task = self.spawn(|client, reporter| async move {
            let folders = post.folders.clone();
            let allowed = if folders.is_empty() {
                Ok(())
            } else {
                let allowed = shutdown
                    .spawn_blocking(move || locator.allow(&folders))
                    .await;
                allowed.unwrap_or_else(|error| Err(AllowError::Failed(error.to_string())))
            };
            let posted = match allowed {
                Ok(()) => client.post(&connection, post).await,
                Err(AllowError::Rejected(reason)) => Ok(Err(PostError::InvalidFolder(reason))),
                Err(AllowError::Failed(reason)) => Err(RequestError::Failed(reason)),
            };
            reporter.send(Report::Posted(posted)).await;
        });
        self.running.retain(|task| !task.is_finished());
        self.running.push(task);
    }

    pub(super) fn open_stream(
        &mut self,
        connection: &Connection,
        session: Option<Box<str>>,
        last: Option<String>,
    ) {
        let (connection, of) = (connection.clone(), session.clone());
        let task = self.spawn(|client, reporter| async move {
            let ended = follow(&client, &connection, (of, last), &reporter).await;
            reporter.send(Report::Ended(ended)).await;
        });
        match session {
            Some(session) => {
                if let Some(former) = self.streams.insert(session, task) {
                    former.abort();
                }
            }
            None => self.running.push(task),
        }
    }

    pub(super) fn close_stream(&mut self, session: &str) {
        if let Some(task) = self.streams.remove(session) {
            task.abort();
        }
    }

    /// Ends a connection at the gateway, beside other requests.
    pub(super) fn forget(&mut self, connection: Connection) {
        // The task ends within the timeout of the request.
        drop(self.spawn(|client, _| async move { client.delete(&connection).await }));
    }
}

/// Reads a stream until it ends. A full queue of reports stops the reads, and thus the gateway.
async fn follow(
    client: &GatewayClient,
    connection: &Connection,
    (session, last): (Option<Box<str>>, Option<String>),
    reporter: &Reporter,
) -> RequestError {
    let mut stream = match client
        .stream(connection, session.as_deref(), last.as_deref())
        .await
    {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    if let Some(session) = &session {
        reporter.send(Report::Opened(session.clone())).await;
    }
    loop {
        match stream.next().await {
            Ok(event) => {
                reporter
                    .send(Report::Received {
                        session: session.clone(),
                        event,
                    })
                    .await;
            }
            Err(end) => return RequestError::Failed(end.to_string()),
        }
    }
}
