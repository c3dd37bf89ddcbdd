//! The requests of the remote transport: POST for each message, GET for each stream, DELETE for the end.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::timeout;

use base::shutdown::lock_or_abort;
use base::types::text::strip_controls;
use outgoing::{Client, Cookies, EventStream, SilenceTimeout, read_body};
use wire::acp::headers::{CONNECTION_ID, LAST_EVENT_ID, SESSION_ID};
use wire::jsonrpc::{self, Message, plain_line};

/// The timeout for the response to a POST or to a stream request. Hosts respond before the agent does the work.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum size of an error response's body. A longer body is ignored.
const MAX_ERROR_BYTES: usize = 8 << 10;
/// The maximum length of the text of an error in bytes.
const MAX_ERROR_TEXT: usize = 500;
const MAX_ERROR_DEPTH: usize = 16;
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);
/// A stream with keep-alives that sends nothing for this long is lost.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(1);
/// The size of an event beside its message: names of fields, the id, and a part of the next event.
const EVENT_OVERHEAD: usize = 1 << 20;

/// A host that serves the remote transport at a URL.
#[derive(Debug)]
pub(in crate::agent) struct Host {
    client: Client,
    url: Uri,
    headers: HeaderMap,
    max_line_bytes: usize,
    cookies: Mutex<Cookies>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestFailure {
    /// The host does not have the request. Another attempt can succeed.
    #[error("{0}")]
    NotReceived(String),
    #[error("{}", status_text(*.status, .detail.as_deref()))]
    Status {
        status: StatusCode,
        detail: Option<String>,
    },
    /// Whether the host has the request is unknown.
    #[error("{0}")]
    Lost(String),
}

fn status_text(status: StatusCode, detail: Option<&str>) -> String {
    match detail {
        Some(detail) => format!("the agent's host answered {status}: {detail}"),
        None => format!("the agent's host answered {status}"),
    }
}

impl RequestFailure {
    /// Whether another attempt can succeed and cannot deliver a message twice.
    pub(super) fn is_retryable(&self) -> bool {
        use StatusCode as Code;
        match self {
            Self::NotReceived(_) => true,
            Self::Status { status, .. } => {
                [Code::TOO_MANY_REQUESTS, Code::SERVICE_UNAVAILABLE].contains(status)
            }
            Self::Lost(_) => false,
        }
    }

    /// Whether the host rejects the whole connection: its credentials, its id or its URL.
    pub(super) fn is_of_connection(&self) -> bool {
        let Self::Status { status, .. } = self else {
            return true;
        };
        status.is_redirection()
            || matches!(
                *status,
                StatusCode::UNAUTHORIZED
                    | StatusCode::FORBIDDEN
                    | StatusCode::NOT_FOUND
                    | StatusCode::GONE
                    | StatusCode::MISDIRECTED_REQUEST
            )
    }

    /// The reason for the end of a connection. It has no text of the host, which could contain a secret.
    pub(super) fn reason(&self) -> String {
        match self {
            Self::NotReceived(reason) | Self::Lost(reason) => {
                format!("the connection was lost: {}", strip_controls(reason))
            }
            Self::Status { status, .. } => status_text(*status, None),
        }
    }
}

impl Host {
    /// `headers` are part of every request.
    pub(in crate::agent) fn new(
        client: Client,
        url: Uri,
        headers: HeaderMap,
        max_line_bytes: usize,
    ) -> Self {
        Self {
            client,
            url,
            headers,
            max_line_bytes,
            cookies: Mutex::default(),
        }
    }

    /// Opens a connection. The caller limits the time, because the host can start an agent. Returns the id of the
    /// connection, and the body of the response.
    pub(super) async fn initialize(
        &self,
        body: Bytes,
    ) -> Result<(Option<HeaderValue>, Bytes), RequestFailure> {
        let request = with_json(self.request(Method::POST), body);
        let response = self.send(request).await?;
        if response.status() != StatusCode::OK {
            return Err(failure(response).await);
        }
        let connection = response.headers().get(CONNECTION_ID).cloned();
        let body = read_body(response, self.max_line_bytes).await;
        let body = body.map_err(|error| RequestFailure::Lost(error.to_string()))?;
        Ok((connection, body))
    }

    pub(super) async fn post(
        &self,
        connection: &HeaderValue,
        session: Option<&str>,
        body: Bytes,
    ) -> Result<(), RequestFailure> {
        let request = with_json(self.request_on(Method::POST, connection, session)?, body);
        let response = within(RESPONSE_TIMEOUT, self.send(request)).await?;
        if response.status().is_success() {
            Ok(())
        } else {
            Err(failure(response).await)
        }
    }

    /// Opens the stream of the connection or of a session, after the event `last`.
    pub(super) async fn stream(
        &self,
        connection: &HeaderValue,
        session: Option<&str>,
        last: Option<HeaderValue>,
    ) -> Result<EventStream, RequestFailure> {
        let mut request = self.request_on(Method::GET, connection, session)?;
        let event_stream = HeaderValue::from_static("text/event-stream");
        request.headers_mut().insert(ACCEPT, event_stream);
        if let Some(last) = last {
            request.headers_mut().insert(LAST_EVENT_ID, last);
        }
        let response = within(RESPONSE_TIMEOUT, self.send(request)).await?;
        if response.status() != StatusCode::OK {
            return Err(failure(response).await);
        }
        let max_event_bytes = self.max_line_bytes.saturating_add(EVENT_OVERHEAD);
        let silence = SilenceTimeout::AfterKeepAlive(SILENCE_TIMEOUT);
        let body = response.into_body();
        Ok(EventStream::new(body, max_event_bytes, silence))
    }

    /// Ends a connection. Failures have no effect: hosts end idle connections themselves.
    pub(super) async fn delete(&self, connection: &HeaderValue) {
        let Ok(request) = self.request_on(Method::DELETE, connection, None) else {
            return;
        };
        if let Err(error) = within(DELETE_TIMEOUT, self.send(request)).await {
            tracing::debug!(%error, "could not end a connection at the host of an agent");
        }
    }

    fn request(&self, method: Method) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = method;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        lock_or_abort(self.cookies.lock()).apply(request.headers_mut());
        request
    }

    fn request_on(
        &self,
        method: Method,
        connection: &HeaderValue,
        session: Option<&str>,
    ) -> Result<Request<Full<Bytes>>, RequestFailure> {
        let mut request = self.request(method);
        let headers = request.headers_mut();
        headers.insert(CONNECTION_ID, connection.clone());
        if let Some(session) = session {
            let session = HeaderValue::try_from(session).map_err(|_| {
                RequestFailure::Lost("the session id of the agent cannot be a header".to_owned())
            })?;
            headers.insert(SESSION_ID, session);
        }
        Ok(request)
    }

    async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, RequestFailure> {
        let response = self.client.send(request).await.map_err(|error| {
            let failure = if error.was_sent() {
                RequestFailure::Lost
            } else {
                RequestFailure::NotReceived
            };
            failure(error.to_string())
        })?;
        lock_or_abort(self.cookies.lock()).store(&self.url, response.headers());
        Ok(response)
    }
}

fn with_json(mut request: Request<Full<Bytes>>, body: Bytes) -> Request<Full<Bytes>> {
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, json.clone());
    request.headers_mut().insert(ACCEPT, json);
    *request.body_mut() = Full::new(body);
    request
}

async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, RequestFailure>>,
) -> Result<T, RequestFailure> {
    timeout(limit, request).await.unwrap_or_else(|_| {
        let seconds = limit.as_secs();
        let reason = format!("no response within {seconds} seconds");
        Err(RequestFailure::Lost(reason))
    })
}

/// The failure for a status, with the message of the host.
async fn failure(response: Response<Incoming>) -> RequestFailure {
    let status = response.status();
    let body = timeout(ERROR_BODY_TIMEOUT, read_body(response, MAX_ERROR_BYTES)).await;
    let body = body.ok().and_then(Result::ok).unwrap_or_default();
    let text = match jsonrpc::parse(&body, MAX_ERROR_DEPTH) {
        Ok(Message::Response {
            outcome: Err(error),
            ..
        }) => error.message,
        _ => String::from_utf8_lossy(&body).into_owned(),
    };
    let text = plain_line(&text, MAX_ERROR_TEXT);
    RequestFailure::Status {
        status,
        detail: Some(text).filter(|text| !text.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_retried_only_if_no_message_can_be_repeated() {
        let status = |status| RequestFailure::Status {
            status,
            detail: Some("a secret".to_owned()),
        };
        for (failure, is_retryable, is_of_connection) in [
            (
                RequestFailure::NotReceived("refused".to_owned()),
                true,
                true,
            ),
            (RequestFailure::Lost("reset".to_owned()), false, true),
            (status(StatusCode::SERVICE_UNAVAILABLE), true, false),
            (status(StatusCode::TOO_MANY_REQUESTS), true, false),
            (status(StatusCode::BAD_GATEWAY), false, false),
            (status(StatusCode::PAYLOAD_TOO_LARGE), false, false),
            (status(StatusCode::NOT_FOUND), false, true),
            (status(StatusCode::UNAUTHORIZED), false, true),
            (status(StatusCode::TEMPORARY_REDIRECT), false, true),
        ] {
            assert_eq!(
                (failure.is_retryable(), failure.is_of_connection()),
                (is_retryable, is_of_connection),
                "{failure}"
            );
            assert!(!failure.reason().contains("secret"), "{failure}");
        }
    }
}
