//! The dependencies of the actors, the state that they share, reads of stored records, and waits for commits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{Mutex, Semaphore};

use super::baselines::Baselines;
use super::error::SessionError;
use super::journal::Quotas;
use super::record::{self, SessionRecord, Stored};
use crate::limits::Limits;
use agents::agent::{AgentSpec, CurrentCatalogue};
use agents::pool::{Pool, Priority};
use base::shutdown::Shutdown;
use base::types::{Access, AgentName, Ids, KeyedCounts, KeyedGuard, Principal, SessionId, UserId};
use log::audit::Audit;
use log::eventlog::{EventLog, SessionLog};
use log::store::Run;
use wire::acp::{self, InitializeResult, TraceContext, method};
use workspace::{ScrollbackBudget, Workspaces};

/// The time for which the gateway tries to delete a session without a process at the agent. When it expires, the agent
/// keeps the session.
const DELETE_TIMEOUT: Duration = Duration::from_mins(2);

/// The bytes of the log that a fold reads at a time.
pub(super) const FOLD_PAGE_BYTES: usize = 32 << 10;
/// A wait fails at the first check after this time, with [`SessionError::Internal`].
const COMMIT_TIMEOUT: Duration = Duration::from_mins(1);
/// The interval at which a wait checks whether the disk is full.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Checks whether a user still has a key that allows prompts.
#[derive(Clone)]
pub struct MayPrompt(Arc<PromptCheck>);

type PromptCheck = dyn Fn(&UserId) -> bool + Send + Sync;

impl MayPrompt {
    /// `holds` must not block.
    pub fn new(holds: impl Fn(&UserId) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(holds))
    }

    pub fn allows(&self, user: &UserId) -> bool {
        (self.0)(user)
    }
}

impl fmt::Debug for MayPrompt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MayPrompt")
    }
}

#[derive(Debug, Clone)]
pub struct Context {
    pub log: EventLog,
    pub audit: Audit,
    pub pool: Pool,
    pub catalogue: CurrentCatalogue,
    pub workspaces: Workspaces,
    pub baselines: Baselines,
    pub ids: Ids,
    pub limits: Arc<Limits>,
    pub shutdown: Shutdown,
    /// Checked before a restored prompt runs.
    pub may_prompt: MayPrompt,
    /// The sessions of each user that have or await a process.
    pub(super) live: KeyedCounts<UserId>,
    pub(super) quotas: Quotas,
    /// Serializes the changes of grants.
    pub(super) grant_changes: Arc<Mutex<()>>,
    /// The idempotency keys whose first request is in flight.
    pub(super) keys_in_flight: KeyedCounts<Vec<u8>>,
    /// Permits one `session/delete` at a time.
    remote_deletes: Arc<Semaphore>,
    pub(super) scrollback_budget: ScrollbackBudget,
}

impl Context {
    pub fn new(
        log: EventLog,
        audit: Audit,
        pool: Pool,
        catalogue: CurrentCatalogue,
        workspaces: Workspaces,
        baselines: Baselines,
        may_prompt: MayPrompt,
        ids: Ids,
        limits: Arc<Limits>,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            live: KeyedCounts::default(),
            quotas: Quotas::default(),
            grant_changes: Arc::default(),
            keys_in_flight: KeyedCounts::default(),
            remote_deletes: Arc::new(Semaphore::new(1)),
            scrollback_budget: ScrollbackBudget::default(),
            log,
            audit,
            pool,
            catalogue,
            workspaces,
            baselines,
            ids,
            limits,
            shutdown,
            may_prompt,
        }
    }

    /// Fails if the user has a lower access to a session of `owner`.
    pub(super) fn require_access(
        &self,
        owner: &UserId,
        id: SessionId,
        user: &UserId,
        needed: Access,
    ) -> Result<(), SessionError> {
        match self.log.access(owner, id, user) {
            None => Err(SessionError::NoSuchSession),
            Some(access) if access < needed => Err(SessionError::NoAccess { access, needed }),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn agent_spec(&self, record: &SessionRecord) -> Arc<AgentSpec> {
        let spec = self.catalogue.agent(&record.agent);
        spec.unwrap_or_else(|| Arc::new(AgentSpec::removed(record.agent.clone())))
    }

    /// The result of `initialize`, if a process of the agent has been started for the tenant of the user.
    pub(super) fn initialized(
        &self,
        agent: &AgentName,
        user: &UserId,
    ) -> Option<Arc<InitializeResult>> {
        self.pool.agent_stats(agent, &user.tenant())?.1
    }

    pub(super) async fn read<T: Stored>(&self, key: Vec<u8>) -> Result<Option<T>, SessionError> {
        let stored = self.log.get(T::TABLE, key).await?;
        Ok(stored.map(|bytes| record::decode(&bytes)).transpose()?)
    }

    /// Reads a prompt, a request or a terminal by its number in the session.
    pub(super) async fn read_numbered<T: Stored>(
        &self,
        session: SessionId,
        number: u32,
    ) -> Result<Option<T>, SessionError> {
        self.read(record::numbered_key(session, number)).await
    }

    pub(super) async fn read_session(
        &self,
        id: SessionId,
    ) -> Result<Option<SessionRecord>, SessionError> {
        self.read(record::session_key(id)).await
    }

    /// Waits for a commit. Fails if the disk is full.
    pub(super) async fn wait_durable(
        &self,
        log: &SessionLog,
        seq: u64,
    ) -> Result<(), SessionError> {
        let mut waited = Duration::ZERO;
        loop {
            if let Ok(outcome) = tokio::time::timeout(CHECK_INTERVAL, log.wait(seq)).await {
                return outcome.map_err(SessionError::from);
            }
            waited += CHECK_INTERVAL;
            if self.log.storage_full() {
                return Err(SessionError::StorageFull);
            }
            if waited >= COMMIT_TIMEOUT {
                tracing::error!(session = %log.session(), seq, "an event was not committed within {COMMIT_TIMEOUT:?}");
                return Err(SessionError::Internal);
            }
        }
    }

    /// Waits for a commit. Returns false if the disk accepts no commits.
    pub(super) async fn wait_durable_or_full(
        &self,
        log: &SessionLog,
        seq: u64,
    ) -> Result<bool, SessionError> {
        tokio::select! {
            biased;
            durable = self.wait_durable(log, seq) => durable.map(|()| true),
            durable = log.wait_or_full(seq) => durable.map_err(SessionError::from),
        }
    }

    /// Deletes the session at the agent if no process is attached to it. Sends `session/delete` in the background, within a
    /// deadline, from a process that no session uses. Requests run one at a time, so that a client that deletes hundreds of
    /// sessions does not block the agent.
    pub(super) fn delete_at_agent(
        &self,
        record: &SessionRecord,
        owner: &Principal,
        trace: Option<TraceContext>,
    ) {
        let Some(id) = record.agent_session_id.clone() else {
            return;
        };
        let Some(spec) = self.catalogue.agent(&record.agent) else {
            return;
        };
        let known = self.initialized(&record.agent, &owner.user);
        if known.is_some_and(|known| !known.capabilities.session.delete) {
            return;
        }
        let context = self.clone();
        let owner = owner.clone();
        let session = record.session_id;
        self.shutdown.spawn_isolated(async move {
            let delete = async {
                let _alone = context.remote_deletes.acquire().await;
                let mut visit = context.pool.short_lease(&spec, &owner, Priority::NoReclaim).await.ok()?;
                if visit.initialized().capabilities.session.delete {
                    let params = acp::session_params(&id, trace.as_ref());
                    visit.call(method::SESSION_DELETE, &params, context.pool.limits().call_timeout).await.ok()?;
                }
                visit.release_untouched();
                Some(())
            };
            let deleted = tokio::select! {
                deleted = tokio::time::timeout(DELETE_TIMEOUT, delete) => deleted.ok().flatten(),
                () = context.shutdown.drain_started() => None,
            };
            if deleted.is_none() {
                tracing::warn!(%session, "could not delete the session at the agent; the agent may still have it");
            }
        });
    }
}

/// The content blocks in the event `seq` of a prompt. `None` if the log no longer contains the event.
pub(super) async fn prompt_blocks(
    log: &SessionLog,
    seq: u64,
) -> Result<Option<Box<RawValue>>, SessionError> {
    let runs = log.read(seq - 1, 1).await?;
    let mut events = runs.iter().flat_map(Run::events);
    let event = events.find(|event| event.seq() == seq);
    Ok(event
        .and_then(|event| event.payload()?.prompt)
        .map(ToOwned::to_owned))
}

/// Counts one session that has or awaits a process until it is dropped.
pub(super) type LiveGuard = KeyedGuard<UserId>;
