//! The host names of this gateway, and the origins whose pages may use it.

use std::collections::HashSet;
use std::net::SocketAddr;

use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Uri};

use super::admission::AdmissionError;
use crate::types::HostPattern;

/// The accepted authorities and origins. Comparisons are exact; only the case of an authority does not
/// matter.
#[derive(Debug)]
pub(super) struct Hosts {
    authorities: HashSet<String>,
    /// Names that are accepted with every port: a container's port and its published port may differ.
    further: Vec<HostPattern>,
    gateway_origins: HashSet<String>,
    allowed_origins: HashSet<String>,
}

/// The origin of the page that sends a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RequestOrigin {
    /// Not a page, or a page of this gateway.
    SameOrigin,
    /// A page from `allowed_origins`.
    Allowed,
    Foreign,
}

impl Hosts {
    /// `public` and `allowed` are origins: `scheme://host`, with the port unless it is the scheme's default.
    ///
    /// A name of `further` is no origin of the gateway. Otherwise a page that was sent without TLS under the name of
    /// `https://name` would count as a page of the gateway.
    pub(super) fn new(
        bound: SocketAddr,
        public: Option<&str>,
        further: &[HostPattern],
        allowed: &[String],
    ) -> Self {
        let mut names = vec![
            "localhost".to_owned(),
            "127.0.0.1".to_owned(),
            "[::1]".to_owned(),
        ];
        if !bound.ip().is_unspecified() {
            names.push(if bound.is_ipv6() {
                format!("[{}]", bound.ip())
            } else {
                bound.ip().to_string()
            });
        }
        let mut authorities = HashSet::new();
        let mut own_origins = HashSet::new();
        for name in names {
            own_origins.insert(match bound.port() {
                80 => format!("http://{name}"),
                port => format!("http://{name}:{port}"),
            });
            insert_authority(&mut authorities, &name, Some(bound.port()), 80);
        }
        if let Some(public) = public {
            own_origins.insert(public.to_owned());
            let (default, authority) = match public.split_once("://") {
                Some(("https", authority)) => (443, authority),
                _ => (80, public.trim_start_matches("http://")),
            };
            let port = authority
                .rsplit_once(':')
                .and_then(|(_, port)| port.parse().ok());
            let host = port.map_or(authority, |_| {
                authority.rsplit_once(':').map_or(authority, |(h, _)| h)
            });
            insert_authority(&mut authorities, host, port, default);
        }
        Self {
            authorities,
            further: further.to_vec(),
            gateway_origins: own_origins,
            allowed_origins: allowed.iter().cloned().collect(),
        }
    }

    /// Checks that the request has an authority, in its target or in `Host`, and that each one belongs to this gateway.
    pub(super) fn check(&self, parts: &Parts) -> Result<(), AdmissionError> {
        let target = parts.uri.authority().map(Authority::as_str);
        let host = match SingleHeader::of(&parts.headers, &HOST) {
            SingleHeader::Absent => None,
            SingleHeader::One(host) => Some(host),
            SingleHeader::Invalid => return Err(AdmissionError::InvalidHost),
        };
        if target.is_none() && host.is_none() {
            return Err(AdmissionError::InvalidHost);
        }
        let ours = |authority: &str| {
            let authority = authority.to_ascii_lowercase();
            let name = name_of(&authority);
            self.authorities.contains(&authority)
                || self.further.iter().any(|host| host.matches(name))
        };
        if target.is_none_or(ours) && host.is_none_or(ours) {
            Ok(())
        } else {
            Err(AdmissionError::MisdirectedRequest)
        }
    }

    /// Classifies the origin of a request. `Sec-Fetch-Site` can only make the result stricter.
    pub(super) fn classify_origin(&self, headers: &HeaderMap, public: bool) -> RequestOrigin {
        match SingleHeader::of(headers, &ORIGIN) {
            SingleHeader::One(origin) if self.gateway_origins.contains(origin) => {
                RequestOrigin::SameOrigin
            }
            SingleHeader::One(origin) if self.allowed_origins.contains(origin) => {
                RequestOrigin::Allowed
            }
            // A page of another site can send some requests without an `Origin`, for example for images.
            SingleHeader::Absent if public || !is_cross_site(headers) => RequestOrigin::SameOrigin,
            _ => RequestOrigin::Foreign,
        }
    }
}

/// Whether the request names `localhost` or a name below it.
pub(super) fn is_localhost(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = SingleHeader::of(headers, &HOST)
        .one()
        .and_then(|host| host.parse::<Authority>().ok());
    let authority = uri.authority().or(host.as_ref());
    let name =
        authority.map(|authority| authority.host().trim_end_matches('.').to_ascii_lowercase());
    name.is_some_and(|name| name == "localhost" || name.ends_with(".localhost"))
}

/// Whether the request names the host of this origin.
pub(super) fn names_host(origin: &str, uri: &Uri, headers: &HeaderMap) -> bool {
    let (scheme, public) = origin.split_once("://").unwrap_or_default();
    let default = if scheme == "https" { ":443" } else { ":80" };
    let named = uri
        .authority()
        .map(Authority::as_str)
        .or(SingleHeader::of(headers, &HOST).one());
    named.is_some_and(|named| {
        let named = named.to_ascii_lowercase();
        named.strip_suffix(default).unwrap_or(&named) == public
    })
}

/// The name of an authority, without its port.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => authority,
    }
}

fn is_cross_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

fn insert_authority(
    authorities: &mut HashSet<String>,
    host: &str,
    port: Option<u16>,
    default: u16,
) {
    let port = port.unwrap_or(default);
    authorities.insert(format!("{host}:{port}"));
    if port == default {
        authorities.insert(host.to_owned());
    }
}

/// A header that must occur at most once.
pub(super) enum SingleHeader<'a> {
    Absent,
    One(&'a str),
    /// The header occurs more than once, or is not text.
    Invalid,
}

impl<'a> SingleHeader<'a> {
    pub(super) fn of(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        let mut values = headers.get_all(name).iter();
        match (values.next().map(http::HeaderValue::to_str), values.next()) {
            (None, _) => Self::Absent,
            (Some(Ok(value)), None) => Self::One(value),
            _ => Self::Invalid,
        }
    }

    pub(super) fn one(self) -> Option<&'a str> {
        if let Self::One(value) = self {
            Some(value)
        } else {
            None
        }
    }
}
