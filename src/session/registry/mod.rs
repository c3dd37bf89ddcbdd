//! The registry: creates, finds and ends sessions. Sessions of other tenants are invisible.
//!
//! 1. `create` with `new_session`, `adopt` and `fork`: how a session begins.
//! 2. `bulk`: ends all sessions that match a filter.
//! 3. `gc`: erases expired sessions and idempotency keys.
//!
//! The registry must not know the state of an actor. `super::entries` loads and runs the actors.

mod adopt;
mod bulk;
mod create;
mod fork;
mod gc;
mod new_session;

use self::adopt::Adoptions;
use crate::acp::TraceContext;
use crate::agent::AgentSpec;
use crate::api::{AgentSessionList, SessionList};
use crate::eventlog::{ReadError, RecordPages};
use crate::session::changes;
use crate::session::context::Context;
use crate::session::entries::ActorEntries;
use crate::session::error::{AgentSessionsError, ListError, SessionError};
use crate::session::handle::SessionHandle;
use crate::session::query::{ListQuery, agent_sessions, list};
use crate::session::record::{SessionRecord, session_key};
use crate::session::stored::read_record;
use crate::store::Table;
use crate::types::{Principal, SessionId};

pub use self::bulk::BulkAction;
pub use self::create::Created;

#[derive(Debug, Clone)]
pub struct SessionRegistry {
    entries: ActorEntries,
    adoptions: Adoptions,
}

impl SessionRegistry {
    /// Starts the registry after it has closed every session that a crash left open.
    pub async fn start(context: Context) -> Result<Self, SessionError> {
        let entries = ActorEntries::new(context);
        load_open_sessions(&entries).await?;
        entries.context().shutdown.spawn(gc::run(entries.clone()));
        entries
            .context()
            .shutdown
            .spawn_isolated(changes::sweep(entries.context().clone()));
        Ok(Self {
            entries,
            adoptions: Adoptions::default(),
        })
    }

    pub fn context(&self) -> &Context {
        self.entries.context()
    }

    pub async fn open(&self, by: &Principal, id: SessionId) -> Result<SessionHandle, SessionError> {
        let entry = self.entries.find(&by.tenant, id).await?;
        Ok(SessionHandle::new(self.entries.clone(), entry))
    }

    /// Whether the tenant has the session. Does not load it.
    pub async fn has_session(&self, by: &Principal, id: SessionId) -> Result<bool, SessionError> {
        let record =
            read_record::<SessionRecord>(self.context(), Table::Session, session_key(id)).await?;
        Ok(record.is_some_and(|record| record.tenant() == by.tenant && !record.unfinished))
    }

    /// Whether any tenant has the session.
    pub async fn exists(&self, id: SessionId) -> Result<bool, ReadError> {
        Ok(self
            .context()
            .log
            .get(Table::Session, session_key(id))
            .await?
            .is_some())
    }

    /// A page of the tenant's sessions, newest first.
    pub async fn list(&self, by: &Principal, query: &ListQuery) -> Result<SessionList, ListError> {
        list::list(self.context(), by, query).await
    }

    /// A page of the agent's own list of sessions, without the sessions outside of the workspace roots.
    pub async fn agent_sessions(
        &self,
        by: &Principal,
        spec: &AgentSpec,
        page: (Option<String>, Option<&str>),
        trace: Option<&TraceContext>,
    ) -> Result<AgentSessionList, AgentSessionsError> {
        agent_sessions::list(self.context(), by, spec, page, trace).await
    }
}

/// Loads every session that was open when the gateway stopped. Loading a session closes its turns.
async fn load_open_sessions(entries: &ActorEntries) -> Result<(), SessionError> {
    let context = entries.context();
    let mut pages = RecordPages::of(&context.log, Table::Open);
    while let Some(page) = pages.next_raw().await? {
        let mut loaded = Vec::new();
        for (key, _) in &page {
            let Ok(id) = uuid::Uuid::from_slice(key) else {
                continue;
            };
            let actors = entries.clone();
            let load = async move { actors.entry(SessionId::from_uuid(id)).await };
            // A session that cannot be loaded must not keep the other sessions from starting.
            match context.shutdown.spawn_isolated(load).await {
                Ok(Ok(entry)) => loaded.push(entry),
                Ok(Err(error)) => {
                    tracing::error!(session = %id, %error, "could not load a session that was open when the gateway stopped");
                }
                Err(panic) => {
                    tracing::error!(session = %id, %panic, "could not load a session that was open when the gateway stopped");
                }
            }
        }
        // The first reader after a crash finds an end for every turn, unless the disk is full.
        for entry in loaded {
            entry.log.wait_or_full(entry.log.appended()).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
