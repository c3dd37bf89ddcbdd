//! The parts that almost every route reads.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::headers::trace_context;
use super::query::NoQuery;
use crate::acp::TraceContext;
use crate::agent::AgentSpec;
use crate::session::SessionHandle;
use crate::surface::Gateway;
use crate::surface::authorized::{Authorized, RequiredScope};
use crate::surface::rest::error::ApiError;
use crate::types::{AgentName, SessionId};

/// A request of a principal that has the scope of `S`. `I` has the ids in the path; a malformed id is a 404,
/// as an unknown id is. A route with query parameters has `Q = Params`.
#[derive(Debug)]
pub(crate) struct ApiRequest<S, I = (), Q = NoQuery> {
    pub(crate) gateway: Gateway,
    pub(crate) by: Authorized<S>,
    pub(crate) ids: I,
    pub(crate) trace: Option<TraceContext>,
    pub(crate) params: Q,
}

impl<S, I, Q> FromRequestParts<Gateway> for ApiRequest<S, I, Q>
where
    S: RequiredScope,
    I: DeserializeOwned + Send,
    Q: FromRequestParts<Gateway, Rejection = ApiError>,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, gateway: &Gateway) -> Result<Self, ApiError> {
        let by = Authorized::from_parts(parts)?;
        let ids = Path::from_request_parts(parts, gateway).await;
        let Path(ids) = ids.map_err(|_| ApiError::not_found())?;
        let trace = trace_context(&parts.headers);
        let params = Q::from_request_parts(parts, gateway).await?;
        Ok(Self {
            gateway: gateway.clone(),
            by,
            ids,
            trace,
            params,
        })
    }
}

/// The ids of a path below `/v1/sessions/{session}`.
pub(crate) trait SessionPath {
    fn session(&self) -> SessionId;
}

impl SessionPath for SessionId {
    fn session(&self) -> SessionId {
        *self
    }
}

impl<T> SessionPath for (SessionId, T) {
    fn session(&self) -> SessionId {
        self.0
    }
}

impl<S, I: SessionPath, Q> ApiRequest<S, I, Q> {
    /// The session of the path. An id of another tenant is unknown.
    pub(crate) async fn open_session(&self) -> Result<SessionHandle, ApiError> {
        Ok(self
            .gateway
            .sessions
            .open(&self.by, self.ids.session())
            .await?)
    }
}

impl<S, Q> ApiRequest<S, AgentName, Q> {
    /// The agent of the path.
    pub(crate) fn agent(&self) -> Result<Arc<AgentSpec>, ApiError> {
        self.gateway
            .catalogue
            .agent(&self.ids)
            .ok_or_else(ApiError::not_found)
    }
}
