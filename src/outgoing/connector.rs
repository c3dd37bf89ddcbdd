//! Connections to a host, directly or through a proxy.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
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
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tower::Service;

use crate::types::network::is_loopback_url;
use crate::types::{ProxyVariables, url_port};

/// The time for TCP, the tunnel of a proxy, and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A dead peer is detected after this idle time and a few probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(20);

type BoxError = Box<dyn Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// A connection to the host of a URL.
pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The addresses to which a client connects.
#[derive(Debug, Clone, Copy)]
pub enum AddressRule {
    /// The operator has named the host.
    Any,
    /// Only addresses for which the function returns true. The connector resolves a host once, checks all its addresses,
    /// and connects to one of them, also through a proxy.
    Only(fn(IpAddr) -> bool),
}

/// Opens connections with TLS for `https`.
#[derive(Debug, Clone)]
pub(super) struct Connector(HttpsConnector<TcpConnector>);

/// Opens TCP connections. Every connection through a proxy is a tunnel.
#[derive(Clone)]
struct TcpConnector {
    tcp: HttpConnector,
    proxies: Arc<Matcher>,
    rule: AddressRule,
    resolve: fn(&str) -> Resolving,
}

/// The addresses of a host and port.
pub(super) type Resolving = Pin<Box<dyn Future<Output = std::io::Result<Vec<SocketAddr>>> + Send>>;

/// Asks the resolver of the system.
pub(super) fn resolve(host_and_port: &str) -> Resolving {
    let host_and_port = host_and_port.to_owned();
    Box::pin(async move { Ok(lookup_host(host_and_port).await?.collect()) })
}

#[derive(Debug, thiserror::Error)]
enum ConnectError {
    #[error("no connection within {} seconds", CONNECT_TIMEOUT.as_secs())]
    Timeout,
    #[error("the proxy of the environment must be a URL that begins with http://")]
    Proxy,
    #[error("the URL has no host, or a port that does not exist")]
    NoHost,
    #[error("the host has no address")]
    NoAddress,
    #[error("the host has the address {0}, which is not permitted")]
    Forbidden(IpAddr),
}

impl Connector {
    pub(super) fn new(
        proxies: &ProxyVariables,
        tls: ClientConfig,
        rule: AddressRule,
        resolve: fn(&str) -> Resolving,
    ) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        tcp.set_nodelay(true);
        let ProxyVariables {
            https,
            http,
            all,
            no,
        } = proxies;
        let proxies = Matcher::builder()
            .https(&**https)
            .http(&**http)
            .all(&**all)
            .no(&**no)
            .build();
        let connector = TcpConnector {
            tcp,
            proxies: Arc::new(proxies),
            rule,
            resolve,
        };
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
        Self(
            builder
                .https_or_http()
                .enable_http1()
                .wrap_connector(connector),
        )
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
            timeout(CONNECT_TIMEOUT, connected)
                .await
                .unwrap_or_else(|_| Err(ConnectError::Timeout.into()))
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
        let proxy = self
            .proxies
            .intercept(&url)
            .filter(|_| !is_loopback_url(&url));
        let route = match proxy {
            None => Route::Direct(self.tcp.clone()),
            Some(proxy) if proxy.uri().scheme() == Some(&Scheme::HTTP) => {
                let tunnel = Tunnel::new(proxy.uri().clone(), self.tcp.clone());
                Route::Tunnel(match proxy.basic_auth() {
                    Some(authorization) => tunnel.with_auth(authorization.clone()),
                    None => tunnel,
                })
            }
            Some(_) => return Box::pin(std::future::ready(Err(ConnectError::Proxy.into()))),
        };
        let Some(url) = with_port(&url) else {
            return Box::pin(std::future::ready(Err(ConnectError::NoHost.into())));
        };
        match self.rule {
            AddressRule::Any => Box::pin(route.connect(url)),
            AddressRule::Only(is_permitted) => {
                let addresses =
                    (self.resolve)(url.authority().map_or("", |authority| authority.as_str()));
                Box::pin(async move {
                    route
                        .connect_to(permitted(addresses.await?, is_permitted)?)
                        .await
                })
            }
        }
    }
}

/// How a connection reaches a host.
enum Route {
    Direct(HttpConnector),
    Tunnel(Tunnel<HttpConnector>),
}

impl Route {
    async fn connect(mut self, url: Uri) -> Result<TokioIo<TcpStream>, BoxError> {
        match &mut self {
            Self::Direct(tcp) => Ok(tcp.call(url).await?),
            Self::Tunnel(tunnel) => Ok(tunnel.call(url).await?),
        }
    }

    /// Connects to the first address that answers. The last error is the result if there is none.
    async fn connect_to(
        mut self,
        addresses: Vec<SocketAddr>,
    ) -> Result<TokioIo<TcpStream>, BoxError> {
        let mut failed = ConnectError::NoAddress.into();
        for address in addresses {
            let url = Uri::builder()
                .scheme(Scheme::HTTP)
                .authority(address.to_string())
                .path_and_query("/")
                .build()?;
            let connected: Result<_, BoxError> = match &mut self {
                Self::Direct(tcp) => tcp.call(url).await.map_err(Into::into),
                Self::Tunnel(tunnel) => tunnel.call(url).await.map_err(Into::into),
            };
            match connected {
                Ok(connected) => return Ok(connected),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// The addresses, if all are permitted: a host with one other address is suspicious.
fn permitted(
    addresses: Vec<SocketAddr>,
    is_permitted: fn(IpAddr) -> bool,
) -> Result<Vec<SocketAddr>, ConnectError> {
    match addresses.iter().find(|address| !is_permitted(address.ip())) {
        Some(other) => Err(ConnectError::Forbidden(other.ip())),
        None => Ok(addresses),
    }
}

impl fmt::Debug for TcpConnector {
    /// Omits the proxies, because their URLs can contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpConnector")
            .field("tcp", &self.tcp)
            .finish_non_exhaustive()
    }
}

/// The URL with its port, because a tunnel assumes 443, and the resolver needs one. `None` without a host and a port that
/// exists.
fn with_port(url: &Uri) -> Option<Uri> {
    let port = url_port(url)
        .ok()?
        .unwrap_or(if url.scheme() == Some(&Scheme::HTTP) {
            80
        } else {
            443
        });
    let authority = format!("{}:{port}", url.host()?);
    Uri::builder()
        .scheme(url.scheme()?.clone())
        .authority(authority)
        .path_and_query("/")
        .build()
        .ok()
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
        for url in ["https://a.example:99999/", "https://a.example:0/"] {
            assert_eq!(with_port(&url.parse().unwrap()), None, "{url}");
        }
    }
}
