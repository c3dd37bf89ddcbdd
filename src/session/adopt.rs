//! Adopts sessions that exist only at the agent: those of the agent's list, and forks by the agent.

use serde_json::value::RawValue;
use tracing::Instrument;

use super::IdempotencyKey;
use super::client_calls::can_fork;
use super::command::ClientCall;
use super::context::Context;
use super::creation::Origin;
use super::handle::SessionHandle;
use super::idempotency;
use super::record::{self, SessionRecord};
use super::refusal::Refusal;
use super::registry::{CreateOptions, Created, SessionRegistry, invalid};
use super::stored::read_record;
use super::upstream_delete;
use crate::acp::{self, TraceContext};
use crate::agent::{AgentFailure, AgentSpec};
use crate::api::CreateSession;
use crate::store::Table;
use crate::types::{AgentName, KeyedCounts, KeyedGuard, Principal, Scope, SessionId, Tenant};

/// The maximum number of bytes of an agent's session id.
const AGENT_SESSION_ID_BYTES: usize = 1024;

/// The agent sessions that are being adopted. Each can be adopted only once.
pub(super) type Adoptions = KeyedCounts<(Tenant, AgentName, String)>;

/// Reserves an agent session until it is dropped.
type AdoptionGuard = KeyedGuard<(Tenant, AgentName, String)>;

/// The agent session that a request adopts. `None`: a new session. Fails without the scope `admin`.
pub(super) fn adopted_session<'a>(
    by: &Principal,
    request: &'a CreateSession,
) -> Result<Option<&'a str>, Refusal> {
    let Some(id) = request.agent_session_id.as_deref() else { return Ok(None) };
    if !by.scopes.contains(Scope::Admin) {
        let detail = "adopting a session of the agent requires the scope admin";
        return Err(Refusal::Forbidden(detail.to_owned()));
    }
    if id.is_empty() || id.len() > AGENT_SESSION_ID_BYTES {
        return Err(invalid("/agentSessionId", "expected an id of 1 to 1024 bytes"));
    }
    Ok(Some(id))
}

/// The maximum number of pages of an agent's list that are searched.
const MAX_LIST_PAGES: usize = 20;

impl SessionRegistry {
    /// The folder of a session in the agent's list.
    pub(super) async fn find_listed_folder(
        &self,
        by: &Principal,
        spec: &AgentSpec,
        id: &str,
        trace: Option<&TraceContext>,
    ) -> Result<String, Refusal> {
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_LIST_PAGES {
            let page = self.agent_sessions(by, spec, (None, cursor.as_deref()), trace).await;
            let page = page.map_err(|refusal| match refusal {
                Refusal::Agent(AgentFailure::Unsupported { .. }) => invalid(
                    "/cwd",
                    "required, because the agent cannot report the working folder of its sessions",
                ),
                refusal => refusal,
            })?;
            let folder = page.sessions.iter().find(|listed| listed.agent_session_id == id);
            let folder = folder.and_then(|listed| listed.members.iter().find(|(name, _)| name == "cwd"));
            if let Some(folder) = folder.and_then(|(_, raw)| serde_json::from_str(raw.get()).ok()) {
                return Ok(folder);
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Err(invalid("/agentSessionId", "the agent lists no such session below the workspace roots"))
    }

    /// Reserves an agent session for adoption. Fails if a session of the gateway already uses it.
    pub(super) async fn begin_adoption(
        &self,
        by: &Principal,
        agent: &AgentName,
        id: &str,
    ) -> Result<AdoptionGuard, Refusal> {
        let taken = |detail: &str| invalid("/agentSessionId", detail);
        let take = self.context().adoptions.acquire((by.tenant.clone(), agent.clone(), id.to_owned()), 1);
        let take = take.ok_or_else(|| taken("another request is adopting this session"))?;
        match self.find_by_agent_session(by, agent, id).await? {
            Some(ours) => Err(taken(&format!("session {ours} already uses this session of the agent"))),
            None => Ok(take),
        }
    }

    /// Creates a fork of a session with its history. The operation continues if the caller is dropped.
    pub async fn fork(
        &self,
        by: &Principal,
        parent: &SessionHandle,
        key: Option<IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<Created, Refusal> {
        let (registry, by, parent) = (self.clone(), by.clone(), parent.clone());
        let forked = async move { registry.fork_once(&by, &parent, key.as_ref(), trace).await };
        let forked = self.context().shutdown.spawn_isolated(forked.in_current_span());
        forked.await.map_err(|error| Refusal::internal(&error))?
    }

    async fn fork_once(
        &self,
        by: &Principal,
        parent: &SessionHandle,
        key: Option<&IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<Created, Refusal> {
        let claimed = match key {
            Some(key) => Some(idempotency::claim(self.context(), by, key).await?),
            None => None,
        };
        if let Some(replayed) = self.find_replayed(by, claimed.as_ref()).await? {
            return Ok(replayed);
        }
        let (flight, claim) = claimed.map(|claimed| (claimed.flight, claimed.claim)).unzip();
        self.check_fork(parent.id()).await?;
        let result = parent.client_call(by, ClientCall::Fork, trace.clone()).await?;
        let agent_session_id = new_session_id(&result)?;
        let mut record = parent_record(self.context(), parent.id()).await?;
        // Another client may have adopted the fork in the meantime.
        let take = self.begin_adoption(by, &record.agent, &agent_session_id).await?;
        let now = self.context().ids.now();
        record.begin_fork(self.context().ids.session(), by, agent_session_id, now);
        let begun = CreateOptions { origin: Origin::Forked(parent.id()), claim, trace };
        let copy = record.clone();
        let session = self.start_actor(by, record, begun).await.inspect_err(|_| {
            // No session of the gateway refers to the fork, so the agent must delete it.
            upstream_delete::request_delete(self.context(), &copy, by, None);
        })?;
        drop((take, flight));
        Ok(Created { session, replayed: false })
    }

    /// Checks the known capabilities of the agent. The parent's actor checks them again.
    async fn check_fork(&self, parent: SessionId) -> Result<(), Refusal> {
        let record = parent_record(self.context(), parent).await?;
        let known = self
            .context()
            .pool
            .agent_stats(&record.agent, &record.tenant())
            .and_then(|(_, initialized)| initialized);
        known.map_or(Ok(()), |initialized| can_fork(&initialized.capabilities))
    }
}

fn new_session_id(result: &RawValue) -> Result<String, Refusal> {
    match acp::NewSessionResult::parse(result) {
        Ok(new) => Ok(new.session_id.into_owned()),
        Err(error) => Err(Refusal::Agent(AgentFailure::Rpc(crate::jsonrpc::RpcError {
            code: acp::error_code::INTERNAL,
            message: format!("invalid result of session/fork: {error}"),
            data: None,
        }))),
    }
}

async fn parent_record(context: &Context, id: SessionId) -> Result<SessionRecord, Refusal> {
    read_record(context, Table::Session, record::session_key(id)).await?.ok_or(Refusal::NoSuchSession)
}
