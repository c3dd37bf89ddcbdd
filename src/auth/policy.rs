//! Checks `Host`, `Origin` and the key in one function of the request head and its peer.

use std::net::{IpAddr, SocketAddr};

use http::header::{ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use http::{HeaderMap, Method, Uri};
use tokio::sync::watch;
use tokio::time::Instant;

use super::admission::{Admission, AdmissionError, Credential};
use super::failures::FailureLimiter;
use super::hosts::{Hosts, RequestOrigin, SingleHeader, is_localhost, names_host};
use super::keys::Keys;
use super::tickets::Tickets;
use crate::audit::{Counted, CountedEvents};
use crate::types::{HostPattern, Ids, Limits, Network, PublicPath, PublicUrl};

/// The settings of the policy.
#[derive(Debug, Clone)]
pub struct PolicyOptions {
    /// The address of the listener, with its actual port.
    pub bound: SocketAddr,
    /// The URL under which clients reach the gateway through a proxy.
    pub public_url: Option<PublicUrl>,
    /// Further host names of the gateway.
    pub allowed_hosts: Vec<HostPattern>,
    /// Origins of other pages that may use the gateway.
    pub allowed_origins: Vec<String>,
    /// Origins of pages that may show the chat page in a frame.
    pub frame_ancestors: Vec<String>,
    /// Peers whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted.
    pub proxies: Vec<Network>,
}

/// Decides which requests the gateway admits. There is one policy for the gateway.
#[derive(Debug)]
pub struct Policy {
    hosts: Hosts,
    public_url: Option<PublicUrl>,
    frame_ancestors: Vec<String>,
    proxies: Vec<Network>,
    keys: Keys,
    tickets: Tickets,
    failures: FailureLimiter,
    counted: CountedEvents,
    ids: Ids,
}

impl Policy {
    pub fn new(
        options: &PolicyOptions,
        keys: Keys,
        tickets: Tickets,
        limits: &Limits,
        (counted, ids): (CountedEvents, Ids),
    ) -> Self {
        Self {
            hosts: Hosts::new(
                options.bound,
                options.public_url.as_ref().map(PublicUrl::origin),
                &options.allowed_hosts,
                &options.allowed_origins,
            ),
            public_url: options.public_url.clone(),
            frame_ancestors: options.frame_ancestors.clone(),
            proxies: options.proxies.clone(),
            keys,
            tickets,
            failures: FailureLimiter::new(limits.max_failed_keys_per_minute),
            counted,
            ids,
        }
    }

    /// The URL under which clients reach the gateway through a proxy, if the operator has set it.
    pub fn public_url(&self) -> Option<&PublicUrl> {
        self.public_url.as_ref()
    }

    /// The path of the public URL, if the client of the request uses this URL: the request names its host, or a trusted proxy
    /// forwards it. Links for other clients, such as an editor on the same machine, are not below the path.
    pub fn public_path(&self, uri: &Uri, headers: &HeaderMap, peer: IpAddr) -> Option<&PublicPath> {
        let url = self.public_url.as_ref()?;
        let path = url.path()?;
        let forwarded =
            self.is_proxy(peer.to_canonical()) && headers.contains_key("x-forwarded-for");
        (forwarded || names_host(url.origin(), uri, headers)).then_some(path)
    }

    /// The origins of pages that may show the chat page in a frame.
    pub fn frame_ancestors(&self) -> &[String] {
        &self.frame_ancestors
    }

    /// The tickets that the policy accepts.
    pub fn tickets(&self) -> &Tickets {
        &self.tickets
    }

    /// Admits a request. A rejection is counted for the audit log.
    pub fn admit(&self, parts: &Parts, peer: SocketAddr) -> Result<Admission, AdmissionError> {
        let client = self.client_address(&parts.headers, peer.ip());
        self.decide(parts, client).inspect_err(|error| {
            self.counted
                .rejected(client, error.audit_reason(), self.ids.now());
        })
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

    /// A receiver that changes when any key ends. Its owner then checks its own key.
    pub fn watch_ended_keys(&self) -> watch::Receiver<u64> {
        self.keys.watch_ended()
    }

    /// The origin of the request's page if it is in `allowed_origins`. That page may read every response.
    pub fn allowed_cross_origin<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let allowed = self.hosts.classify_origin(headers, false) == RequestOrigin::Allowed;
        SingleHeader::of(headers, &ORIGIN).one().filter(|_| allowed)
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
        self.proxies.iter().any(|proxy| proxy.contains(address))
    }

    fn credential(&self, parts: &Parts, client: IpAddr) -> Result<Credential, AdmissionError> {
        if parts.headers.contains_key(AUTHORIZATION) {
            let verified = bearer_token(&parts.headers).and_then(|key| self.keys.verify(key));
            return match verified {
                Some(verified) => {
                    if verified.first_use_of_link {
                        self.counted.by_key(
                            &verified.author(client),
                            Counted::LinkUsed,
                            self.ids.now(),
                        );
                    }
                    Ok(Credential::new(&self.keys, verified, None))
                }
                None => Err(self.invalid_key(client)),
            };
        }
        if let Some(key) = websocket_key(parts) {
            return match self.keys.verify(key) {
                Some(verified) => Ok(Credential::new(&self.keys, verified, None)),
                None => Err(self.invalid_key(client)),
            };
        }
        let Some(ticket) = parts
            .uri
            .query()
            .and_then(ticket_param)
            .filter(|_| parts.method == Method::GET)
        else {
            return Err(AdmissionError::MissingKey);
        };
        // Invalid tickets do not count, because an `EventSource` may reconnect with an expired ticket.
        let open = self.tickets.open_stream(ticket, parts.uri.path());
        let open = open.map_err(|_| AdmissionError::InvalidTicket)?;
        let holder = self
            .keys
            .verified_by_id(&open.verified().key)
            .ok_or(AdmissionError::InvalidTicket)?;
        Ok(Credential::new(&self.keys, holder, Some(open)))
    }

    /// Counts an invalid key of this client.
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
    tickets.next().filter(|_| tickets.next().is_none())
}
