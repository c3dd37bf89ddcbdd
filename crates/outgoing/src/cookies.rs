//! The cookies of one URL, for servers that select a host by a cookie (RFC 6265).

use http::header::{COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Uri};

const MAX_COOKIES: usize = 16;
/// The maximum length of a name with its value, in bytes. Longer cookies are ignored.
const MAX_COOKIE_BYTES: usize = 4096;

/// The cookies that a server has set in responses to requests for one URL. They live as long as this value.
/// `Debug` omits the values, because they can identify a client.
#[derive(Default, derive_more::Debug)]
#[debug("Cookies({})", _0.len())]
pub struct Cookies(Vec<(String, String)>);

impl Cookies {
    /// Adds the cookies of a response to a request for `url`. Cookies for other hosts and paths are ignored.
    pub fn store(&mut self, url: &Uri, headers: &HeaderMap) {
        for header in headers.get_all(SET_COOKIE) {
            if let Ok(text) = header.to_str()
                && let Some(cookie) = Cookie::parse(text, url)
            {
                self.0.retain(|(name, _)| *name != cookie.name);
                if !cookie.is_expired && self.0.len() < MAX_COOKIES {
                    self.0
                        .push((cookie.name.to_owned(), cookie.value.to_owned()));
                }
            }
        }
    }

    /// Adds the cookies to the headers of a request, after those that the headers already have.
    pub fn apply(&self, headers: &mut HeaderMap) {
        if self.0.is_empty() {
            return;
        }
        let own = self.0.iter().map(|(name, value)| format!("{name}={value}"));
        let before = headers.get(COOKIE).and_then(|value| value.to_str().ok());
        let before = before.into_iter().map(str::to_owned);
        let all: Vec<String> = before.chain(own).collect();
        if let Ok(mut value) = HeaderValue::try_from(all.join("; ")) {
            value.set_sensitive(true);
            headers.insert(COOKIE, value);
        }
    }
}

struct Cookie<'a> {
    name: &'a str,
    value: &'a str,
    is_expired: bool,
}

impl<'a> Cookie<'a> {
    /// `None` if the text is not a cookie, or if requests for `url` must not contain the cookie.
    fn parse(text: &'a str, url: &Uri) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let (name, value) = parts.next()?.split_once('=')?;
        let name = name.trim();
        let value = value.trim();
        if name.is_empty() || name.len() + value.len() > MAX_COOKIE_BYTES {
            return None;
        }
        let mut is_expired = false;
        for attribute in parts {
            let (key, value) = attribute.split_once('=').unwrap_or((attribute, ""));
            let value = value.trim();
            match &*key.trim().to_ascii_lowercase() {
                "max-age" => is_expired = value.starts_with('-') || value == "0",
                "domain" if !covers_host(value, url.host().unwrap_or_default()) => return None,
                "path" if !covers_path(value, url.path()) => return None,
                "secure" if url.scheme_str() != Some("https") => return None,
                _ => {}
            }
        }
        Some(Self {
            name,
            value,
            is_expired,
        })
    }
}

fn covers_host(domain: &str, host: &str) -> bool {
    let domain = domain.trim_start_matches('.').to_ascii_lowercase();
    let host = host.to_ascii_lowercase();
    let rest = host.strip_suffix(&domain);
    domain.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

fn covers_path(cookie: &str, path: &str) -> bool {
    if !cookie.starts_with('/') {
        return true;
    }
    let rest = path.strip_prefix(cookie);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || cookie.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(url: &str, cookies: &[&str]) -> Option<String> {
        let url: Uri = url.parse().unwrap();
        let mut jar = Cookies::default();
        for cookie in cookies {
            jar.store(
                &url,
                &HeaderMap::from_iter([(SET_COOKIE, cookie.parse().unwrap())]),
            );
        }
        let mut headers = HeaderMap::new();
        jar.apply(&mut headers);
        headers
            .get(COOKIE)
            .map(|value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn cookies_of_the_url_are_returned() {
        let url = "https://a.agents.example/acp/x";
        for (cookies, expected) in [
            (&["lb=1; Path=/; HttpOnly", "b=2"][..], Some("lb=1; b=2")),
            (&["lb=1", "lb=2; Max-Age=60"], Some("lb=2")),
            (&["lb=1", "lb=; Max-Age=0"], None),
            (
                &["a=1; Path=/acp", "b=2; Path=/ac", "c=3; Path=/acp/x"],
                Some("a=1; c=3"),
            ),
            (
                &[
                    "a=1; Domain=agents.example",
                    "b=2; Domain=nts.example",
                    "c=3; Domain=b.example",
                ],
                Some("a=1"),
            ),
            (&["a=1; Secure", "=2", "none", "c"], Some("a=1")),
        ] {
            assert_eq!(sent(url, cookies).as_deref(), expected, "{cookies:?}");
        }
        assert_eq!(
            sent("http://127.0.0.1/acp", &["a=1; Secure", "b=2"]).as_deref(),
            Some("b=2")
        );
    }

    #[test]
    fn cookies_are_bounded_and_follow_those_of_the_operator() {
        let url = Uri::from_static("https://a.example/acp");
        let mut jar = Cookies::default();
        for number in 0..MAX_COOKIES + 4 {
            let cookie = format!("c{number}=v").parse().unwrap();
            jar.store(&url, &HeaderMap::from_iter([(SET_COOKIE, cookie)]));
        }
        let long = format!("c0={}", "x".repeat(MAX_COOKIE_BYTES))
            .parse()
            .unwrap();
        jar.store(&url, &HeaderMap::from_iter([(SET_COOKIE, long)]));
        assert_eq!(jar.0.len(), MAX_COOKIES);
        jar.0.truncate(1);
        let mut headers = HeaderMap::from_iter([(COOKIE, HeaderValue::from_static("own=1"))]);
        jar.apply(&mut headers);
        assert_eq!(headers[COOKIE], "own=1; c0=v");
    }
}
