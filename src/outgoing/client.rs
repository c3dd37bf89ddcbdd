//! Requests over HTTP/1.1.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use super::connector::{AddressRule, Connector, Resolving, resolve};
use super::tls::{self, TlsError};
use crate::telemetry::ErrorChain;
use crate::types::ProxyVariables;

/// How long an idle connection stays open. Servers close idle connections later.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);

/// The settings of a client.
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions<'a> {
    pub proxies: &'a ProxyVariables,
    /// Without TLS the client reads no certificates.
    pub uses_tls: bool,
    /// Certificates in PEM that are trusted in addition to those of the system.
    pub ca_certificates: Option<&'a [u8]>,
    pub addresses: AddressRule,
}

/// A client. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    http: legacy::Client<Connector, Full<Bytes>>,
    connector: Connector,
}

/// A request without a response, or a response without a complete body. The text names no URL and no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct RequestError {
    reason: String,
    was_sent: bool,
}

impl RequestError {
    /// A body that ended before its end.
    pub fn interrupted(error: &hyper::Error) -> Self {
        Self {
            reason: ErrorChain(error).to_string(),
            was_sent: true,
        }
    }

    /// Whether the server can have received a part of the request.
    pub fn was_sent(&self) -> bool {
        self.was_sent
    }
}

impl Client {
    /// Reads the certificates of the system if the client uses TLS, which blocks.
    pub fn new(options: ClientOptions<'_>) -> Result<Self, TlsError> {
        Self::with_resolver(options, resolve)
    }

    pub(super) fn with_resolver(
        options: ClientOptions<'_>,
        resolve: fn(&str) -> Resolving,
    ) -> Result<Self, TlsError> {
        let ClientOptions {
            proxies,
            uses_tls,
            ca_certificates,
            addresses,
        } = options;
        let tls = if uses_tls {
            tls::config(ca_certificates)?
        } else {
            tls::without_certificates()?
        };
        let connector = Connector::new(proxies, tls, addresses, resolve);
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_timer(TokioTimer::new());
        Ok(Self {
            http: builder.build(connector.clone()),
            connector,
        })
    }

    /// Sends a request. The caller limits the time until the response, and the size of its body.
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, RequestError> {
        let response = self.http.request(request).await;
        response.map_err(|error| RequestError {
            reason: ErrorChain(&error).to_string(),
            was_sent: !error.is_connect(),
        })
    }

    pub(super) fn connector(&self) -> Connector {
        self.connector.clone()
    }
}

/// Reads a body of up to `max_bytes`.
pub async fn read_body(
    response: Response<Incoming>,
    max_bytes: usize,
) -> Result<Bytes, RequestError> {
    let body = Limited::new(response.into_body(), max_bytes)
        .collect()
        .await;
    body.map(http_body_util::Collected::to_bytes)
        .map_err(|error| RequestError {
            reason: error.to_string(),
            was_sent: true,
        })
}
