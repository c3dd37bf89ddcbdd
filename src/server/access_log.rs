//! The access log: one record for each request, when the head of its response is ready, one value in the metrics, and the end
//! of the exported span. The fields of the request's log span complete the record: the id, the principal and the session.

use std::sync::{Arc, OnceLock};

use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Version, header};
use http_body::Body as _;
use tokio::time::Instant;
use tracing::{Level, Span};

use super::body_memory::BodyCharge;
use base::telemetry::metrics;
use base::telemetry::traces::{self, SpanKind, TraceSpan};
use events::api::ProblemCode;
use wire::acp::TraceContext;

/// The status of a request whose client disconnects before the response, as proxies log it. No response has it.
const CLIENT_CLOSED_REQUEST: u16 = 499;
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// A request whose response is not ready. If its client disconnects, the record is written on drop.
pub(super) struct AccessRecord {
    charge: Arc<BodyCharge>,
    is_written: bool,
    method: Method,
    route: Option<MatchedPath>,
    request_bytes: Option<u64>,
    protocol: Version,
    began: Instant,
    exported: Option<ExportedSpan>,
}

/// The span of a request for the collector, from the admission of the request.
#[derive(Clone, Default)]
struct ExportedSpan(Arc<OnceLock<TraceSpan>>);

/// Begins the exported span of an admitted request. A request without an accepted key has none, because anyone could fill the
/// store of the collector. The span replaces the context of the client in the headers, so that it is the parent of all work.
pub(super) fn begin_exported_span(parts: &mut Parts) {
    let Some(exported) = parts.extensions.get::<ExportedSpan>().cloned() else {
        return;
    };
    let header = |name| parts.headers.get(name)?.to_str().ok();
    let client = header(TRACEPARENT).and_then(|it| TraceContext::parse(it, header(TRACESTATE)));
    let client = client
        .as_ref()
        .map(|client| (client.traceparent(), client.tracestate()));
    let method = method_name(&parts.method);
    let route = parts.extensions.get::<MatchedPath>();
    let name = route.map_or_else(
        || method.to_owned(),
        |route| format!("{method} {}", route.as_str()),
    );
    let Some(span) = TraceSpan::begin(name, SpanKind::Server, client) else {
        return;
    };
    span.set("http.request.method", method);
    if let Some(route) = route {
        span.set("http.route", route.as_str().to_owned());
    }
    // A state of the client without a valid parent belongs to no trace.
    parts.headers.remove(TRACESTATE);
    let state = span.tracestate().map(|state| (TRACESTATE, state));
    for (name, value) in [(TRACEPARENT, span.traceparent())].into_iter().chain(state) {
        if let Ok(value) = HeaderValue::try_from(value) {
            parts.headers.insert(name, value);
        }
    }
    Span::current().record("trace", span.trace_id());
    // A request is admitted once.
    let _ = exported.0.set(span);
}

impl AccessRecord {
    pub(super) fn begin(request: &mut Request, charge: Arc<BodyCharge>) -> Self {
        let exported = traces::is_enabled().then(ExportedSpan::default);
        if let Some(exported) = &exported {
            request.extensions_mut().insert(exported.clone());
        }
        Self {
            charge,
            is_written: false,
            method: request.method().clone(),
            route: request.extensions().get().cloned(),
            request_bytes: content_length(request.headers()),
            protocol: request.version(),
            began: Instant::now(),
            exported,
        }
    }

    pub(super) fn finish(mut self, response: &Response) {
        self.is_written = true;
        let in_memory = response.body().size_hint().exact();
        let response_bytes = in_memory.or_else(|| content_length(response.headers()));
        let code = response.extensions().get::<ProblemCode>();
        let code = code.map(|code| code.as_str());
        self.write(response.status().as_u16(), code, response_bytes);
    }

    fn write(&self, status: u16, code: Option<&str>, response_bytes: Option<u64>) {
        if let Some(span) = self.exported.as_ref().and_then(|exported| exported.0.get()) {
            span.set("http.response.status_code", i64::from(status));
            if !self.is_written {
                span.fail("client_disconnected");
            } else if status >= 500 {
                span.fail("server_error");
            }
            span.end();
        }
        // The path itself contains ids, and its query can contain a ticket.
        let route = self.route.as_ref().map_or("-", MatchedPath::as_str);
        let seconds = self.began.elapsed().as_secs_f64();
        metrics().http_request_duration(
            method_name(&self.method),
            status,
            route.to_owned(),
            seconds,
        );
        let what = if self.is_written {
            "responded"
        } else {
            "ended without a response"
        };
        macro_rules! record {
            ($level:expr) => {
                tracing::event!(
                    target: "acp_gateway::access",
                    $level,
                    method = %self.method,
                    route,
                    status,
                    code,
                    duration_ms = (seconds * 1e6).round() / 1e3,
                    request_bytes = self.request_bytes,
                    response_bytes,
                    protocol = ?self.protocol,
                    "{what}"
                )
            };
        }
        // Anyone can send a request without an accepted key or beyond its rate, and must not fill the disk.
        if !self.charge.has_principal() {
            record!(Level::DEBUG);
        } else if status >= 500 {
            record!(Level::WARN);
        } else if status >= 400 || !self.method.is_safe() {
            record!(Level::INFO);
        } else {
            record!(Level::DEBUG);
        }
    }
}

impl Drop for AccessRecord {
    fn drop(&mut self) {
        if !self.is_written {
            self.write(CLIENT_CLOSED_REQUEST, None, None);
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
