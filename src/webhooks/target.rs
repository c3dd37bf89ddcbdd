//! The URLs to which deliveries go.

use http::Uri;

use crate::types::{HostPattern, url_port};

/// The longest URL, in bytes.
const MAX_URL_BYTES: usize = 2048;

/// Why a URL is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    #[error(
        "must be an absolute URL of at most 2048 ASCII characters, without credentials and fragment"
    )]
    Invalid,
    #[error("must have a port from 1 to 65535, or none")]
    Port,
    #[error("must begin with https://")]
    NotHttps,
    #[error("the operator has not permitted this host in `webhooks.allowed_hosts`")]
    HostNotAllowed,
}

/// Checks the URL of a webhook. The addresses of its host are checked at each connection.
pub(super) fn check(text: &str, allowed: &[HostPattern]) -> Result<Uri, TargetError> {
    if text.len() > MAX_URL_BYTES || !text.is_ascii() || text.contains(['@', '#']) {
        return Err(TargetError::Invalid);
    }
    let url: Uri = text.parse().map_err(|_| TargetError::Invalid)?;
    url_port(&url).map_err(|_| TargetError::Port)?;
    match url.scheme_str() {
        Some("https") => {}
        Some(_) => return Err(TargetError::NotHttps),
        None => return Err(TargetError::Invalid),
    }
    let host = url
        .host()
        .filter(|host| !host.is_empty())
        .ok_or(TargetError::Invalid)?;
    if !allowed.iter().any(|pattern| pattern.matches(host)) {
        return Err(TargetError::HostNotAllowed);
    }
    Ok(url)
}

/// The host of a URL that was checked, with its port.
pub(super) fn host(url: &str) -> String {
    let parsed: Option<Uri> = url.parse().ok();
    parsed
        .and_then(|url| Some(url.authority()?.to_string()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_urls_of_permitted_hosts_are_accepted() {
        use TargetError::{HostNotAllowed, Invalid, NotHttps, Port};
        let allowed = [
            "hooks.example".parse().unwrap(),
            "*.team.example".parse().unwrap(),
        ];
        for (url, expected) in [
            ("https://hooks.example/a?b=c", Ok(())),
            ("https://hooks.example:8443/", Ok(())),
            ("https://a.team.example", Ok(())),
            ("http://hooks.example/", Err(NotHttps)),
            ("ftp://hooks.example/", Err(NotHttps)),
            ("https://team.example/", Err(HostNotAllowed)),
            ("https://hooks.example.evil/", Err(HostNotAllowed)),
            ("https://127.0.0.1/", Err(HostNotAllowed)),
            ("https://2130706433/", Err(HostNotAllowed)),
            ("https://[::ffff:127.0.0.1]/", Err(HostNotAllowed)),
            ("https://hooks.example@evil/", Err(Invalid)),
            ("https://evil#hooks.example", Err(Invalid)),
            ("/a", Err(Invalid)),
            ("hooks.example", Err(Invalid)),
            ("https:///a", Err(Invalid)),
            ("https://hooks.example/\u{202e}a", Err(Invalid)),
            ("https://hooks.example:1/", Ok(())),
            ("https://hooks.example:65535/", Ok(())),
            ("https://hooks.example:0/", Err(Port)),
            ("https://hooks.example:65536/", Err(Port)),
            ("https://hooks.example:99999/", Err(Port)),
            ("https://[::1]:0/", Err(Port)),
        ] {
            assert_eq!(check(url, &allowed).map(drop), expected, "{url}");
        }
    }
}
