//! A range of IP addresses such as `10.0.0.0/8`. A single address is a range with one member.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;

use http::Uri;
use ipnet::IpNet;

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network(IpNet);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an IP address or a range such as 10.0.0.0/8")]
pub struct NetworkError;

impl Network {
    /// Returns true if the range contains the address. An IPv4 address that is mapped to IPv6 counts as the
    /// IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let range = text
            .parse()
            .or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        range.map(Self).map_err(|_| NetworkError)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = &self.0;
        if range.prefix_len() == range.max_prefix_len() {
            range.addr().fmt(f)
        } else {
            range.fmt(f)
        }
    }
}

text_form!(Network);

/// The address under which limits count a client. An IPv6 subscriber has a /64 network, so the network counts as
/// one address.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Whether the URL names this host by an address or the name `localhost`.
pub fn is_loopback_url(url: &Uri) -> bool {
    let host = url.host().unwrap_or_default();
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    address.map_or_else(
        |_| host.eq_ignore_ascii_case("localhost"),
        |address| address.is_loopback(),
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the port of a URL must be from 1 to 65535")]
pub struct UrlPortError;

/// The port that a URL names; `None` if it names none. `http::Uri` accepts any text as a port and reports a wrong one as
/// none, so that a client would connect to the default port.
pub fn url_port(url: &Uri) -> Result<Option<u16>, UrlPortError> {
    let Some(authority) = url.authority() else {
        return Ok(None);
    };
    let host_and_port = authority
        .as_str()
        .rsplit_once('@')
        .map_or(authority.as_str(), |(_, rest)| rest);
    match host_and_port
        .strip_prefix(authority.host())
        .unwrap_or_default()
    {
        "" => Ok(None),
        rest => rest
            .strip_prefix(':')
            .and_then(|port| port.parse().ok())
            .filter(|port| *port != 0)
            .map(Some)
            .ok_or(UrlPortError),
    }
}

/// `hooks.example`, an address, or `*.example` for all names below `example`, without `example` itself.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{}{name}", if *is_domain { "*." } else { "" })]
pub struct HostPattern {
    /// In lower case, without the `*.`.
    name: String,
    is_domain: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a host such as hooks.example or *.example.org, without scheme, port and path")]
pub struct HostPatternError;

impl HostPattern {
    /// Whether the host of a URL matches. The host of an IPv6 address has brackets.
    pub fn matches(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        if !self.is_domain {
            return host == self.name;
        }
        host.strip_suffix(&self.name)
            .and_then(|rest| rest.strip_suffix('.'))
            .is_some_and(|rest| !rest.is_empty())
    }
}

impl FromStr for HostPattern {
    type Err = HostPatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (is_domain, name) = match text.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, text),
        };
        let is_address = !is_domain && name.starts_with('[') && name.ends_with(']');
        let is_label = |label: &str| {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            !label.is_empty() && label.len() <= 63 && label.bytes().all(is_plain)
        };
        let is_valid = if is_address {
            name[1..name.len() - 1]
                .parse::<std::net::Ipv6Addr>()
                .is_ok()
        } else {
            name.len() <= 253 && name.split('.').all(is_label)
        };
        if is_valid {
            Ok(Self {
                name: name.to_ascii_lowercase(),
                is_domain,
            })
        } else {
            Err(HostPatternError)
        }
    }
}

/// An origin with the path below which a proxy serves the gateway. The proxy removes the path from requests.
#[derive(Debug, Clone, PartialEq, Eq, derive_more::Display)]
#[display("{origin}{}", path.0)]
pub struct PublicUrl {
    origin: String,
    path: PublicPath,
}

/// The path of a [`PublicUrl`] without a slash at the end. The root is empty. Every character can be in a URL, a header and JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicPath(Arc<str>);

impl PublicUrl {
    /// `origin` is `scheme://host`, with the port unless it is the default one. `None` if the path is not plain.
    pub fn new(origin: String, path: &str) -> Option<Self> {
        let path = path.strip_suffix('/').unwrap_or(path);
        let is_plain = path.is_empty()
            || (path.len() <= MAX_PATH_BYTES
                && path.strip_prefix('/')?.split('/').all(is_plain_segment));
        is_plain.then(|| Self {
            origin,
            path: PublicPath(path.into()),
        })
    }

    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// `None` if the gateway is at the root of its origin.
    pub fn path(&self) -> Option<&PublicPath> {
        Some(&self.path).filter(|path| !path.0.is_empty())
    }
}

impl PublicPath {
    /// The path of clients for a path of the gateway.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// The path of the gateway for a path of clients. `None` if the path is not below this one.
    pub fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        path.strip_prefix(&*self.0)
            .filter(|rest| rest.starts_with('/'))
    }
}

const MAX_PATH_BYTES: usize = 256;

fn is_plain_segment(segment: &str) -> bool {
    !matches!(segment, "" | "." | "..")
        && segment
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~'))
}

/// The values of `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`. A value that is not set is empty.
#[derive(Clone, Default, PartialEq, Eq, derive_more::Debug)]
// A URL of a proxy can contain a password.
#[debug("ProxyVariables")]
pub struct ProxyVariables {
    pub https: String,
    pub http: String,
    pub all: String,
    pub no: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_contain_addresses_with_their_prefix() {
        let contains = |range: &str, address: &str| {
            range
                .parse::<Network>()
                .unwrap()
                .contains(address.parse().unwrap())
        };
        assert!(contains("10.0.0.1", "10.0.0.1"));
        assert!(contains("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!contains("10.0.0.1", "10.0.0.2"));
        assert!(contains("10.0.0.0/8", "10.255.0.9"));
        assert!(!contains("10.0.0.0/8", "11.0.0.1"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(contains("::/0", "2001:db8::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        for wrong in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/-1",
            "proxy.example",
            "::/129",
        ] {
            assert_eq!(wrong.parse::<Network>(), Err(NetworkError), "{wrong:?}");
        }
    }

    #[test]
    fn only_addresses_of_this_host_and_localhost_are_loopback() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1.2.3:80/",
            "ws://[::1]:8080/acp",
            "http://LocalHost",
        ] {
            assert!(is_loopback_url(&url.parse().unwrap()), "{url}");
        }
        for url in [
            "http://localhost.example/",
            "http://10.0.0.1/",
            "http://[::ffff:1.2.3.4]/",
            "/acp",
        ] {
            assert!(!is_loopback_url(&url.parse().unwrap()), "{url}");
        }
    }
}

#[cfg(test)]
mod url_port_tests {
    use super::*;

    #[test]
    fn port_that_does_not_exist_is_an_error() {
        for (url, expected) in [
            ("https://a.example/b", Ok(None)),
            ("https://[::1]/", Ok(None)),
            ("https://a.example:8443/", Ok(Some(8443))),
            ("https://user:1@a.example:65535/", Ok(Some(65_535))),
            ("https://[::1]:1/", Ok(Some(1))),
            ("/path", Ok(None)),
            ("https://a.example:0/", Err(UrlPortError)),
            ("https://a.example:65536/", Err(UrlPortError)),
            ("https://a.example:99999/", Err(UrlPortError)),
            ("https://[::1]:0/", Err(UrlPortError)),
        ] {
            assert_eq!(url_port(&url.parse().unwrap()), expected, "{url}");
        }
    }
}

#[cfg(test)]
mod host_pattern_tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_labels() {
        for (pattern, host, expected) in [
            ("hooks.example", "hooks.example", true),
            ("hooks.example", "HOOKS.example", true),
            ("hooks.example", "a.hooks.example", false),
            ("hooks.example", "hooks.example.evil", false),
            ("*.example", "a.example", true),
            ("*.example", "b.a.example", true),
            ("*.example", "example", false),
            ("*.example", ".example", false),
            ("*.example", "evilexample", false),
            ("[::1]", "[::1]", true),
            ("1.1.1.1", "1.1.1.1", true),
        ] {
            let parsed: HostPattern = pattern.parse().unwrap();
            assert_eq!(parsed.matches(host), expected, "{pattern} {host}");
            assert_eq!(parsed.to_string(), pattern);
        }
        for wrong in [
            "",
            "*",
            "*.",
            "https://a",
            "a/b",
            "a:443",
            "a..b",
            "*.[::1]",
            "[a]",
            "a.*",
        ] {
            assert_eq!(
                wrong.parse::<HostPattern>(),
                Err(HostPatternError),
                "{wrong}"
            );
        }
    }
}

#[cfg(test)]
mod public_url_tests {
    use super::*;

    fn url(path: &str) -> Option<PublicUrl> {
        PublicUrl::new("https://a.example".to_owned(), path)
    }

    #[test]
    fn path_is_plain_and_has_no_slash_at_the_end() {
        for root in ["", "/"] {
            let url = url(root).unwrap();
            assert_eq!(
                (url.to_string().as_str(), url.path()),
                ("https://a.example", None)
            );
        }
        for path in ["/tools/gateway", "/tools/gateway/"] {
            assert_eq!(
                url(path).unwrap().to_string(),
                "https://a.example/tools/gateway"
            );
        }
        for wrong in [
            "tools", "//", "/a//b", "/a/../b", "/.", "/a b", "/a?b", "/a#b", "/%2f", "/ä", "/a/b//",
        ] {
            assert_eq!(url(wrong), None, "{wrong:?}");
        }
        assert!(url(&format!("/{}", "a".repeat(MAX_PATH_BYTES))).is_none());
    }

    #[test]
    fn paths_are_joined_and_stripped() {
        let url = url("/g").unwrap();
        let path = url.path().unwrap();
        assert_eq!(path.join("/v1/x"), "/g/v1/x");
        assert_eq!(path.strip("/g/v1/x"), Some("/v1/x"));
        for other in ["/v1/x", "/gg/v1", "/g", ""] {
            assert_eq!(path.strip(other), None, "{other}");
        }
    }
}
