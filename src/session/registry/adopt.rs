//! Adopts sessions that exist only at the agent.

use crate::acp::TraceContext;
use crate::agent::{AgentFailure, AgentSpec};
use crate::api::CreateSession;
use crate::pool::ShortLeaseError;
use crate::session::context::Context;
use crate::session::error::{AgentSessionsError, CreateError, InputError};
use crate::session::query::agent_sessions;
use crate::types::text::check_name;
use crate::types::{AgentName, KeyedCounts, KeyedGuard, Principal, Scope, Tenant};

/// The maximum number of bytes of an agent's session id.
const AGENT_SESSION_ID_BYTES: usize = 1024;
/// The maximum number of pages of an agent's list that are searched.
const MAX_LIST_PAGES: usize = 20;

/// The agent sessions that are being adopted. Each can be adopted only once.
pub(super) type Adoptions = KeyedCounts<(Tenant, AgentName, String)>;

/// Reserves an agent session until it is dropped.
pub(super) type AdoptionGuard = KeyedGuard<(Tenant, AgentName, String)>;

/// Reserves an agent session for adoption. Fails if a session of the gateway already uses it.
pub(super) async fn begin_adoption(
    context: &Context,
    adoptions: &Adoptions,
    by: &Principal,
    agent: &AgentName,
    id: &str,
) -> Result<AdoptionGuard, CreateError> {
    let in_use = |detail: &str| InputError::invalid("/agentSessionId", detail);
    let guard = adoptions.acquire((by.tenant.clone(), agent.clone(), id.to_owned()), 1);
    let guard = guard.ok_or_else(|| in_use("another request is adopting this session"))?;
    match agent_sessions::find_by_agent_session(context, by, agent, id).await? {
        Some(ours) => Err(in_use(&format!(
            "session {ours} already uses this session of the agent"
        ))
        .into()),
        None => Ok(guard),
    }
}

/// The agent session that a request adopts. `None`: a new session. Fails without the scope `admin`.
pub(super) fn adopted_session<'a>(
    by: &Principal,
    request: &'a CreateSession,
) -> Result<Option<&'a str>, InputError> {
    let Some(id) = request.agent_session_id.as_deref() else {
        return Ok(None);
    };
    if !by.scopes.contains(Scope::Admin) {
        let detail = "adopting a session of the agent requires the scope admin";
        return Err(InputError::MissingScope(Scope::Admin, detail.to_owned()));
    }
    if id.is_empty() || id.len() > AGENT_SESSION_ID_BYTES {
        return Err(InputError::invalid(
            "/agentSessionId",
            "expected an id of 1 to 1024 bytes",
        ));
    }
    check_name(id).map_err(|error| InputError::invalid("/agentSessionId", error.to_string()))?;
    Ok(Some(id))
}

/// The folder of a session in the agent's list.
pub(super) async fn find_listed_folder(
    context: &Context,
    by: &Principal,
    spec: &AgentSpec,
    id: &str,
    trace: Option<&TraceContext>,
) -> Result<String, AgentSessionsError> {
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_LIST_PAGES {
        let page = agent_sessions::list(context, by, spec, (None, cursor.as_deref()), trace).await.map_err(
            |error| match error {
                AgentSessionsError::Lease(ShortLeaseError::Agent(AgentFailure::Unsupported { .. })) => {
                    let detail =
                        "required, because the agent cannot report the working folder of its sessions";
                    InputError::invalid("/cwd", detail).into()
                }
                error => error,
            },
        )?;
        let folder = page
            .sessions
            .iter()
            .find(|listed| listed.agent_session_id == id);
        let folder =
            folder.and_then(|listed| listed.members.iter().find(|(name, _)| name == "cwd"));
        if let Some(folder) = folder.and_then(|(_, raw)| serde_json::from_str(raw.get()).ok()) {
            return Ok(folder);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    Err(InputError::invalid(
        "/agentSessionId",
        "the agent lists no such session below the workspace roots",
    )
    .into())
}
