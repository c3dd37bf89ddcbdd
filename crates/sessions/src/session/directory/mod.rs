//! The directory: creates, finds and ends sessions. Sessions to which a user has no access are invisible.
//!
//! 1. `create` with `new_session`, `adopt`, `import`: how a session begins.
//! 2. `groups`: the access that changes with them.
//! 3. `gc`: erases expired sessions and idempotency keys.
//!
//! The directory must not know the state of an actor. `super::entries` loads and runs the actors.

mod adopt;
mod create;
mod gc;
mod groups;
mod import;
mod new_session;

#[cfg(test)]
mod tests;

use tracing::Instrument;

pub use self::create::Created;
pub use self::import::{ImportError, Imported};
use super::changes;
use super::context::Context;
use super::entries::ActorEntries;
use super::error::{AgentSessionsError, DeleteError, ListError, SessionError, ToProblem};
use super::grants;
use super::handle::SessionHandle;
use super::query::{ListQuery, agent_sessions, list};
use super::record::{self, SessionRecord, session_key};
use agents::agent::AgentSpec;
use base::types::{AgentName, Author, KeyedCounts, Principal, SessionId, Tenant};
use events::api::{AgentSessionList, BulkResult, BulkResults, SessionList, StoredSession};
use log::eventlog::{ReadError, RecordPages};
use log::store::Table;
use wire::acp::TraceContext;

/// The agent sessions that are being adopted. Each can be adopted only once.
type Adoptions = KeyedCounts<(Tenant, AgentName, String)>;

#[derive(Debug, Clone)]
pub struct SessionDirectory {
    entries: ActorEntries,
    adoptions: Adoptions,
}

impl SessionDirectory {
    /// Starts the directory after it has closed every session that a crash left open.
    pub async fn start(context: Context) -> Result<Self, SessionError> {
        let entries = ActorEntries::new(context);
        grants::load(&entries.context().log).await?;
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
        let entry = self.entries.find(&by.user, id).await?;
        Ok(SessionHandle::new(
            self.entries.clone(),
            entry,
            by.user.clone(),
        ))
    }

    pub(super) async fn of_owner(
        &self,
        record: &SessionRecord,
    ) -> Result<SessionHandle, SessionError> {
        let owner = record.owner.clone();
        let entry = self.entries.find(&owner, record.session_id).await?;
        Ok(SessionHandle::new(self.entries.clone(), entry, owner))
    }

    /// Whether the user can open the session. Does not load it.
    pub async fn can_open(&self, by: &Principal, id: SessionId) -> Result<bool, SessionError> {
        let record = self.context().read_session(id).await?;
        let log = &self.context().log;
        Ok(record.is_some_and(|record| {
            !record.unfinished && log.access(&record.owner, id, &by.user).is_some()
        }))
    }

    /// Whether the user owns the session. Does not load it.
    pub async fn has_session(&self, by: &Principal, id: SessionId) -> Result<bool, SessionError> {
        let record = self.context().read_session(id).await?;
        Ok(record.is_some_and(|record| record.owner == by.user && !record.unfinished))
    }

    /// Whether any user has the session.
    pub async fn exists(&self, id: SessionId) -> Result<bool, ReadError> {
        Ok(self
            .context()
            .log
            .get(Table::Session, session_key(id))
            .await?
            .is_some())
    }

    pub async fn list(&self, by: &Principal, query: &ListQuery) -> Result<SessionList, ListError> {
        list::list(self.context(), by, query).await
    }

    /// The sessions of all users with the largest logs, the largest first.
    pub async fn largest(&self, limit: usize) -> Result<Vec<StoredSession>, SessionError> {
        let context = self.context();
        let log = context.log.clone();
        let largest = context.shutdown.spawn_blocking(move || log.largest(limit));
        let largest = largest.await?;
        let keys = largest.iter().map(|usage| session_key(usage.session));
        let records = context.log.get_all(Table::Session, keys.collect()).await?;
        let mut sessions = Vec::new();
        // A deleted session has no record.
        for (usage, record) in largest.iter().zip(records) {
            let Some(record) = record else { continue };
            let record: SessionRecord = record::decode(&record)?;
            sessions.push(StoredSession {
                session_id: usage.session,
                agent: record.agent,
                bytes: usage.bytes,
                events: usage.last_seq + 1 - usage.first_seq,
                last_activity_at: record.last_activity_at,
            });
        }
        Ok(sessions)
    }

    /// A page of the agent's own list of sessions, without the sessions outside of the workspace roots.
    pub async fn agent_sessions(
        &self,
        by: &Principal,
        spec: &AgentSpec,
        cwd: Option<String>,
        cursor: Option<&str>,
        trace: Option<&TraceContext>,
    ) -> Result<AgentSessionList, AgentSessionsError> {
        agent_sessions::list(self.context(), by, spec, cwd, cursor, trace).await
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

const CONCURRENCY: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkAction {
    Close,
    Delete,
}

impl SessionDirectory {
    /// Applies the action to the sessions of one page. Each session has its own result. A session that
    /// changes meanwhile moves to the start of the list, so a pass from the first page to the last one
    /// terminates.
    pub async fn bulk(
        &self,
        by: &Principal,
        author: Author,
        action: BulkAction,
        query: &ListQuery,
        trace: Option<TraceContext>,
    ) -> Result<BulkResults, ListError> {
        let page = self.list(by, query).await?;
        let mut results = Vec::with_capacity(page.sessions.len());
        for batch in page.sessions.chunks(CONCURRENCY) {
            let begin = |id: SessionId| {
                let directory = self.clone();
                let by = by.clone();
                let author = author.clone();
                let trace = trace.clone();
                let ended = async move { directory.end(&by, author, action, id, trace).await };
                (
                    id,
                    self.context()
                        .shutdown
                        .spawn_isolated(ended.in_current_span()),
                )
            };
            let running: Vec<_> = batch
                .iter()
                .map(|session| begin(session.session_id))
                .collect();
            for (session_id, ended) in running {
                let problem = ended
                    .await
                    .map_err(DeleteError::from)
                    .flatten()
                    .map_err(|error| error.problem());
                let status = problem
                    .as_ref()
                    .map_or_else(|problem| problem.status, |status| *status);
                let problem = problem.err();
                results.push(BulkResult {
                    session_id,
                    status,
                    problem,
                });
            }
        }
        Ok(BulkResults {
            results,
            next_cursor: page.next_cursor,
        })
    }

    async fn end(
        &self,
        by: &Principal,
        author: Author,
        action: BulkAction,
        id: SessionId,
        trace: Option<TraceContext>,
    ) -> Result<u16, DeleteError> {
        let session = match (self.open(by, id).await, action) {
            // Another client has deleted the session.
            (Err(SessionError::NoSuchSession), BulkAction::Delete) => return Ok(204),
            (session, _) => session?,
        };
        match action {
            BulkAction::Close => {
                session.close(by, trace).await?;
                Ok(200)
            }
            BulkAction::Delete => session
                .delete(by, &author, None, trace)
                .await
                .map(|durable| if durable { 204 } else { 202 }),
        }
    }
}
