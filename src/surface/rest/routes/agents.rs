//! `/v1/agents`: the catalogue of agents, and the sign-in to an agent.

use std::borrow::Cow;
use std::num::{NonZeroU16, ParseIntError};
use std::str::FromStr;
use std::sync::Arc;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::operations::Routes;
use crate::registry::{Entry, FoundAgent, ListingError, OrderError};
use crate::server::ConnectionPermit;
use crate::surface::http::{
    ApiError, ApiRequest, AppState, CanAdmin, CanRead, JsonBody, Page, Params, Result,
    accept_socket, call_sign_in, location,
};
use crate::surface::rest::sign_in_socket::SignInSocket;
use agents::agent::client_input_policy::{check_meta, check_method, check_params};
use agents::agent::{AgentSpec, Endpoint, INVALID_ENTRY, PoolSettings};
use agents::pool::{PoolProcess, PoolStats, Priority, ShortLeaseError};
use base::telemetry::ErrorChain;
use base::types::{AgentName, Principal};
use children::PtySize;
use events::api::{
    Agent, AgentAuth, AgentAvailability, AgentList, AgentOnPath, AgentProcess, AgentProcessList,
    AgentSessionList, AgentStatus, ApiKey, CurrentTask, InstallableAgent, InstallableAgentList,
    Installation, InstallationSource, InstallationState, NewInstallation, PoolFigures, ProblemCode,
    PublicPath, RegistryInfo, RpcCall, RpcResult, SignIn, SignInTerminal,
};
use events::event::SignedOut;
use log::audit::SignInRecord;
use sessions::session::InputError;
use wire::acp::auth::{self, AuthMethod, AuthMethodError, TerminalAuth};
use wire::acp::known_agents::api_key_format;
use wire::acp::{InitializeResult, KnownAgent, null_to_empty, to_one_line, with_trace};
use wire::fleet::{MemberState, MemberStatus};

pub(super) fn routes() -> Routes {
    routes![
        list_agents,
        get_agent,
        list_agent_sessions,
        list_agent_processes,
        call_agent,
        list_installable_agents,
        get_installation,
        install_agent,
        get_auth,
        sign_in,
        sign_out,
        open_terminal
    ]
}

/// Lists the agents that can run sessions.
///
/// Entries are sorted by name and have the state of the pool of this tenant. Without `limit` the page has all agents.
#[utoipa::path(get, path = "/v1/agents", responses(
    (status = 200, body = AgentList, description = "A page of agents."),
))]
async fn list_agents(request: ApiRequest<CanRead, (), Page<AgentName>>) -> Result<Json<AgentList>> {
    let info = |spec: &Arc<AgentSpec>| agent_info(&request.app, &request.by, spec);
    let catalogue = request.app.catalogue.load();
    let agents = catalogue.agents().map(info).collect();
    let (agents, next_cursor) = request.params.select(agents, |agent| agent.name.clone());
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
async fn get_agent(request: ApiRequest<CanRead, AgentName>) -> Result<Json<Agent>> {
    let spec = request.agent()?;
    Ok(Json(agent_info(&request.app, &request.by, &spec)))
}

/// Lists the processes of an agent with their states.
///
/// The list contains the processes that sessions of the user use, and unused ones, also those of a member of the fleet. For
/// an agent on another host, each connection is a process.
#[utoipa::path(get, path = "/v1/agents/{agent}/status", responses(
    (status = 200, body = AgentProcessList, description = "A page of processes."),
))]
async fn list_agent_processes(
    request: ApiRequest<CanRead, AgentName, Page<Uuid>>,
) -> Result<Json<AgentProcessList>> {
    let spec = request.agent()?;
    let pool = request.app.pool();
    let processes = pool.processes_of(&request.by.user, Some(&spec.name));
    let processes = processes.iter().map(agent_process).collect();
    let (processes, next_cursor) = request.params.select(processes, |process| process.agent_id);
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
async fn list_agent_sessions(
    mut request: ApiRequest<CanAdmin, AgentName, Params>,
) -> Result<Json<AgentSessionList>> {
    let spec = request.agent()?;
    let params = &mut request.params;
    let cwd = params.short("cwd", 4096)?;
    let position: Option<AgentPosition> =
        params.parsed("cursor", "the nextCursor of a previous page")?;
    let limit = params.limit(MAX_AGENT_SESSIONS, MAX_AGENT_SESSIONS)?;
    params.finish()?;
    let AgentPosition { skipped, cursor } = position.unwrap_or_default();
    let of_agent = Some(cursor.as_str()).filter(|cursor| !cursor.is_empty());
    let trace = request.trace.as_ref();
    let sessions = &request.app.sessions;
    let page = sessions.agent_sessions(&request.by, &spec, cwd, of_agent, trace);
    let mut page = page.await?;
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
    let current_task = process.holder.and_then(|holder| {
        let (prompt_id, started_at) = holder.turn?;
        Some(CurrentTask {
            session_id: holder.session,
            prompt_id,
            started_at,
        })
    });
    AgentProcess {
        agent_id: process.id,
        state: process.state,
        current_task,
        uptime_seconds: process.uptime.as_secs(),
    }
}

pub(super) fn agent_info(app: &AppState, by: &Principal, spec: &AgentSpec) -> Agent {
    let (figures, initialized) = app
        .pool()
        .agent_stats(&spec.name, &by.user.tenant())
        .unzip();
    let initialized = initialized.flatten();
    let member = if spec.is_member() {
        app.fleet.member(&spec.name)
    } else {
        None
    };
    let member = member.map(|member| member.status());
    let answer = initialized.as_deref();
    let info = answer.and_then(|answer| answer.agent_info.clone());
    let names = info.as_ref().map(|info| serde_json::from_str(info.get()));
    let names: DisplayNames = names.and_then(Result::ok).unwrap_or_default();
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

/// Lists the agents of the registry.
///
/// The gateway keeps the list for 10 minutes. Without `registry.source` it is empty, unless `default=true` permits the gateway to
/// load the registry of the ACP project.
#[utoipa::path(get, path = "/v1/registry", responses(
    (status = 200, body = InstallableAgentList, description = "A page of the agents of the registry."),
))]
async fn list_installable_agents(
    mut request: ApiRequest<CanAdmin, (), Params>,
) -> Result<Json<InstallableAgentList>> {
    let params = &mut request.params;
    let default: Option<bool> = params.parsed("default", "true or false")?;
    let page = Page::<String>::read(params)?;
    params.finish()?;
    let registry = &request.app.registry;
    let is_wanted = registry.is_configured() || default == Some(true);
    let unavailable = |error: ListingError| {
        let detail = ErrorChain(&error).to_string();
        ApiError::new(ProblemCode::RegistryUnavailable, detail)
    };
    let entries = if is_wanted && request.app.installations.permits_registry() {
        registry.entries().await.map_err(unavailable)?
    } else {
        Arc::default()
    };
    let shown = |entry: &Entry| InstallableAgent {
        id: entry.id.clone(),
        name: entry.name.clone(),
        version: entry.version.clone(),
        description: entry.description.clone(),
        kinds: entry.kinds().iter().map(ToString::to_string).collect(),
        key_variables: key_variables(KnownAgent::of_registry(&entry.id)),
    };
    let agents = entries.iter().map(shown).collect();
    let (agents, next_cursor) = page.select(agents, |agent| agent.id.clone());
    Ok(Json(InstallableAgentList {
        configured: registry.is_configured(),
        agents,
        next_cursor,
    }))
}

fn key_variables(known: Option<&KnownAgent>) -> Vec<String> {
    let names = known.iter().flat_map(|known| &known.suggested_variables);
    names.map(|name| (*name).to_owned()).collect()
}

/// Gets the agents that the gateway can add without a download, and the latest installation.
///
/// Poll it while `installation.status` is `running`.
#[utoipa::path(get, path = "/v1/installation", responses(
    (status = 200, body = InstallationState, description = "The agents on PATH, the registry, and the latest installation."),
))]
async fn get_installation(request: ApiRequest<CanAdmin>) -> Json<InstallationState> {
    let app = &request.app;
    let registry = app.installations.permits_registry().then(|| RegistryInfo {
        source: app.registry.source().place(),
        configured: app.registry.is_configured(),
        inherits: app.installations.is_personal(),
    });
    let on_path = addable_on_path(app).into_iter();
    let on_path = on_path.filter_map(|FoundAgent { known, command }| {
        Some(AgentOnPath {
            name: known.name.parse().ok()?,
            command: command.to_owned(),
            key_variables: key_variables(Some(known)),
        })
    });
    Json(InstallationState {
        registry,
        on_path: on_path.collect(),
        installation: app.installations.latest(),
    })
}

/// The known agents on PATH that the catalogue does not have.
fn addable_on_path(app: &AppState) -> Vec<FoundAgent> {
    let catalogue = app.catalogue.load();
    let mut found = app.installations.on_path();
    found.retain(|FoundAgent { known, .. }| {
        let is_same = |spec: &Arc<AgentSpec>| {
            spec.name.as_str() == known.name || spec.known.is_some_and(|spec| spec.row == *known)
        };
        !catalogue.agents().any(is_same)
    });
    found
}

/// Adds an agent to the configuration of the gateway.
///
/// An agent of the registry is downloaded, checked and started once, as with `acp-gateway agent add`. The gateway then writes its
/// entry into the configuration file and reads it. One installation runs at a time.
#[utoipa::path(post, path = "/v1/installation", request_body = NewInstallation, responses(
    (status = 202, body = Installation, description = "The installation runs."),
))]
async fn install_agent(
    request: ApiRequest<CanAdmin>,
    body: JsonBody<NewInstallation>,
) -> Result<Response> {
    let app = &request.app;
    let NewInstallation {
        agent,
        from,
        version,
    } = body.value;
    let found = match from {
        InstallationSource::Path => {
            let mut found = addable_on_path(app).into_iter();
            let found = found.find(|found| found.known.name == agent.as_str());
            let detail = "no known agent with this name is on PATH without an entry";
            let unknown = || ApiError::invalid("/agent", detail);
            Some(found.ok_or_else(unknown)?)
        }
        InstallationSource::Registry if !app.installations.permits_registry() => {
            let detail = "other users can reach this gateway, so it installs agents only from a registry of its operator: set \
                          registry.source, or run `acp-gateway agent add`";
            return Err(ApiError::new(ProblemCode::Forbidden, detail));
        }
        InstallationSource::Registry if version.is_none() => {
            return Err(ApiError::invalid(
                "/version",
                "the registry needs a version",
            ));
        }
        InstallationSource::Registry => None,
    };
    if app.catalogue.agent(&agent).is_some() {
        let detail = "the gateway has an agent with this name";
        return Err(ApiError::invalid("/agent", detail));
    }
    let author = request.by.author();
    let ordered = app.installations.order(&author, agent, version, found);
    let installation = ordered.map_err(|error| match error {
        OrderError::Running(_) => {
            ApiError::new(ProblemCode::InstallationRunning, error.to_string())
        }
        OrderError::Stopping => ApiError::draining(),
    })?;
    tracing::info!(agent = %installation.agent, by = request.by.user.name(), "adding an agent");
    let body = Json(installation);
    Ok((StatusCode::ACCEPTED, location("/v1/installation"), body).into_response())
}

/// Calls a method of the agent by name, outside a session.
///
/// The method must be in the list `rpc` of the agent's entry. The gateway sends `params` unchanged.
#[utoipa::path(post, path = "/v1/agents/{agent}/rpc", request_body = RpcCall, responses(
    (status = 200, body = RpcResult, description = "The result from the agent."),
    (status = 202, description = "The notification was sent."),
))]
async fn call_agent(
    request: ApiRequest<CanAdmin, AgentName>,
    body: JsonBody<RpcCall>,
) -> Result<Response> {
    let spec = request.agent()?;
    let call = body.value;
    let params = check_call(&spec, &call.method, call.params)?;
    let params = with_trace(&params, request.trace.as_ref());
    let pool = request.app.pool();
    let lease = pool.short_lease(&spec, &request.by, Priority::Reclaim);
    let mut lease = lease.await?;
    if call.notify {
        lease.notify(&call.method, &params)?;
        return Ok(StatusCode::ACCEPTED.into_response());
    }
    let timeout = request.app.limits.agents.call_timeout;
    let result = to_one_line(lease.call(&call.method, &params, timeout).await?);
    Ok(Json(RpcResult { result }).into_response())
}

fn check_call(
    spec: &AgentSpec,
    method: &str,
    params: Option<Box<RawValue>>,
) -> Result<Box<RawValue>> {
    check_method(&spec.settings, method)
        .map_err(|gated| InputError::from_policy(&gated, "/method"))?;
    let params = params.map_or_else(|| null_to_empty(RawValue::NULL), to_one_line);
    check_params(&spec.settings, &params)
        .map_err(|gated| InputError::from_policy(&gated, "/params"))?;
    Ok(params)
}

/// Gets the sign-in state of an agent and its sign-in methods.
///
/// The methods are those that the latest process of the agent reported; `authMethods` is null until one has started.
/// If the agent can report its state, the gateway asks it. Otherwise `state` is what the gateway has observed.
#[utoipa::path(get, path = "/v1/agents/{agent}/auth", responses(
    (status = 200, body = AgentAuth, description = "The sign-in methods of the agent, and its state."),
))]
async fn get_auth(request: ApiRequest<CanRead, AgentName>) -> Result<Json<AgentAuth>> {
    let spec = request.agent()?;
    let tenant = &request.by.user.tenant();
    let pool = request.app.pool();
    let known = pool.agent_stats(&spec.name, tenant);
    let initialized = known.and_then(|known| known.1);
    let initialized = initialized.as_deref();
    let status = if initialized.is_some_and(|answer| answer.capabilities.auth.status) {
        let params = with_trace(&null_to_empty(RawValue::NULL), request.trace.as_ref());
        agent_status(&request.app, &spec, &request.by, &params).await
    } else {
        None
    };
    let reported = status.as_deref().and_then(auth::auth_state);
    let reported = reported.map(Cow::into_owned);
    let seen = || pool.auth_state(&spec.name, tenant).as_str().to_owned();
    Ok(Json(AgentAuth {
        auth_methods: initialized.and_then(|answer| answer.auth_methods.clone()),
        state: reported.unwrap_or_else(seen),
        status,
        can_logout: initialized.is_some_and(InitializeResult::can_log_out),
        terminal_auth: spec.settings.terminal_auth,
    }))
}

/// The sign-in status from the agent; `None` if the call fails. The state is then that of earlier calls and
/// sessions.
async fn agent_status(
    app: &AppState,
    spec: &AgentSpec,
    by: &Principal,
    params: &RawValue,
) -> Option<Box<RawValue>> {
    let asked = async {
        let pool = app.pool();
        let mut visit = pool.short_lease(spec, by, Priority::Reclaim).await?;
        let timeout = app.limits.agents.call_timeout;
        let status = visit.call(auth::STATUS, params, timeout).await?;
        visit.release_untouched();
        Ok::<_, ShortLeaseError>(status)
    };
    asked.await.inspect_err(|error| tracing::info!(agent = %spec.name, %error, "could not get the sign-in status from the agent")).ok()
}

/// Signs in to the agent.
///
/// For a method of type `terminal`, the response contains the URL of a terminal in which the agent's command
/// runs. All other methods are one call to the agent, which can wait for a person. Methods such as
/// `gemini-api-key` of Gemini and `api-key` of Codex need an `apiKey`.
#[utoipa::path(post, path = "/v1/agents/{agent}/auth", request_body = SignIn, responses(
    (status = 204, description = "The agent accepted the sign-in. Its sessions continue in signed-in processes."),
    (status = 201, body = SignInTerminal, description = "The URL of the terminal. It is valid for one connection."),
))]
async fn sign_in(
    request: ApiRequest<CanAdmin, AgentName>,
    public: Option<Extension<PublicPath>>,
    body: JsonBody<SignIn>,
) -> Result<Response> {
    let spec = request.agent()?;
    let app = request.app;
    let by = request.by;
    let SignIn {
        method_id,
        api_key,
        meta,
    } = body.value;
    if let Some(meta) = &meta {
        check_meta(&spec.settings, meta).map_err(|gated| InputError::from_policy(&gated, ""))?;
    }
    let meta = match api_key {
        Some(key) => Some(meta_with_key(&method_id, &key, meta.as_deref())?),
        None => meta,
    };
    // The methods from an earlier process are enough to reject an unknown method without starting a process.
    let stats = app.pool().agent_stats(&spec.name, &by.user.tenant());
    let known = stats.and_then(|stats| stats.1);
    if let Some(known) = &known
        && let AuthMethod::Terminal(terminal) = find_method(known, &method_id)?
    {
        return offer_terminal_sign_in(&app, &spec, &by, terminal, public);
    }
    let pool = app.pool();
    let visit = pool.short_lease(&spec, &by, Priority::Reclaim).await?;
    let initialized = visit.initialized();
    if let AuthMethod::Terminal(terminal) = find_method(initialized, &method_id)? {
        return offer_terminal_sign_in(&app, &spec, &by, terminal, public);
    }
    let meta = meta.as_deref();
    let trace = request.trace.as_ref();
    call_sign_in(&app, &by, &spec, visit, method_id, meta, trace).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn meta_with_key(method_id: &str, key: &ApiKey, meta: Option<&RawValue>) -> Result<Box<RawValue>> {
    if meta.is_some() {
        let detail = "send apiKey or _meta, not both";
        return Err(ApiError::invalid("/apiKey", detail));
    }
    let Some(format) = api_key_format(method_id) else {
        let detail = "the gateway does not know how to send an apiKey to this method: send it in _meta, under a key that \
                      the agent's entry lists in `meta`";
        return Err(ApiError::invalid("/apiKey", detail));
    };
    let invalid = || ApiError::invalid("/apiKey", "expected one line of 1 to 4096 bytes");
    let key = key.validated().ok_or_else(invalid)?;
    Ok(auth::api_key_meta(format, key))
}

fn offer_terminal_sign_in(
    app: &AppState,
    spec: &Arc<AgentSpec>,
    by: &Principal,
    method: TerminalAuth,
    public: Option<Extension<PublicPath>>,
) -> Result<Response> {
    if !spec.settings.terminal_auth {
        let detail =
            "sign-in in a terminal is disabled for this agent: set terminal_auth in its entry";
        return Err(ApiError::new(ProblemCode::AgentUnsupported, detail));
    }
    let id = app.ids.uuid();
    app.pool()
        .offer_sign_in(spec, &by.user.tenant(), id, method)?;
    let path = format!("/v1/agents/{}/auth/terminals/{id}", spec.name);
    let url = public.map_or_else(|| path.clone(), |Extension(public)| public.join(&path));
    let body = Json(SignInTerminal { url });
    Ok((StatusCode::CREATED, location(path), body).into_response())
}

fn find_method(initialized: &InitializeResult, id: &str) -> Result<AuthMethod> {
    initialized.auth_method(id).map_err(|error| match error {
        AuthMethodError::Unknown => ApiError::invalid("/methodId", error.to_string()),
        AuthMethodError::Malformed(_) => ApiError::new(ProblemCode::AgentError, error.to_string()),
    })
}

/// Signs out of the agent.
///
/// The agent removes its credentials for every session that uses it. An agent without a method for it is 501. Running
/// turns continue.
#[utoipa::path(delete, path = "/v1/agents/{agent}/auth", responses(
    (status = 204, description = "The agent has signed out. The gateway does not use its signed-in processes again."),
))]
async fn sign_out(request: ApiRequest<CanAdmin, AgentName>) -> Result<StatusCode> {
    let spec = request.agent()?;
    let pool = request.app.pool();
    let can_log_out = InitializeResult::can_log_out;
    let visit = pool.short_lease_for("logout", &spec, &request.by, can_log_out);
    let mut visit = visit.await?;
    let logout = visit.version().logout_method();
    let params = with_trace(&null_to_empty(RawValue::NULL), request.trace.as_ref());
    let timeout = request.app.limits.agents.call_timeout;
    visit.call(logout, &params, timeout).await?;
    visit.signed_out();
    tracing::info!(agent = %spec.name, by = request.by.user.name(), "signed out of an agent");
    let event = SignedOut { agent: request.ids };
    request.app.audit.append(&request.by.author(), event);
    Ok(StatusCode::NO_CONTENT)
}

/// Opens the terminal of a sign-in as a WebSocket.
///
/// Binary messages carry the input and the output of the terminal. Text messages are JSON. The client sends
/// `{"type": "resize", "cols": 80, "rows": 24}`. The last message to the client is
/// `{"type": "exit", "exitCode": 0, "signal": null}`, `{"type": "problem", "problem": {..}}` or
/// `{"type": "shutdown"}`. Closing the socket ends the command.
#[utoipa::path(get, path = "/v1/agents/{agent}/auth/terminals/{signIn}", responses(
    (status = 101, description = "The command runs; the connection is its terminal."),
))]
async fn open_terminal(
    request: ApiRequest<CanAdmin, (AgentName, Uuid), Params>,
    Extension(held): Extension<ConnectionPermit>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let app = request.app;
    let by = request.by;
    let (name, id) = request.ids;
    let mut params = request.params;
    let spec = app.catalogue.agent(&name);
    let spec = spec.ok_or_else(ApiError::not_found)?;
    let mut characters = |name, default| {
        let given: Option<NonZeroU16> = params.parsed(name, "a number from 1 to 65535")?;
        Ok::<_, ApiError>(given.map_or(default, NonZeroU16::get))
    };
    let size = PtySize {
        cols: characters("cols", 80)?,
        rows: characters("rows", 24)?,
    };
    params.finish()?;
    // An offer is valid for one connection. A request that is no WebSocket must not consume it.
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(_) if !app.pool().offers_sign_in(&name, &by.user.tenant(), id) => {
            return Err(ApiError::not_found());
        }
        Err(rejection) => return Err(ApiError::no_websocket(&rejection)),
    };
    let guard = app.streams.acquire(&by, "sign_in")?;
    let pool = app.pool();
    let opened = pool
        .open_sign_in(&spec, &by.user.tenant(), id, size)
        .await?;
    let sign_in = opened.ok_or_else(ApiError::not_found)?;
    tracing::info!(agent = %name, by = by.user.name(), "started a sign-in in a terminal");
    let record = SignInRecord::start(&app.audit, &by.author(), name, None);
    let bytes = app.limits.http.max_websocket_message_bytes;
    let shutdown = app.shutdown.clone();
    let socket = SignInSocket {
        app,
        sign_in,
        record,
        admission: by.admission().clone(),
        _stream_guard: guard,
        _connection_permit: held,
    };
    Ok(accept_socket(shutdown, upgrade, bytes, |stream| {
        socket.run(stream)
    }))
}
