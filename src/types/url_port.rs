//! The port of a URL.

use http::Uri;

/// The URL names a port that does not exist.
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

#[cfg(test)]
mod tests {
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
