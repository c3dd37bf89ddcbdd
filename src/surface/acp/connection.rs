//! A connection of a client, and the sessions that it follows.
//!
//! A connection belongs to one principal and one agent. Sessions and turns continue after the end of a connection.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::outbox::{Outbox, OutboxFull, Place};
use super::participant::{ClientInfo, Participant, Role};
use super::presence::PresentConnection;
use super::session_view::SessionView;
use super::too_many::{MAX_SESSIONS, MAX_UNCONFIRMED, TooManySessions};
use crate::auth::is_local_editor;
use crate::session::{ServedMethods, ServingClient};
use crate::shutdown::lock_or_abort;
use crate::types::{AgentName, KeyedGuard, Principal, PrincipalKey, PromptId, Scope, SessionId};

/// The maximum number of prompts whose ids are remembered for `$/cancel_request` and `session/cancel`.
const MAX_PROMPTS: usize = 256;
/// The maximum number of calls that run at the same time.
const MAX_CALLS: usize = 64;

#[derive(Debug)]
pub(super) struct Connection {
    id: Box<str>,
    client: Client,
    principal: PrincipalKey,
    agent: AgentName,
    /// The responses that belong to no session.
    responses: Outbox,
    sessions: Sessions,
    /// The prompts that this connection has sent, oldest first, with their JSON-RPC ids.
    prompts: Mutex<VecDeque<SentPrompt>>,
    calls: Arc<Semaphore>,
    usage: Usage,
    closed: CancellationToken,
}

/// A prompt of this connection.
#[derive(Debug, Clone)]
pub(super) struct SentPrompt {
    pub(super) id: Box<RawValue>,
    pub(super) session: SessionId,
    pub(super) prompt: PromptId,
}

#[derive(Debug)]
struct Sessions {
    views: Mutex<HashMap<Box<str>, Arc<SessionView>>>,
    /// Passes each new view to the WebSocket, which delivers all sessions. `None` for HTTP, where each session has its
    /// own streams.
    socket: Option<mpsc::Sender<Arc<SessionView>>>,
}

#[derive(Debug)]
struct Usage {
    streams: AtomicUsize,
    last_used: Mutex<Instant>,
    presence: PresentConnection,
    /// Counts this connection for its principal.
    _counted: KeyedGuard<PrincipalKey>,
}

/// An open stream of a connection.
#[derive(Debug)]
pub(super) struct OpenStream(Arc<Connection>);

impl OpenStream {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        connection.usage.streams.fetch_add(1, Ordering::AcqRel);
        connection.usage.presence.stream_opened();
        Self(Arc::clone(connection))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.touch();
        self.0.usage.streams.fetch_sub(1, Ordering::AcqRel);
        self.0.usage.presence.stream_closed();
    }
}

impl Connection {
    /// `socket` receives each new view of a WebSocket connection.
    pub(super) fn new(
        id: Box<str>,
        client: Client,
        (principal, counted): (PrincipalKey, KeyedGuard<PrincipalKey>),
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
            sessions: Sessions {
                views: Mutex::default(),
                socket,
            },
            prompts: Mutex::default(),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
            usage: Usage {
                streams: AtomicUsize::new(0),
                last_used: Mutex::new(Instant::now()),
                presence,
                _counted: counted,
            },
            closed: CancellationToken::new(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn agent(&self) -> &AgentName {
        &self.agent
    }

    pub(super) fn is_of(&self, principal: &PrincipalKey) -> bool {
        self.principal == *principal
    }

    pub(super) fn responses(&self) -> &Outbox {
        &self.responses
    }

    /// The permits for calls. Calls run concurrently, and do not delay later messages.
    pub(super) fn calls(&self) -> &Arc<Semaphore> {
        &self.calls
    }

    pub(super) fn touch(&self) {
        *lock_or_abort(self.usage.last_used.lock()) = Instant::now();
    }

    /// How long no request or stream has used the connection. `None` while a stream is open.
    pub(super) fn idle_for(&self, now: Instant) -> Option<Duration> {
        let is_open = self.usage.streams.load(Ordering::Acquire) > 0;
        (!is_open)
            .then(|| now.saturating_duration_since(*lock_or_abort(self.usage.last_used.lock())))
    }

    /// Ends all streams. A client that keeps its name may open another connection.
    pub(super) fn close(&self) {
        self.usage.presence.leave(self.client.keeps_name);
        self.closed.cancel();
    }

    /// The client ends the connection and does not return.
    pub(super) fn leave(&self) {
        self.usage.presence.leave(false);
    }

    /// The client for the turns that it starts. `None` if it serves no files and no terminals, or its key may not.
    pub(super) fn serving(&self, by: &Principal) -> Option<ServingClient> {
        let serves = self.client.serves();
        let may_serve = by.scopes.contains(Scope::Files) && serves != ServedMethods::default();
        may_serve.then(|| ServingClient {
            name: self.client.name.clone(),
            serves,
            only_session_folders: is_local_editor(by),
            presence: self.usage.presence.state(),
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled()
    }

    pub(super) async fn wait_closed(&self) {
        self.closed.cancelled().await;
    }

    /// The view of a session, if the connection has one.
    pub(super) fn view(&self, session: &str) -> Option<Arc<SessionView>> {
        lock_or_abort(self.sessions.views.lock())
            .get(session)
            .cloned()
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
        let Participant { role, info, .. } = self
            .view(session)
            .filter(|view| view.is_attached())?
            .participant();
        let info = info.as_ref().or(self.client.info.as_ref());
        serde_json::to_value(Peer {
            client_id: &self.client.name,
            info,
            role,
        })
        .ok()
    }

    /// The view of a session that a request names.
    pub(super) fn view_for_request(
        &self,
        session: &str,
    ) -> Result<Arc<SessionView>, TooManySessions> {
        self.view_or_insert(session, MAX_SESSIONS, TooManySessions::Followed)
    }

    /// The view of a session whose stream a client opens. Clients may open it before the request for the session.
    pub(super) fn view_for_stream(
        &self,
        session: &str,
    ) -> Result<Arc<SessionView>, TooManySessions> {
        let unconfirmed = {
            let views = lock_or_abort(self.sessions.views.lock());
            views.values().filter(|view| !view.is_attached()).count()
        };
        let room = if unconfirmed < MAX_UNCONFIRMED {
            MAX_SESSIONS
        } else {
            0
        };
        self.view_or_insert(session, room, TooManySessions::Unconfirmed)
    }

    /// Whether the connection can follow another session.
    pub(super) fn check_room(&self) -> Result<(), TooManySessions> {
        let followed = lock_or_abort(self.sessions.views.lock()).len();
        if followed < MAX_SESSIONS {
            Ok(())
        } else {
            Err(TooManySessions::Followed)
        }
    }

    /// Forgets a session that was deleted.
    pub(super) fn remove_view(&self, session: &str) {
        lock_or_abort(self.sessions.views.lock()).remove(session);
    }

    /// Forgets the session of a stream that has ended, if no request has attached it.
    pub(super) fn release_view(&self, session: &str) {
        let mut views = lock_or_abort(self.sessions.views.lock());
        if views
            .get(session)
            .is_some_and(|view| !view.is_attached() && !view.has_stream())
        {
            views.remove(session);
        }
    }

    fn view_or_insert(
        &self,
        session: &str,
        room: usize,
        error: TooManySessions,
    ) -> Result<Arc<SessionView>, TooManySessions> {
        let mut views = lock_or_abort(self.sessions.views.lock());
        if let Some(view) = views.get(session) {
            return Ok(Arc::clone(view));
        }
        if views.len() >= room {
            return Err(error);
        }
        let view = Arc::new(SessionView::new(self.sessions.socket.is_some()));
        views.insert(session.into(), Arc::clone(&view));
        drop(views);
        if let Some(socket) = &self.sessions.socket {
            // There is room for all sessions. The socket may be closed already.
            drop(socket.try_send(Arc::clone(&view)));
        }
        Ok(view)
    }

    /// Delivers a response: on the session's stream, if the session has an open one, otherwise on the connection's stream.
    /// On the session's stream, the response is delivered after the place `follows`.
    pub(super) fn respond(&self, session: Option<&SessionView>, follows: Place, message: Bytes) {
        let pushed = match session.filter(|view| view.has_stream()) {
            Some(view) => view.responses().push(follows, message),
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

    /// The prompt with this JSON-RPC id that the connection sent last.
    pub(super) fn sent_prompt(&self, id: &RawValue) -> Option<SentPrompt> {
        let prompts = lock_or_abort(self.prompts.lock());
        prompts
            .iter()
            .rev()
            .find(|sent| sent.id.get() == id.get())
            .cloned()
    }

    /// The prompts that the connection has sent to a session.
    pub(super) fn prompts_of(&self, session: SessionId) -> Vec<PromptId> {
        let prompts = lock_or_abort(self.prompts.lock());
        prompts
            .iter()
            .filter(|sent| sent.session == session)
            .map(|sent| sent.prompt)
            .collect()
    }
}
