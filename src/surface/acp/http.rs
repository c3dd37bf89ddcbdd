//! `/acp` over HTTP: POST for the client's messages, GET for the streams, DELETE for the end of a connection.
//!
//! The official clients close the whole connection after a 401, 403, 404 or 410. The Rust client closes it after every
//! error status. Therefore, the failure of one request is a JSON-RPC error on a stream, and a status reports only
//! errors of the transport.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::value::RawValue;

use super::caller::session_of;
use super::connection::{Connection, OpenStream};
use super::delivery::{MessageSink, Position, SessionDelivery, deliver_responses};
use super::initialize::open_connection;
use super::message::{self, is_valid_id, to_ascii};
use super::request::{Head, TransportError, json_response, parse};
use super::session_view::{OpenSessionStream, SessionView};
use super::socket;
use super::state::Gateway;
use crate::server::event_response;
use crate::stream::{ChunkSender, body_from};
use crate::surface::http::{BodyLimit, has_media_type, read_body};
use base::types::acp_headers::{CONNECTION_ID, LAST_EVENT_ID, SESSION_ID};
use events::event::write_block;
use wire::acp::method;
use wire::jsonrpc::Message;

pub(super) async fn post(
    State(gateway): State<Gateway>,
    request: Request,
) -> Result<Response, TransportError> {
    let (parts, body) = request.into_parts();
    let head = Head::of(&gateway, &parts)?;
    if !has_media_type(&parts.headers, &["application/json"]) {
        let detail = "the body must be application/json";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(TransportError::new(status, detail));
    }
    let limits = &gateway.limits;
    let max = BodyLimit::of_key(limits.max_prompt_bytes, "server.max_prompt_bytes");
    let body = read_body(&parts, body, max, limits.body_timeout).await?;
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

/// Checks that the optional header `Acp-Session-Id` names the session of the message.
fn check_session(head: &Head, message: &Message) -> Result<(), TransportError> {
    let (Message::Request { params, .. } | Message::Notification { params, .. }) = message else {
        return Ok(());
    };
    let (Some(header), Some(named)) = (head.header(&SESSION_ID)?, session_of(params)) else {
        return Ok(());
    };
    if header == named {
        return Ok(());
    }
    let detail = "the header Acp-Session-Id and the sessionId of the message differ";
    Err(TransportError::bad_request(detail))
}

async fn initialize(
    head: &Head,
    id: &RawValue,
    params: &RawValue,
) -> Result<Response, TransportError> {
    if head.header(&CONNECTION_ID)?.is_some() {
        let detail =
            "this connection is initialized already: omit Acp-Connection-Id to open another one";
        return Err(TransportError::bad_request(detail));
    }
    if !is_valid_id(id) {
        let detail = "the id must be a string, a number or null";
        return Err(TransportError::bad_request(detail));
    }
    let principal = head
        .admission
        .principal()
        .ok_or_else(TransportError::unknown_connection)?;
    let id_of_connection = head.gateway.ids.uuid().to_string().into();
    let agent = head.agent.as_deref();
    let opened = open_connection(
        &head.gateway,
        principal,
        agent,
        params,
        id_of_connection,
        None,
    );
    Ok(match opened.await {
        Ok((connection, result)) => {
            let mut response = json_response(StatusCode::OK, message::response(id, Ok(&result)));
            let value = HeaderValue::try_from(&*connection.id).expect("a UUID is plain ASCII");
            response.headers_mut().insert(CONNECTION_ID, value);
            response
        }
        // The clients read the error from the body. Without the header, there is no connection.
        Err(failure) => json_response(StatusCode::OK, message::response(id, Err(&failure))),
    })
}

pub(super) async fn get(
    State(gateway): State<Gateway>,
    request: Request,
) -> Result<Response, TransportError> {
    let (mut parts, _) = request.into_parts();
    let head = Head::of(&gateway, &parts)?;
    if parts.headers.contains_key(header::UPGRADE)
        || parts.headers.contains_key(header::SEC_WEBSOCKET_KEY)
    {
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &gateway).await;
        let upgrade =
            upgrade.map_err(|error| TransportError::new(error.status(), error.body_text()))?;
        return socket::open(head, &parts, upgrade);
    }
    if !accepts_events(&parts.headers) {
        let detail = "Accept must allow text/event-stream";
        return Err(TransportError::new(StatusCode::NOT_ACCEPTABLE, detail));
    }
    let connection = head.connection()?;
    let session = head.header(&SESSION_ID)?.map(str::to_owned);
    let last = head.header(&LAST_EVENT_ID)?.map(str::to_owned);
    stream(&head, connection, session, last)
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let mut accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    accepted.any(|value| {
        let mut ranges = value
            .split(',')
            .map(|range| range.split(';').next().unwrap_or_default().trim());
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
    let principal = head
        .admission
        .principal()
        .ok_or_else(TransportError::unknown_connection)?;
    let guard = gateway
        .streams()
        .acquire(principal)
        .map_err(|limit| TransportError::new(StatusCode::TOO_MANY_REQUESTS, limit.to_string()))?;
    let open = OpenStream::new(&connection);
    let admission = Arc::clone(&head.admission);
    let keep_alive = gateway.limits.keep_alive_interval;
    let too_many = |error: String| TransportError::new(StatusCode::TOO_MANY_REQUESTS, error);
    let view = match &session {
        Some(session) => {
            let view = connection.view_for_stream(session);
            Some(view.map_err(|error| too_many(error.to_string()))?)
        }
        None => None,
    };
    let ended = view.clone();
    let body = move |out: ChunkSender| async move {
        let mut sink = EventSink {
            out,
            buffer: BytesMut::new(),
        };
        let deliver = async {
            if let (Some(view), Some(session)) = (view, session) {
                let _released = ReleaseView {
                    connection: Arc::clone(&connection),
                    session,
                };
                let _open = OpenSessionStream::new(&view);
                let from = last.and_then(|last| last.parse::<Position>().ok());
                let connection = Arc::clone(&connection);
                let store_epoch = gateway.epoch();
                SessionDelivery {
                    connection,
                    view,
                    epoch: None,
                    store_epoch,
                    from,
                    keep_alive,
                }
                .run(&mut sink)
                .await
            } else {
                // An id of an earlier connection is ignored: this stream has only responses of its own connection.
                let last = last.and_then(|last| {
                    let (id, number) = last.rsplit_once('.')?;
                    (*id == *connection.id).then(|| number.parse().ok())?
                });
                deliver_responses(&connection, last, keep_alive, &mut sink).await
            }
        };
        tokio::select! {
            never = deliver => match never {},
            () = connection.wait_closed() => {}
            () = wait_ended(ended.as_deref()) => {}
            () = admission.wait_key_ended() => {}
            () = gateway.shutdown.closing_started() => {}
        }
        drop((open, guard));
    };
    Ok(event_response(
        "text/event-stream",
        Body::new(body_from(body)),
    ))
}

/// Waits until the client detaches from the session. The stream of a connection waits for ever.
async fn wait_ended(view: Option<&SessionView>) {
    match view {
        Some(view) => view.wait_ended().await,
        None => std::future::pending().await,
    }
}

/// Forgets a session that no request has attached when its stream ends.
struct ReleaseView {
    connection: Arc<Connection>,
    session: String,
}

impl Drop for ReleaseView {
    fn drop(&mut self) {
        self.connection.release_view(&self.session);
    }
}

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
    connection.leave();
    gateway.acp().remove(&connection);
    Ok(StatusCode::ACCEPTED)
}
