//! The open connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::client::Client;
use super::connection::Connection;
use super::presence::{ClientPresence, PresentConnection};
use crate::shutdown::lock_or_abort;
use crate::types::{AgentName, KeyedCounts, KeyedGuard, PrincipalKey, SessionId, Tenant};

/// The maximum number of connections of a principal.
pub(super) const MAX_CONNECTIONS: usize = 1024;
/// The time without a request and without an open stream after which a connection is removed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// The lock that a request holds while it starts an agent.
type StartLock = Arc<tokio::sync::Mutex<()>>;

/// The open connections by id. A connection is invisible to other principals.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<Box<str>, Arc<Connection>>>,
    counts: KeyedCounts<PrincipalKey>,
    /// The presence of clients that keep their names, by name.
    named: Mutex<HashMap<Box<str>, Weak<ClientPresence>>>,
    /// Only one request starts an agent to learn its capabilities. Others wait for the result.
    starts: Mutex<HashMap<(Tenant, AgentName), StartLock>>,
}

impl Connections {
    fn open(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Connection>>> {
        lock_or_abort(self.open.lock())
    }

    /// Counts a new connection of a principal. Removes idle connections. `None` if the principal has too many.
    pub(super) fn count(&self, principal: &PrincipalKey) -> Option<KeyedGuard<PrincipalKey>> {
        let now = Instant::now();
        self.open().retain(|_, connection| {
            let is_idle = connection
                .idle_for(now)
                .is_some_and(|idle| idle >= IDLE_TIMEOUT)
                || connection.is_closed();
            if is_idle {
                connection.close();
            }
            !is_idle
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
        let known = named
            .get(&client.name)
            .and_then(Weak::upgrade)
            .filter(|known| !known.has_ended());
        let presence = known.unwrap_or_else(ClientPresence::new);
        named.insert(client.name.clone(), Arc::downgrade(&presence));
        PresentConnection::new(presence)
    }

    pub(super) fn insert(&self, connection: Arc<Connection>) {
        self.open().insert(connection.id().into(), connection);
    }

    pub(super) fn find(&self, id: &str, principal: &PrincipalKey) -> Option<Arc<Connection>> {
        let found = self
            .open()
            .get(id)
            .filter(|connection| connection.is_of(principal) && !connection.is_closed())
            .cloned();
        if let Some(connection) = &found {
            connection.touch();
        }
        found
    }

    /// Removes a connection and ends its streams. Its turns continue.
    pub(super) fn remove(&self, connection: &Connection) {
        self.open().remove(connection.id());
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
        let others = open
            .values()
            .filter(|other| other.id() != except.id() && !other.is_closed());
        others
            .filter_map(|other| other.as_peer(&session))
            .take(max)
            .collect()
    }

    /// The lock for the first start of an agent.
    pub(super) fn start_lock(&self, tenant: &Tenant, agent: &AgentName) -> StartLock {
        let mut starts = lock_or_abort(self.starts.lock());
        Arc::clone(starts.entry((tenant.clone(), agent.clone())).or_default())
    }
}
