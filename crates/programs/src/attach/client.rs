//! Requests to `/acp` of a gateway over HTTP/1.1.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::bridge::{Post, PostError};
use outgoing::{self, Client, EventStream, SilenceTimeout, read_body};
use wire::acp::headers::{CONNECTION_ID, LAST_EVENT_ID, SESSION_ID};
use wire::jsonrpc::{self, MAX_DEPTH, Message, RpcError};

/// The gateway accepts a message at once.
const POST_TIMEOUT: Duration = Duration::from_mins(1);
const INITIALIZE_TIMEOUT: Duration = Duration::from_mins(5);
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);
/// A stream without a byte for this long has ended. The gateway sends comments more often.
const STREAM_TIMEOUT: Duration = Duration::from_mins(2);
/// The maximum size of one event. The gateway sends no larger message.
const MAX_EVENT_BYTES: usize = 256 << 20;
const MAX_RESPONSE_BYTES: usize = 4 << 20;

#[derive(Debug, Clone)]
pub struct Target {
    pub url: Uri,
    pub authorization: HeaderValue,
}

#[derive(Debug, Clone)]
pub(super) struct Connection {
    http: Arc<Client>,
    target: Target,
    id: HeaderValue,
}

#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RequestError {
    /// The gateway does not accept the key or the host. Another attempt fails too.
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Failed(String),
}

/// Sends `initialize`. Returns the connection with the result, or the JSON-RPC error of the gateway.
pub(super) async fn initialize(
    http: Arc<Client>,
    target: Target,
    body: Bytes,
) -> Result<Result<(Connection, Box<RawValue>), RpcError>, RequestError> {
    let request = with_json(request(Method::POST, &target), body);
    let response = within(INITIALIZE_TIMEOUT, http.send(request)).await?;
    if response.status() != StatusCode::OK {
        return Err(rejection(response).await);
    }
    let id = response.headers().get(CONNECTION_ID).cloned();
    let body = within(POST_TIMEOUT, read(response)).await?;
    let Ok(Message::Response { outcome, .. }) = jsonrpc::parse(&body, MAX_DEPTH) else {
        return Err(no_gateway(&target));
    };
    Ok(match outcome {
        Ok(result) => {
            let id = id.ok_or_else(|| no_gateway(&target))?;
            Ok((Connection { http, target, id }, result))
        }
        Err(error) => Err(error),
    })
}

fn no_gateway(target: &Target) -> RequestError {
    RequestError::Failed(format!("no ACP gateway answers at {}", target.url))
}

impl Connection {
    fn request(&self, method: Method) -> Request<Full<Bytes>> {
        let mut request = request(method, &self.target);
        request.headers_mut().insert(CONNECTION_ID, self.id.clone());
        request
    }

    pub(super) async fn post(&self, post: Post) -> Result<Result<(), PostError>, RequestError> {
        let mut request = with_json(self.request(Method::POST), post.body);
        if let Some(session) = post.session
            && let Ok(session) = HeaderValue::try_from(&*session)
        {
            request.headers_mut().insert(SESSION_ID, session);
        }
        let response = within(POST_TIMEOUT, self.http.send(request)).await?;
        match response.status() {
            status if status.is_success() => Ok(Ok(())),
            StatusCode::TOO_MANY_REQUESTS => Ok(Err(PostError::Busy)),
            StatusCode::NOT_FOUND => Ok(Err(PostError::Gone)),
            StatusCode::REQUEST_TIMEOUT => Ok(Err(PostError::Lost)),
            status if status.is_server_error() => Ok(Err(PostError::Lost)),
            _ => match rejection(response).await {
                error @ RequestError::Denied(_) => Err(error),
                RequestError::Failed(reason) => Ok(Err(PostError::Rejected(reason))),
            },
        }
    }

    /// Opens the stream of the connection or of a session, after the SSE id `last`.
    pub(super) async fn stream(
        &self,
        session: Option<&str>,
        last: Option<&str>,
    ) -> Result<EventStream, RequestError> {
        let mut request = self.request(Method::GET);
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        for (name, value) in [(SESSION_ID, session), (LAST_EVENT_ID, last)] {
            if let Some(value) = value {
                let invalid = |_| RequestError::Failed(format!("{value:?} cannot be a header"));
                headers.insert(name, HeaderValue::try_from(value).map_err(invalid)?);
            }
        }
        let response = within(POST_TIMEOUT, self.http.send(request)).await?;
        if response.status() != StatusCode::OK {
            return Err(rejection(response).await);
        }
        let silence = SilenceTimeout::Always(STREAM_TIMEOUT);
        let body = response.into_body();
        Ok(EventStream::new(body, MAX_EVENT_BYTES, silence))
    }

    /// Ends a connection. Failures have no effect, because the gateway ends idle connections itself.
    pub(super) async fn delete(&self) {
        let request = self.request(Method::DELETE);
        if let Err(error) = within(DELETE_TIMEOUT, self.http.send(request)).await {
            tracing::debug!(%error, "could not end a connection at the gateway");
        }
    }
}

pub(super) fn request(method: Method, target: &Target) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.method_mut() = method;
    *request.uri_mut() = target.url.clone();
    let authorization = target.authorization.clone();
    request.headers_mut().insert(AUTHORIZATION, authorization);
    request
}

pub(super) fn with_json(mut request: Request<Full<Bytes>>, body: Bytes) -> Request<Full<Bytes>> {
    let json = HeaderValue::from_static("application/json");
    request.headers_mut().insert(CONTENT_TYPE, json);
    *request.body_mut() = Full::new(body);
    request
}

pub(super) async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, outgoing::RequestError>>,
) -> Result<T, RequestError> {
    match timeout(limit, request).await {
        Ok(response) => response.map_err(|error| RequestError::Failed(error.to_string())),
        Err(_) => Err(RequestError::Failed(format!(
            "no response within {} seconds",
            limit.as_secs()
        ))),
    }
}

pub(super) async fn read(response: Response<Incoming>) -> Result<Bytes, outgoing::RequestError> {
    read_body(response, MAX_RESPONSE_BYTES).await
}

async fn rejection(response: Response<Incoming>) -> RequestError {
    let status = response.status();
    let body = within(DELETE_TIMEOUT, read(response)).await;
    let message = jsonrpc::parse(&body.unwrap_or_default(), MAX_DEPTH);
    let mut reason = status.to_string();
    if let Ok(Message::Response { outcome, .. }) = message
        && let Err(error) = outcome
    {
        reason = format!("{status}: {}", error.message);
    }
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
            RequestError::Denied(reason)
        }
        _ => RequestError::Failed(reason),
    }
}
