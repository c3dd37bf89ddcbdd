//! The sessions that an agent lists, and the sessions of the gateway that use them.

use crate::acp::{self, InitializeResult, RawObject, SessionListing, TraceContext, method};
use crate::agent::{AgentFailure, AgentSpec};
use crate::api::{AgentSession, AgentSessionList};
use crate::session::context::Context;
use crate::session::record::agent_session_prefix;
use crate::session::refusal::Refusal;
use crate::store::Table;
use crate::types::{AgentName, Principal, SessionId};

/// The number of bytes of a session id at the end of a key.
const ID_BYTES: usize = 16;
/// The maximum number of gateway sessions that are read for one agent session. Agents may reuse ids.
const MAX_HOLDERS: usize = 16;

/// The newest session of the gateway that created or adopted this session of the agent.
pub(in crate::session) async fn find_by_agent_session(
    context: &Context,
    by: &Principal,
    agent: &AgentName,
    agent_session_id: &str,
) -> Result<Option<SessionId>, Refusal> {
    let prefix = agent_session_prefix(&by.tenant, agent, agent_session_id);
    let length = prefix.len() + ID_BYTES;
    let found = context.log.scan(Table::AgentSession, prefix, None, MAX_HOLDERS).await;
    let found = found.map_err(|error| Refusal::internal(&error))?;
    // A longer id with the same prefix has longer keys.
    let mut holders = found.iter().filter(|(key, _)| key.len() == length);
    Ok(holders.next_back().and_then(|(key, _)| session_id_from_key(key)))
}

/// A page of the agent's list, without the sessions outside of the workspace roots.
pub(in crate::session) async fn list(
    context: &Context,
    by: &Principal,
    spec: &AgentSpec,
    (cwd, cursor): (Option<String>, Option<&str>),
    trace: Option<&TraceContext>,
) -> Result<AgentSessionList, Refusal> {
    let cwd = match cwd {
        Some(cwd) => {
            let workspaces = context.workspaces.clone();
            let real = context.shutdown.spawn_blocking(move || workspaces.resolve("cwd", &cwd)).await;
            let real = real.map_err(|error| Refusal::internal(&error))??;
            Some(real.to_string_lossy().into_owned())
        }
        None => None,
    };
    let supported = |initialized: &InitializeResult| initialized.capabilities.session.list;
    let mut visit = context.pool.short_lease_for(method::SESSION_LIST, spec, by, supported).await?;
    let params = acp::list_sessions(cwd.as_deref(), cursor, trace);
    let result = visit.call(method::SESSION_LIST, &params, context.limits.call_timeout).await?;
    visit.release_untouched();
    let Some(listing) = SessionListing::parse(&result) else {
        let detail = "invalid result of session/list: not a list of sessions".to_owned();
        return Err(AgentFailure::Start { detail }.into());
    };
    let inside =
        exist_below_roots(context, listing.sessions.iter().map(|listed| listed.cwd.to_string()).collect())
            .await?;
    let mut sessions = Vec::new();
    for (listed, inside) in listing.sessions.iter().zip(inside) {
        if inside {
            let ours = find_by_agent_session(context, by, &spec.name, &listed.session_id).await?;
            let members = RawObject::parse(listed.entry).map(|entry| {
                let theirs = entry.iter().filter(|(name, _)| !AgentSession::RESERVED_MEMBERS.contains(name));
                theirs.map(|(name, value)| (name.to_owned(), acp::to_one_line(value.to_owned()))).collect()
            });
            sessions.push(AgentSession {
                agent_session_id: listed.session_id.to_string(),
                session_id: ours,
                members: members.unwrap_or_default(),
            });
        }
    }
    Ok(AgentSessionList { sessions, next_cursor: listing.next_cursor.map(Into::into) })
}

/// Whether each folder exists and is below a workspace root.
async fn exist_below_roots(context: &Context, folders: Vec<String>) -> Result<Vec<bool>, Refusal> {
    let workspaces = context.workspaces.clone();
    let look = move || {
        let inside = |folder: &String| folder.starts_with('/') && workspaces.resolve("", folder).is_ok();
        folders.iter().map(inside).collect()
    };
    context.shutdown.spawn_blocking(look).await.map_err(|error| Refusal::internal(&error))
}

/// The session id at the end of a key.
fn session_id_from_key(key: &[u8]) -> Option<SessionId> {
    let id = key.last_chunk::<ID_BYTES>()?;
    Some(SessionId::from_uuid(uuid::Uuid::from_bytes(*id)))
}
