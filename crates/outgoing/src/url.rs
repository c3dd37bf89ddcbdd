//! URLs and names of other hosts.

use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;

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

/// The explicit port of a URL, or `None`. `http::Uri` accepts any text as a port and reports an invalid port as absent.
/// A client would then connect to the default port.
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
