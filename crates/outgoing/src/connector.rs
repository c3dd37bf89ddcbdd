//! Connections to a host, directly or through a proxy.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
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

use crate::is_loopback_url;
use crate::{ProxyVariables, url_port};

/// The time for TCP, the tunnel of a proxy, and TLS together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A dead peer is detected after this idle time and a few probes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(20);

type BoxError = Box<dyn Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// A connection to the host of a URL.
pub(super) type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;

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
#[derive(Clone, derive_more::Debug)]
struct TcpConnector {
    tcp: HttpConnector,
    /// Their URLs can contain passwords.
    #[debug(skip)]
    proxies: Arc<Matcher>,
    rule: AddressRule,
    resolve: fn(&str) -> Resolving,
}

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
        let matcher = Matcher::builder()
            .https(&*proxies.https)
            .http(&*proxies.http);
        let matcher = matcher.all(&*proxies.all).no(&*proxies.no);
        let connector = TcpConnector {
            tcp,
            proxies: Arc::new(matcher.build()),
            rule,
            resolve,
        };
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
        let builder = builder.https_or_http().enable_http1();
        Self(builder.wrap_connector(connector))
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
            let connected = timeout(CONNECT_TIMEOUT, connected).await;
            connected.unwrap_or_else(|_| Err(ConnectError::Timeout.into()))
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
        let proxy = self.proxies.intercept(&url);
        let mut route = match proxy {
            None => Route::Direct(self.tcp.clone()),
            Some(_) if is_loopback_url(&url) => Route::Direct(self.tcp.clone()),
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
            AddressRule::Any => Box::pin(async move { route.call(url).await }),
            AddressRule::Only(is_permitted) => {
                let host = url.authority().map_or("", |authority| authority.as_str());
                let addresses = (self.resolve)(host);
                Box::pin(async move {
                    let addresses = permitted(addresses.await?, is_permitted)?;
                    route.connect_to(addresses).await
                })
            }
        }
    }
}

enum Route {
    Direct(HttpConnector),
    Tunnel(Tunnel<HttpConnector>),
}

impl Route {
    async fn call(&mut self, url: Uri) -> Result<TokioIo<TcpStream>, BoxError> {
        match self {
            Self::Direct(tcp) => Ok(tcp.call(url).await?),
            Self::Tunnel(tunnel) => Ok(tunnel.call(url).await?),
        }
    }

    /// Connects to the first address that answers. If no address answers, returns the last error.
    async fn connect_to(
        mut self,
        addresses: Vec<SocketAddr>,
    ) -> Result<TokioIo<TcpStream>, BoxError> {
        let mut failed = ConnectError::NoAddress.into();
        for address in addresses {
            let url = Uri::try_from(format!("http://{address}/"))?;
            match self.call(url).await {
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

/// The URL with its port, because a tunnel assumes 443, and the resolver needs one. `None` if the URL has no host or an
/// invalid port.
fn with_port(url: &Uri) -> Option<Uri> {
    let scheme = url.scheme()?;
    let default = if *scheme == Scheme::HTTP { 80 } else { 443 };
    let port = url_port(url).ok()?.unwrap_or(default);
    Uri::try_from(format!("{scheme}://{}:{port}/", url.host()?)).ok()
}

/// Networks that are not reachable from the whole Internet, with the length of their prefix.
const V4: [(Ipv4Addr, u8); 15] = [
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// Global unicast addresses of IPv6 are in `2000::/3`. These parts of it are excluded.
const V6: [(Ipv6Addr, u8); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    // 6to4 contains an address of IPv4.
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Whether the address is a public one. An address of IPv6 that contains one of IPv4 is never public, except a mapped one.
pub fn is_public(address: IpAddr) -> bool {
    // The system connects a mapped address over IPv4.
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            let contains = |(network, prefix): &(Ipv6Addr, u8)| {
                (bits ^ network.to_bits()) >> (128 - prefix) == 0
            };
            bits >> 125 == 1 && !V6.iter().any(contains)
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let bits = address.to_bits();
    let mut networks = V4.iter();
    !networks.any(|(network, prefix)| (bits ^ network.to_bits()) >> (32 - prefix) == 0)
}

#[cfg(test)]
mod connector_tests {
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

#[cfg(test)]
mod public_tests {
    use super::*;

    #[test]
    fn only_global_addresses_are_public() {
        for (address, public) in [
            ("1.1.1.1", true),
            ("9.255.255.255", true),
            ("100.63.255.255", true),
            ("172.32.0.1", true),
            ("223.255.255.255", true),
            ("0.0.0.0", false),
            ("10.0.0.1", false),
            ("100.64.0.1", false),
            ("127.0.0.1", false),
            ("127.255.0.1", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.168.1.1", false),
            ("198.19.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700::1111", true),
            ("::", false),
            ("::1", false),
            ("::ffff:1.1.1.1", true),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("100::1", false),
            ("2001::1", false),
            ("2001:db8::1", false),
            ("2002:7f00:1::", false),
            ("3fff::1", false),
            ("fc00::1", false),
            ("fd12::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
        }
    }
}
