//! Origins of web pages in the form of the `Origin` header.

use super::error::ConfigError;
use super::section::Field;
use crate::types::PublicUrl;

/// Reads `scheme://host`, with `:port` unless it is the default port of the scheme.
pub(super) fn read(field: &Field) -> Result<String, ConfigError> {
    let written = field.string()?;
    match canonicalize(written) {
        Some(origin) if origin == written => Ok(origin),
        Some(origin) => {
            Err(field.invalid(format!("must have the form of a browser: \"{origin}\"")))
        }
        None => Err(field.invalid(
            "not an origin such as \"https://app.example\"; wildcards and null are not supported",
        )),
    }
}

/// Reads an origin with or without a path, which may end with a slash.
pub(super) fn read_public_url(field: &Field) -> Result<PublicUrl, ConfigError> {
    let written = field.string()?;
    let (origin, path) = split_path(written);
    let url = canonicalize(origin).and_then(|origin| PublicUrl::new(origin, path));
    url.ok_or_else(|| {
        field.invalid(
            "not a URL such as \"https://gateway.example\" or \"https://example.org/gateway\" (scheme, host, port, and a \
             path of letters, digits and -._~)",
        )
    })
}

/// The origin of a URL, and the rest.
fn split_path(url: &str) -> (&str, &str) {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let path = url[authority..]
        .find('/')
        .map_or(url.len(), |at| authority + at);
    url.split_at(path)
}

fn canonicalize(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let default = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ => return None,
    };
    let authority = rest.strip_suffix('/').unwrap_or(rest).to_ascii_lowercase();
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon of an IPv6 address in brackets does not precede a port.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority.as_str(), None),
    };
    if let Some(port) = port {
        let number: u16 = port.parse().ok()?;
        if number == 0 || port != number.to_string() {
            return None;
        }
    }
    let valid = match host.strip_prefix('[') {
        Some(address) => address
            .strip_suffix(']')?
            .parse::<std::net::Ipv6Addr>()
            .is_ok(),
        None => host.split('.').all(is_host_label),
    };
    let authority = authority.strip_suffix(default).unwrap_or(&authority);
    valid.then(|| format!("{scheme}://{authority}"))
}

fn is_host_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_url_is_split_at_its_path() {
        for (url, origin, path) in [
            ("https://a.example", "https://a.example", ""),
            ("https://a.example/", "https://a.example", "/"),
            ("https://a.example:1/b/c/", "https://a.example:1", "/b/c/"),
            ("http://[::1]:3000/b", "http://[::1]:3000", "/b"),
            ("a/b", "a", "/b"),
        ] {
            assert_eq!(split_path(url), (origin, path));
        }
    }

    #[test]
    fn origins_are_canonicalized() {
        for origin in [
            "https://app.example",
            "http://localhost:3000",
            "http://[::1]:3000",
            "http://10.0.0.1",
        ] {
            assert_eq!(canonicalize(origin).as_deref(), Some(origin));
        }
        assert_eq!(
            canonicalize("HTTPS://App.Example:443/").as_deref(),
            Some("https://app.example")
        );
        assert_eq!(
            canonicalize("http://a:443").as_deref(),
            Some("http://a:443")
        );
        for wrong in [
            "",
            "null",
            "*",
            "app.example",
            "https://",
            "https://*.example",
            "ftp://a",
            "https://a/b",
            "https://a?b",
            "https://u@a",
            "https://a:",
            "https://a:0",
            "https://a:080",
            "https://a:99999",
            "https://a.",
            "https://[1]",
            "https://a b",
            "https://a#",
        ] {
            assert_eq!(canonicalize(wrong), None, "{wrong:?}");
        }
    }
}
