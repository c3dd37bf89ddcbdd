//! The sessions that an agent lists, and the sessions of the gateway that use them.

use crate::session::context::Context;
use crate::session::error::{AgentSessionsError, InputError, SessionError};
use crate::session::folders::OUTSIDE_REMOTE_FOLDERS;
use crate::session::record::agent_session_prefix;
use agents::agent::{AgentFailure, AgentSpec};
use agents::pool::ShortLeaseError;
use base::types::{AgentName, Principal, SessionId, Tenant};
use events::api::{AgentSession, AgentSessionList};
use log::store::Table;
use wire::acp::{self, InitializeResult, RawObject, SessionListing, TraceContext, method};

/// The number of bytes of a session id at the end of a key.
const ID_BYTES: usize = 16;
/// The maximum number of gateway sessions that are read for one agent session. Agents may reuse ids.
const MAX_HOLDERS: usize = 16;

/// The newest session of the gateway that created or adopted this session of the agent. It may belong to another user.
pub(crate) async fn find_by_agent_session(
    context: &Context,
    tenant: &Tenant,
    agent: &AgentName,
    agent_session_id: &str,
) -> Result<Option<SessionId>, SessionError> {
    let prefix = agent_session_prefix(tenant, agent, agent_session_id);
    let length = prefix.len() + ID_BYTES;
    let found = context
        .log
        .scan(Table::AgentSession, prefix, None, MAX_HOLDERS)
        .await?;
    // A longer id with the same prefix has longer keys.
    let mut holders = found.iter().filter(|(key, _)| key.len() == length);
    // The session id is at the end of the key.
    let id = holders
        .next_back()
        .and_then(|(key, _)| key.last_chunk::<ID_BYTES>());
    Ok(id.map(|id| SessionId::from_uuid(uuid::Uuid::from_bytes(*id))))
}

/// A page of the agent's list, without the sessions outside of the workspace roots.
pub(crate) async fn list(
    context: &Context,
    by: &Principal,
    spec: &AgentSpec,
    cwd: Option<String>,
    cursor: Option<&str>,
    trace: Option<&TraceContext>,
) -> Result<AgentSessionList, AgentSessionsError> {
    let resolve = folder_resolver(context, by, spec);
    let resolve_cwd = move || cwd.map(|cwd| resolve("cwd", &cwd)).transpose();
    let cwd = context.shutdown.spawn_blocking(resolve_cwd).await??;
    let supported = |initialized: &InitializeResult| initialized.capabilities.session.list;
    let mut visit = context
        .pool
        .short_lease_for(method::SESSION_LIST, spec, by, supported)
        .await?;
    let params = acp::list_sessions(cwd.as_deref(), cursor, trace);
    let result = visit
        .call(
            method::SESSION_LIST,
            &params,
            context.pool.limits().call_timeout,
        )
        .await;
    let result = result.map_err(ShortLeaseError::from)?;
    visit.release_untouched();
    let Some(listing) = SessionListing::parse(&result) else {
        let detail = "invalid result of session/list: not a list of sessions".to_owned();
        return Err(ShortLeaseError::Agent(AgentFailure::Start { detail }).into());
    };
    let folders: Vec<String> = listing
        .sessions
        .iter()
        .map(|listed| listed.cwd.to_string())
        .collect();
    let resolve = folder_resolver(context, by, spec);
    let below_root = move |folder: &String| folder.starts_with('/') && resolve("", folder).is_ok();
    let look = move || folders.iter().map(below_root).collect::<Vec<bool>>();
    let inside = context.shutdown.spawn_blocking(look).await?;
    let mut sessions = Vec::new();
    for (listed, _) in listing
        .sessions
        .iter()
        .zip(inside)
        .filter(|(_, inside)| *inside)
    {
        let members = RawObject::parse(listed.entry).map(|entry| {
            let theirs = entry
                .iter()
                .filter(|(name, _)| !AgentSession::RESERVED_MEMBERS.contains(name));
            theirs
                .map(|(name, value)| (name.to_owned(), acp::to_one_line(value.to_owned())))
                .collect()
        });
        let tenant = by.user.tenant();
        let holder =
            find_by_agent_session(context, &tenant, &spec.name, &listed.session_id).await?;
        if holder.is_some_and(|holder| context.log.owner(holder) != Some(by.user.clone())) {
            continue;
        }
        sessions.push(AgentSession {
            agent_session_id: listed.session_id.to_string(),
            session_id: holder,
            members: members.unwrap_or_default(),
        });
    }
    Ok(AgentSessionList {
        sessions,
        next_cursor: listing.next_cursor.map(Into::into),
    })
}

/// Resolves a folder of the agent. Its first argument names the field in the error. Blocks on the file system if the agent runs
/// on this host.
fn folder_resolver(
    context: &Context,
    by: &Principal,
    spec: &AgentSpec,
) -> impl Fn(&str, &str) -> Result<String, InputError> + use<> {
    let folders = context.folders_of(by);
    let remote = spec.endpoint.remote_folders().cloned();
    move |pointer, folder| {
        if let Some(remote) = &remote {
            let outside = || InputError::invalid(pointer, OUTSIDE_REMOTE_FOLDERS);
            return remote.folder(Some(folder)).ok_or_else(outside);
        }
        let real = folders.resolve(pointer, folder)?;
        Ok(real.to_string_lossy().into_owned())
    }
}
