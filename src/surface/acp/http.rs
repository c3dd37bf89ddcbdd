//! `/acp` over HTTP: POST for the client's messages, GET for the streams, DELETE for the end of a connection.
//!
//! The official clients close a whole connection for most statuses. Therefore, the failure of one request is a JSON-RPC
//! error on a stream, and a status reports only errors of the transport.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::value::RawValue;

use super::caller::{Caller, session_of};
use super::connection::{Connection, OpenStream};
use super::delivery::{MessageSink, SessionDelivery, deliver_responses};
use super::failure::Failure;
use super::initialize::open_connection;
use super::message::{self, is_valid_id, to_ascii};
use super::position::Position;
use super::session_view::OpenSessionStream;
use super::socket;
use crate::acp::{error_code, method};
use crate::auth::{Admission, AdmissionError};
use crate::event::write_block;
use crate::jsonrpc::{self, Message};
use crate::server::{AdmitError, event_response};
use crate::stream::{ChunkSender, body_from};
use crate::surface::Gateway;
use crate::surface::authorized::{Authorized, HasKey};
use crate::surface::body::{BodyError, has_media_type, read_body};

pub(super) const CONNECTION_ID: HeaderName = HeaderName::from_static("acp-connection-id");
const SESSION_ID: HeaderName = HeaderName::from_static("acp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// An error of the transport: a status, and a JSON-RPC error without an id as the body.
#[derive(Debug)]
pub(super) struct TransportError {
    status: StatusCode,
    failure: Failure,
}

impl TransportError {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, failure: Failure::invalid_request(detail) }
    }

    fn parse(detail: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, failure: Failure::new(error_code::PARSE, detail) }
    }

    fn unknown_connection() -> Self {
        Self::new(StatusCode::NOT_FOUND, "this connection does not exist any more: send initialize again")
    }
}

impl TransportError {
    /// The error as a JSON-RPC response without an id.
    pub(super) fn message(&self) -> Bytes {
        message::response(RawValue::NULL, Err(&self.failure))
    }
}

impl IntoResponse for TransportError {
    fn into_response(self) -> Response {
        let mut response = json_response(self.status, self.message());
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"acp-gateway\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

impl From<AdmitError> for TransportError {
    fn from(error: AdmitError) -> Self {
        let status = match &error {
            AdmitError::Rejected(AdmissionError::MisdirectedRequest) => StatusCode::MISDIRECTED_REQUEST,
            AdmitError::Rejected(AdmissionError::OriginForbidden) => StatusCode::FORBIDDEN,
            AdmitError::Rejected(AdmissionError::TooManyInvalidKeys { .. }) | AdmitError::RateLimited(_) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            AdmitError::Rejected(_) => StatusCode::UNAUTHORIZED,
        };
        match error {
            AdmitError::Rejected(error) => Self::new(status, error.to_string()),
            AdmitError::RateLimited(limit) => Self { status, failure: limit.into() },
        }
    }
}

impl From<BodyError> for TransportError {
    fn from(error: BodyError) -> Self {
        let status = match error {
            BodyError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::Incomplete => StatusCode::BAD_REQUEST,
            BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
        };
        Self::new(status, error.to_string())
    }
}

fn json_response(status: StatusCode, body: Bytes) -> Response {
    (status, [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// The head of a request: its principal, and the agent that the URL names.
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
        let named = parts.uri.path().strip_prefix("/acp/").map(str::to_owned);
        let query = parts.uri.query().unwrap_or_default();
        let parameter = query.split('&').find_map(|pair| pair.strip_prefix("agent=")).map(str::to_owned);
        Ok(Self {
            gateway: gateway.clone(),
            admission: Arc::clone(by.admission()),
            agent: named.or(parameter),
            headers: parts.headers.clone(),
        })
    }

    /// The connection that the headers name.
    fn connection(&self) -> Result<Arc<Connection>, TransportError> {
        let id = self.header(&CONNECTION_ID)?;
        let id = id.ok_or_else(|| {
            TransportError::new(StatusCode::BAD_REQUEST, "the header Acp-Connection-Id is missing")
        })?;
        let principal = self.admission.principal().ok_or_else(TransportError::unknown_connection)?;
        self.gateway.acp().find(id, &principal.key()).ok_or_else(TransportError::unknown_connection)
    }

    fn header(&self, name: &HeaderName) -> Result<Option<&str>, TransportError> {
        let mut values = self.headers.get_all(name).iter();
        let value = values.next().map(|value| value.to_str().unwrap_or_default());
        match values.next() {
            None => Ok(value),
            Some(_) => {
                Err(TransportError::new(StatusCode::BAD_REQUEST, format!("the header {name} is repeated")))
            }
        }
    }

    pub(super) fn caller(&self, connection: Arc<Connection>) -> Caller {
        Caller { gateway: self.gateway.clone(), connection, admission: Arc::clone(&self.admission) }
    }
}

/// Receives one message of the client.
pub(super) async fn post(
    State(gateway): State<Gateway>,
    request: Request,
) -> Result<Response, TransportError> {
    let (parts, body) = request.into_parts();
    let head = Head::of(&gateway, &parts)?;
    if !has_media_type(&parts.headers, &["application/json"]) {
        return Err(TransportError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "the body must be application/json",
        ));
    }
    let limits = &gateway.limits;
    let body = read_body(&parts.headers, body, limits.max_prompt_bytes, limits.body_timeout).await?;
    let message = parse(&body, limits.max_json_depth)?;
    if let Message::Request { id, method, params } = &message
        && **method == *method::INITIALIZE
    {
        return initialize(&head, id, params).await;
    }
    let connection = head.connection()?;
    check_session(&head, &message)?;
    head.caller(connection).handle(message).await;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// Parses the body of a POST or a frame of a WebSocket.
pub(super) fn parse(bytes: &[u8], max_depth: usize) -> Result<Message, TransportError> {
    let is_batch = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[');
    if is_batch {
        return Err(TransportError::new(
            StatusCode::BAD_REQUEST,
            "batches are not supported (ACP, Transports)",
        ));
    }
    jsonrpc::parse(bytes, max_depth).map_err(|error| TransportError::parse(error.to_string()))
}

/// The header of the session is optional. If it is there, it must name the session of the message.
fn check_session(head: &Head, message: &Message) -> Result<(), TransportError> {
    let (Message::Request { params, .. } | Message::Notification { params, .. }) = message else {
        return Ok(());
    };
    let (Some(header), Some(named)) = (head.header(&SESSION_ID)?, session_of(params)) else { return Ok(()) };
    if header == named {
        return Ok(());
    }
    let detail = "the header Acp-Session-Id and the sessionId of the message differ";
    Err(TransportError::new(StatusCode::BAD_REQUEST, detail))
}

async fn initialize(head: &Head, id: &RawValue, params: &RawValue) -> Result<Response, TransportError> {
    if head.header(&CONNECTION_ID)?.is_some() {
        let detail = "this connection is initialized already: omit Acp-Connection-Id to open another one";
        return Err(TransportError::new(StatusCode::BAD_REQUEST, detail));
    }
    if !is_valid_id(id) {
        return Err(TransportError::new(
            StatusCode::BAD_REQUEST,
            "the id must be a string, a number or null",
        ));
    }
    let principal = head.admission.principal().ok_or_else(TransportError::unknown_connection)?;
    let id_of_connection = head.gateway.ids.uuid().to_string().into();
    let opened =
        open_connection(&head.gateway, principal, head.agent.as_deref(), params, (id_of_connection, None))
            .await;
    Ok(match opened {
        Ok((connection, result)) => {
            let mut response = json_response(StatusCode::OK, message::response(id, Ok(&result)));
            let value = HeaderValue::try_from(connection.id()).expect("a UUID is plain ASCII");
            response.headers_mut().insert(CONNECTION_ID, value);
            response
        }
        // The clients read the error from the body. Without the header, there is no connection.
        Err(failure) => json_response(StatusCode::OK, message::response(id, Err(&failure))),
    })
}

/// Opens a WebSocket, the stream of a connection, or the stream of a session.
pub(super) async fn get(
    State(gateway): State<Gateway>,
    request: Request,
) -> Result<Response, TransportError> {
    let (mut parts, _) = request.into_parts();
    let head = Head::of(&gateway, &parts)?;
    if parts.headers.contains_key(header::UPGRADE) || parts.headers.contains_key(header::SEC_WEBSOCKET_KEY) {
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &gateway).await;
        let upgrade = upgrade.map_err(|error| TransportError::new(error.status(), error.body_text()))?;
        return socket::open(head, &parts, upgrade);
    }
    if !accepts_events(&parts.headers) {
        return Err(TransportError::new(StatusCode::NOT_ACCEPTABLE, "Accept must allow text/event-stream"));
    }
    let connection = head.connection()?;
    let session = head.header(&SESSION_ID)?.map(str::to_owned);
    let last = head.header(&LAST_EVENT_ID)?.map(str::to_owned);
    stream(&head, connection, session, last)
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| {
        let mut ranges = value.split(',').map(|range| range.split(';').next().unwrap_or_default().trim());
        ranges.any(|range| range.eq_ignore_ascii_case("text/event-stream"))
    })
}

fn stream(
    head: &Head,
    connection: Arc<Connection>,
    session: Option<String>,
    last: Option<String>,
) -> Result<Response, TransportError> {
    let gateway = head.gateway.clone();
    let principal = head.admission.principal().ok_or_else(TransportError::unknown_connection)?;
    let guard = gateway
        .streams()
        .acquire(principal)
        .map_err(|limit| TransportError::new(StatusCode::TOO_MANY_REQUESTS, limit.to_string()))?;
    let open = OpenStream::new(&connection);
    let admission = Arc::clone(&head.admission);
    let keep_alive = gateway.limits.keep_alive_interval;
    let view = session
        .map(|session| connection.view_for_stream(&session))
        .transpose()
        .map_err(|error| TransportError::new(StatusCode::NOT_FOUND, error.to_string()))?;
    let body = move |out: ChunkSender| async move {
        let mut sink = EventSink { out, buffer: BytesMut::new() };
        let deliver = async {
            match view {
                Some(view) => {
                    let _open = OpenSessionStream::new(&view);
                    let from = last.and_then(|last| last.parse::<Position>().ok());
                    let (connection, epoch) = (Arc::clone(&connection), gateway.epoch());
                    SessionDelivery { connection, view, epoch, from, keep_alive }.run(&mut sink).await
                }
                None => {
                    let last = last.and_then(|last| last.rsplit_once('.')?.1.parse().ok());
                    deliver_responses(&connection, last, keep_alive, &mut sink).await
                }
            }
        };
        tokio::select! {
            never = deliver => match never {},
            () = connection.wait_closed() => {}
            () = admission.wait_key_ended() => {}
            () = gateway.shutdown.closing_started() => {}
        }
        drop((open, guard));
    };
    Ok(event_response("text/event-stream", Body::new(body_from(body))))
}

/// Writes messages as Server-Sent Events.
struct EventSink {
    out: ChunkSender,
    buffer: BytesMut,
}

impl MessageSink for EventSink {
    fn push(&mut self, id: &str, message: Bytes) {
        write_block(&mut self.buffer, Some(id), None, &to_ascii(message));
    }

    async fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.out.send(self.buffer.split().freeze()).await;
        }
    }

    async fn keep_alive(&mut self) {
        self.out.send(Bytes::from_static(b":\n")).await;
    }
}

/// Ends a connection. Its turns continue.
pub(super) async fn delete(
    State(gateway): State<Gateway>,
    request: Request,
) -> Result<StatusCode, TransportError> {
    let (parts, _) = request.into_parts();
    let connection = Head::of(&gateway, &parts)?.connection()?;
    gateway.acp().remove(&connection);
    Ok(StatusCode::ACCEPTED)
}
