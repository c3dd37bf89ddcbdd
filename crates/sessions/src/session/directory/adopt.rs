//! Sessions that begin at the agent: adopted ones, which exist only there, and forks with their history.

use serde_json::value::RawValue;

use crate::session::command::ClientCall;
use crate::session::context::Context;
use crate::session::directory::{Adoptions, SessionDirectory};
use crate::session::error::{AgentSessionsError, CreateError, InputError, ProcessError};
use crate::session::handle::SessionHandle;
use crate::session::idempotency::{Claim, IdempotencyKey, Responded};
use crate::session::query::agent_sessions;
use crate::session::validation::{Origin, can_fork, parse_servers};
use agents::agent::{AgentFailure, AgentSpec};
use agents::pool::ShortLeaseError;
use base::types::text::check_name;
use base::types::{Access, AgentName, KeyedGuard, Principal, Scope, Tenant};
use events::api::{CreateSession, McpServer, Session};
use wire::acp::{self, TraceContext};
use wire::jsonrpc::RpcError;

/// The maximum number of bytes of an agent's session id.
const AGENT_SESSION_ID_BYTES: usize = 1024;
const MAX_LIST_PAGES: usize = 20;

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
    let tenant = by.user.tenant();
    let guard = adoptions.acquire((tenant.clone(), agent.clone(), id.to_owned()), 1);
    let guard = guard.ok_or_else(|| in_use("another request is adopting this session"))?;
    let holder = agent_sessions::find_by_agent_session(context, &tenant, agent, id).await?;
    let Some(holder) = holder else {
        return Ok(guard);
    };
    let detail = if context.log.owner(holder) == Some(by.user.clone()) {
        format!("session {holder} already uses this session of the agent")
    } else {
        "another session already uses this session of the agent".to_owned()
    };
    Err(in_use(&detail).into())
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

pub(super) async fn find_listed_folder(
    context: &Context,
    by: &Principal,
    spec: &AgentSpec,
    id: &str,
    trace: Option<&TraceContext>,
) -> Result<String, AgentSessionsError> {
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_LIST_PAGES {
        let page = agent_sessions::list(context, by, spec, None, cursor.as_deref(), trace).await.map_err(
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

impl SessionDirectory {
    /// Creates a fork of a session with its history, and with the MCP servers that the client brings. The operation continues if
    /// the caller is dropped.
    pub async fn fork(
        &self,
        by: &Principal,
        parent: &SessionHandle,
        servers: &[McpServer],
        key: Option<IdempotencyKey>,
        trace: Option<TraceContext>,
    ) -> Result<Responded<Session>, CreateError> {
        parent.require(Access::Own)?;
        if parent.log().owner() != &by.user {
            let detail =
                "only the owner can fork a session: the fork keeps the folders of its parent";
            return Err(InputError::Forbidden(detail.to_owned()).into());
        }
        let servers = parse_servers(by, servers)?;
        let directory = self.clone();
        let owner = by.clone();
        let parent = parent.clone();
        let create = async move |claim| {
            directory
                .create_fork(&owner, &parent, servers, trace, claim)
                .await
        };
        self.create_once(by, key, create).await
    }

    async fn create_fork(
        &self,
        by: &Principal,
        parent: &SessionHandle,
        servers: Vec<acp::McpServer>,
        trace: Option<TraceContext>,
        claim: Option<Claim>,
    ) -> Result<Session, CreateError> {
        let context = self.context();
        // The parent's actor checks the capabilities again.
        let agent = parent.query().record().await?.agent;
        if let Some(known) = context.initialized(&agent, &by.user) {
            can_fork(&known.capabilities)?;
        }
        let result = parent.call(by, ClientCall::Fork, trace.clone()).await?;
        let agent_session_id = new_session_id(&result)?;
        let mut record = parent.query().record().await?;
        // Another client may have adopted the fork in the meantime.
        let _adoption = begin_adoption(
            context,
            &self.adoptions,
            by,
            &record.agent,
            &agent_session_id,
        )
        .await?;
        record.begin_fork(
            context.log.new_session_id(),
            by,
            agent_session_id,
            context.ids.now(),
        );
        let session = self
            .start_actor(
                record.clone(),
                servers,
                Origin::Forked(parent.id()),
                claim,
                trace,
            )
            .await;
        session.inspect_err(|_| {
            // No session of the gateway refers to the fork, so the agent must delete it.
            context.delete_at_agent(&record, by, None);
        })
    }
}

fn new_session_id(result: &RawValue) -> Result<String, ProcessError> {
    let new = acp::parse::<acp::NewSessionResult<'_>>(result).map_err(|error| {
        let message = format!("invalid result of session/fork: {error}");
        AgentFailure::Rpc(RpcError {
            code: acp::error_code::INTERNAL,
            message,
            data: None,
        })
    })?;
    Ok(new.session_id.into_owned())
}
