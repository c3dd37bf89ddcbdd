//! Requests over HTTP/1.1.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Error};
use tower::{Service as _, ServiceExt as _};

use super::connector::{AddressRule, Connector, Resolving, Stream, resolve};
use crate::ProxyVariables;
use base::telemetry::ErrorChain;

/// How long an idle connection stays open. Servers close idle connections later.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy)]
pub struct ClientOptions<'a> {
    pub proxies: &'a ProxyVariables,
    /// Without TLS the client reads no certificates.
    pub uses_tls: bool,
    /// Certificates in PEM that are trusted in addition to those of the system.
    pub ca_certificates: Option<&'a [u8]>,
    pub addresses: AddressRule,
}

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
        let tls = if options.uses_tls {
            config(options.ca_certificates)?
        } else {
            with_roots(RootCertStore::empty())?
        };
        let connector = Connector::new(options.proxies, tls, options.addresses, resolve);
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder.pool_idle_timeout(POOL_IDLE_TIMEOUT);
        let http = builder
            .pool_timer(TokioTimer::new())
            .build(connector.clone());
        Ok(Self { http, connector })
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
}

pub async fn read_body(
    response: Response<Incoming>,
    max_bytes: usize,
) -> Result<Bytes, RequestError> {
    let body = Limited::new(response.into_body(), max_bytes);
    let body = body.collect().await.map_err(|error| RequestError {
        reason: error.to_string(),
        was_sent: true,
    })?;
    Ok(body.to_bytes())
}

/// The client cannot use TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("could not read the certificates of this system, which an https URL needs")]
    NoSystemCertificates(#[source] rustls_native_certs::Error),
    #[error(
        "this system has no certificates of certificate authorities, which an https URL needs: set ca_file"
    )]
    NoCertificates,
    #[error("the file with certificates of certificate authorities has an invalid certificate")]
    InvalidCertificate,
    #[error("could not configure TLS")]
    Rustls(#[from] rustls::Error),
}

/// Trusts the certificates of the system and those of `ca_certificates`, in PEM. Reads files.
pub(super) fn config(ca_certificates: Option<&[u8]>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    let mut system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(pem) = ca_certificates {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|_| TlsError::InvalidCertificate)?;
            let added = roots.add(certificate);
            added.map_err(|_| TlsError::InvalidCertificate)?;
        }
        if roots.len() == before {
            return Err(TlsError::InvalidCertificate);
        }
    }
    if roots.is_empty() {
        return Err(match system.errors.pop() {
            Some(error) => TlsError::NoSystemCertificates(error),
            None => TlsError::NoCertificates,
        });
    }
    with_roots(roots)
}

fn with_roots(roots: RootCertStore) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

pub type WebSocket = WebSocketStream<TokioIo<Stream>>;

/// A WebSocket that did not open. The text names no URL and no credentials.
#[derive(Debug, thiserror::Error)]
pub enum WebSocketError {
    /// The server answered with another status, and the start of a body.
    #[error("the server answered the WebSocket request with {status}")]
    Status { status: StatusCode, body: Vec<u8> },
    #[error("{0}")]
    Failed(String),
}

/// Opens a WebSocket to a URL with the scheme `ws`, `wss`, `http` or `https`. The caller limits the time.
///
/// Returns the socket with the headers of the response.
pub async fn open_websocket(
    client: &Client,
    url: &Uri,
    headers: HeaderMap,
    max_message_bytes: usize,
) -> Result<(WebSocket, HeaderMap), WebSocketError> {
    let is_secure = matches!(url.scheme_str(), Some("https" | "wss"));
    let with_scheme = |scheme: &str| -> Result<Uri, WebSocketError> {
        let mut parts = url.clone().into_parts();
        parts.scheme = scheme.parse().ok();
        Uri::from_parts(parts).map_err(|error| WebSocketError::Failed(error.to_string()))
    };
    let mut connector = client.connector.clone();
    let target = with_scheme(if is_secure { "https" } else { "http" })?;
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        WebSocketError::Failed(ErrorChain(&*error).to_string())
    };
    let connector = connector.ready().await.map_err(failed)?;
    let stream = connector.call(target).await.map_err(failed)?;
    let mut request = with_scheme(if is_secure { "wss" } else { "ws" })?.into_client_request()?;
    request.headers_mut().extend(headers);
    let config = WebSocketConfig::default()
        .max_message_size(Some(max_message_bytes))
        .max_frame_size(Some(max_message_bytes));
    let stream = TokioIo::new(stream);
    let opened = tokio_tungstenite::client_async_with_config(request, stream, Some(config));
    let (socket, response) = opened.await?;
    Ok((socket, response.into_parts().0.headers))
}

impl From<tungstenite::Error> for WebSocketError {
    fn from(error: tungstenite::Error) -> Self {
        match error {
            Error::Http(response) => {
                let (parts, body) = response.into_parts();
                Self::Status {
                    status: parts.status,
                    body: body.unwrap_or_default(),
                }
            }
            error => Self::Failed(ErrorChain(&error).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_without_a_certificate_is_rejected() {
        for pem in [
            "",
            "no certificate",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        ] {
            assert!(
                matches!(
                    config(Some(pem.as_bytes())),
                    Err(TlsError::InvalidCertificate)
                ),
                "{pem}"
            );
        }
    }
}
