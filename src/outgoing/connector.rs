//! Connections to a host, directly or through a proxy.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower::Service;

use crate::types::ProxyVariables;
use crate::types::network::is_loopback_url;

/// The time for TCP, the tunnel of a proxy, and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A dead peer is detected after this idle time and a few probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(20);

type BoxError = Box<dyn Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// A connection to the host of a URL.
pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Opens connections with TLS for `https`.
#[derive(Debug, Clone)]
pub(super) struct Connector(HttpsConnector<TcpConnector>);

/// Opens TCP connections. Every connection through a proxy is a tunnel.
#[derive(Clone)]
struct TcpConnector {
    tcp: HttpConnector,
    proxies: Arc<Matcher>,
}

#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("no connection within {} seconds", CONNECT_TIMEOUT.as_secs())]
    Timeout,
    #[error("the proxy of the environment must be a URL that begins with http://")]
    Proxy,
    #[error("the URL has no host")]
    NoHost,
}

impl Connector {
    pub(super) fn new(proxies: &ProxyVariables, tls: ClientConfig) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        tcp.set_nodelay(true);
        let ProxyVariables { https, http, all, no } = proxies;
        let proxies = Matcher::builder().https(&**https).http(&**http).all(&**all).no(&**no).build();
        let connector = TcpConnector { tcp, proxies: Arc::new(proxies) };
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
        Self(builder.https_or_http().enable_http1().wrap_connector(connector))
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = BoxError;
    type Future = BoxFuture<Stream>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let connected = self.0.call(url);
        Box::pin(async move {
            timeout(CONNECT_TIMEOUT, connected).await.unwrap_or_else(|_| Err(ConnectError::Timeout.into()))
        })
    }
}

impl Service<Uri> for TcpConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = BoxFuture<TokioIo<TcpStream>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        // A request to this host never reaches a proxy.
        let proxy = self.proxies.intercept(&url).filter(|_| !is_loopback_url(&url));
        let Some(proxy) = proxy else {
            let connected = self.tcp.call(url);
            return Box::pin(async move { Ok(connected.await?) });
        };
        if proxy.uri().scheme() != Some(&Scheme::HTTP) {
            return Box::pin(std::future::ready(Err(ConnectError::Proxy.into())));
        }
        let Some(url) = with_port(&url) else {
            return Box::pin(std::future::ready(Err(ConnectError::NoHost.into())));
        };
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.tcp.clone());
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        let connected = tunnel.call(url);
        Box::pin(async move { Ok(connected.await?) })
    }
}

impl fmt::Debug for TcpConnector {
    /// Omits the proxies, because their URLs can contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpConnector").field("tcp", &self.tcp).finish_non_exhaustive()
    }
}

/// The URL with its port, because a tunnel assumes 443.
fn with_port(url: &Uri) -> Option<Uri> {
    let port = url.port_u16().unwrap_or(if url.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 });
    let authority = format!("{}:{port}", url.host()?);
    Uri::builder().scheme(url.scheme()?.clone()).authority(authority).path_and_query("/").build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnel_gets_the_port_of_the_scheme() {
        for (url, expected) in [
            ("http://a.example/acp", "http://a.example:80/"),
            ("https://a.example/acp?b", "https://a.example:443/"),
            ("https://[::2]:8443", "https://[::2]:8443/"),
        ] {
            assert_eq!(with_port(&url.parse().unwrap()).unwrap(), expected);
        }
    }
}
