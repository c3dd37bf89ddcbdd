//! The ACP clients that provide client tools: files and terminals for the agent.
//!
//! The client that starts a turn serves them until the next turn begins. A terminal stays at the client that runs its
//! command. After a client has disconnected, the agent's policy applies. This part decides; it does no I/O.
//!
//! `off` in the agent's entry or in the session rejects each request, even if a client offers the method. `initialize`
//! offers the methods to the agent, and the offer does not depend on clients. Therefore, clients can share a process.
//!
//! After a disconnect, the policy serves an open request for a file again. A repeated write has the same content. An
//! open request for a terminal fails instead, because its command may have started.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use tokio::sync::watch;
use tokio::time::Instant;

use base::types::RequestId;
use wire::acp::RequestKind;

type BoxedWait = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Connected,
    /// The client has disconnected. It still counts as connected until this time, because it may return.
    Until(Instant),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientTools {
    /// `fs/read_text_file`.
    pub read: bool,
    /// `fs/write_text_file`.
    pub write: bool,
    /// `terminal/*`.
    pub terminals: bool,
}

/// A client of `/acp` that serves files or terminals during the turns that it starts.
#[derive(Debug, Clone)]
pub struct ToolClient {
    pub name: Box<str>,
    pub serves: ClientTools,
    /// Whether the agent gets only the files in the folders of its session. A client on the machine of the gateway can access
    /// files that isolation hides from the agent.
    pub only_session_folders: bool,
    pub presence: watch::Receiver<Presence>,
}

impl ToolClient {
    fn serves(&self, kind: RequestKind) -> bool {
        match kind {
            RequestKind::ReadFile => self.serves.read,
            RequestKind::WriteFile => self.serves.write,
            RequestKind::CreateTerminal => self.serves.terminals,
            _ => false,
        }
    }

    fn is_connected(&self, now: Instant) -> bool {
        !self.presence.borrow().has_ended(now)
    }
}

impl Presence {
    pub fn has_ended(self, now: Instant) -> bool {
        matches!(self, Self::Until(end) if end <= now)
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Route {
    Policy,
    Client(Arc<ToolClient>),
    /// No side: the client that runs the terminal has disconnected.
    Disconnected,
}

#[derive(Default)]
pub(crate) struct ToolClients {
    /// The client that started the latest turn, if it serves anything.
    current: Option<Arc<ToolClient>>,
    /// The open requests that one client must answer.
    offered: BTreeMap<RequestId, Offered>,
    /// The terminals that clients run and that the agent has not released.
    terminals: BTreeMap<String, Arc<ToolClient>>,
}

struct Offered {
    client: Arc<ToolClient>,
    /// The presence of the client that the deadline depends on.
    seen: Presence,
}

impl ToolClients {
    pub(crate) fn turn_began(&mut self, client: Option<Arc<ToolClient>>) {
        self.current = client;
    }

    /// The session released its process, which knows the terminals. The turn can continue on another process.
    pub(crate) fn process_released(&mut self) {
        self.terminals.clear();
    }

    /// The side that serves a request. `terminal`: the terminal that the params name.
    pub(crate) fn route(&self, kind: RequestKind, terminal: Option<&str>, now: Instant) -> Route {
        if let Some(client) = terminal.and_then(|id| self.terminals.get(id)) {
            let connected = client.is_connected(now);
            return if connected {
                Route::Client(Arc::clone(client))
            } else {
                Route::Disconnected
            };
        }
        let client = self
            .current
            .as_ref()
            .filter(|client| client.serves(kind) && client.is_connected(now));
        client.map_or(Route::Policy, |client| Route::Client(Arc::clone(client)))
    }

    pub(crate) fn terminal_count(&self) -> usize {
        self.terminals.len()
    }

    pub(crate) fn offered(&mut self, id: RequestId, client: Arc<ToolClient>) {
        let seen = *client.presence.borrow();
        self.offered.insert(id, Offered { client, seen });
    }

    /// A request was resolved. Returns the client that had to answer it.
    pub(crate) fn resolved(&mut self, id: RequestId) -> Option<Arc<ToolClient>> {
        self.offered.remove(&id).map(|offered| offered.client)
    }

    /// A client runs a new terminal. Returns false if an open terminal has the same id.
    pub(crate) fn terminal_created(&mut self, id: String, client: Arc<ToolClient>) -> bool {
        let is_new = !self.terminals.contains_key(&id);
        if is_new {
            self.terminals.insert(id, client);
        }
        is_new
    }

    pub(crate) fn has_terminal(&self, id: &str) -> bool {
        self.terminals.contains_key(id)
    }

    pub(crate) fn terminal_released(&mut self, id: &str) {
        self.terminals.remove(id);
    }

    pub(crate) fn note_presence(&mut self) {
        for offered in self.offered.values_mut() {
            offered.seen = *offered.client.presence.borrow();
        }
    }

    /// Resolves after a client that must answer has disconnected or returned. Never resolves without such a client.
    pub(crate) fn presence_changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let wait = |offered: &Offered| -> BoxedWait {
            let mut presence = offered.client.presence.clone();
            let seen = offered.seen;
            Box::pin(async move {
                // A closed channel keeps its last state.
                if presence.wait_for(|now| *now != seen).await.is_err() {
                    std::future::pending::<()>().await;
                }
            })
        };
        let mut waits: Vec<_> = self.offered.values().map(wait).collect();
        poll_fn(move |context| {
            let changed = waits
                .iter_mut()
                .any(|wait| wait.as_mut().poll(context).is_ready());
            if changed {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }

    /// When the next client that must answer counts as disconnected.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let ends = self
            .offered
            .values()
            .filter_map(|offered| match offered.seen {
                Presence::Connected => None,
                Presence::Until(end) => Some(end),
            });
        ends.min()
    }

    /// The next open request whose client has disconnected. Call it until it returns `None`, and resolve each request.
    pub(crate) fn disconnected(&self, now: Instant) -> Option<RequestId> {
        self.offered
            .iter()
            .find(|(_, offered)| offered.seen.has_ended(now))
            .map(|(id, _)| *id)
    }
}
