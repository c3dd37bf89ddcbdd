//! `/v1/agents`: the catalogue of agents.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use crate::agent::AgentSpec;
use crate::api::{Agent, AgentList, AgentSessionList, PoolFigures};
use crate::pool::PoolStats;
use crate::surface::Gateway;
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{AgentPath, Authorized, CanAdmin, CanRead, NoQuery, Params, Trace};
use crate::types::{PoolSettings, Principal};

/// Lists the agents that can run sessions.
#[utoipa::path(
    get,
    path = "/v1/agents",
    tag = "agents",
    responses((status = 200, body = AgentList, description = "All agents. There is only one page."))
)]
pub(super) async fn list_agents(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    NoQuery: NoQuery,
) -> Json<AgentList> {
    let agents = gateway.catalogue.load().agents().map(|spec| agent_info(&gateway, &by, spec)).collect();
    Json(AgentList { agents, next_cursor: None })
}

/// Gets one agent.
#[utoipa::path(
    get,
    path = "/v1/agents/{agent}",
    tag = "agents",
    responses((status = 200, body = Agent, description = "The agent, with the capabilities from the latest start of its process."))
)]
pub(super) async fn get_agent(
    State(gateway): State<Gateway>,
    by: Authorized<CanRead>,
    AgentPath(name): AgentPath,
    NoQuery: NoQuery,
) -> Result<Json<Agent>, ApiError> {
    let spec = gateway.catalogue.agent(&name).ok_or_else(ApiError::not_found)?;
    Ok(Json(agent_info(&gateway, &by, &spec)))
}

/// Lists the sessions that the agent itself has.
///
/// The list contains only sessions whose folder is below a workspace root, with all details from the agent.
/// The agent must support `session/list`.
#[utoipa::path(
    get,
    path = "/v1/agents/{agent}/sessions",
    tag = "agents",
    params(
        ("cwd" = Option<String>, Query, max_length = 4096, description = "Only sessions in this working folder."),
        ("cursor" = Option<String>, Query, max_length = 4096, description = "The `nextCursor` of the previous page."),
    ),
    responses((status = 200, body = AgentSessionList, description = "A page of the agent's sessions."))
)]
pub(super) async fn list_agent_sessions(
    State(gateway): State<Gateway>,
    by: Authorized<CanAdmin>,
    AgentPath(name): AgentPath,
    Trace(trace): Trace,
    mut params: Params,
) -> Result<Json<AgentSessionList>, ApiError> {
    let spec = gateway.catalogue.agent(&name).ok_or_else(ApiError::not_found)?;
    let (cwd, cursor) = (params.short("cwd", 4096)?, params.short("cursor", 4096)?);
    params.finish()?;
    let query = (cwd, cursor.as_deref());
    Ok(Json(gateway.sessions.agent_sessions(&by, &spec, query, trace.as_ref()).await?))
}

/// The agent's entry, its pool, and the `initialize` result of the latest start of its process.
fn agent_info(gateway: &Gateway, by: &Principal, spec: &AgentSpec) -> Agent {
    let (figures, initialized) = gateway.pool.agent_stats(&spec.name, &by.tenant).unzip();
    let initialized = initialized.flatten();
    let said = initialized.as_deref();
    let info = said.and_then(|said| said.agent_info.clone());
    let names: DisplayNames =
        info.as_ref().and_then(|info| serde_json::from_str(info.get()).ok()).unwrap_or_default();
    Agent {
        name: spec.name.clone(),
        title: names.title.or_else(|| Some(spec.title.clone())),
        version: names.version,
        protocol_version: said.map(|said| said.acp_version.number()),
        agent_info: info,
        capabilities: said.map(|said| said.raw_capabilities.clone()),
        auth_methods: said.and_then(|said| said.auth_methods.clone()),
        pool: figures.map(|figures| pool_figures(&figures, &spec.settings.pool)).unwrap_or_default(),
    }
}

/// The members of `agentInfo` that the API shows.
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
