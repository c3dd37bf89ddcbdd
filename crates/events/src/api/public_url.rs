//! The URL of the gateway behind a proxy.

use std::sync::Arc;

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
