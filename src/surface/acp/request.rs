//! The parts that requests over HTTP and over a socket share: the head of a request, and errors of the transport.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::value::RawValue;

use super::caller::Caller;
use super::connection::{AcpState, Connection};
use super::message::{self, Failure};
use crate::auth::{AdmissionError, INVALID_TOKEN};
use crate::server::{AdmitError, BodyMemoryFull};
use crate::stream::StreamGuard;
use crate::surface::http::{Authorized, BodyError, HasKey};
use wire::acp::error_code;
use wire::acp::headers::CONNECTION_ID;
use wire::jsonrpc::{self, Message};

/// An error of the transport: a status, and a JSON-RPC error without an id as the body.
#[derive(Debug)]
pub(super) struct TransportError {
    status: StatusCode,
    failure: Failure,
    /// The value of `WWW-Authenticate` of a response with status 401.
    challenge: &'static str,
}

impl TransportError {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            failure: Failure::invalid_request(detail),
            challenge: INVALID_TOKEN,
        }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    fn parse(detail: impl Into<String>) -> Self {
        Self {
            failure: Failure::new(error_code::PARSE, detail),
            ..Self::bad_request("")
        }
    }

    pub(super) fn message(&self) -> Bytes {
        message::response(RawValue::NULL, Err(&self.failure))
    }
}

pub(super) type Result<T, E = TransportError> = std::result::Result<T, E>;

impl IntoResponse for TransportError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, self.message());
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static(self.challenge);
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

impl From<AdmitError> for TransportError {
    fn from(error: AdmitError) -> Self {
        let error = match error {
            AdmitError::Rejected(error) => error,
            AdmitError::ActAs(error) => {
                return Self::new(StatusCode::FORBIDDEN, error.to_string());
            }
            AdmitError::RateLimited(limit) => {
                return Self {
                    failure: limit.into(),
                    ..Self::new(StatusCode::TOO_MANY_REQUESTS, "")
                };
            }
        };
        let status = match &error {
            AdmissionError::InvalidHost => StatusCode::BAD_REQUEST,
            AdmissionError::MisdirectedRequest => StatusCode::MISDIRECTED_REQUEST,
            AdmissionError::OriginForbidden => StatusCode::FORBIDDEN,
            AdmissionError::TooManyInvalidKeys { .. } => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::UNAUTHORIZED,
        };
        Self {
            challenge: error.challenge(),
            ..Self::new(status, error.to_string())
        }
    }
}

impl From<BodyError> for TransportError {
    fn from(error: BodyError) -> Self {
        let status = match error {
            BodyError::Encoded(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            BodyError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Memory(BodyMemoryFull::Principal) => StatusCode::TOO_MANY_REQUESTS,
            BodyError::Memory(BodyMemoryFull::Total) => StatusCode::SERVICE_UNAVAILABLE,
            BodyError::Incomplete => StatusCode::BAD_REQUEST,
            BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        };
        Self::new(status, error.to_string())
    }
}

pub(super) fn json_response(status: StatusCode, body: Bytes) -> Response {
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json)], body).into_response()
}

/// The parts of a request that every method needs.
pub(super) struct Head {
    pub(super) app: AcpState,
    pub(super) by: Authorized<HasKey>,
    pub(super) agent: Option<String>,
    pub(super) headers: HeaderMap,
}

impl FromRequestParts<AcpState> for Head {
    type Rejection = TransportError;

    async fn from_request_parts(parts: &mut Parts, app: &AcpState) -> Result<Self> {
        let by = Authorized::<HasKey>::from_parts(parts)
            .map_err(|error| TransportError::new(StatusCode::UNAUTHORIZED, error.to_string()))?;
        if !by.scopes.serves_clients() {
            app.audit_forbidden(&by.author());
            let detail =
                "this key has only the scopes fleet or metrics, which permit nothing at /acp";
            return Err(TransportError::new(StatusCode::FORBIDDEN, detail));
        }
        let named = parts.uri.path().strip_prefix("/acp/").map(str::to_owned);
        let query = parts.uri.query().unwrap_or_default();
        let mut pairs = query.split('&');
        let parameter = pairs.find_map(|pair| pair.strip_prefix("agent="));
        Ok(Self {
            app: app.clone(),
            by,
            agent: named.or(parameter.map(str::to_owned)),
            headers: parts.headers.clone(),
        })
    }
}

impl Head {
    pub(super) fn connection(&self) -> Result<Arc<Connection>> {
        let missing = || TransportError::bad_request("the header Acp-Connection-Id is missing");
        let id = self.header(&CONNECTION_ID)?.ok_or_else(missing)?;
        let connection = self.app.connections.find(id, &self.by.user);
        connection.ok_or_else(|| {
            TransportError::new(
                StatusCode::NOT_FOUND,
                "this connection does not exist any more: send initialize again",
            )
        })
    }

    pub(super) fn stream_guard(&self) -> Result<StreamGuard> {
        let guard = self.app.streams.acquire(&self.by, "acp");
        guard.map_err(|limit| too_many(&limit))
    }

    pub(super) fn header(&self, name: &HeaderName) -> Result<Option<&str>> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next();
        let value = value.map(|value| value.to_str().unwrap_or_default());
        if values.next().is_some() {
            let detail = format!("the header {name} is repeated");
            return Err(TransportError::bad_request(detail));
        }
        Ok(value)
    }

    pub(super) fn caller(&self, connection: Arc<Connection>) -> Caller {
        Caller {
            app: self.app.clone(),
            connection,
            by: self.by.clone(),
        }
    }
}

pub(super) fn too_many(limit: &impl ToString) -> TransportError {
    TransportError::new(StatusCode::TOO_MANY_REQUESTS, limit.to_string())
}

pub(super) fn parse(bytes: &[u8]) -> Result<Message> {
    let is_batch = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if is_batch {
        let detail = "batches are not supported (ACP, Transports)";
        return Err(TransportError::bad_request(detail));
    }
    jsonrpc::parse(bytes, jsonrpc::MAX_DEPTH)
        .map_err(|error| TransportError::parse(error.to_string()))
}
