//! The middleware of all surfaces: request ids and response headers, CORS, and the admission and rate of requests.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version, header};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::access_log::{AccessRecord, begin_exported_span};
use super::body_memory::{BodyCharge, BodyMemory};
use super::connection_limit::ConnectionPermit;
use super::hijack::{EventStream, REQUEST_ID};
use super::response_body::ConnectionBacklog;
use crate::auth::{ActAsError, AdmissionError, Policy};
use base::shutdown::{Shutdown, lock_or_abort};
use base::types::{Ids, LimitExceeded, Principal, PrincipalLimit, PrincipalLimits, UserId};
use events::api::PublicPath;

/// A year, the usual value. The gateway knows nothing about other hosts of the domain, so there is no
/// `includeSubDomains`.
const STRICT_TRANSPORT_SECURITY: HeaderValue = HeaderValue::from_static("max-age=31536000");

#[derive(Clone, Copy)]
pub(super) struct Peer(pub(super) SocketAddr);

#[derive(Debug, Clone)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The `instance` of a problem (RFC 9457): a URI reference of the request. It ends with the id, under which the log has
    /// the details.
    pub(crate) fn instance(&self, path: &str) -> String {
        format!("{path}#{}", self.as_str())
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().expect("a request id is plain ASCII")
    }
}

/// An extension of a response that reports an internal error under another status than 500, for example in a stream.
#[derive(Clone, Copy)]
pub(crate) struct InternalError;

pub(crate) struct RequestContext {
    pub(crate) policy: Arc<Policy>,
    pub(crate) ids: Ids,
    pub(crate) shutdown: Shutdown,
    pub(crate) rates: RateLimits,
    pub(crate) bodies: BodyMemory,
}

pub(crate) enum AdmitError {
    Rejected(AdmissionError),
    RateLimited(LimitExceeded),
    ActAs(ActAsError),
}

/// The user for whom a program with the scope `actAs` sends the request.
const USER: HeaderName = HeaderName::from_static("x-acp-user");

impl RequestContext {
    /// Authenticates a request and counts it against the rate limit of its user. An admitted request has
    /// its [`Admission`](crate::auth::Admission) as an extension. Returns the response of a preflight request.
    pub(crate) async fn admit(&self, parts: &mut Parts) -> Result<Option<Response>, AdmitError> {
        let Peer(peer) = *parts
            .extensions
            .get()
            .expect("a connection sets the peer of its requests");
        let mut admission = self
            .policy
            .admit(parts, peer)
            .map_err(AdmitError::Rejected)?;
        if let Some(name) = parts.headers.get(USER) {
            let name = String::from_utf8_lossy(name.as_bytes());
            match admission.acting_as(&name, &self.shutdown).await {
                Ok(Some(acting)) => admission = acting,
                Ok(None) => {}
                Err(error) => {
                    let author = admission.author().expect("the request has a key");
                    self.policy.count_forbidden(&author);
                    return Err(AdmitError::ActAs(error));
                }
            }
        }
        if let Some(principal) = admission.principal() {
            Span::current().record("principal", principal.user.name());
            if let Some(permit) = parts.extensions.get::<ConnectionPermit>() {
                permit.authenticated();
            }
            if let Some(backlog) = parts.extensions.get::<Arc<ConnectionBacklog>>() {
                backlog.authenticated();
            }
            self.rates
                .check_request(principal)
                .map_err(AdmitError::RateLimited)?;
            if let Some(charge) = parts.extensions.get::<Arc<BodyCharge>>() {
                charge.set_principal(principal);
            }
            begin_exported_span(parts);
        }
        if admission.preflight {
            return Ok(Some(preflight()));
        }
        parts.extensions.insert(Arc::new(admission));
        Ok(None)
    }
}

/// Assigns the request id and sets the response headers. The outermost layer of the router.
pub(crate) async fn finish_response(
    State(context): State<Arc<RequestContext>>,
    request: Request,
    next: Next,
) -> Response {
    let id = request_id(request.headers()).unwrap_or_else(|| {
        let id = HeaderValue::try_from(context.ids.uuid().to_string());
        RequestId(id.expect("a UUID is plain ASCII"))
    });
    // Every log line of the request has the same id as the problem document of the client.
    let span = tracing::error_span!(
        "request",
        request_id = id.as_str(),
        principal = Empty,
        session = Empty,
        trace = Empty
    );
    run_and_finish(&context, id, request, next)
        .instrument(span)
        .await
}

async fn run_and_finish(
    context: &RequestContext,
    id: RequestId,
    mut request: Request,
    next: Next,
) -> Response {
    let http1 = request.version() < Version::HTTP_2;
    // Error responses need the CORS headers too. Without them, a page sees a network error instead of the
    // problem.
    let origin = context
        .policy
        .allowed_cross_origin(request.headers())
        .map(str::to_owned);
    let policy = &context.policy;
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map(|Peer(peer)| peer.ip());
    let requires_tls =
        peer.is_some_and(|peer| policy.requires_tls(request.uri(), request.headers(), peer));
    let public_path = peer
        .and_then(|peer| policy.public_path(request.uri(), request.headers(), peer))
        .cloned();
    if let Some(path) = &public_path {
        request.extensions_mut().insert(path.clone());
    }
    request.extensions_mut().insert(id.clone());
    // The charge ends with the body, at the latest with the response.
    let charge = Arc::new(BodyCharge::new(context.bodies.clone()));
    request.extensions_mut().insert(Arc::clone(&charge));
    let access = AccessRecord::begin(&mut request, charge);
    let method = request.method().clone();
    let uri = request.uri().clone();
    let mut response = next.run(request).await;
    access.finish(&response);
    if response.status() == StatusCode::INTERNAL_SERVER_ERROR
        || response.extensions().get::<InternalError>().is_some()
    {
        // The only place that reports these responses, so that no surface can omit it. The causes are in earlier lines.
        let path = match &public_path {
            Some(public) => public.join(uri.path()),
            None => uri.path().to_owned(),
        };
        tracing::error!(instance = id.instance(&path), %method, "the response is an internal error");
    }
    let too_large = response.status() == StatusCode::PAYLOAD_TOO_LARGE;
    let upgraded = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    let streams = response.extensions().get::<EventStream>().is_some();
    let headers = response.headers_mut();
    // `Connection: close` announces that this connection serves no further request. The gateway reads
    // the rest of a body that is too large only for a while, and a draining gateway sends only one more response. A stream
    // never has this header, because some clients then accept a truncated stream as complete.
    let closes = too_large || (context.shutdown.is_draining() && !streams);
    if http1 && closes && !upgraded {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(origin) = origin {
        allow_origin(headers, &origin);
    }
    if let Some(path) = &public_path {
        complete_location(headers, path);
    }
    headers.insert(REQUEST_ID, id.0);
    if requires_tls {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, STRICT_TRANSPORT_SECURITY);
    }
    set_default_headers(headers);
    response
}

fn complete_location(headers: &mut HeaderMap, public: &PublicPath) {
    let location = headers
        .get(header::LOCATION)
        .and_then(|location| location.to_str().ok());
    let location =
        location.filter(|location| location.starts_with('/') && !location.starts_with("//"));
    if let Some(Ok(location)) = location.map(|path| HeaderValue::try_from(public.join(path))) {
        headers.insert(header::LOCATION, location);
    }
}

/// The request id of the client, if it has 1 to 128 characters of `[A-Za-z0-9._-]`.
fn request_id(headers: &HeaderMap) -> Option<RequestId> {
    let id = headers.get(REQUEST_ID)?;
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    ((1..=128).contains(&id.len()) && id.as_bytes().iter().all(plain))
        .then(|| RequestId(id.clone()))
}

/// Permits only the client to store a response that it can validate, and no cache to store any other response.
fn set_cache_control(headers: &mut HeaderMap) {
    if headers.contains_key(header::CACHE_CONTROL) {
        return;
    }
    let policy = if headers.contains_key(header::ETAG) {
        // The tags of two users may be equal, so a stored response must not be validated with another key.
        headers.append(header::VARY, HeaderValue::from_static("Authorization"));
        "private, no-cache"
    } else {
        "no-store"
    };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(policy));
}

/// The headers of a response unless its route sets them: no framing, MIME sniffing or scripts.
fn set_default_headers(headers: &mut HeaderMap) {
    const DEFAULTS: [(HeaderName, &str); 6] = [
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ];
    let is_framed = permits_frames(headers);
    set_cache_control(headers);
    for (name, value) in DEFAULTS {
        if is_framed && name == header::X_FRAME_OPTIONS {
            continue;
        }
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
}

/// Whether the policy of a page permits frames on other pages. `X-Frame-Options` cannot name their origins, and proxies and
/// scanners that read only this header would report or enforce the opposite.
fn permits_frames(headers: &HeaderMap) -> bool {
    let policy = headers.get(header::CONTENT_SECURITY_POLICY);
    let mut directives = policy
        .and_then(|policy| policy.to_str().ok())
        .unwrap_or_default()
        .split(';');
    directives.any(|directive| {
        directive
            .trim()
            .strip_prefix("frame-ancestors ")
            .is_some_and(|ancestors| ancestors.trim() != "'none'")
    })
}

/// Every request header that a route or a layer reads from a client. `tests/it/cors.rs` compares the list
/// with the OpenAPI document, which does not have the headers of `/acp` and of the
/// chat protocols. `x-acp-user` is missing: a key with the scope `actAs` is no key for a page.
const REQUEST_HEADERS: &str = "accept, authorization, content-type, last-event-id, idempotency-key, prefer, if-match, \
    if-none-match, if-range, range, x-request-id, traceparent, tracestate, acp-connection-id, acp-session-id, \
    x-acp-session-id, x-acp-history, x-conversation-id, x-stainless-arch, x-stainless-helper-method, x-stainless-lang, \
    x-stainless-os, x-stainless-package-version, x-stainless-retry-count, x-stainless-runtime, \
    x-stainless-runtime-version, x-stainless-timeout";
/// Every response header that a client uses. `tests/it/cors.rs` compares the list with the OpenAPI document and with
/// some responses.
const EXPOSED_HEADERS: &str = "location, etag, retry-after, ratelimit, ratelimit-policy, preference-applied, \
    idempotency-replayed, content-range, content-disposition, accept-ranges, allow, www-authenticate, x-request-id, \
    acp-connection-id, x-acp-session-id, x-acp-history, x-vercel-ai-ui-message-stream";
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";

fn preflight() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_METHODS,
        HeaderValue::from_static(METHODS),
    );
    headers.insert(
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        HeaderValue::from_static(REQUEST_HEADERS),
    );
    headers.insert(
        header::ACCESS_CONTROL_MAX_AGE,
        HeaderValue::from_static("600"),
    );
    response
}

/// The gateway reads no cookies, so credentials are never allowed.
fn allow_origin(headers: &mut HeaderMap, origin: &str) {
    let Ok(origin) = HeaderValue::from_str(origin) else {
        return;
    };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        header::ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(EXPOSED_HEADERS),
    );
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

/// Token buckets that refill evenly over a minute. A user gets a bucket with the first request.
pub(crate) struct RateLimits {
    limits: PrincipalLimits,
    buckets: Mutex<HashMap<(UserId, PrincipalLimit), Bucket>>,
    clock: DefaultClock,
}

struct Bucket {
    per_minute: u32,
    limiter: DefaultDirectRateLimiter,
}

impl Bucket {
    fn new(per_minute: u32) -> Self {
        let quota = Quota::per_minute(NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN));
        Self {
            per_minute,
            limiter: RateLimiter::direct(quota),
        }
    }
}

impl RateLimits {
    pub(crate) fn new(limits: PrincipalLimits) -> Self {
        Self {
            limits,
            buckets: Mutex::default(),
            clock: DefaultClock::default(),
        }
    }

    /// Acquires a token of the user. A changed limit starts with a full bucket.
    fn acquire(&self, limit: PrincipalLimit, principal: &Principal) -> Result<(), LimitExceeded> {
        let limits = self.limits.effective(principal);
        let per_minute = limits.get(limit);
        let mut buckets = lock_or_abort(self.buckets.lock());
        let bucket = buckets
            .entry((principal.user.clone(), limit))
            .or_insert_with(|| Bucket::new(per_minute));
        if bucket.per_minute != per_minute {
            *bucket = Bucket::new(per_minute);
        }
        let full = bucket.limiter.check().err();
        drop(buckets);
        match full {
            None => Ok(()),
            Some(full) => Err(limits.exceeded(limit, full.wait_time_from(self.clock.now()))),
        }
    }

    pub(crate) fn check_request(&self, principal: &Principal) -> Result<(), LimitExceeded> {
        self.acquire(PrincipalLimit::Requests, principal)
    }

    pub(crate) fn check_prompt(&self, principal: &Principal) -> Result<(), LimitExceeded> {
        self.acquire(PrincipalLimit::Prompts, principal)
    }
}

#[cfg(test)]
mod rate_limits_tests {
    use super::*;
    use base::types::{PrincipalDefaults, Scopes, Tenant, UserId};

    fn principal(id: &str) -> Principal {
        Principal {
            user: UserId::new(&Tenant::default(), id),
            is_local: false,
            scopes: Scopes::default(),
            folders: base::types::GrantedFolders::default(),
        }
    }

    #[test]
    fn each_principal_has_its_own_bucket_with_its_limit() {
        let limits = PrincipalLimits::new(&PrincipalDefaults {
            max_prompts_per_minute: 2,
            ..PrincipalDefaults::default()
        });
        let rates = RateLimits::new(limits.clone());
        assert!(rates.check_prompt(&principal("a")).is_ok());
        assert!(rates.check_prompt(&principal("a")).is_ok());
        let exceeded = rates.check_prompt(&principal("a")).unwrap_err();
        assert!(
            (1..=30).contains(&exceeded.retry_after_seconds()),
            "{exceeded:?}"
        );
        assert!(rates.check_prompt(&principal("b")).is_ok());
        assert!(rates.check_request(&principal("a")).is_ok());
        limits.set_defaults(&PrincipalDefaults {
            max_prompts_per_minute: 3,
            ..PrincipalDefaults::default()
        });
        assert!(rates.check_prompt(&principal("a")).is_ok());
    }
}
