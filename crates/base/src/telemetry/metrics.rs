//! The metrics of this process: one table of instruments, from which the functions that record, the reference and the tests
//! come.
//!
//! The process has one provider, as it has one subscriber of logs. Before [`init`], and in programs other than the gateway,
//! recordings have no effect.
//!
//! Labels are bounded: a label is the name of an agent, the pattern of a route, or a text of the program. Ids of sessions and
//! texts of clients have no type that a label accepts.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, OnceLock, Weak};
use std::time::Duration;

use opentelemetry::metrics::{Counter, Histogram, Meter, MeterProvider as _, NoopMeterProvider};
use opentelemetry::{KeyValue, Value};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{
    InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Temporality,
};
use prost::Message as _;

use super::exposition::{self, TextFormat};
use super::process;
use super::resource::{RESOURCE, VERSION};
use crate::shutdown::lock_or_abort;
use crate::types::{AgentName, Ids, Timestamp};

/// The upper bounds of the buckets of `http.server.request.duration` in the semantic conventions.
const REQUEST_SECONDS: [f64; 14] = [
    0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];
const COMMIT_SECONDS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0,
];
/// For starts, waits and answers, which often take milliseconds.
const WAIT_SECONDS: [f64; 14] = [
    0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0,
];
const TURN_SECONDS: [f64; 14] = [
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0,
];
/// The bounds of `gen_ai.client.token.usage` in the semantic conventions.
const TOKENS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Histogram,
    Gauge,
}

/// A row of the table of instruments.
#[derive(Debug, Clone, Copy)]
pub struct Instrument {
    pub kind: Kind,
    /// The name in OpenTelemetry.
    pub name: &'static str,
    /// In UCUM.
    pub unit: &'static str,
    pub labels: &'static [&'static str],
    pub meaning: &'static str,
}

impl Instrument {
    /// The name in a scrape. The samples of a histogram add `_bucket`, `_sum` and `_count`.
    pub fn exported_name(&self) -> String {
        let family = exposition::family_name(self.name, self.unit);
        match self.kind {
            Kind::Counter => format!("{family}_total"),
            Kind::Histogram | Kind::Gauge => family,
        }
    }
}

/// The type of a label in the table.
trait Label {
    fn value(self) -> Value;
}

impl Label for &'static str {
    fn value(self) -> Value {
        self.into()
    }
}

impl Label for &AgentName {
    fn value(self) -> Value {
        self.shared().into()
    }
}

/// The pattern of a route.
impl Label for String {
    fn value(self) -> Value {
        self.into()
    }
}

/// The status of a response.
impl Label for u16 {
    fn value(self) -> Value {
        i64::from(self).into()
    }
}

/// Declares [`Metrics`] and [`INSTRUMENTS`]. A row has the meaning, the function that records, its labels with their types and
/// keys, the name and the unit.
macro_rules! instruments {
    (
        counters { $(#[doc = $c_meaning:literal] $counter:ident($($c_label:ident: $c_type:ty = $c_key:literal),*) = $c_name:literal, $c_unit:literal;)* }
        histograms { $(#[doc = $h_meaning:literal] $histogram:ident($($h_label:ident: $h_type:ty = $h_key:literal),*) = $h_name:literal, $h_unit:literal, $h_bounds:ident;)* }
        levels { $(#[doc = $l_meaning:literal] $level:ident($l_label:ident = $l_key:literal) = $l_name:literal, $l_unit:literal;)* }
        observed { $(#[doc = $o_meaning:literal] $observed:ident($($o_label:ident: $o_type:ty = $o_key:literal),*) -> $o_value:ty = $o_kind:ident $o_builder:ident, $o_name:literal, $o_unit:literal;)* }
    ) => {
        /// All instruments, by kind.
        pub const INSTRUMENTS: &[Instrument] = &[
            $(Instrument { kind: Kind::Counter, name: $c_name, unit: $c_unit, labels: &[$($c_key),*], meaning: $c_meaning.trim_ascii() },)*
            $(Instrument { kind: Kind::Histogram, name: $h_name, unit: $h_unit, labels: &[$($h_key),*], meaning: $h_meaning.trim_ascii() },)*
            $(Instrument { kind: Kind::Gauge, name: $l_name, unit: $l_unit, labels: &[$l_key], meaning: $l_meaning.trim_ascii() },)*
            $(Instrument { kind: Kind::$o_kind, name: $o_name, unit: $o_unit, labels: &[$($o_key),*], meaning: $o_meaning.trim_ascii() },)*
        ];

        /// The instruments. A counter adds to its count, a histogram records a value, and a level counts an object until the
        /// guard is dropped. A function of an observed instrument sets what a scrape reads.
        pub struct Metrics {
            meter: Meter,
            $($counter: Counter<u64>,)*
            $($histogram: Histogram<f64>,)*
            $($level: Levels,)*
        }

        impl Metrics {
            fn new(meter: Meter) -> Self {
                $(let $counter = meter.u64_counter($c_name).with_unit($c_unit).with_description($c_meaning.trim_ascii()).build();)*
                $(let $histogram = meter.f64_histogram($h_name).with_unit($h_unit).with_description($h_meaning.trim_ascii())
                    .with_boundaries($h_bounds.to_vec()).build();)*
                $(let $level = Levels::default();
                let levels = $level.clone();
                meter.i64_observable_up_down_counter($l_name).with_unit($l_unit).with_description($l_meaning.trim_ascii())
                    .with_callback(move |observer| levels.read(|label, count| observer.observe(count, &[KeyValue::new($l_key, label)])))
                    .build();)*
                Self { meter, $($counter,)* $($histogram,)* $($level,)* }
            }

            $(#[doc = $c_meaning]
            pub fn $counter(&self, $($c_label: $c_type,)* count: u64) {
                self.$counter.add(count, &[$(KeyValue::new($c_key, Label::value($c_label))),*]);
            })*

            $(#[doc = $h_meaning]
            pub fn $histogram(&self, $($h_label: $h_type,)* value: f64) {
                self.$histogram.record(value, &[$(KeyValue::new($h_key, Label::value($h_label))),*]);
            })*

            $(#[doc = $l_meaning]
            pub fn $level(&self, $l_label: &'static str) -> Level {
                self.$level.enter($l_label)
            })*

            $(#[doc = $o_meaning]
            pub fn $observed(&self, read: impl Fn(&dyn Fn($($o_type,)* $o_value)) + Send + Sync + 'static) {
                self.meter.$o_builder($o_name).with_unit($o_unit).with_description($o_meaning.trim_ascii())
                    .with_callback(move |observer| {
                        read(&|$($o_label,)* value| observer.observe(value, &[$(KeyValue::new($o_key, Label::value($o_label))),*]));
                    })
                    .build();
            })*
        }
    };
}

instruments! {
    counters {
        /// Ended prompts, by stop reason or problem code.
        prompts(agent: &AgentName = "agent", outcome: &'static str = "outcome") = "acp_gateway.prompts", "{prompt}";
        /// Starts of processes: `ok` or a problem code.
        agent_starts(agent: &AgentName = "agent", outcome: &'static str = "outcome") = "acp_gateway.agent.starts", "{start}";
        /// Processes that ended without an order of the gateway, by cause.
        agent_exits(agent: &AgentName = "agent", cause: &'static str = "cause") = "acp_gateway.agent.exits", "{process}";
        /// Lines of agents that are not JSON-RPC.
        agent_invalid_lines(agent: &AgentName = "agent") = "acp_gateway.agent.invalid_lines", "{line}";
        /// Processes that idle sessions lost to waiting prompts.
        pool_evictions(agent: &AgentName = "agent") = "acp_gateway.pool.evictions", "{process}";
        /// Committed events.
        log_events() = "acp_gateway.log.events", "{event}";
        /// Streams that the gateway ended, by reason.
        stream_evictions(reason: &'static str = "reason") = "acp_gateway.stream.evictions", "{stream}";
        /// Attempts to deliver a webhook: `delivered`, `retried`, `failed`.
        webhook_attempts(outcome: &'static str = "outcome") = "acp_gateway.webhook.attempts", "{attempt}";
        /// Rejected requests, by limit or reason.
        rejections(reason: &'static str = "reason") = "acp_gateway.rejections", "{request}";
    }
    histograms {
        /// Time to the head of a response, also of a stream.
        http_request_duration(
            method: &'static str = "http.request.method",
            status: u16 = "http.response.status_code",
            route: String = "http.route"
        ) = "http.server.request.duration", "s", REQUEST_SECONDS;
        /// Time from the acceptance of a prompt until the agent gets it.
        prompt_wait(agent: &AgentName = "agent") = "acp_gateway.prompt.wait", "s", WAIT_SECONDS;
        /// Time from the prompt to the first update of the agent.
        turn_first_update(agent: &AgentName = "agent") = "acp_gateway.turn.first_update", "s", WAIT_SECONDS;
        /// Time from the prompt to the end of the turn.
        turn_duration(agent: &AgentName = "agent") = "acp_gateway.turn.duration", "s", TURN_SECONDS;
        /// Tokens of a turn, as the agent reports them.
        token_usage(agent: &AgentName = "gen_ai.agent.name", kind: &'static str = "gen_ai.token.type") = "gen_ai.client.token.usage", "{token}", TOKENS;
        /// Time from a start to the end of the handshake.
        agent_start_duration(agent: &AgentName = "agent") = "acp_gateway.agent.start.duration", "s", WAIT_SECONDS;
        /// Time until a request of an agent, such as a permission, is resolved.
        agent_request_duration(kind: &'static str = "kind", outcome: &'static str = "outcome") = "acp_gateway.agent.request.duration", "s", WAIT_SECONDS;
        /// Time of a commit.
        commit_duration() = "acp_gateway.log.commit.duration", "s", COMMIT_SECONDS;
    }
    levels {
        /// Requests of agents that wait for an answer.
        open_agent_requests(kind = "kind") = "acp_gateway.agent.requests.open", "{request}";
        /// Loaded sessions.
        sessions(state = "state") = "acp_gateway.sessions.loaded", "{session}";
        /// Open streams and held requests.
        streams(kind = "kind") = "acp_gateway.streams.open", "{stream}";
    }
    observed {
        /// Processes.
        processes(agent: &AgentName = "agent", state: &'static str = "state") -> u64 = Gauge u64_observable_gauge, "acp_gateway.agent.processes", "{process}";
        /// Requests that wait for a process.
        pool_waiting(agent: &AgentName = "agent") -> u64 = Gauge u64_observable_gauge, "acp_gateway.pool.waiting", "{request}";
        /// Streams that have been behind the log for more than a second, because of their clients or a replay.
        streams_behind() -> u64 = Gauge u64_observable_gauge, "acp_gateway.streams.behind", "{stream}";
        /// The longest time for which a stream has been behind, or 0 below a second.
        stream_lag() -> f64 = Gauge f64_observable_gauge, "acp_gateway.stream.lag", "s";
        /// Stored sessions.
        sessions_stored() -> u64 = Gauge u64_observable_gauge, "acp_gateway.sessions.stored", "{session}";
        /// Stored events.
        log_size() -> u64 = Gauge u64_observable_gauge, "acp_gateway.log.size", "By";
        /// Free disk space for the log.
        disk_free() -> u64 = Gauge u64_observable_gauge, "acp_gateway.disk.free", "By";
        /// Deliveries of webhooks that wait.
        webhook_pending() -> u64 = Gauge u64_observable_gauge, "acp_gateway.webhook.pending", "{delivery}";
        /// Open tasks: `running` ones have a turn.
        tasks(state: &'static str = "state") -> u64 = Gauge u64_observable_gauge, "acp_gateway.tasks.open", "{task}";
        /// Members of the fleet.
        fleet_members(state: &'static str = "state") -> u64 = Gauge u64_observable_gauge, "acp_gateway.fleet.members", "{member}";
        /// Always 1.
        build_info(version: &'static str = "version") -> u64 = Gauge u64_observable_gauge, "acp_gateway.build_info", "";
        /// Resident memory of the gateway.
        process_memory() -> u64 = Gauge u64_observable_gauge, "process.memory.usage", "By";
        /// Processor time of the gateway.
        process_cpu() -> f64 = Counter f64_observable_counter, "process.cpu.time", "s";
        /// Open file descriptors of the gateway.
        process_files() -> u64 = Gauge u64_observable_gauge, "process.unix.file_descriptor.count", "{file_descriptor}";
        /// Start of the gateway, as Unix time.
        process_start() -> f64 = Gauge f64_observable_gauge, "process.start_time", "s";
    }
}

impl Metrics {
    /// The open streams and held requests of each kind.
    pub fn open_streams(&self) -> BTreeMap<&'static str, i64> {
        let mut open = BTreeMap::new();
        self.streams.read(|kind, count| {
            open.insert(kind, count);
        });
        open
    }
}

/// The number of objects for each value of the label.
#[derive(Debug, Clone, Default)]
struct Levels(Arc<Mutex<BTreeMap<&'static str, Arc<AtomicI64>>>>);

impl Levels {
    fn enter(&self, label: &'static str) -> Level {
        let count = Arc::clone(lock_or_abort(self.0.lock()).entry(label).or_default());
        count.fetch_add(1, Ordering::Relaxed);
        Level { label, count }
    }

    fn read(&self, mut each: impl FnMut(&'static str, i64)) {
        for (label, count) in &*lock_or_abort(self.0.lock()) {
            each(label, count.load(Ordering::Relaxed));
        }
    }
}

/// Counts an object with this label until the guard is dropped.
#[derive(Debug)]
#[must_use]
pub struct Level {
    label: &'static str,
    count: Arc<AtomicI64>,
}

impl Level {
    pub fn label(&self) -> &'static str {
        self.label
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The metrics of the process.
struct Provider {
    reader: ScrapeReader,
    metrics: Metrics,
    started_at: Timestamp,
    /// The instruments end with it.
    _sdk: SdkMeterProvider,
}

static PROVIDER: OnceLock<Provider> = OnceLock::new();
static NOOP: LazyLock<Metrics> =
    LazyLock::new(|| Metrics::new(NoopMeterProvider::new().meter("acp-gateway")));

impl Provider {
    fn new() -> Self {
        let reader = ScrapeReader(Arc::new(ManualReader::builder().build()));
        let sdk = SdkMeterProvider::builder()
            .with_resource(RESOURCE.clone())
            .with_reader(reader.clone())
            .build();
        let metrics = Metrics::new(sdk.meter("acp-gateway"));
        metrics.build_info(|observe| observe(VERSION, 1));
        metrics.process_memory(|observe| process::resident_bytes().into_iter().for_each(observe));
        metrics.process_cpu(|observe| observe(process::processor_seconds()));
        metrics.process_files(|observe| process::open_files().into_iter().for_each(observe));
        let started_at = Ids::system().now();
        let started = started_at.since(Timestamp::from_millis(0));
        metrics.process_start(move |observe| observe(started.as_secs_f64()));
        Self {
            reader,
            metrics,
            started_at,
            _sdk: sdk,
        }
    }

    fn collect(&self) -> ResourceMetrics {
        let mut metrics = ResourceMetrics::default();
        // It fails only after a shutdown of the provider, which never happens. The result is then empty.
        let _ = self.reader.collect(&mut metrics);
        metrics
    }

    fn export(&self, format: TextFormat) -> String {
        exposition::write(&self.collect(), format)
    }
}

/// Starts the metrics of this process, which begins now. A second call has no effect.
pub fn init() {
    PROVIDER.get_or_init(Provider::new);
}

pub fn metrics() -> &'static Metrics {
    PROVIDER.get().map_or(&NOOP, |provider| &provider.metrics)
}

/// The start of the metrics, and thus of the gateway. `None` in other programs.
pub fn started_at() -> Option<Timestamp> {
    PROVIDER.get().map(|provider| provider.started_at)
}

/// All metrics in a text format of Prometheus. Reads figures in memory and `/proc`.
pub fn export(format: TextFormat) -> String {
    let provider = PROVIDER.get();
    provider.map_or_else(String::new, |provider| provider.export(format))
}

/// All metrics as a request of OTLP in protobuf. Reads figures in memory and `/proc`. Blocks.
pub fn export_otlp() -> Vec<u8> {
    let metrics = PROVIDER.get().map(Provider::collect).unwrap_or_default();
    ExportMetricsServiceRequest::from(&metrics).encode_to_vec()
}

/// The reader for scrapes and for OTLP. The provider and the functions that export share it.
#[derive(Debug, Clone)]
struct ScrapeReader(Arc<ManualReader>);

impl MetricReader for ScrapeReader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> AgentName {
        "demo".parse().unwrap()
    }

    #[test]
    fn counters_histograms_and_gauges_are_written_in_both_formats() {
        let provider = Provider::new();
        let metrics = &provider.metrics;
        metrics.prompts(&agent(), "end_turn", 2);
        metrics.commit_duration(0.0002);
        metrics.commit_duration(20.0);
        metrics.disk_free(|observe| observe(7));
        let held = metrics.streams("sse");
        drop(metrics.streams("sse"));
        let text = provider.export(TextFormat::Prometheus);
        for lines in [
            "# TYPE acp_gateway_prompts_total counter\nacp_gateway_prompts_total{agent=\"demo\",outcome=\"end_turn\"} 2\n",
            "# TYPE acp_gateway_log_commit_duration_seconds histogram\nacp_gateway_log_commit_duration_seconds_bucket{le=\"0.0001\"} 0\n\
             acp_gateway_log_commit_duration_seconds_bucket{le=\"0.00025\"} 1\n",
            "acp_gateway_log_commit_duration_seconds_bucket{le=\"10.0\"} 1\nacp_gateway_log_commit_duration_seconds_bucket{le=\"+Inf\"} 2\n\
             acp_gateway_log_commit_duration_seconds_sum 20.0002\nacp_gateway_log_commit_duration_seconds_count 2\n",
            "# TYPE acp_gateway_disk_free_bytes gauge\nacp_gateway_disk_free_bytes 7\n",
            "acp_gateway_streams_open{kind=\"sse\"} 1\n",
        ] {
            assert!(text.contains(lines), "{lines}\n{text}");
        }
        drop(held);
        let text = provider.export(TextFormat::OpenMetrics);
        for lines in [
            "# TYPE acp_gateway_prompts counter\nacp_gateway_prompts_total{agent=\"demo\",outcome=\"end_turn\"} 2\n",
            "# TYPE acp_gateway_disk_free_bytes gauge\n# UNIT acp_gateway_disk_free_bytes bytes\n",
            "acp_gateway_streams_open{kind=\"sse\"} 0\n",
        ] {
            assert!(text.contains(lines), "{lines}\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n"), "{text}");
    }

    #[test]
    fn instruments_have_distinct_names_and_need_no_escapes() {
        let mut names: Vec<String> = INSTRUMENTS.iter().map(Instrument::exported_name).collect();
        names.sort();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        for instrument in INSTRUMENTS {
            let meaning = instrument.meaning;
            assert!(
                meaning.ends_with('.') && !meaning.contains(['\\', '"', '\n']),
                "{meaning}"
            );
        }
    }

    #[test]
    fn recordings_before_the_start_have_no_effect() {
        metrics().log_events(1);
        assert_eq!(export(TextFormat::Prometheus), "");
    }
}
