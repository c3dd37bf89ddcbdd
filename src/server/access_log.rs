//! The access log: one record for each request, when the head of its response is ready, and one value in the metrics. The
//! fields of the request's span complete the record: the id, the principal and the session.

use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::{HeaderMap, Method, Version, header};
use http_body::Body as _;
use tokio::time::Instant;
use tracing::Level;

use base::telemetry::metrics;

/// A request whose response is not ready.
pub(super) struct AccessRecord {
    method: Method,
    route: Option<MatchedPath>,
    request_bytes: Option<u64>,
    protocol: Version,
    began: Instant,
}

impl AccessRecord {
    pub(super) fn begin(request: &Request) -> Self {
        Self {
            method: request.method().clone(),
            route: request.extensions().get().cloned(),
            request_bytes: content_length(request.headers()),
            protocol: request.version(),
            began: Instant::now(),
        }
    }

    /// `is_admitted`: the request has an accepted key and is within its rate. Anyone can send other requests, which must
    /// not fill the disk.
    pub(super) fn write(&self, response: &Response, is_admitted: bool) {
        let status = response.status();
        let in_memory = response.body().size_hint().exact();
        // The path itself contains ids, and its query can contain a ticket.
        let route = self.route.as_ref().map_or("-", MatchedPath::as_str);
        let seconds = self.began.elapsed().as_secs_f64();
        metrics().http_request_duration(
            method_name(&self.method),
            status.as_u16(),
            route.to_owned(),
            seconds,
        );
        macro_rules! record {
            ($level:expr) => {
                tracing::event!(
                    target: "acp_gateway::access",
                    $level,
                    method = %self.method,
                    route,
                    status = status.as_u16(),
                    duration_ms = (seconds * 1e6).round() / 1e3,
                    request_bytes = self.request_bytes,
                    response_bytes = in_memory.or_else(|| content_length(response.headers())),
                    protocol = ?self.protocol,
                    "responded"
                )
            };
        }
        if !is_admitted {
            record!(Level::DEBUG);
        } else if status.is_server_error() {
            record!(Level::WARN);
        } else if status.is_client_error() || !self.method.is_safe() {
            record!(Level::INFO);
        } else {
            record!(Level::DEBUG);
        }
    }
}

/// The name of a method in metrics. A client can send any other text as a method.
fn method_name(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or("_OTHER")
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers
        .get(header::CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .parse()
        .ok()
}
