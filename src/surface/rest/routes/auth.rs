//! `/v1/agents/{agent}/auth`: signs in to an agent and out of it.

use std::num::NonZeroU16;
use std::sync::Arc;

use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderValue, StatusCode, header};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::server::ConnectionPermit;
use crate::surface::http::{
    ApiError, ApiRequest, CanAdmin, CanRead, Gateway, JsonBody, Params, call_sign_in,
};
use crate::surface::rest::sign_in_socket::SignInSocket;
use agents::agent::AgentSpec;
use agents::pool::{Priority, ShortLeaseError};
use base::types::known_agents::api_key_format;
use base::types::{AgentName, Principal, PublicPath};
use events::api::{AgentAuth, ApiKey, ProblemCode, SignIn, SignInTerminal};
use events::event::SignedOut;
use log::audit::SignInRecord;
use sessions::session::InputError;
use wire::acp::auth::{self, AuthMethod, AuthMethodError, TerminalAuth};
use wire::acp::client_input_policy::check_meta;
use wire::acp::{InitializeResult, null_to_empty, with_trace};

/// Gets the sign-in state of an agent and its sign-in methods.
///
/// The methods are those that the latest process of the agent reported; `authMethods` is null until one has started.
/// If the agent can report its state, the gateway asks it. Otherwise `state` is what the gateway has observed.
#[utoipa::path(get, path = "/v1/agents/{agent}/auth", responses(
    (status = 200, body = AgentAuth, description = "The sign-in methods of the agent, and its state."),
))]
pub(super) async fn get_auth(
    request: ApiRequest<CanRead, AgentName>,
) -> Result<Json<AgentAuth>, ApiError> {
    let spec = request.agent()?;
    let gateway = request.gateway;
    let by = request.by;
    let name = request.ids;
    let trace = request.trace;
    let pool = gateway.pool();
    let initialized = pool
        .agent_stats(&name, &by.tenant)
        .and_then(|stats| stats.1);
    let initialized = initialized.as_deref();
    let status = if initialized.is_some_and(|answer| answer.capabilities.auth.status) {
        let params = with_trace(&null_to_empty(RawValue::NULL), trace.as_ref());
        agent_status(&gateway, &spec, &by, &params).await
    } else {
        None
    };
    let reported = status
        .as_deref()
        .and_then(auth::auth_state)
        .map(std::borrow::Cow::into_owned);
    let seen = || pool.auth_state(&name, &by.tenant).as_str().to_owned();
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
    gateway: &Gateway,
    spec: &AgentSpec,
    by: &Principal,
    params: &RawValue,
) -> Option<Box<RawValue>> {
    let asked = async {
        let pool = gateway.pool();
        let mut visit = pool.short_lease(spec, by, Priority::Reclaim).await?;
        let timeout = gateway.limits.call_timeout;
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
pub(super) async fn sign_in(
    request: ApiRequest<CanAdmin, AgentName>,
    public: Option<Extension<PublicPath>>,
    body: JsonBody<SignIn>,
) -> Result<Response, ApiError> {
    let spec = request.agent()?;
    let gateway = request.gateway;
    let by = request.by;
    let name = request.ids;
    let trace = request.trace;
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
    let stats = gateway.pool().agent_stats(&name, &by.tenant);
    let known = stats.and_then(|stats| stats.1);
    if let Some(known) = &known
        && let AuthMethod::Terminal(terminal) = find_method(known, &method_id)?
    {
        return offer_terminal_sign_in(&gateway, &spec, &by, terminal, public);
    }
    let pool = gateway.pool();
    let visit = pool.short_lease(&spec, &by, Priority::Reclaim).await?;
    let initialized = visit.initialized();
    if let AuthMethod::Terminal(terminal) = find_method(initialized, &method_id)? {
        return offer_terminal_sign_in(&gateway, &spec, &by, terminal, public);
    }
    call_sign_in(
        &gateway,
        (&by, &by.author()),
        &spec,
        visit,
        (method_id, meta.as_deref()),
        trace.as_ref(),
    )
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn meta_with_key(
    method_id: &str,
    key: &ApiKey,
    meta: Option<&RawValue>,
) -> Result<Box<RawValue>, ApiError> {
    if meta.is_some() {
        let detail = "send apiKey or _meta, not both";
        return Err(ApiError::invalid("/apiKey", detail));
    }
    let Some(format) = api_key_format(method_id) else {
        let detail = "the gateway does not know how to send an apiKey to this method: send it in _meta, under a key that \
                      the agent's entry lists in `meta`";
        return Err(ApiError::invalid("/apiKey", detail));
    };
    let key = key
        .validated()
        .ok_or_else(|| ApiError::invalid("/apiKey", "expected one line of 1 to 4096 bytes"))?;
    Ok(auth::api_key_meta(format, key))
}

fn offer_terminal_sign_in(
    gateway: &Gateway,
    spec: &Arc<AgentSpec>,
    by: &Principal,
    method: TerminalAuth,
    public: Option<Extension<PublicPath>>,
) -> Result<Response, ApiError> {
    if !spec.settings.terminal_auth {
        let detail =
            "sign-in in a terminal is disabled for this agent: set terminal_auth in its entry";
        return Err(ApiError::new(ProblemCode::AgentUnsupported, detail));
    }
    let id = gateway.ids.uuid();
    gateway.pool().offer_sign_in(spec, &by.tenant, id, method)?;
    let path = format!("/v1/agents/{}/auth/terminals/{id}", spec.name);
    let location = HeaderValue::try_from(&path).map_err(ApiError::internal)?;
    let url = public.map_or_else(|| path.clone(), |Extension(public)| public.join(&path));
    Ok((
        StatusCode::CREATED,
        [(header::LOCATION, location)],
        Json(SignInTerminal { url }),
    )
        .into_response())
}

fn find_method(initialized: &InitializeResult, id: &str) -> Result<AuthMethod, ApiError> {
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
pub(super) async fn sign_out(
    request: ApiRequest<CanAdmin, AgentName>,
) -> Result<StatusCode, ApiError> {
    let spec = request.agent()?;
    let gateway = request.gateway;
    let by = request.by;
    let name = request.ids;
    let trace = request.trace;
    let mut visit = gateway
        .pool()
        .short_lease_for("logout", &spec, &by, InitializeResult::can_log_out)
        .await?;
    let logout = visit.version().logout_method();
    let params = with_trace(&null_to_empty(RawValue::NULL), trace.as_ref());
    let timeout = gateway.limits.call_timeout;
    visit.call(logout, &params, timeout).await?;
    visit.signed_out();
    tracing::info!(agent = %name, by = %by.id, "signed out of an agent");
    gateway
        .audit
        .append(&by.author(), SignedOut { agent: name });
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
pub(super) async fn open_terminal(
    request: ApiRequest<CanAdmin, (AgentName, Uuid), Params>,
    Extension(held): Extension<ConnectionPermit>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, ApiError> {
    let gateway = request.gateway;
    let by = request.by;
    let (name, id) = request.ids;
    let mut params = request.params;
    let spec = gateway
        .catalogue
        .agent(&name)
        .ok_or_else(ApiError::not_found)?;
    let mut characters = |name, default| {
        let given: Option<NonZeroU16> = params.parsed(name, "a number from 1 to 65535")?;
        Ok::<_, ApiError>(given.map_or(default, NonZeroU16::get))
    };
    let size = (characters("cols", 80)?, characters("rows", 24)?);
    params.finish()?;
    // An offer is valid for one connection. A request that is no WebSocket must not consume it.
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(_) if !gateway.pool().offers_sign_in(&name, &by.tenant, id) => {
            return Err(ApiError::not_found());
        }
        Err(rejection) => return Err(ApiError::no_websocket(&rejection)),
    };
    let guard = gateway.streams().acquire(&by)?;
    let opened = gateway
        .pool()
        .open_sign_in(&spec, &by.tenant, id, size)
        .await?;
    let sign_in = opened.ok_or_else(ApiError::not_found)?;
    tracing::info!(agent = %name, by = %by.id, "started a sign-in in a terminal");
    let record = SignInRecord::start(&gateway.audit, &by.author(), name, None);
    let bytes = gateway.limits.max_websocket_message_bytes;
    let shutdown = gateway.shutdown.clone();
    let admission = by.admission().clone();
    let sign_in_socket = SignInSocket {
        gateway,
        sign_in,
        record,
        admission,
        stream_guard: guard,
        connection_permit: held,
    };
    let upgrade = upgrade.max_message_size(bytes).max_frame_size(bytes);
    // The upgrade runs in an untracked task. Only the tracked task makes a stop wait for the socket.
    Ok(upgrade.on_upgrade(move |socket| async move {
        drop(shutdown.spawn_client(sign_in_socket.run(socket)));
    }))
}
