//! Origins of web pages in the form of the `Origin` header.

use super::error::ConfigError;
use super::section::Field;

/// Reads `scheme://host`, with `:port` unless it is the default port of the scheme.
pub(super) fn read(field: &Field) -> Result<String, ConfigError> {
    let written = field.string()?;
    match canonicalize(written) {
        Some(origin) if origin == written => Ok(origin),
        Some(origin) => Err(field.invalid(format!("must have the form of a browser: \"{origin}\""))),
        None => Err(field
            .invalid("not an origin such as \"https://app.example\"; wildcards and null are not supported")),
    }
}

/// Reads an origin that may end with a slash.
pub(super) fn read_public_url(field: &Field) -> Result<String, ConfigError> {
    let written = field.string()?;
    canonicalize(written).ok_or_else(|| {
        field.invalid("not a URL such as \"https://gateway.example\" (scheme, host, port; no path)")
    })
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
        Some(address) => address.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().is_ok(),
        None => host.split('.').all(is_host_label),
    };
    let authority = authority.strip_suffix(default).unwrap_or(&authority);
    valid.then(|| format!("{scheme}://{authority}"))
}

fn is_host_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_canonicalized() {
        for origin in ["https://app.example", "http://localhost:3000", "http://[::1]:3000", "http://10.0.0.1"]
        {
            assert_eq!(canonicalize(origin).as_deref(), Some(origin));
        }
        assert_eq!(canonicalize("HTTPS://App.Example:443/").as_deref(), Some("https://app.example"));
        assert_eq!(canonicalize("http://a:443").as_deref(), Some("http://a:443"));
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
