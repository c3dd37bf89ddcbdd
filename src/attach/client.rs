//! Requests to `/acp` of a gateway over HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::bridge::{Post, PostError};
use crate::jsonrpc::{self, Message, RpcError};
use crate::outgoing::{self, Client, EventStream, SilenceTimeout, read_body};
use crate::types::acp_headers::{CONNECTION_ID, LAST_EVENT_ID, SESSION_ID};

/// The gateway accepts a message at once.
const POST_TIMEOUT: Duration = Duration::from_mins(1);
/// The time limit for the response to `initialize`, which can wait for the first start of an agent.
const INITIALIZE_TIMEOUT: Duration = Duration::from_mins(5);
const DELETE_TIMEOUT: Duration = Duration::from_secs(1);
/// A stream without a byte for this long has ended. The gateway sends comments more often.
const STREAM_TIMEOUT: Duration = Duration::from_mins(2);
/// The maximum size of one event. The gateway sends no larger message.
const MAX_EVENT_BYTES: usize = 256 << 20;
/// The maximum size of a response to `initialize`, or of an error.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
const MAX_DEPTH: usize = 128;

/// The URL of `/acp` of a gateway, and the header with the key.
#[derive(Debug, Clone)]
pub struct Target {
    pub url: Uri,
    pub authorization: HeaderValue,
}

/// A client. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct GatewayClient(Client);

/// A connection that the gateway has opened.
#[derive(Debug, Clone)]
pub(super) struct Connection {
    pub(super) target: Target,
    pub(super) id: HeaderValue,
}

/// An error of a request.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RequestError {
    /// The gateway does not accept the key or the host. Another attempt fails too.
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Failed(String),
}

impl From<outgoing::RequestError> for RequestError {
    fn from(error: outgoing::RequestError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl GatewayClient {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    pub(super) fn http(&self) -> &Client {
        &self.0
    }

    pub(super) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, RequestError> {
        Ok(self.0.send(request).await?)
    }

    /// Sends `initialize`. Returns the connection with the result, or the JSON-RPC error of the gateway.
    pub(super) async fn initialize(
        &self,
        target: Target,
        body: Bytes,
    ) -> Result<Result<(Connection, Box<serde_json::value::RawValue>), RpcError>, RequestError>
    {
        let request = with_json(request(Method::POST, &target), body);
        let response = within(INITIALIZE_TIMEOUT, self.send(request)).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        if status != StatusCode::OK {
            return Err(rejection(response).await);
        }
        let body = within(POST_TIMEOUT, read(response)).await?;
        let invalid = || RequestError::Failed(format!("no ACP gateway answers at {}", target.url));
        match jsonrpc::parse(&body, MAX_DEPTH) {
            Ok(Message::Response {
                outcome: Ok(result),
                ..
            }) => {
                let id = headers.get(CONNECTION_ID).cloned().ok_or_else(invalid)?;
                Ok(Ok((
                    Connection {
                        target: target.clone(),
                        id,
                    },
                    result,
                )))
            }
            Ok(Message::Response {
                outcome: Err(error),
                ..
            }) => Ok(Err(error)),
            _ => Err(invalid()),
        }
    }

    /// Sends one message.
    pub(super) async fn post(
        &self,
        connection: &Connection,
        post: Post,
    ) -> Result<Result<(), PostError>, RequestError> {
        let mut request = with_json(request_on(Method::POST, connection), post.body);
        if let Some(session) = post
            .session
            .and_then(|session| HeaderValue::try_from(&*session).ok())
        {
            request.headers_mut().insert(SESSION_ID, session);
        }
        let response = within(POST_TIMEOUT, self.send(request)).await?;
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
        connection: &Connection,
        session: Option<&str>,
        last: Option<&str>,
    ) -> Result<EventStream, RequestError> {
        let mut request = request_on(Method::GET, connection);
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        for (name, value) in [(SESSION_ID, session), (LAST_EVENT_ID, last)] {
            if let Some(value) = value {
                let value = HeaderValue::try_from(value)
                    .map_err(|_| RequestError::Failed(format!("{value:?} cannot be a header")))?;
                headers.insert(name, value);
            }
        }
        let response = within(POST_TIMEOUT, self.send(request)).await?;
        if response.status() == StatusCode::OK {
            let silence = SilenceTimeout::Always(STREAM_TIMEOUT);
            Ok(EventStream::new(
                response.into_body(),
                MAX_EVENT_BYTES,
                silence,
            ))
        } else {
            Err(rejection(response).await)
        }
    }

    /// Ends a connection. Failures have no effect, because the gateway ends idle connections itself.
    pub(super) async fn delete(&self, connection: &Connection) {
        let request = request_on(Method::DELETE, connection);
        if let Err(error) = within(DELETE_TIMEOUT, self.send(request)).await {
            tracing::debug!(%error, "could not end a connection at the gateway");
        }
    }
}

pub(super) fn request(method: Method, target: &Target) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.method_mut() = method;
    *request.uri_mut() = target.url.clone();
    request
        .headers_mut()
        .insert(AUTHORIZATION, target.authorization.clone());
    request
}

fn request_on(method: Method, connection: &Connection) -> Request<Full<Bytes>> {
    let mut request = request(method, &connection.target);
    request
        .headers_mut()
        .insert(CONNECTION_ID, connection.id.clone());
    request
}

pub(super) fn with_json(mut request: Request<Full<Bytes>>, body: Bytes) -> Request<Full<Bytes>> {
    request
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *request.body_mut() = Full::new(body);
    request
}

pub(super) async fn within<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    let failed = |_| {
        Err(RequestError::Failed(format!(
            "no response within {} seconds",
            limit.as_secs()
        )))
    };
    timeout(limit, request).await.unwrap_or_else(failed)
}

pub(super) async fn read(response: Response<Incoming>) -> Result<Bytes, RequestError> {
    Ok(read_body(response, MAX_RESPONSE_BYTES).await?)
}

/// The error for a status, with the message of the gateway.
async fn rejection(response: Response<Incoming>) -> RequestError {
    let status = response.status();
    let body = within(DELETE_TIMEOUT, read(response))
        .await
        .unwrap_or_default();
    let reason = match jsonrpc::parse(&body, MAX_DEPTH) {
        Ok(Message::Response {
            outcome: Err(error),
            ..
        }) => format!("{status}: {}", error.message),
        _ => status.to_string(),
    };
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST => {
            RequestError::Denied(reason)
        }
        _ => RequestError::Failed(reason),
    }
}
