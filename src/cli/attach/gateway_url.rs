//! The URLs of a gateway for `attach`.

use http::Uri;

use super::failure::AttachFailure;
use crate::types::{AgentName, url_port};

/// The URL of `/acp` of a gateway, which can be below a path. The URL can name `/acp` itself too.
pub(super) fn acp_url(url: &str, agent: Option<&AgentName>) -> Result<Uri, AttachFailure> {
    if url.contains(['#', '@']) {
        return Err(AttachFailure::KeyInUrl);
    }
    let invalid = || AttachFailure::Url(url.to_owned());
    let parsed: Uri = url.parse().map_err(|_| invalid())?;
    url_port(&parsed).map_err(|_| invalid())?;
    let is_http = matches!(parsed.scheme_str(), Some("http" | "https"));
    let (true, Some(authority), None) = (is_http, parsed.authority(), parsed.query()) else {
        return Err(invalid());
    };
    let path = parsed.path().trim_end_matches('/');
    let names_agent = path
        .rsplit_once('/')
        .is_some_and(|(folder, _)| folder.ends_with("/acp"));
    let mut path = match path {
        path if names_agent && agent.is_none() => path.to_owned(),
        path if path.ends_with("/acp") => path.to_owned(),
        path => format!("{path}/acp"),
    };
    if let Some(agent) = agent {
        path = format!("{path}/{agent}");
    }
    let scheme = parsed.scheme_str().unwrap_or_default();
    format!("{scheme}://{authority}{path}")
        .parse()
        .map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_of_acp_is_derived_from_the_url_of_the_gateway() {
        let agent = "fake".parse().unwrap();
        for (url, without, with) in [
            (
                "http://127.0.0.1:8080",
                "http://127.0.0.1:8080/acp",
                "http://127.0.0.1:8080/acp/fake",
            ),
            (
                "https://g.example/",
                "https://g.example/acp",
                "https://g.example/acp/fake",
            ),
            (
                "https://g.example/gateway",
                "https://g.example/gateway/acp",
                "https://g.example/gateway/acp/fake",
            ),
            (
                "http://[::1]:80/acp/",
                "http://[::1]:80/acp",
                "http://[::1]:80/acp/fake",
            ),
        ] {
            assert_eq!(acp_url(url, None).unwrap(), without);
            assert_eq!(acp_url(url, Some(&agent)).unwrap(), with);
        }
        assert_eq!(
            acp_url("http://h/acp/other", None).unwrap(),
            "http://h/acp/other"
        );
        for wrong in [
            "",
            "g.example",
            "ftp://g.example",
            "http://",
            "http://h/?agent=x",
            "/acp",
        ] {
            assert!(
                matches!(acp_url(wrong, None), Err(AttachFailure::Url(_))),
                "{wrong}"
            );
        }
        for wrong in ["http://h/#key=acpg_x", "http://key@h"] {
            assert!(
                matches!(acp_url(wrong, None), Err(AttachFailure::KeyInUrl)),
                "{wrong}"
            );
        }
    }
}
