//! The receiver for telemetry of agents: OTLP over HTTP on a loopback address, for processes with a token. It forwards each
//! request to the collector of the operator, with the agent and the session as attributes.
//!
//! The draft of ACP is "Agent Telemetry Export" (`docs/rfds/agent-telemetry-export.mdx` of the protocol's repository).

mod annotate;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use tokio::sync::Semaphore;

use self::annotate::{annotate, put_field};
use super::otlp::{Collector, CollectorError};
use crate::config::Config;
use crate::server::limits::Limits;
use crate::server::{self, Acceptor, BindError, BoundListeners, ConnectionPermit, ConnectionUse};
use crate::surface::http::{BodyError, BodyLimit, has_media_type, read_body};
use agents::agent::{TelemetrySource, TelemetrySources};
use base::types::Ids;

const PROTOBUF: HeaderValue = HeaderValue::from_static(MEDIA_TYPE);
const MEDIA_TYPE: &str = "application/x-protobuf";

/// The size of one request.
const MAX_BODY_BYTES: usize = 1 << 20;
/// The time to receive a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// The requests of all processes that are forwarded at one time. Each one holds a copy of its body with the added attributes.
const MAX_FORWARDED: usize = 16;
/// The wait of a process while the gateway forwards [`MAX_FORWARDED`] requests.
const FORWARDED_WAIT: Duration = Duration::from_secs(1);
/// The connections of all processes. An SDK keeps one for each signal.
const MAX_CONNECTIONS: usize = 512;

/// The bound address, which accepts connections after [`serve`](Self::serve).
pub(super) struct Receiver {
    listeners: BoundListeners,
    collector: Collector,
    pub(super) sources: TelemetrySources,
}

impl Receiver {
    /// `None` if no agent sends telemetry.
    pub(super) fn bind(
        config: &Config,
        collector: Option<&Collector>,
        ids: &Ids,
    ) -> Result<Option<Self>, BindError> {
        let Some(collector) = collector else {
            return Ok(None);
        };
        if !config.agents.values().any(|agent| agent.settings.telemetry) {
            return Ok(None);
        }
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listeners = BoundListeners::bind(any_port)?;
        let bound = listeners.local_addr();
        let address = bound.map_err(|source| BindError::Configured {
            address: any_port,
            source,
        })?;
        Ok(Some(Self {
            listeners,
            collector: collector.clone(),
            sources: TelemetrySources::new(address, ids.clone()),
        }))
    }

    /// Copies of the sockets. While a supervisor holds them, no agent can bind the address and receive the telemetry of others.
    pub(super) fn copies(&self) -> io::Result<Vec<OwnedFd>> {
        self.listeners.copies()
    }

    pub(super) fn serve(self, acceptor: &Acceptor) -> io::Result<()> {
        let listeners = self.listeners.register()?;
        let limits = Limits {
            max_connections: MAX_CONNECTIONS,
            max_connections_per_address: MAX_CONNECTIONS,
            ..(*acceptor.limits).clone()
        };
        let acceptor = Acceptor {
            limits: Arc::new(limits),
            connection_use: ConnectionUse::default(),
            ..acceptor.clone()
        };
        let shutdown = acceptor.shutdown.clone();
        let router = router(self.sources, self.collector);
        shutdown.spawn_critical(server::serve(listeners, router, acceptor));
        Ok(())
    }
}

struct Exports {
    sources: TelemetrySources,
    collector: Collector,
    forwarded: Semaphore,
}

fn router(sources: TelemetrySources, collector: Collector) -> Router {
    let exports = Exports {
        sources,
        collector,
        forwarded: Semaphore::new(MAX_FORWARDED),
    };
    Router::new()
        .route("/v1/traces", post(export))
        .route("/v1/metrics", post(export))
        .route("/v1/logs", post(export))
        .with_state(Arc::new(exports))
}

async fn export(State(exports): State<Arc<Exports>>, request: Request) -> Response {
    let Some(source) = source_of(request.headers(), &exports.sources) else {
        let error = ExportError::Unauthorized;
        tracing::debug!(%error, "rejected telemetry");
        return error.into_response();
    };
    match forward(&exports, &source, request).await {
        // The empty message of a complete success.
        Ok(()) => ([(CONTENT_TYPE, PROTOBUF)], Body::empty()).into_response(),
        Err(error) => {
            tracing::debug!(agent = %source.agent, %error, "rejected telemetry of an agent");
            error.into_response()
        }
    }
}

fn source_of(headers: &HeaderMap, sources: &TelemetrySources) -> Option<Arc<TelemetrySource>> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    sources.find(token.trim_start())
}

async fn forward(
    exports: &Exports,
    source: &TelemetrySource,
    request: Request,
) -> Result<(), ExportError> {
    let _of_process = source
        .begin_request()
        .map_err(|wait| ExportError::TooMany { wait })?;
    // Only an admitted request protects its connection from eviction, so the rate of a process also bounds its connections.
    if let Some(permit) = request.extensions().get::<ConnectionPermit>() {
        permit.authenticated();
    }
    if !has_media_type(request.headers(), &[MEDIA_TYPE]) {
        return Err(ExportError::MediaType);
    }
    let (parts, body) = request.into_parts();
    let limit = BodyLimit::fixed(MAX_BODY_BYTES);
    let body = read_body(&parts, body, limit, BODY_TIMEOUT).await?;
    // After the body, because processes that send theirs slowly must not exclude others.
    let permit = exports.forwarded.try_acquire();
    let _of_all = permit.map_err(|_| ExportError::Busy)?;
    let annotated = annotate(&body, &attributes_of(source));
    drop(body);
    let annotated = annotated.map_err(ExportError::Invalid)?;
    let signal_path = parts.uri.path().trim_start_matches('/');
    let annotated = Bytes::from(annotated);
    let posted = exports
        .collector
        .post(signal_path, annotated, Some(&source.agent));
    posted.await.map_err(ExportError::Collector)
}

/// The attributes of the process, as an encoded resource.
fn attributes_of(source: &TelemetrySource) -> Vec<u8> {
    let attribute = |key: &str, value: String| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value)),
        }),
        ..KeyValue::default()
    };
    let service = attribute("service.name", source.agent.to_string());
    let agent = attribute("acp_gateway.agent", source.agent.to_string());
    let session = source.session();
    let session = session.map(|id| attribute("acp_gateway.session.id", id.to_string()));
    let resource = Resource {
        attributes: [service, agent].into_iter().chain(session).collect(),
        ..Resource::default()
    };
    resource.encode_to_vec()
}

#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("the request has no token of a running process in Authorization: Bearer")]
    Unauthorized,
    #[error("the process sends too many requests")]
    TooMany { wait: Duration },
    #[error("the gateway forwards {MAX_FORWARDED} requests of agents")]
    Busy,
    #[error("the body must be {MEDIA_TYPE}")]
    MediaType,
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Invalid(annotate::AnnotateError),
    #[error("the collector did not accept the request; the log of the gateway has the cause")]
    Collector(#[source] CollectorError),
}

impl ExportError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::TooMany { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::MediaType | Self::Body(BodyError::Encoded(_)) => {
                StatusCode::UNSUPPORTED_MEDIA_TYPE
            }
            Self::Body(BodyError::TooLarge(_)) => StatusCode::PAYLOAD_TOO_LARGE,
            // The collector finds errors in the parts that the gateway does not read. An SDK then drops the request.
            Self::Body(BodyError::Incomplete | BodyError::TimedOut)
            | Self::Invalid(_)
            | Self::Collector(CollectorError::Status(StatusCode::BAD_REQUEST)) => {
                StatusCode::BAD_REQUEST
            }
            Self::Busy | Self::Body(BodyError::Memory(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Collector(_) => StatusCode::BAD_GATEWAY,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooMany { wait } => Some(*wait),
            Self::Busy | Self::Body(BodyError::Memory(_)) => Some(FORWARDED_WAIT),
            _ => None,
        }
    }
}

impl IntoResponse for ExportError {
    /// The body is a `Status` message with its field `message`, as the protocol requires.
    fn into_response(self) -> Response {
        const MESSAGE: u32 = 2;
        let mut body = Vec::new();
        put_field(MESSAGE, self.to_string().as_bytes(), &mut body);
        let mut response = (self.status(), [(CONTENT_TYPE, PROTOBUF)], body).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after() {
            // Whole seconds, at least one.
            headers.insert(RETRY_AFTER, (wait.as_secs() + 1).into());
        }
        if matches!(self, Self::Unauthorized) {
            let challenge = HeaderValue::from_static("Bearer realm=\"acp-gateway\"");
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }
}
