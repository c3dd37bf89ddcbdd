//! `/v1/agents/{agent}/auth`: signs in to an agent and out of it.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderValue, StatusCode, header};
use serde_json::value::RawValue;

use crate::acp::auth::{self, AuthMethod, AuthMethodError, TerminalAuth};
use crate::acp::client_input_policy::check_meta;
use crate::acp::{InitializeResult, with_trace};
use crate::agent::AgentSpec;
use crate::api::{AgentAuth, ApiKey, ProblemCode, SignIn, SignInTerminal};
use crate::event::SignedOut;
use crate::pool::{Priority, ShortLeaseError};
use crate::session::InputError;
use crate::surface::Gateway;
use crate::surface::authorized::{CanAdmin, CanRead};
use crate::surface::rest::error::ApiError;
use crate::surface::rest::extract::{ApiRequest, JsonBody};
use crate::surface::sign_in::call_sign_in;
use crate::types::known_agents::api_key_format;
use crate::types::{AgentName, Principal, PublicPath};

/// Gets the sign-in state of an agent and its sign-in methods.
///
/// The methods are those that the latest process of the agent reported; `authMethods` is null until one has started.
/// If the agent can report its state, the gateway asks it. Otherwise `state` is what the gateway has observed.
#[utoipa::path(
    get,
    path = "/v1/agents/{agent}/auth",
    responses((status = 200, body = AgentAuth, description = "The sign-in methods of the agent, and its state."))
)]
pub(super) async fn get_auth(
    request: ApiRequest<CanRead, AgentName>,
) -> Result<Json<AgentAuth>, ApiError> {
    let spec = request.agent()?;
    let ApiRequest {
        gateway,
        by,
        ids: name,
        trace,
        ..
    } = request;
    let initialized = gateway
        .pool()
        .agent_stats(&name, &by.tenant)
        .and_then(|(_, initialized)| initialized);
    let status = if initialized
        .as_deref()
        .is_some_and(|answer| answer.capabilities.auth.status)
    {
        let empty = RawValue::from_string("{}".to_owned()).map_err(ApiError::internal)?;
        agent_status(&gateway, &spec, &by, &with_trace(&empty, trace.as_ref())).await
    } else {
        None
    };
    let reported = status
        .as_deref()
        .and_then(auth::auth_state)
        .map(std::borrow::Cow::into_owned);
    let seen = || {
        gateway
            .pool()
            .auth_state(&name, &by.tenant)
            .as_str()
            .to_owned()
    };
    Ok(Json(AgentAuth {
        auth_methods: initialized
            .as_deref()
            .and_then(|answer| answer.auth_methods.clone()),
        state: reported.unwrap_or_else(seen),
        status,
        can_logout: initialized
            .as_deref()
            .is_some_and(InitializeResult::can_log_out),
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
        let mut visit = gateway
            .pool()
            .short_lease(spec, by, Priority::Reclaim)
            .await?;
        let status = visit
            .call(auth::STATUS, params, gateway.limits.call_timeout)
            .await?;
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
#[utoipa::path(
    post,
    path = "/v1/agents/{agent}/auth",
    request_body = SignIn,
    responses(
        (status = 204, description = "The agent accepted the sign-in. Its sessions continue in signed-in processes."),
        (status = 201, body = SignInTerminal, description = "The URL of the terminal. It is valid for one connection."),
    )
)]
pub(super) async fn sign_in(
    request: ApiRequest<CanAdmin, AgentName>,
    public: Option<Extension<PublicPath>>,
    body: JsonBody<SignIn>,
) -> Result<Response, ApiError> {
    let spec = request.agent()?;
    let ApiRequest {
        gateway,
        by,
        ids: name,
        trace,
        ..
    } = request;
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
    let known = gateway
        .pool()
        .agent_stats(&name, &by.tenant)
        .and_then(|(_, initialized)| initialized);
    if let Some(known) = &known
        && let AuthMethod::Terminal(terminal) = find_method(known, &method_id)?
    {
        return offer_terminal_sign_in(&gateway, &spec, &by, terminal, public);
    }
    let visit = gateway
        .pool()
        .short_lease(&spec, &by, Priority::Reclaim)
        .await?;
    let initialized = visit.initialized();
    if let AuthMethod::Terminal(terminal) = find_method(initialized, &method_id)? {
        return offer_terminal_sign_in(&gateway, &spec, &by, terminal, public);
    }
    let method = (method_id, meta.as_deref());
    call_sign_in(
        &gateway,
        (&by, &by.author()),
        &spec,
        visit,
        method,
        trace.as_ref(),
    )
    .await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// `_meta` with the API key in the member that this method expects.
fn meta_with_key(
    method_id: &str,
    key: &ApiKey,
    meta: Option<&RawValue>,
) -> Result<Box<RawValue>, ApiError> {
    if meta.is_some() {
        return Err(ApiError::invalid(
            "/apiKey",
            "send apiKey or _meta, not both",
        ));
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
#[utoipa::path(
    delete,
    path = "/v1/agents/{agent}/auth",
    responses((status = 204, description = "The agent has signed out. The gateway does not use its signed-in processes again."))
)]
pub(super) async fn sign_out(
    request: ApiRequest<CanAdmin, AgentName>,
) -> Result<StatusCode, ApiError> {
    let spec = request.agent()?;
    let ApiRequest {
        gateway,
        by,
        ids: name,
        trace,
        ..
    } = request;
    let mut visit = gateway
        .pool()
        .short_lease_for("logout", &spec, &by, InitializeResult::can_log_out)
        .await?;
    let logout = visit.version().logout_method();
    let empty = RawValue::from_string("{}".to_owned()).map_err(ApiError::internal)?;
    let params = with_trace(&empty, trace.as_ref());
    visit
        .call(logout, &params, gateway.limits.call_timeout)
        .await?;
    visit.signed_out();
    gateway.audit.append(
        &by.author(),
        SignedOut {
            agent: name.clone(),
        },
    );
    tracing::info!(agent = %name, by = %by.id, "signed out of an agent");
    Ok(StatusCode::NO_CONTENT)
}
