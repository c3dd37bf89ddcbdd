//! OTLP over HTTP: the collector of the operator, and the export of the metrics and spans of this process to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use http_body_util::Full;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::config::Config;
use base::shutdown::{Shutdown, lock_or_abort};
use base::telemetry::metrics;
use base::telemetry::traces::{self, EndedSpans};
use base::types::AgentName;
use outgoing::{AddressRule, Client, ClientOptions, RequestError, TlsError, read_body};

/// The time for one request, with its connection.
const POST_TIMEOUT: Duration = Duration::from_secs(10);
/// The time for the last spans and metrics at a stop.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
const SPANS_INTERVAL: Duration = Duration::from_secs(1);
/// The default of OpenTelemetry.
const METRICS_INTERVAL: Duration = Duration::from_mins(1);
/// The time between two warnings about the telemetry of the gateway, and of each agent.
const WARN_INTERVAL: Duration = Duration::from_mins(10);
/// An answer contains at most a message.
const MAX_ANSWER_BYTES: usize = 64 << 10;
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// Sends OTLP to the collector of `telemetry.otlp_endpoint`. A cheap handle.
#[derive(Clone)]
pub(crate) struct Collector(Arc<Inner>);

struct Inner {
    client: Client,
    endpoint: String,
    headers: HeaderMap,
    /// By agent, because a request can fail for its content. `None` is the gateway.
    warned_at: Mutex<HashMap<Option<AgentName>, Instant>>,
}

/// Text without the URL and without headers.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CollectorError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("it answered {0}")]
    Status(StatusCode),
    #[error("no answer within {} seconds", POST_TIMEOUT.as_secs())]
    Timeout,
    #[error("the URL is not valid")]
    Url(#[from] http::Error),
}

impl Collector {
    /// `None` without `telemetry.otlp_endpoint`. Reads the certificates of the system for an https URL.
    pub(crate) fn new(config: &Config) -> Result<Option<Self>, TlsError> {
        let Some(endpoint) = &config.otlp_endpoint else {
            return Ok(None);
        };
        let client = Client::new(ClientOptions {
            proxies: &config.proxies,
            uses_tls: endpoint.scheme() == Some(&Scheme::HTTPS),
            ca_certificates: None,
            addresses: AddressRule::Any,
        })?;
        let headers = config.otlp_headers.iter().filter_map(|(name, value)| {
            let name = HeaderName::try_from(name).ok()?;
            let mut value = HeaderValue::try_from(value.expose()).ok()?;
            value.set_sensitive(true);
            Some((name, value))
        });
        Ok(Some(Self(Arc::new(Inner {
            client,
            endpoint: endpoint.to_string().trim_end_matches('/').to_owned(),
            headers: headers.collect(),
            warned_at: Mutex::default(),
        }))))
    }

    /// Sends one request in protobuf to a path such as `v1/traces` below the endpoint, for an agent or for the gateway. A failure is
    /// logged here, at most once in ten minutes for each of them. The caller drops the body: nothing waits for a collector.
    pub(crate) async fn post(
        &self,
        signal_path: &str,
        body: Bytes,
        agent: Option<&AgentName>,
    ) -> Result<(), CollectorError> {
        let sent = timeout(POST_TIMEOUT, self.send(signal_path, body)).await;
        let sent = sent.unwrap_or(Err(CollectorError::Timeout));
        if let Err(error) = &sent
            && self.may_warn(agent)
        {
            tracing::warn!(
                endpoint = self.0.endpoint,
                agent = agent.map(tracing::field::display),
                %error,
                "could not send telemetry to the collector of telemetry.otlp_endpoint, which must accept OTLP over HTTP; \
                 telemetry is lost until it does"
            );
        }
        sent
    }

    async fn send(&self, signal_path: &str, body: Bytes) -> Result<(), CollectorError> {
        let url = format!("{}/{signal_path}", self.0.endpoint);
        let mut request = Request::post(url).body(Full::new(body))?;
        *request.headers_mut() = self.0.headers.clone();
        request.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
        let response = self.0.client.send(request).await?;
        let status = response.status();
        // The connection can then serve the next request.
        read_body(response, MAX_ANSWER_BYTES).await?;
        if status.is_success() {
            Ok(())
        } else {
            Err(CollectorError::Status(status))
        }
    }

    fn may_warn(&self, agent: Option<&AgentName>) -> bool {
        let now = Instant::now();
        let agent = agent.cloned();
        let mut warned_at = lock_or_abort(self.0.warned_at.lock());
        let previous = warned_at.get(&agent);
        let is_due = previous.is_none_or(|at| now.duration_since(*at) >= WARN_INTERVAL);
        if is_due {
            warned_at.insert(agent, now);
        }
        is_due
    }

    /// Exports the metrics and spans of this process until its last work has ended.
    pub(super) fn start_export(&self, shutdown: &Shutdown) {
        let Some(spans) = traces::init() else {
            return;
        };
        // The running work does not include this task, which ends after it.
        shutdown.spawn_client(export(self.clone(), spans, shutdown.clone()));
    }
}

async fn export(collector: Collector, mut spans: EndedSpans, shutdown: Shutdown) {
    tokio::select! {
        () = export_at_intervals(&collector, &mut spans, &shutdown) => {}
        () = shutdown.closing_started() => {}
    }
    let last = async {
        export_spans(&collector, &mut spans).await;
        export_metrics(&collector, &shutdown).await;
    };
    // The spans of this stop are lost if the collector is slow.
    let _ = timeout(FLUSH_TIMEOUT, last).await;
}

async fn export_at_intervals(collector: &Collector, spans: &mut EndedSpans, shutdown: &Shutdown) {
    let mut spans_due = interval(SPANS_INTERVAL);
    let mut metrics_due = interval(METRICS_INTERVAL);
    spans_due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    metrics_due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = spans_due.tick() => export_spans(collector, spans).await,
            // The first tick is at once, so that a wrong endpoint is in the log of the start.
            _ = metrics_due.tick() => export_metrics(collector, shutdown).await,
        }
    }
}

async fn export_spans(collector: &Collector, spans: &mut EndedSpans) {
    while let Some(batch) = spans.take() {
        // A failure is in the log. The next spans may be accepted.
        let _ = collector.post("v1/traces", batch.into(), None).await;
    }
}

async fn export_metrics(collector: &Collector, shutdown: &Shutdown) {
    // A panic is in the log.
    if let Ok(body) = shutdown.spawn_blocking(metrics::export_otlp).await {
        let _ = collector.post("v1/metrics", body.into(), None).await;
    }
}
