//! `/v1/agents`: the catalogue of agents.

use std::num::ParseIntError;
use std::str::FromStr;

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::registry::{Entry, ListingError};
use crate::surface::http::{ApiError, ApiRequest, CanAdmin, CanRead, Gateway, JsonBody, Params};
use agents::agent::{AgentSpec, Endpoint, INVALID_ENTRY};
use agents::pool::{PoolProcess, PoolStats, Priority};
use base::telemetry::ErrorChain;
use base::types::{AgentKind, AgentName, PoolSettings, Principal};
use events::api::{
    Agent, AgentAvailability, AgentList, AgentProcess, AgentProcessList, AgentSessionList,
    AgentStatus, CurrentTask, InstallableAgent, InstallableAgentList, PoolFigures, ProblemCode,
    RpcCall, RpcResult,
};
use sessions::session::InputError;
use wire::acp::client_input_policy::{check_method, check_params};
use wire::acp::{null_to_empty, to_one_line, with_trace};
use wire::fleet::{MemberState, MemberStatus};

/// Lists the agents that can run sessions.
///
/// Entries are sorted by name and have the state of the pool of this tenant. Without `limit` the page has all agents.
#[utoipa::path(get, path = "/v1/agents", responses(
    (status = 200, body = AgentList, description = "A page of agents."),
))]
pub(super) async fn list_agents(
    mut request: ApiRequest<CanRead, (), Params>,
) -> Result<Json<AgentList>, ApiError> {
    let page = request.params.page::<AgentName>()?;
    request.params.finish()?;
    let catalogue = request.gateway.catalogue.load();
    let agents = catalogue.agents();
    let agents = agents
        .map(|spec| agent_info(&request.gateway, &request.by, spec))
        .collect();
    let (agents, next_cursor) = page.select(agents, |agent: &Agent| agent.name.clone());
    Ok(Json(AgentList {
        agents,
        next_cursor,
    }))
}

/// Gets one agent.
///
/// `capabilities`, `authMethods` and `agentInfo` are null until a process of the agent has started once.
#[utoipa::path(get, path = "/v1/agents/{agent}", responses(
    (status = 200, body = Agent, description = "The agent, with the capabilities from the latest start of its process."),
))]
pub(super) async fn get_agent(
    request: ApiRequest<CanRead, AgentName>,
) -> Result<Json<Agent>, ApiError> {
    let spec = request.agent()?;
    Ok(Json(agent_info(&request.gateway, &request.by, &spec)))
}

/// Lists the processes of an agent with their states.
///
/// The list contains the processes that run sessions of the own tenant, also those of a member of the fleet. For an agent on
/// another host, each connection is a process.
#[utoipa::path(get, path = "/v1/agents/{agent}/status", responses(
    (status = 200, body = AgentProcessList, description = "A page of processes."),
))]
pub(super) async fn list_agent_processes(
    mut request: ApiRequest<CanRead, AgentName, Params>,
) -> Result<Json<AgentProcessList>, ApiError> {
    let page = request.params.page::<Uuid>()?;
    request.params.finish()?;
    let spec = request.agent()?;
    let pool = request.gateway.pool();
    let processes = pool.processes(&request.by.tenant, Some(&spec.name));
    let processes = processes.iter().map(agent_process).collect();
    let (processes, next_cursor) =
        page.select(processes, |process: &AgentProcess| process.agent_id);
    Ok(Json(AgentProcessList {
        processes,
        next_cursor,
    }))
}

/// Lists the sessions that the agent itself has.
///
/// The list contains only sessions whose folder is below a workspace root, with all details from the agent.
/// The agent must support `session/list`.
#[utoipa::path(get, path = "/v1/agents/{agent}/sessions", responses(
    (status = 200, body = AgentSessionList, description = "A page of the agent's sessions."),
))]
pub(super) async fn list_agent_sessions(
    mut request: ApiRequest<CanAdmin, AgentName, Params>,
) -> Result<Json<AgentSessionList>, ApiError> {
    let spec = request.agent()?;
    let cwd = request.params.short("cwd", 4096)?;
    let position = request
        .params
        .parsed::<AgentPosition>("cursor", "the nextCursor of a previous page")?;
    let limit = request
        .params
        .limit(MAX_AGENT_SESSIONS, MAX_AGENT_SESSIONS)?;
    request.params.finish()?;
    let AgentPosition { skipped, cursor } = position.unwrap_or_default();
    let of_agent = Some(cursor.as_str()).filter(|cursor| !cursor.is_empty());
    let trace = request.trace.as_ref();
    let mut page = request
        .gateway
        .sessions
        .agent_sessions(&request.by, &spec, (cwd, of_agent), trace)
        .await?;
    page.sessions.drain(..skipped.min(page.sessions.len()));
    let next = if page.sessions.len() > limit {
        page.sessions.truncate(limit);
        Some(AgentPosition {
            skipped: skipped + limit,
            cursor,
        })
    } else {
        let next = page.next_cursor;
        next.map(|cursor| AgentPosition { skipped: 0, cursor })
    };
    page.next_cursor = next.map(|next| format!("{}~{}", next.skipped, next.cursor));
    Ok(Json(page))
}

const MAX_AGENT_SESSIONS: usize = 1000;

/// A position in the sessions of an agent: its own cursor, and the number of entries of its page that a client has read. Agents
/// know no size of a page.
#[derive(Default)]
struct AgentPosition {
    skipped: usize,
    cursor: String,
}

impl FromStr for AgentPosition {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let parts = text.split_once('~');
        let skipped = parts.map_or(text, |(skipped, _)| skipped).parse()?;
        let cursor = parts.map_or("", |(_, cursor)| cursor).to_owned();
        Ok(Self { skipped, cursor })
    }
}

fn agent_process(process: &PoolProcess) -> AgentProcess {
    let turn = process
        .holder
        .and_then(|holder| Some((holder.session, holder.turn?)));
    AgentProcess {
        agent_id: process.id,
        state: process.state,
        current_task: turn.map(|(session_id, (prompt_id, started_at))| CurrentTask {
            session_id,
            prompt_id,
            started_at,
        }),
        uptime_seconds: process.uptime.as_secs(),
    }
}

fn agent_info(gateway: &Gateway, by: &Principal, spec: &AgentSpec) -> Agent {
    let (figures, initialized) = gateway.pool().agent_stats(&spec.name, &by.tenant).unzip();
    let initialized = initialized.flatten();
    let is_member = spec.endpoint.kind() == AgentKind::Fleet;
    let member = gateway
        .fleet
        .member(&spec.name)
        .filter(|_| is_member)
        .map(|member| member.status());
    let answer = initialized.as_deref();
    let info = answer.and_then(|answer| answer.agent_info.clone());
    let names: DisplayNames = info
        .as_ref()
        .and_then(|info| serde_json::from_str(info.get()).ok())
        .unwrap_or_default();
    Agent {
        name: spec.name.clone(),
        kind: spec.endpoint.kind(),
        dialect: spec.settings.dialect,
        status: status(spec, member.as_ref(), figures.as_ref()),
        title: names.title.or_else(|| Some(spec.title.clone())),
        version: names.version,
        protocol_version: answer.map(|answer| answer.acp_version.number()),
        agent_info: info,
        capabilities: answer.map(|answer| answer.raw_capabilities.clone()),
        auth_methods: answer.and_then(|answer| answer.auth_methods.clone()),
        isolation: figures.as_ref().and_then(|figures| figures.isolation),
        pool: figures
            .map(|figures| pool_figures(&figures, &spec.settings.pool))
            .unwrap_or_default(),
    }
}

/// Whether new sessions can start: by the connection of a member, then by the last start.
fn status(
    spec: &AgentSpec,
    member: Option<&MemberStatus>,
    figures: Option<&PoolStats>,
) -> AgentStatus {
    let of_member = member.and_then(|member| match member.state {
        MemberState::Disconnected => Some(AgentAvailability::Disconnected),
        MemberState::Reconnecting => Some(AgentAvailability::Reconnecting),
        MemberState::Connected => member.draining.then_some(AgentAvailability::Draining),
    });
    let error = if spec.endpoint == Endpoint::Invalid {
        Some(INVALID_ENTRY)
    } else {
        figures.and_then(|figures| figures.start_error.as_deref())
    };
    let (state, detail) = match (of_member, error) {
        (Some(state), _) => (state, None),
        (None, Some(error)) => (AgentAvailability::Unavailable, Some(error.to_owned())),
        (None, None) => (AgentAvailability::Available, None),
    };
    AgentStatus { state, detail }
}

#[derive(Debug, Default, Deserialize)]
struct DisplayNames {
    title: Option<String>,
    version: Option<String>,
}

fn pool_figures(figures: &PoolStats, settings: &PoolSettings) -> PoolFigures {
    PoolFigures {
        max_size: settings.max_size,
        processes: figures.live,
        starting: figures.starting,
        leased: figures.leased,
        min_idle: figures.min_idle,
        idle: figures.idle,
        waiting: figures.queued,
        keeps_sessions_locked: figures.keeps_sessions_locked,
        idle_timeout_seconds: settings.idle_timeout.as_secs(),
        no_load_idle_timeout_seconds: settings.no_load_idle_timeout.as_secs(),
        no_load_reclaim_timeout_seconds: settings.no_load_reclaim_timeout.as_secs(),
    }
}

/// Lists the agents of the registry, which the operator can install with `acp-gateway agent add`.
///
/// The gateway keeps the list for 10 minutes. Without `registry.source` it is empty.
#[utoipa::path(get, path = "/v1/registry", responses(
    (status = 200, body = InstallableAgentList, description = "A page of the agents of the registry."),
))]
pub(super) async fn list_installable_agents(
    mut request: ApiRequest<CanAdmin, (), Params>,
) -> Result<Json<InstallableAgentList>, ApiError> {
    let page = request.params.page::<String>()?;
    request.params.finish()?;
    let registry = &request.gateway.registry;
    let unavailable = |error: ListingError| {
        ApiError::new(
            ProblemCode::RegistryUnavailable,
            ErrorChain(&error).to_string(),
        )
    };
    let entries = registry.entries().await.map_err(unavailable)?;
    let shown = |entry: &Entry| InstallableAgent {
        id: entry.id.clone(),
        name: entry.name.clone(),
        version: entry.version.clone(),
        description: entry.description.clone(),
        kinds: entry.kinds().iter().map(ToString::to_string).collect(),
    };
    let agents = entries.iter().map(shown).collect();
    let (agents, next_cursor) = page.select(agents, |agent: &InstallableAgent| agent.id.clone());
    Ok(Json(InstallableAgentList {
        configured: registry.is_configured(),
        agents,
        next_cursor,
    }))
}

/// Calls a method of the agent by name, outside a session.
///
/// The method must be in the list `rpc` of the agent's entry. The gateway sends `params` unchanged.
#[utoipa::path(post, path = "/v1/agents/{agent}/rpc", request_body = RpcCall, responses(
    (status = 200, body = RpcResult, description = "The result from the agent."),
    (status = 202, description = "The notification was sent."),
))]
pub(super) async fn call_agent(
    request: ApiRequest<CanAdmin, AgentName>,
    body: JsonBody<RpcCall>,
) -> Result<Response, ApiError> {
    let spec = request.agent()?;
    let call = body.value;
    let params = check_call(&spec, &call.method, call.params)?;
    let params = with_trace(&params, request.trace.as_ref());
    let pool = request.gateway.pool();
    let mut lease = pool
        .short_lease(&spec, &request.by, Priority::Reclaim)
        .await?;
    if call.notify {
        lease.notify(&call.method, &params)?;
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    let timeout = request.gateway.limits.call_timeout;
    let result = lease.call(&call.method, &params, timeout).await?;
    Ok(Json(RpcResult {
        result: to_one_line(result),
    })
    .into_response())
}

fn check_call(
    spec: &AgentSpec,
    method: &str,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>, ApiError> {
    check_method(&spec.settings, method)
        .map_err(|gated| InputError::from_policy(&gated, "/method"))?;
    let params = params.map_or_else(|| null_to_empty(RawValue::NULL), to_one_line);
    check_params(&spec.settings, &params)
        .map_err(|gated| InputError::from_policy(&gated, "/params"))?;
    Ok(params)
}
