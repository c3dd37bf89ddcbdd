//! A connection of a client and the sessions that it follows, the open connections, and whether a client can be reached.
//!
//! A connection belongs to one user and one agent. Sessions and turns continue after the end of a connection.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::{Client, ClientInfo, Role};
use super::session_view::{Outbox, OutboxFull, Place, SessionView};
use crate::surface::http;
use base::shutdown::lock_or_abort;
use base::types::{
    AgentName, KeyedCounts, KeyedGuard, Principal, PromptId, Scope, SessionId, Tenant, UserId,
};
use sessions::session::{ClientTools, Presence, ToolClient};

/// The maximum number of prompts whose ids are remembered for `$/cancel_request` and `session/cancel`.
const MAX_PROMPTS: usize = 256;
/// The maximum number of calls that run at the same time.
const MAX_CALLS: usize = 64;
pub(super) const MAX_SESSIONS: usize = 1024;
/// The maximum number of sessions whose stream is open before a request has named them.
const MAX_UNCONFIRMED: usize = 16;

/// The limit that prevents a connection from following another session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooManySessions {
    #[error("this connection follows too many sessions (limit {MAX_SESSIONS})")]
    Followed,
    #[error("too many streams of sessions that no request has named (limit {MAX_UNCONFIRMED})")]
    Unconfirmed,
}

type Result<T, E = TooManySessions> = std::result::Result<T, E>;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: Box<str>,
    pub(super) client: Client,
    principal: UserId,
    pub(super) agent: AgentName,
    /// The responses that belong to no session.
    pub(super) responses: Outbox,
    views: Mutex<HashMap<Box<str>, Arc<SessionView>>>,
    /// Passes each new view to the WebSocket, which delivers all sessions. `None` for HTTP, where each session has its
    /// own streams.
    socket: Option<mpsc::Sender<Arc<SessionView>>>,
    /// The prompts that this connection has sent, oldest first, with their JSON-RPC ids.
    prompts: Mutex<VecDeque<SentPrompt>>,
    /// Calls run concurrently, and do not delay later messages.
    pub(super) calls: Arc<Semaphore>,
    streams: AtomicUsize,
    last_used: Mutex<Instant>,
    presence: PresentConnection,
    /// Counts this connection for its user.
    _counted: KeyedGuard<UserId>,
    closed: CancellationToken,
}

#[derive(Debug, Clone)]
pub(super) struct SentPrompt {
    pub(super) id: Box<RawValue>,
    pub(super) session: SessionId,
    pub(super) prompt: PromptId,
}

#[derive(Debug)]
pub(super) struct OpenStream(Arc<Connection>);

impl OpenStream {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        connection.streams.fetch_add(1, Ordering::AcqRel);
        connection.presence.stream_opened();
        Self(Arc::clone(connection))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.touch();
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
        self.0.presence.stream_closed();
    }
}

/// An open stream of a session. Its end forgets the session if no request has attached it.
#[derive(Debug)]
pub(super) struct OpenSessionStream {
    connection: Arc<Connection>,
    session: String,
    view: Arc<SessionView>,
}

impl OpenSessionStream {
    pub(super) fn new(
        connection: &Arc<Connection>,
        session: String,
        view: &Arc<SessionView>,
    ) -> Self {
        view.streams.fetch_add(1, Ordering::AcqRel);
        Self {
            connection: Arc::clone(connection),
            session,
            view: Arc::clone(view),
        }
    }
}

impl Drop for OpenSessionStream {
    fn drop(&mut self) {
        self.view.streams.fetch_sub(1, Ordering::AcqRel);
        let mut views = self.connection.views();
        let known = views.get(&*self.session);
        if known.is_some_and(|view| !view.is_attached() && !view.has_stream()) {
            views.remove(&*self.session);
        }
    }
}

impl Connection {
    /// `socket` receives each new view of a WebSocket connection.
    pub(super) fn new(
        id: Box<str>,
        client: Client,
        principal: UserId,
        counted: KeyedGuard<UserId>,
        presence: PresentConnection,
        agent: AgentName,
        socket: Option<mpsc::Sender<Arc<SessionView>>>,
    ) -> Self {
        Self {
            id,
            client,
            principal,
            agent,
            responses: Outbox::default(),
            views: Mutex::default(),
            socket,
            prompts: Mutex::default(),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            streams: AtomicUsize::new(0),
            last_used: Mutex::new(Instant::now()),
            presence,
            _counted: counted,
            closed: CancellationToken::new(),
        }
    }

    fn views(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<SessionView>>> {
        lock_or_abort(self.views.lock())
    }

    pub(super) fn touch(&self) {
        *lock_or_abort(self.last_used.lock()) = Instant::now();
    }

    /// How long no request or stream has used the connection. `None` while a stream is open.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let is_open = self.streams.load(Ordering::Acquire) > 0;
        (!is_open).then(|| now.saturating_duration_since(*lock_or_abort(self.last_used.lock())))
    }

    /// Ends all streams. A client that keeps its name may open another connection.
    pub(super) fn close(&self) {
        self.presence.leave(self.client.keeps_name);
        self.closed.cancel();
    }

    /// The client ends the connection and does not return.
    pub(super) fn leave(&self) {
        self.presence.leave(false);
    }

    /// The client for the turns that it starts. `None` if it serves no files and no terminals, or its key may not.
    pub(super) fn tool_client(&self, by: &Principal) -> Option<ToolClient> {
        let serves = self.client.serves();
        let may_serve = by.scopes.contains(Scope::Files) && serves != ClientTools::default();
        may_serve.then(|| ToolClient {
            name: self.client.name.clone(),
            serves,
            only_session_folders: by.is_local,
            presence: self.presence.state(),
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    pub(super) async fn wait_closed(&self) {
        self.closed.cancelled().await;
    }

    pub(super) fn view(&self, session: &str) -> Option<Arc<SessionView>> {
        self.views().get(session).cloned()
    }

    pub(super) fn attached_view(&self, session: &str) -> Option<Arc<SessionView>> {
        self.view(session).filter(|view| view.is_attached())
    }

    /// The client as an object of `connectedClients`. `None` if it does not follow the session.
    pub(super) fn as_peer(&self, session: &str) -> Option<serde_json::Value> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Peer<'a> {
            client_id: &'a str,
            #[serde(flatten)]
            info: Option<&'a ClientInfo>,
            role: Role,
        }
        let participant = self.attached_view(session)?.participant();
        serde_json::to_value(Peer {
            client_id: &self.client.name,
            info: participant.info.as_ref().or(self.client.info.as_ref()),
            role: participant.role,
        })
        .ok()
    }

    pub(super) fn view_for_request(&self, session: &str) -> Result<Arc<SessionView>> {
        self.view_or_insert(session, MAX_SESSIONS, TooManySessions::Followed)
    }

    /// The view of a session whose stream a client opens. Clients may open it before the request for the session.
    pub(super) fn view_for_stream(&self, session: &str) -> Result<Arc<SessionView>> {
        let is_unconfirmed = |view: &&Arc<SessionView>| !view.is_attached();
        let unconfirmed = self.views().values().filter(is_unconfirmed).count();
        let room = if unconfirmed < MAX_UNCONFIRMED {
            MAX_SESSIONS
        } else {
            0
        };
        self.view_or_insert(session, room, TooManySessions::Unconfirmed)
    }

    pub(super) fn check_room(&self) -> Result<()> {
        if self.views().len() < MAX_SESSIONS {
            Ok(())
        } else {
            Err(TooManySessions::Followed)
        }
    }

    pub(super) fn remove_view(&self, session: &str) {
        self.views().remove(session);
    }

    fn view_or_insert(
        &self,
        session: &str,
        room: usize,
        error: TooManySessions,
    ) -> Result<Arc<SessionView>> {
        let mut views = self.views();
        if let Some(view) = views.get(session) {
            return Ok(Arc::clone(view));
        }
        if views.len() >= room {
            return Err(error);
        }
        let view = Arc::new(SessionView::new(self.socket.is_some()));
        views.insert(session.into(), Arc::clone(&view));
        drop(views);
        if let Some(socket) = &self.socket {
            // There is room for all sessions. The socket may be closed already.
            let _ = socket.try_send(Arc::clone(&view));
        }
        Ok(view)
    }

    /// Delivers a response: on the session's stream, if the session has an open one, otherwise on the connection's stream.
    /// On the session's stream, the response is delivered after the place `follows`.
    pub(super) fn respond(&self, session: Option<&SessionView>, follows: Place, message: Bytes) {
        let pushed = match session.filter(|view| view.has_stream()) {
            Some(view) => view.responses.push(follows, message),
            None => self.responses.push(Place::default(), message),
        };
        if let Err(error @ OutboxFull) = pushed {
            tracing::warn!(connection = %self.id, %error, "closed a connection of an ACP client");
            self.close();
        }
    }

    pub(super) fn remember_prompt(&self, sent: SentPrompt) {
        let mut prompts = lock_or_abort(self.prompts.lock());
        if prompts.len() >= MAX_PROMPTS {
            prompts.pop_front();
        }
        prompts.push_back(sent);
    }

    pub(super) fn sent_prompt(&self, id: &RawValue) -> Option<SentPrompt> {
        let prompts = lock_or_abort(self.prompts.lock());
        let mut newest_first = prompts.iter().rev();
        let sent = newest_first.find(|sent| sent.id.get() == id.get());
        sent.cloned()
    }

    pub(super) fn prompts_of(&self, session: SessionId) -> Vec<PromptId> {
        let prompts = lock_or_abort(self.prompts.lock());
        let own = prompts.iter().filter(|sent| sent.session == session);
        own.map(|sent| sent.prompt).collect()
    }
}

/// The maximum number of connections of a user.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// The time without a request and without an open stream after which a connection is removed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// The lock that a request holds while it starts an agent.
type StartLock = Arc<tokio::sync::Mutex<()>>;

/// The state of the surface: that of all surfaces, and the open connections.
#[derive(Clone, derive_more::Debug, derive_more::Deref)]
#[debug("AcpState")]
pub(super) struct AcpState {
    #[deref]
    pub(super) shared: http::AppState,
    pub(super) connections: Arc<Connections>,
}

/// The open connections by id. A connection is invisible to other users.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Mutex<HashMap<Box<str>, Arc<Connection>>>,
    counts: KeyedCounts<UserId>,
    /// The presence of clients that keep their names, by name.
    named: Mutex<HashMap<Box<str>, Weak<ClientPresence>>>,
    /// Only one request starts an agent to learn its capabilities. Others wait for the result.
    starts: Mutex<HashMap<(Tenant, AgentName), StartLock>>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Connection>>> {
        lock_or_abort(self.open.lock())
    }

    /// Counts a new connection of a user. Removes idle connections. `None` if the user has too many.
    pub(super) fn count(&self, principal: &UserId) -> Option<KeyedGuard<UserId>> {
        let now = Instant::now();
        self.open().retain(|_, connection| {
            let idle = connection.idle_for(now);
            let ends = connection.is_closed() || idle.is_some_and(|idle| idle >= IDLE_TIMEOUT);
            if ends {
                connection.close();
            }
            !ends
        });
        self.counts.acquire(principal.clone(), MAX_CONNECTIONS)
    }

    /// Counts a connection of a client, which may have others with the same name.
    pub(super) fn present(&self, client: &Client) -> PresentConnection {
        if !client.keeps_name {
            return PresentConnection::new(ClientPresence::new());
        }
        let mut named = lock_or_abort(self.named.lock());
        named.retain(|_, presence| presence.strong_count() > 0);
        let known = named.get(&client.name).and_then(Weak::upgrade);
        let known = known.filter(|known| !known.has_ended());
        let presence = known.unwrap_or_else(ClientPresence::new);
        named.insert(client.name.clone(), Arc::downgrade(&presence));
        PresentConnection::new(presence)
    }

    pub(super) fn insert(&self, connection: Arc<Connection>) {
        self.open().insert(connection.id.clone(), connection);
    }

    pub(super) fn find(&self, id: &str, principal: &UserId) -> Option<Arc<Connection>> {
        let found = self.open().get(id).cloned()?;
        if found.principal != *principal || found.is_closed() {
            return None;
        }
        found.touch();
        Some(found)
    }

    /// Removes a connection and ends its streams. Its turns continue.
    pub(super) fn remove(&self, connection: &Connection) {
        self.open().remove(&connection.id);
        connection.close();
    }

    /// The other connections that follow a session, as objects of `connectedClients`. At most `max`.
    pub(super) fn clients_of(
        &self,
        session: SessionId,
        except: &Connection,
        max: usize,
    ) -> Vec<serde_json::Value> {
        let session = session.to_string();
        let open = self.open();
        let is_other = |other: &&Arc<Connection>| other.id != except.id && !other.is_closed();
        let others = open.values().filter(is_other);
        let peers = others.filter_map(|other| other.as_peer(&session));
        peers.take(max).collect()
    }

    /// The lock for the first start of an agent.
    pub(super) fn start_lock(&self, tenant: &Tenant, agent: &AgentName) -> StartLock {
        let mut starts = lock_or_abort(self.starts.lock());
        Arc::clone(starts.entry((tenant.clone(), agent.clone())).or_default())
    }
}

/// How long a client without a stream counts as connected.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct ClientPresence {
    counts: Mutex<Counts>,
    state: watch::Sender<Presence>,
}

#[derive(Debug, Default)]
struct Counts {
    connections: usize,
    streams: usize,
    has_left: bool,
}

#[derive(Debug)]
pub(super) struct PresentConnection {
    client: Arc<ClientPresence>,
    has_left: AtomicBool,
}

impl ClientPresence {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            counts: Mutex::default(),
            state: watch::Sender::new(Presence::Until(Instant::now() + RECONNECT_TIMEOUT)),
        })
    }

    /// Whether the client no longer counts as connected. It does not return: its next connection has another presence.
    pub(super) fn has_ended(&self) -> bool {
        self.state.borrow().has_ended(Instant::now())
    }
}

impl PresentConnection {
    pub(super) fn new(client: Arc<ClientPresence>) -> Self {
        lock_or_abort(client.counts.lock()).connections += 1;
        Self {
            client,
            has_left: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> watch::Receiver<Presence> {
        self.client.state.subscribe()
    }

    pub(super) fn stream_opened(&self) {
        let mut counts = lock_or_abort(self.client.counts.lock());
        counts.streams += 1;
        if !counts.has_left {
            self.client.state.send_replace(Presence::Connected);
        }
    }

    pub(super) fn stream_closed(&self) {
        let mut counts = lock_or_abort(self.client.counts.lock());
        counts.streams -= 1;
        if counts.streams == 0 && !counts.has_left {
            let until = Presence::Until(Instant::now() + RECONNECT_TIMEOUT);
            self.client.state.send_replace(until);
        }
    }

    /// The connection has ended. `may_return`: the client can open another connection with the same name.
    pub(super) fn leave(&self, may_return: bool) {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut counts = lock_or_abort(self.client.counts.lock());
        counts.connections -= 1;
        if counts.connections == 0 && !may_return {
            counts.has_left = true;
            let state = &self.client.state;
            state.send_replace(Presence::Until(Instant::now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(client: &Arc<ClientPresence>) -> PresentConnection {
        PresentConnection::new(Arc::clone(client))
    }

    #[tokio::test(start_paused = true)]
    async fn client_counts_as_connected_for_a_while_after_its_last_stream() {
        let client = ClientPresence::new();
        let only = connection(&client);
        let ended_after = async |seconds: u64| {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            client.has_ended()
        };
        assert!(
            !ended_after(9).await,
            "the client may still open its stream"
        );
        only.stream_opened();
        only.stream_opened();
        assert!(!ended_after(99).await);
        only.stream_closed();
        assert!(!ended_after(99).await, "the other stream is open");
        only.stream_closed();
        assert!(!ended_after(9).await);
        only.stream_opened();
        only.stream_closed();
        assert!(!ended_after(9).await);
        assert!(ended_after(1).await);
    }

    #[tokio::test(start_paused = true)]
    async fn client_leaves_with_its_last_connection() {
        let client = ClientPresence::new();
        let first = connection(&client);
        let second = connection(&client);
        for connection in [&first, &second] {
            connection.stream_opened();
        }
        first.leave(false);
        first.leave(false);
        first.stream_closed();
        assert!(!client.has_ended());
        second.leave(false);
        assert!(client.has_ended());
        second.stream_closed();
        assert!(client.has_ended(), "the end of the stream changes nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn client_with_a_name_may_return() {
        let client = ClientPresence::new();
        let first = connection(&client);
        first.stream_opened();
        first.leave(true);
        first.stream_closed();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!client.has_ended());
        connection(&client).stream_opened();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(!client.has_ended());
    }
}
