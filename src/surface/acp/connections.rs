//! The open connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use super::connection::Connection;
use crate::shutdown::lock_or_abort;
use crate::types::{AgentName, KeyedCounts, KeyedGuard, PrincipalKey, SessionId, Tenant};

/// The maximum number of connections of a principal.
const MAX_CONNECTIONS: usize = 1024;
/// A connection that no request and no stream has used for this long is removed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// Held while an agent starts.
type StartLock = Arc<tokio::sync::Mutex<()>>;

/// Finds a connection by its id. A connection is invisible to other principals.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: Mutex<HashMap<Box<str>, Arc<Connection>>>,
    counts: KeyedCounts<PrincipalKey>,
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
            let is_idle =
                connection.idle_for(now).is_some_and(|idle| idle >= IDLE_TIMEOUT) || connection.is_closed();
            if is_idle {
                connection.close();
            }
            !is_idle
        });
        self.counts.acquire(principal.clone(), MAX_CONNECTIONS)
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
        let others = open.values().filter(|other| other.id() != except.id() && !other.is_closed());
        others.filter_map(|other| other.as_peer(&session)).take(max).collect()
    }

    /// The lock for the first start of an agent.
    pub(super) fn start_lock(&self, tenant: &Tenant, agent: &AgentName) -> StartLock {
        let mut starts = lock_or_abort(self.starts.lock());
        Arc::clone(starts.entry((tenant.clone(), agent.clone())).or_default())
    }
}
