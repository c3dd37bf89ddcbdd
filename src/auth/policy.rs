//! Checks `Host`, `Origin` and the key in one function of the request head and its peer.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL,
};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Uri};
use tokio::time::Instant;

use super::keys::{Keys, Verified};
use super::tickets::{TicketGuard, Tickets};
use super::users::ActAsError;

use crate::auth::Network;
use crate::auth::limits::Limits;
use base::shutdown::{Shutdown, lock_or_abort};
use base::telemetry::metrics;
use base::types::text::one_line;
use base::types::{Author, Ids, Principal, Scope, client_network};
use events::api::{PublicPath, PublicUrl};
use events::event::RejectReason;
use log::audit::{Counted, CountedEvents};
use outgoing::HostPattern;

#[derive(Clone)]
pub struct PolicyOptions {
    /// The address of the listener, with its actual port.
    pub bound: SocketAddr,
    pub public_url: Option<PublicUrl>,
    pub allowed_hosts: Vec<HostPattern>,
    pub allowed_origins: Vec<String>,
    pub frame_ancestors: Vec<String>,
    /// Peers whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted.
    pub proxies: Vec<Network>,
}

pub struct Policy {
    pub options: PolicyOptions,
    hosts: Hosts,
    pub keys: Keys,
    pub tickets: Tickets,
    failures: FailureLimiter,
    rejected_origins: RejectedOrigins,
    counted: CountedEvents,
    ids: Ids,
}

impl Policy {
    pub fn new(
        options: PolicyOptions,
        keys: Keys,
        tickets: Tickets,
        limits: &Limits,
        counted: CountedEvents,
        ids: Ids,
    ) -> Self {
        Self {
            hosts: Hosts::new(&options),
            options,
            keys,
            tickets,
            failures: FailureLimiter::new(limits.max_failed_keys_per_minute),
            rejected_origins: RejectedOrigins::new(),
            counted,
            ids,
        }
    }

    /// The path of the public URL, if the client of the request uses this URL: the request names its host, or a trusted proxy
    /// forwards it. Links for other clients, such as an editor on the same machine, are not below the path.
    pub fn public_path(&self, uri: &Uri, headers: &HeaderMap, peer: IpAddr) -> Option<&PublicPath> {
        let url = self.options.public_url.as_ref()?;
        let path = url.path()?;
        let forwarded =
            self.is_proxy(peer.to_canonical()) && headers.contains_key("x-forwarded-for");
        (forwarded || names_host(url.origin(), uri, headers)).then_some(path)
    }

    /// Admits a request. A rejection is counted for the audit log, and a rejected origin is logged.
    pub fn admit(&self, parts: &Parts, peer: SocketAddr) -> Result<Admission, AdmissionError> {
        let client = self.client_address(&parts.headers, peer.ip());
        self.decide(parts, client).inspect_err(|error| {
            if *error == AdmissionError::OriginForbidden {
                self.rejected_origins.log(&parts.headers);
            }
            let reason = error.audit_reason();
            metrics().rejections(reason.into(), 1);
            self.counted.rejected(client, reason, self.ids.now());
        })
    }

    /// Counts a request with a valid key that has not the right for it.
    pub fn count_forbidden(&self, author: &Author) {
        let event = Counted::RequestRejected(RejectReason::Forbidden);
        self.counted.by_key(author, event, self.ids.now());
    }

    fn decide(&self, parts: &Parts, client: IpAddr) -> Result<Admission, AdmissionError> {
        self.hosts.check(parts)?;
        let public = is_public(parts.uri.path());
        let from = self.hosts.classify_origin(&parts.headers, public);
        if from == RequestOrigin::Foreign {
            return Err(AdmissionError::OriginForbidden);
        }
        let preflight = parts.method == Method::OPTIONS
            && from == RequestOrigin::Allowed
            && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        let credential = if public || preflight {
            None
        } else {
            Some(self.credential(parts, client)?)
        };
        Ok(Admission {
            client,
            credential,
            preflight,
        })
    }

    /// The origin of the request's page if it is in `allowed_origins`. That page may read every response.
    pub fn allowed_cross_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        match self.hosts.classify_origin(headers, false) {
            RequestOrigin::Allowed => SingleHeader::of(headers, &ORIGIN).one(),
            RequestOrigin::SameOrigin | RequestOrigin::Foreign => None,
        }
    }

    /// Whether a trusted proxy received the request over TLS, for a host that may require TLS in future.
    ///
    /// Browsers apply the rule to all ports of a host. Therefore `localhost` is excluded: other programs use it
    /// without TLS.
    pub fn requires_tls(&self, uri: &Uri, headers: &HeaderMap, peer: IpAddr) -> bool {
        if !self.is_proxy(peer.to_canonical()) {
            return false;
        }
        let mut protocols = headers
            .get_all("x-forwarded-proto")
            .iter()
            .flat_map(|value| value.to_str().unwrap_or_default().split(','))
            .peekable();
        protocols.peek().is_some()
            && protocols.all(|protocol| protocol.trim().eq_ignore_ascii_case("https"))
            && !is_localhost(uri, headers)
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        self.options
            .proxies
            .iter()
            .any(|proxy| proxy.contains(address))
    }

    fn credential(&self, parts: &Parts, client: IpAddr) -> Result<Credential, AdmissionError> {
        let presented = if parts.headers.contains_key(AUTHORIZATION) {
            Some(bearer_token(&parts.headers).unwrap_or_default())
        } else {
            websocket_key(parts)
        };
        if let Some(key) = presented {
            let verified = self.keys.verify(key);
            let verified = verified.ok_or_else(|| self.invalid_key(client))?;
            if verified.networks.add(client) {
                let author = verified.author(client);
                let now = self.ids.now();
                self.counted.by_key(&author, Counted::NewNetwork, now);
            }
            return Ok(Credential::new(&self.keys, verified, None));
        }
        let ticket = match parts.uri.query().and_then(ticket_param) {
            Some(ticket) if parts.method == Method::GET => ticket,
            _ => return Err(AdmissionError::MissingKey),
        };
        // Invalid tickets do not count, because an `EventSource` may reconnect with an expired ticket.
        let open = self.tickets.open_stream(ticket, parts.uri.path());
        let open = open.ok_or(AdmissionError::InvalidTicket)?;
        let holder = self
            .keys
            .verified_for(&open.key, &open.user)
            .ok_or(AdmissionError::InvalidTicket)?;
        Ok(Credential::new(&self.keys, holder, Some(open)))
    }

    fn invalid_key(&self, client: IpAddr) -> AdmissionError {
        match self.failures.record(client, Instant::now()) {
            Some(retry_after) => AdmissionError::TooManyInvalidKeys { retry_after },
            None => AdmissionError::InvalidKey,
        }
    }

    /// The last address in `X-Forwarded-For` that is not a trusted proxy. The addresses before it are not
    /// trustworthy.
    fn client_address(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let mut client = peer.to_canonical();
        let values: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
        let hops = values
            .iter()
            .rev()
            .flat_map(|value| value.to_str().unwrap_or("").rsplit(','));
        for hop in hops {
            if !self.is_proxy(client) {
                break;
            }
            let Ok(address) = hop.trim().parse::<IpAddr>() else {
                break;
            };
            client = address.to_canonical();
        }
        client
    }
}

/// Whether a path requires no key: the web app and its assets, the probes, and the documentation.
fn is_public(path: &str) -> bool {
    matches!(
        path,
        "/" | "/favicon.ico"
            | "/favicon.svg"
            | "/manifest.webmanifest"
            | "/notices.js"
            | "/livez"
            | "/readyz"
            | "/openapi.json"
            | "/docs"
    ) || path.starts_with("/assets/")
        || path.starts_with("/docs/")
}

/// The key in the list of subprotocols (`bearer.<key>`) of a WebSocket at `/acp`. A page cannot set other headers of a
/// WebSocket.
fn websocket_key(parts: &Parts) -> Option<&str> {
    let path = parts.uri.path();
    if parts.method != Method::GET || (path != "/acp" && !path.starts_with("/acp/")) {
        return None;
    }
    let offered = parts
        .headers
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok());
    offered
        .flat_map(|value| value.split(','))
        .find_map(|name| name.trim().strip_prefix("bearer."))
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, key) = SingleHeader::of(headers, &AUTHORIZATION)
        .one()?
        .split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(key.trim_start_matches(' '))
}

/// The parameter `ticket` of a query, if it occurs once. A ticket has no escaped characters.
fn ticket_param(query: &str) -> Option<&str> {
    let mut tickets = query
        .split('&')
        .filter_map(|pair| pair.strip_prefix("ticket="));
    match (tickets.next(), tickets.next()) {
        (Some(ticket), None) => Some(ticket),
        _ => None,
    }
}

/// The lines about rejected origins in a minute, for all clients.
const ORIGIN_LINES: NonZeroU32 = NonZeroU32::new(20).expect("more than 0");
const MAX_ORIGIN_CHARS: usize = 200;

/// Logs the origins that the gateway rejects. A browser reports to its page only that the request failed.
struct RejectedOrigins {
    limiter: DefaultDirectRateLimiter,
    suppressed: AtomicU64,
}

impl RejectedOrigins {
    fn new() -> Self {
        Self {
            limiter: RateLimiter::direct(Quota::per_minute(ORIGIN_LINES)),
            suppressed: AtomicU64::new(0),
        }
    }

    fn log(&self, headers: &HeaderMap) {
        let Some(origin) = headers.get(ORIGIN) else {
            return;
        };
        if self.limiter.check().is_err() {
            self.suppressed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let origin = one_line(&String::from_utf8_lossy(origin.as_bytes()));
        let origin: String = origin.chars().take(MAX_ORIGIN_CHARS).collect();
        let suppressed = self.suppressed.swap(0, Ordering::Relaxed);
        tracing::warn!(
            origin,
            suppressed,
            "a page of another origin was rejected; if the page may use the gateway, add its origin to auth.allowed_origins"
        );
    }
}

const WINDOW: Duration = Duration::from_mins(1);
/// The maximum number of tracked addresses. At the limit, the oldest window is evicted.
const MAX_ADDRESSES: usize = 10_000;

struct FailureLimiter {
    max_per_minute: u32,
    windows: Mutex<HashMap<IpAddr, Window>>,
}

#[derive(Clone, Copy)]
struct Window {
    started_at: Instant,
    count: u32,
}

impl FailureLimiter {
    fn new(max_per_minute: u32) -> Self {
        Self {
            max_per_minute,
            windows: Mutex::default(),
        }
    }

    /// Counts an invalid key. Above the limit, returns the time until the next attempt.
    ///
    /// The limit never rejects a valid key, because several clients can share an address: loopback, or a NAT
    /// gateway.
    fn record(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        let mut windows = lock_or_abort(self.windows.lock());
        if windows.len() >= MAX_ADDRESSES {
            windows.retain(|_, window| now < window.started_at + WINDOW);
        }
        if windows.len() >= MAX_ADDRESSES {
            let oldest = windows.iter().min_by_key(|(_, window)| window.started_at);
            let oldest = *oldest.expect("the map is full").0;
            windows.remove(&oldest);
        }
        let new = Window {
            started_at: now,
            count: 0,
        };
        let window = windows.entry(client_network(address)).or_insert(new);
        if now >= window.started_at + WINDOW {
            *window = new;
        }
        window.count = window.count.saturating_add(1);
        (window.count > self.max_per_minute).then(|| window.started_at + WINDOW - now)
    }
}

#[cfg(test)]
mod failures_tests {
    use super::*;

    #[test]
    fn counts_failures_per_address_and_minute() {
        let failures = FailureLimiter::new(2);
        let [one, two]: [IpAddr; 2] = [
            "203.0.113.1".parse().unwrap(),
            "203.0.113.2".parse().unwrap(),
        ];
        let began = Instant::now();
        let after = |seconds| began + Duration::from_secs(seconds);
        assert_eq!(failures.record(one, began), None);
        assert_eq!(failures.record(one, after(1)), None);
        assert_eq!(
            failures.record(one, after(20)),
            Some(Duration::from_secs(40))
        );
        assert_eq!(failures.record(two, after(20)), None);
        assert_eq!(
            failures.record(one, after(59)),
            Some(Duration::from_secs(1))
        );
        assert_eq!(failures.record(one, after(60)), None);
    }

    #[test]
    fn ipv6_network_counts_as_one_address() {
        let failures = FailureLimiter::new(1);
        let now = Instant::now();
        assert_eq!(failures.record("2001:db8::1".parse().unwrap(), now), None);
        assert!(
            failures
                .record("2001:db8::ffff".parse().unwrap(), now)
                .is_some()
        );
        assert_eq!(
            failures.record("2001:db8:0:1::1".parse().unwrap(), now),
            None
        );
    }

    #[test]
    fn number_of_addresses_is_bounded() {
        let failures = FailureLimiter::new(1);
        let now = Instant::now();
        for number in 0..MAX_ADDRESSES + 10 {
            let address = std::net::Ipv4Addr::from_bits(u32::try_from(number).unwrap());
            failures.record(IpAddr::V4(address), now);
        }
        assert_eq!(failures.windows.lock().unwrap().len(), MAX_ADDRESSES);
    }
}

/// The accepted authorities and origins. Comparisons are exact; only the case of an authority does not
/// matter.
struct Hosts {
    authorities: HashSet<String>,
    /// Names that are accepted with every port: a container's port and its published port may differ.
    further: Vec<HostPattern>,
    gateway_origins: HashSet<String>,
    allowed_origins: HashSet<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum RequestOrigin {
    SameOrigin,
    Allowed,
    Foreign,
}

impl Hosts {
    /// A name of `allowed_hosts` is no origin of the gateway. Otherwise a page that was sent without TLS under the name of
    /// `https://name` would count as a page of the gateway.
    fn new(options: &PolicyOptions) -> Self {
        let bound = options.bound;
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
        // The origin is `scheme://host`, with the port unless it is the scheme's default.
        if let Some(public) = options.public_url.as_ref().map(PublicUrl::origin) {
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
            further: options.allowed_hosts.clone(),
            gateway_origins: own_origins,
            allowed_origins: options.allowed_origins.iter().cloned().collect(),
        }
    }

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

fn is_localhost(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = SingleHeader::of(headers, &HOST)
        .one()
        .and_then(|host| host.parse::<Authority>().ok());
    let authority = uri.authority().or(host.as_ref());
    let name =
        authority.map(|authority| authority.host().trim_end_matches('.').to_ascii_lowercase());
    name.is_some_and(|name| name == "localhost" || name.ends_with(".localhost"))
}

/// Whether the request names the host of this origin.
fn names_host(origin: &str, uri: &Uri, headers: &HeaderMap) -> bool {
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

enum SingleHeader<'a> {
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

#[derive(derive_more::Debug)]
#[debug("Admission")]
pub struct Admission {
    /// The address of the client: the peer's, or the one that a trusted proxy reports.
    pub client: IpAddr,
    /// The key or ticket of the request; `None` for public paths and CORS preflights.
    pub credential: Option<Credential>,
    pub preflight: bool,
}

impl Admission {
    pub fn principal(&self) -> Option<&Principal> {
        self.credential
            .as_ref()
            .map(|credential| &credential.verified.principal)
    }

    pub fn author(&self) -> Option<Author> {
        self.credential
            .as_ref()
            .map(|credential| credential.verified.author(self.client))
    }

    /// This admission for the user that a program names. `None` if the key may not name one: the name then means nothing.
    pub async fn acting_as(
        &self,
        name: &str,
        shutdown: &Shutdown,
    ) -> Result<Option<Self>, ActAsError> {
        let programs = self.credential.as_ref().filter(|credential| {
            let scopes = credential.verified.principal.scopes;
            credential.ticket.is_none() && scopes.contains(Scope::ActAs)
        });
        let Some(Credential { keys, verified, .. }) = programs else {
            return Ok(None);
        };
        let acting = if let Some(acting) = keys.act_as(verified, name)? {
            acting
        } else {
            let author = verified.author(self.client);
            let failed = || ActAsError::Store(name.to_owned());
            let store = keys.clone();
            let program = verified.clone();
            let user = name.to_owned();
            let create = move || store.create_user(&author, &program, &user);
            let created = shutdown.spawn_blocking(create).await;
            created.map_err(|_| failed())??;
            keys.act_as(verified, name)?.ok_or_else(failed)?
        };
        Ok(Some(Self {
            client: self.client,
            credential: Some(Credential::new(keys, acting, None)),
            preflight: self.preflight,
        }))
    }

    /// Completes when the key of the request has ended; never completes without a key. Cancel-safe.
    pub async fn wait_key_ended(&self) {
        match &self.credential {
            Some(credential) => credential.keys.wait_ended(&credential.verified).await,
            None => std::future::pending().await,
        }
    }

    pub fn is_key_valid(&self) -> bool {
        self.credential
            .as_ref()
            .is_none_or(|credential| credential.keys.is_valid(&credential.verified))
    }
}

pub struct Credential {
    keys: Keys,
    pub verified: Verified,
    /// `None` if the request has a key.
    pub ticket: Option<TicketGuard>,
}

impl Credential {
    pub(super) fn new(keys: &Keys, verified: Verified, ticket: Option<TicketGuard>) -> Self {
        Self {
            keys: keys.clone(),
            verified,
            ticket,
        }
    }
}

/// The challenge for a key that is not valid, or no longer valid (RFC 6750, section 3.1).
pub const INVALID_TOKEN: &str = "Bearer realm=\"acp-gateway\", error=\"invalid_token\"";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    #[error("the request must name its host in one `Host` header (RFC 9112, section 3.2)")]
    InvalidHost,
    #[error(
        "the host name is not a name of this gateway: set server.public_url, or add the name to server.allowed_hosts"
    )]
    MisdirectedRequest,
    #[error(
        "pages of this origin must not use this gateway: add the origin to auth.allowed_origins"
    )]
    OriginForbidden,
    #[error("this path requires a key: send it as Authorization: Bearer KEY")]
    MissingKey,
    #[error("this key is not valid")]
    InvalidKey,
    #[error("this ticket is not valid: create a new one")]
    InvalidTicket,
    #[error("too many invalid keys from this address (`auth.max_failed_keys_per_minute`)")]
    TooManyInvalidKeys { retry_after: Duration },
}

impl AdmissionError {
    /// The challenge of a response with status 401, as the value of `WWW-Authenticate` (RFC 6750, section 3.1). A request
    /// without a key gets no error code.
    pub const fn challenge(&self) -> &'static str {
        match self {
            Self::InvalidKey | Self::InvalidTicket => INVALID_TOKEN,
            _ => "Bearer realm=\"acp-gateway\"",
        }
    }

    pub(super) const fn audit_reason(&self) -> RejectReason {
        match self {
            Self::InvalidHost | Self::MisdirectedRequest => RejectReason::MisdirectedRequest,
            Self::OriginForbidden => RejectReason::OriginForbidden,
            Self::MissingKey => RejectReason::MissingKey,
            Self::InvalidKey => RejectReason::InvalidKey,
            Self::InvalidTicket => RejectReason::InvalidTicket,
            Self::TooManyInvalidKeys { .. } => RejectReason::TooManyInvalidKeys,
        }
    }
}
