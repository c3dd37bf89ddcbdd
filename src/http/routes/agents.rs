//! `/v1/agents`: the catalogue of agents.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use crate::agent::AgentSpec;
use crate::api::{Agent, AgentList, AgentSessionList, PoolFigures};
use crate::http::error::ApiError;
use crate::http::extract::{AgentPath, By, CanAdmin, CanRead, NoQuery, Params, Trace};
use crate::http::state::Gateway;
use crate::pool::Figures;

/// Lists the agents that can run sessions.
#[utoipa::path(
    get,
    path = "/v1/agents",
    tag = "agents",
    responses((status = 200, body = AgentList, description = "All agents. There is only one page."))
)]
pub(in crate::http) async fn list_agents(
    State(gateway): State<Gateway>,
    _by: By<CanRead>,
    NoQuery: NoQuery,
) -> Json<AgentList> {
    let agents = gateway.catalogue.now().agents().map(|spec| shown(&gateway, spec)).collect();
    Json(AgentList { agents, next_cursor: None })
}

/// Gets one agent.
#[utoipa::path(
    get,
    path = "/v1/agents/{agent}",
    tag = "agents",
    responses((status = 200, body = Agent, description = "The agent, with the capabilities from the latest start of its process."))
)]
pub(in crate::http) async fn get_agent(
    State(gateway): State<Gateway>,
    _by: By<CanRead>,
    AgentPath(name): AgentPath,
    NoQuery: NoQuery,
) -> Result<Json<Agent>, ApiError> {
    let spec = gateway.catalogue.agent(&name).ok_or_else(ApiError::not_found)?;
    Ok(Json(shown(&gateway, &spec)))
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
pub(in crate::http) async fn list_agent_sessions(
    State(gateway): State<Gateway>,
    by: By<CanAdmin>,
    AgentPath(name): AgentPath,
    Trace(trace): Trace,
    mut params: Params,
) -> Result<Json<AgentSessionList>, ApiError> {
    let spec = gateway.catalogue.agent(&name).ok_or_else(ApiError::not_found)?;
    let (cwd, cursor) = (params.short("cwd", 4096)?, params.short("cursor", 4096)?);
    params.end()?;
    let query = (cwd, cursor.as_deref());
    Ok(Json(gateway.sessions.agent_sessions(&by, &spec, query, trace.as_ref()).await?))
}

/// The agent's entry, its pool, and the `initialize` result of the latest start of its process.
fn shown(gateway: &Gateway, spec: &AgentSpec) -> Agent {
    let (figures, initialized) = gateway.pool.agent(&spec.name).unzip();
    let initialized = initialized.flatten();
    let said = initialized.as_deref();
    let info = said.and_then(|said| said.agent_info.clone());
    let names: Names =
        info.as_ref().and_then(|info| serde_json::from_str(info.get()).ok()).unwrap_or_default();
    Agent {
        name: spec.name.clone(),
        title: names.title.or_else(|| Some(spec.title.clone())),
        version: names.version,
        protocol_version: said.map(|said| said.dialect.version()),
        agent_info: info,
        capabilities: said.map(|said| said.raw_capabilities.clone()),
        auth_methods: said.and_then(|said| said.auth_methods.clone()),
        pool: figures.as_ref().map(pool).unwrap_or_default(),
    }
}

/// The members of `agentInfo` that the API shows.
#[derive(Debug, Default, Deserialize)]
struct Names {
    title: Option<String>,
    version: Option<String>,
}

fn pool(figures: &Figures) -> PoolFigures {
    PoolFigures {
        max: figures.max,
        processes: figures.live,
        starting: figures.starting,
        leased: figures.leased,
        warm: figures.warm,
        spare: figures.spare,
        waiting: figures.waiting,
        keeps_sessions_locked: figures.keeps_sessions_locked,
        idle_timeout_seconds: figures.idle_timeout.as_secs(),
        no_load_idle_timeout_seconds: figures.no_load_idle_timeout.as_secs(),
        no_load_reclaim_timeout_seconds: figures.no_load_reclaim_timeout.as_secs(),
    }
}
