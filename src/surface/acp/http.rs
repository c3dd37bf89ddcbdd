//! `/acp` over HTTP: POST for the client's messages, GET for the streams, DELETE for the end of a connection.
//!
//! The official clients close the whole connection after a 401, 403, 404 or 410. The Rust client closes it after every
//! error status. Therefore, the failure of one request is a JSON-RPC error on a stream, and a status reports only
//! errors of the transport.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::Request;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header};
use serde_json::value::RawValue;

use super::caller::session_of;
use super::connection::{Connection, OpenSessionStream, OpenStream};
use super::delivery::{MessageSink, Position, SessionDelivery, deliver_responses};
use super::initialize::open_connection;
use super::message::{self, is_valid_id, to_ascii};
use super::request::{Head, Result, TransportError, json_response, parse, too_many};
use super::session_view::SessionView;
use super::socket;
use crate::server::{BodyCharge, ConnectionPermit, event_response};
use crate::stream::{ChunkSender, body_from};
use crate::surface::http::{BodyLimit, ascii, has_media_type, header_texts, read_body};
use events::event::write_block;
use wire::acp::headers::{CONNECTION_ID, LAST_EVENT_ID, SESSION_ID};
use wire::acp::method;
use wire::jsonrpc::Message;

pub(super) async fn post(head: Head, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    if !has_media_type(&parts.headers, &["application/json"]) {
        let detail = "the body must be application/json";
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(TransportError::new(status, detail));
    }
    let limits = &head.app.limits;
    let max = BodyLimit::of_key(limits.sessions.max_prompt_bytes, "server.max_prompt_bytes");
    let body = read_body(&parts, body, max, limits.http.body_timeout).await?;
    let message = parse(&body)?;
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
fn check_session(head: &Head, message: &Message) -> Result<()> {
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

async fn initialize(head: &Head, id: &RawValue, params: &RawValue) -> Result<Response> {
    if head.header(&CONNECTION_ID)?.is_some() {
        let detail =
            "this connection is initialized already: omit Acp-Connection-Id to open another one";
        return Err(TransportError::bad_request(detail));
    }
    if !is_valid_id(id) {
        let detail = "the id must be a string, a number or null";
        return Err(TransportError::bad_request(detail));
    }
    let connection_id = head.app.ids.uuid().to_string().into();
    let opened = open_connection(head, params, connection_id, None);
    Ok(match opened.await {
        Ok((connection, result)) => {
            let id_header = [(CONNECTION_ID, ascii(&*connection.id))];
            let response = json_response(StatusCode::OK, message::response(id, Ok(&result)));
            (id_header, response).into_response()
        }
        // The clients read the error from the body. Without the header, there is no connection.
        Err(failure) => json_response(StatusCode::OK, message::response(id, Err(&failure))),
    })
}

pub(super) async fn get(
    head: Head,
    permit: Option<Extension<ConnectionPermit>>,
    charge: Option<Extension<Arc<BodyCharge>>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response> {
    let headers = &head.headers;
    if headers.contains_key(header::UPGRADE) || headers.contains_key(header::SEC_WEBSOCKET_KEY) {
        let upgrade =
            upgrade.map_err(|error| TransportError::new(error.status(), error.body_text()))?;
        return socket::open(head, permit, charge, upgrade);
    }
    if !accepts_events(headers) {
        let detail = "Accept must allow text/event-stream";
        return Err(TransportError::new(StatusCode::NOT_ACCEPTABLE, detail));
    }
    let connection = head.connection()?;
    let session = head.header(&SESSION_ID)?.map(str::to_owned);
    let last = head.header(&LAST_EVENT_ID)?.map(str::to_owned);
    stream(head, connection, session, last)
}

fn accepts_events(headers: &HeaderMap) -> bool {
    let accepted = header_texts(headers, header::ACCEPT);
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let media_type = range.split(';').next().unwrap_or_default();
        media_type.trim().eq_ignore_ascii_case("text/event-stream")
    })
}

fn stream(
    head: Head,
    connection: Arc<Connection>,
    session: Option<String>,
    last: Option<String>,
) -> Result<Response> {
    let guard = head.stream_guard()?;
    let open = OpenStream::new(&connection);
    let Head { app, by, .. } = head;
    let keep_alive = app.limits.stream.keep_alive_interval;
    let view = session.as_ref().map(|session| {
        let view = connection.view_for_stream(session);
        view.map_err(|limit| too_many(&limit))
    });
    let view = view.transpose()?;
    let ended = view.clone();
    let body = move |out: ChunkSender| async move {
        let mut sink = EventSink {
            out,
            buffer: BytesMut::new(),
        };
        let deliver = async {
            if let (Some(view), Some(session)) = (view, session) {
                let _open = OpenSessionStream::new(&connection, session, &view);
                let from = last.and_then(|last| last.parse::<Position>().ok());
                let delivery = SessionDelivery {
                    connection: Arc::clone(&connection),
                    view,
                    epoch: None,
                    store_epoch: app.epoch(),
                    from,
                    keep_alive,
                };
                delivery.run(&mut sink).await
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
            () = by.admission().wait_key_ended() => {}
            () = app.shutdown.closing_started() => {}
        }
        drop((open, guard));
    };
    let body = Body::new(body_from(body));
    Ok(event_response("text/event-stream", body))
}

/// Waits until the client detaches from the session. The stream of a connection waits for ever.
async fn wait_ended(view: Option<&SessionView>) {
    match view {
        Some(view) => view.wait_ended().await,
        None => std::future::pending().await,
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
pub(super) async fn delete(head: Head) -> Result<StatusCode> {
    let connection = head.connection()?;
    connection.leave();
    head.app.connections.remove(&connection);
    Ok(StatusCode::ACCEPTED)
}
