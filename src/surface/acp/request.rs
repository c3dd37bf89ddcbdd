//! The parts that requests over HTTP and over a socket share: the head of a request, and errors of the transport.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::value::RawValue;

use super::caller::Caller;
use super::connection::Connection;
use super::message;
use super::message::Failure;
use super::state::Gateway;
use crate::auth::{Admission, AdmissionError, INVALID_TOKEN};
use crate::server::{AdmitError, BodyMemoryFull};
use crate::surface::http::{Authorized, BodyError, HasKey};
use base::types::acp_headers::CONNECTION_ID;
use wire::acp::error_code;
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

    pub(super) fn unknown_connection() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "this connection does not exist any more: send initialize again",
        )
    }

    pub(super) fn message(&self) -> Bytes {
        message::response(RawValue::NULL, Err(&self.failure))
    }
}

impl IntoResponse for TransportError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, self.message());
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(
                header::WWW_AUTHENTICATE,
                HeaderValue::from_static(self.challenge),
            );
        }
        response
    }
}

impl From<AdmitError> for TransportError {
    fn from(error: AdmitError) -> Self {
        let status = match &error {
            AdmitError::Rejected(AdmissionError::InvalidHost) => StatusCode::BAD_REQUEST,
            AdmitError::Rejected(AdmissionError::MisdirectedRequest) => {
                StatusCode::MISDIRECTED_REQUEST
            }
            AdmitError::Rejected(AdmissionError::OriginForbidden) => StatusCode::FORBIDDEN,
            AdmitError::Rejected(AdmissionError::TooManyInvalidKeys { .. })
            | AdmitError::RateLimited(_) => StatusCode::TOO_MANY_REQUESTS,
            AdmitError::Rejected(_) => StatusCode::UNAUTHORIZED,
        };
        match error {
            AdmitError::Rejected(error) => Self {
                challenge: error.challenge(),
                ..Self::new(status, error.to_string())
            },
            AdmitError::RateLimited(limit) => Self {
                failure: limit.into(),
                ..Self::new(status, "")
            },
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

pub(super) struct Head {
    pub(super) gateway: Gateway,
    pub(super) admission: Arc<Admission>,
    pub(super) agent: Option<String>,
    pub(super) headers: HeaderMap,
}

impl Head {
    pub(super) fn of(gateway: &Gateway, parts: &Parts) -> Result<Self, TransportError> {
        let by = Authorized::<HasKey>::from_parts(parts)
            .map_err(|error| TransportError::new(StatusCode::UNAUTHORIZED, error.to_string()))?;
        if !by.scopes.serves_clients() {
            gateway.audit_forbidden(&by.author());
            let detail = "this key has only the scope fleet, which permits nothing at /acp";
            return Err(TransportError::new(StatusCode::FORBIDDEN, detail));
        }
        let named = parts.uri.path().strip_prefix("/acp/").map(str::to_owned);
        let query = parts.uri.query().unwrap_or_default();
        let parameter = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("agent="))
            .map(str::to_owned);
        Ok(Self {
            gateway: gateway.clone(),
            admission: Arc::clone(by.admission()),
            agent: named.or(parameter),
            headers: parts.headers.clone(),
        })
    }

    pub(super) fn connection(&self) -> Result<Arc<Connection>, TransportError> {
        let id = self.header(&CONNECTION_ID)?;
        let id = id.ok_or_else(|| {
            TransportError::bad_request("the header Acp-Connection-Id is missing")
        })?;
        let principal = self
            .admission
            .principal()
            .ok_or_else(TransportError::unknown_connection)?;
        self.gateway
            .acp()
            .find(id, &principal.key())
            .ok_or_else(TransportError::unknown_connection)
    }

    pub(super) fn header(&self, name: &HeaderName) -> Result<Option<&str>, TransportError> {
        let mut values = self.headers.get_all(name).iter();
        let value = values
            .next()
            .map(|value| value.to_str().unwrap_or_default());
        if values.next().is_some() {
            let detail = format!("the header {name} is repeated");
            return Err(TransportError::bad_request(detail));
        }
        Ok(value)
    }

    pub(super) fn caller(&self, connection: Arc<Connection>) -> Caller {
        Caller {
            gateway: self.gateway.clone(),
            connection,
            admission: Arc::clone(&self.admission),
        }
    }
}

pub(super) fn parse(bytes: &[u8], max_depth: usize) -> Result<Message, TransportError> {
    let is_batch = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if is_batch {
        let detail = "batches are not supported (ACP, Transports)";
        return Err(TransportError::bad_request(detail));
    }
    jsonrpc::parse(bytes, max_depth).map_err(|error| TransportError::parse(error.to_string()))
}
