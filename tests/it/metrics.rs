//! `GET /metrics`: who may read it, its two formats, and every instrument of the table.

use std::collections::{BTreeMap, BTreeSet};

use base::telemetry::metrics::{INSTRUMENTS, Instrument, Kind};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::key_life::{key, key_command};
use crate::support::gateway::KEY;
use crate::support::places::fake_agent;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Gateway, Setup};

const OPEN_METRICS: &str = "application/openmetrics-text";
/// The header of a Prometheus 3.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
    application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
    text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
const SECRET_TEXT: &str = "a-word-of-a-prompt";

/// The name of a sample and its labels.
type Series = (String, BTreeMap<String, String>);

/// A scrape in the text format 0.0.4.
#[derive(Debug, Default)]
struct Scrape {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<Series, f64>,
}

impl Scrape {
    fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        for line in text.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a name and a type");
                let previous = scrape.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(previous, None, "two families {name}");
            } else if !line.starts_with("# HELP ") {
                let (series, value) = parse_sample(line);
                let family = scrape.family(&series.0);
                assert!(family.is_some(), "a sample before its type: {line}");
                let previous = scrape.samples.insert(series, value);
                assert_eq!(previous, None, "two samples: {line}");
            }
        }
        scrape
    }

    /// The family of a sample, which has its own name or that of a histogram.
    fn family(&self, sample: &str) -> Option<&str> {
        let parts = ["_bucket", "_sum", "_count"];
        let histogram = parts.iter().find_map(|part| sample.strip_suffix(part));
        let histogram = histogram.filter(|name| {
            self.kinds
                .get(*name)
                .is_some_and(|kind| kind == "histogram")
        });
        let family = histogram.unwrap_or(sample);
        self.kinds.get_key_value(family).map(|(name, _)| &**name)
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter();
        let labels = labels.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        self.samples
            .get(&(name.to_owned(), labels.collect()))
            .copied()
    }

    fn series(&self) -> BTreeSet<Series> {
        self.samples.keys().cloned().collect()
    }

    /// The samples of an instrument: those with its name, or the parts of a histogram.
    fn of(&self, instrument: &Instrument) -> Vec<(&Series, f64)> {
        let name = instrument.exported_name();
        let samples = self.samples.iter();
        let own = samples.filter(|((sample, _), _)| self.family(sample) == Some(&*name));
        own.map(|(series, value)| (series, *value)).collect()
    }

    /// The buckets of a histogram are cumulative, and the last one contains all values.
    fn check_histogram(&self, name: &str) {
        let mut found = 0;
        for ((sample, labels), count) in &self.samples {
            if *sample != format!("{name}_count") {
                continue;
            }
            found += 1;
            let of_series = |((sample, with_bound), value): (&Series, &f64)| {
                let mut others = with_bound.clone();
                let bound = others.remove("le")?;
                let bound = bound
                    .replace("+Inf", "inf")
                    .parse::<f64>()
                    .expect("a bound");
                (*sample == format!("{name}_bucket") && others == *labels)
                    .then_some((bound, *value))
            };
            let mut buckets: Vec<(f64, f64)> = self.samples.iter().filter_map(of_series).collect();
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(
                buckets.len() > 3 && buckets.is_sorted_by_key(|bucket| bucket.1),
                "{name}: {buckets:?}"
            );
            assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{name}");
        }
        assert!(found > 0, "{name} has no values");
    }
}

/// Parses `name{key="value",...} number`.
fn parse_sample(line: &str) -> (Series, f64) {
    let is_name = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let (series, value) = line.rsplit_once(' ').expect("a value");
    let value = value.parse().expect("a number");
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').expect("the end of labels")),
        None => (series, ""),
    };
    assert!(is_name(name), "{line}");
    let mut parsed = BTreeMap::new();
    let mut rest = labels;
    while !rest.is_empty() {
        let (key, after) = rest.split_once("=\"").expect("a label");
        let (text, after) = after.split_once('"').expect("the end of a value");
        assert!(is_name(key) && !text.contains('\\'), "{line}");
        let previous = parsed.insert(key.to_owned(), text.to_owned());
        assert_eq!(previous, None, "{line}");
        rest = match after.strip_prefix(',') {
            Some(next) => next,
            None if after.is_empty() => after,
            None => panic!("{line}"),
        };
    }
    ((name.to_owned(), parsed), value)
}

async fn scrape_text(gateway: &Gateway, key: &str, accept: &str) -> (String, String) {
    let request = gateway.http.get(format!("{}/metrics", gateway.url));
    let response = request.bearer_auth(key).header("Accept", accept).send();
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    let kind = response.headers()["content-type"].to_str().expect("ASCII");
    let kind = kind.to_owned();
    (kind, response.text().await.expect("a text"))
}

async fn scrape(gateway: &Gateway) -> Scrape {
    let (kind, text) = scrape_text(gateway, KEY, "text/plain").await;
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    assert!(
        !text.contains(SECRET_TEXT) && !text.contains(KEY),
        "a text of a client is in the metrics"
    );
    Scrape::parse(&text)
}

/// Waits until a sample has this value.
async fn until(gateway: &Gateway, name: &str, labels: &[(&str, &str)], value: f64) {
    let what = format!("{name} {labels:?} is {value}");
    eventually(&what, LONGEST, || async {
        let found = scrape(gateway).await.value(name, labels);
        (found == Some(value)).then_some(())
    })
    .await;
}

/// Causes every instrument of the table at least once.
pub(crate) async fn scenario(gateway: &Gateway) {
    let webhook = json!({ "url": "https://localhost:1/", "events": ["prompt.completed"] });
    let (status, made) = gateway.post("/v1/webhooks", &webhook).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");

    let session = gateway.session("fake").await;
    gateway.turn(&session, &format!("echo {SECRET_TEXT}")).await;
    let usage = r#"raw end {"stopReason":"max_tokens","usage":{"inputTokens":5,"outputTokens":7,"totalTokens":12}}"#;
    gateway.turn(&session, usage).await;
    let unknown = r#"raw end {"stopReason":"a-word-of-a-prompt"}"#;
    gateway.turn(&session, unknown).await;
    gateway.turn(&session, "garbage n=5").await;

    gateway.prompt(&session, "permission").await;
    let mut events = gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    let request = events.pop().expect("the request")["requestId"].clone();
    let request = request.as_str().expect("an id");
    until(
        gateway,
        "acp_gateway_agent_requests_open",
        &[("kind", "permission")],
        1.0,
    )
    .await;
    until(
        gateway,
        "acp_gateway_sessions_loaded",
        &[("state", "waiting")],
        1.0,
    )
    .await;
    let answer = format!("/v1/sessions/{session}/permissions/{request}");
    let (status, answered) = gateway.post(&answer, &json!({ "optionId": "allow" })).await;
    assert!(status.is_success(), "{answered}");
    let is_end = |event: &Value| event["type"] == "prompt.completed" && event["promptId"] == "p5";
    gateway.log_until(&session, is_end).await;

    gateway.turn(&session, "crash code=42").await;
    let broken = json!({ "agent": "broken" });
    let (status, failed) = gateway.post("/v1/sessions", &broken).await;
    assert!(status.is_server_error(), "{failed}");

    // The second session takes the only process from the first one.
    for _ in 0..2 {
        let session = gateway.session("single").await;
        gateway.turn(&session, "echo one").await;
    }

    let own = key(gateway, "reader", "read").await;
    let url = format!("{}/v1/events/stream", gateway.url);
    let mut stream = gateway.http.get(url).bearer_auth(&own).send().await;
    let stream = stream.as_mut().expect("a stream");
    key_command(gateway, &["revoke", "reader"]);
    while stream.chunk().await.expect("the stream ends").is_some() {}

    let unknown = gateway.http.get(format!("{}/v1", gateway.url)).send();
    let status = unknown.await.expect("an answer").status();
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    // Nobody listens, so all of them wait for another attempt. The streams of the helpers end with their clients.
    until(gateway, "acp_gateway_webhook_pending", &[], 7.0).await;
    let retried = &[("outcome", "retried")];
    until(gateway, "acp_gateway_webhook_attempts_total", retried, 7.0).await;
    let kind = &[("kind", "events")];
    until(gateway, "acp_gateway_streams_open", kind, 0.0).await;
}

pub(crate) fn setup() -> Setup {
    Setup::fake(&[])
        .agent("broken", fake_agent(), &["--exit-at-start", "3"], "")
        .agent(
            "single",
            fake_agent(),
            &[],
            "pool = { max_size = 1, min_idle = 0 }\n",
        )
        .settings("testing.webhooks_to_loopback = true\ntesting.webhook_retry_unit = \"1h\"")
        .settings("webhooks.allowed_hosts = [\"localhost\"]")
}

#[tokio::test]
async fn each_instrument_of_the_table_is_exported_with_its_labels_and_its_count() {
    let gateway = setup().start();
    scenario(&gateway).await;
    let found = scrape(&gateway).await;
    let known: BTreeSet<String> = INSTRUMENTS.iter().map(Instrument::exported_name).collect();
    let exported: BTreeSet<String> = found.kinds.keys().cloned().collect();
    assert_eq!(exported, known, "left: the scrape, right: the table");
    for instrument in INSTRUMENTS {
        let name = instrument.exported_name();
        let kind = match instrument.kind {
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
            Kind::Gauge => "gauge",
        };
        assert_eq!(found.kinds[&name], kind, "{name}");
        let samples = found.of(instrument);
        assert!(!samples.is_empty(), "{name} has no sample");
        let expected: BTreeSet<String> = instrument
            .labels
            .iter()
            .map(|label| label.replace('.', "_"))
            .collect();
        for ((_, labels), _) in &samples {
            let mut labels: BTreeSet<String> = labels.keys().cloned().collect();
            labels.remove("le");
            assert_eq!(labels, expected, "{name}");
        }
        if instrument.kind == Kind::Histogram {
            found.check_histogram(&name);
        }
    }

    let fake = ("agent", "fake");
    let of_fake = ("gen_ai_agent_name", "fake");
    for (name, labels, value) in [
        (
            "acp_gateway_prompts_total",
            &[fake, ("outcome", "end_turn")][..],
            3.0,
        ),
        (
            "acp_gateway_prompts_total",
            &[fake, ("outcome", "max_tokens")],
            1.0,
        ),
        (
            "acp_gateway_prompts_total",
            &[fake, ("outcome", "other")],
            1.0,
        ),
        (
            "acp_gateway_prompts_total",
            &[fake, ("outcome", "agent_exited")],
            1.0,
        ),
        ("acp_gateway_turn_duration_seconds_count", &[fake], 6.0),
        ("acp_gateway_prompt_wait_seconds_count", &[fake], 6.0),
        (
            "acp_gateway_agent_starts_total",
            &[fake, ("outcome", "ok")],
            1.0,
        ),
        (
            "acp_gateway_agent_start_duration_seconds_count",
            &[fake],
            1.0,
        ),
        (
            "acp_gateway_agent_exits_total",
            &[fake, ("cause", "exit")],
            1.0,
        ),
        ("acp_gateway_agent_invalid_lines_total", &[fake], 5.0),
        (
            "acp_gateway_agent_starts_total",
            &[("agent", "broken"), ("outcome", "agent_exited")],
            1.0,
        ),
        (
            "acp_gateway_pool_evictions_total",
            &[("agent", "single")],
            1.0,
        ),
        ("acp_gateway_pool_waiting", &[("agent", "single")], 0.0),
        (
            "gen_ai_client_token_usage_sum",
            &[of_fake, ("gen_ai_token_type", "input")],
            5.0,
        ),
        (
            "gen_ai_client_token_usage_sum",
            &[of_fake, ("gen_ai_token_type", "output")],
            7.0,
        ),
        (
            "acp_gateway_agent_request_duration_seconds_count",
            &[("kind", "permission"), ("outcome", "answered")],
            1.0,
        ),
        (
            "acp_gateway_agent_requests_open",
            &[("kind", "permission")],
            0.0,
        ),
        (
            "acp_gateway_stream_evictions_total",
            &[("reason", "key_ended")],
            1.0,
        ),
        (
            "http_server_request_duration_seconds_count",
            &[
                ("http_request_method", "POST"),
                ("http_response_status_code", "201"),
                ("http_route", "/v1/sessions"),
            ],
            3.0,
        ),
        (
            "acp_gateway_build_info",
            &[("version", env!("CARGO_PKG_VERSION"))],
            1.0,
        ),
    ] {
        assert_eq!(found.value(name, labels), Some(value), "{name} {labels:?}");
    }
    for (name, labels) in [
        (
            "acp_gateway_rejections_total",
            &[("reason", "missing_key")][..],
        ),
        ("acp_gateway_sessions_stored", &[]),
        ("acp_gateway_log_size_bytes", &[]),
        ("acp_gateway_disk_free_bytes", &[]),
        ("process_memory_usage_bytes", &[]),
        ("process_cpu_time_seconds_total", &[]),
        ("process_unix_file_descriptor_count", &[]),
        ("process_start_time_seconds", &[]),
    ] {
        let value = found.value(name, labels);
        assert!(value.is_some_and(|value| value > 0.0), "{name}: {value:?}");
    }
    let committed = found.value("acp_gateway_log_events_total", &[]);
    assert!(committed > Some(10.0), "{committed:?}");
}

#[tokio::test]
async fn twenty_sessions_have_no_more_series_than_two() {
    let gateway = setup().start();
    let run = async |count: usize| {
        for _ in 0..count {
            let session = gateway.session("single").await;
            gateway.turn(&session, "echo one").await;
        }
        let idle = &[("kind", "turn")];
        until(&gateway, "acp_gateway_streams_open", idle, 0.0).await;
        scrape(&gateway).await.series()
    };
    // The second session takes the process of the first one.
    let two = run(2).await;
    let many = run(20).await;
    let added: Vec<&Series> = many.difference(&two).collect();
    assert_eq!(added, Vec::<&Series>::new());
}

#[tokio::test]
async fn only_keys_with_the_scope_scrape_and_they_may_do_nothing_else() {
    let gateway = Setup::fake(&[]).start();
    let by = |key: &str, method: Method, path: &str| {
        let url = format!("{}{path}", gateway.url);
        gateway.http.request(method, url).bearer_auth(key)
    };
    let scraper = key(&gateway, "prometheus", "metrics").await;
    let (kind, text) = scrape_text(&gateway, &scraper, "*/*").await;
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    assert!(text.contains("acp_gateway_build_info"), "{text}");
    for (method, path) in [
        (Method::GET, "/v1/sessions"),
        (Method::POST, "/v1/sessions"),
        (Method::GET, "/v1/events"),
        (Method::GET, "/v1/agents"),
        (Method::GET, "/v1/fleet"),
        (Method::GET, "/v1/audit"),
        (Method::POST, "/acp"),
    ] {
        let request = by(&scraper, method, path).json(&json!({ "agent": "fake" }));
        let status = request.send().await.expect("an answer").status();
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}");
    }
    let person = key(&gateway, "person", "read,prompt,approve,files,mcp,fleet").await;
    let refused = Answer::of(by(&person, Method::GET, "/metrics")).await;
    assert_eq!(
        refused.problem(403, "forbidden")["requiredScope"],
        "metrics"
    );
    let unknown = gateway.http.get(format!("{}/metrics", gateway.url));
    Answer::of(unknown).await.problem(401, "unauthorized");
    let other = by(KEY, Method::GET, "/metrics").header("Accept", "application/json");
    Answer::of(other).await.problem(406, "not_acceptable");
}

#[tokio::test]
async fn open_metrics_is_written_if_the_client_prefers_it() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    let (kind, text) = scrape_text(&gateway, KEY, ACCEPT).await;
    assert!(kind.starts_with(OPEN_METRICS), "{kind}");
    let (families, end) = text.split_at(text.len() - "# EOF\n".len());
    assert_eq!(end, "# EOF\n");
    let lines = [
        "# TYPE acp_gateway_prompts counter",
        r#"acp_gateway_prompts_total{agent="fake",outcome="end_turn"} 1"#,
        "# TYPE acp_gateway_log_size_bytes gauge",
        "# UNIT acp_gateway_log_size_bytes bytes",
    ];
    for line in lines {
        assert!(
            families.lines().any(|found| found == line),
            "{line}\n{text}"
        );
    }
    let is_total = |line: &&str| line.starts_with('#') && line.contains("_total ");
    assert_eq!(families.lines().find(is_total), None);
    assert!(families.lines().all(|line| !line.is_empty()));
}

#[tokio::test]
async fn stream_of_a_client_that_does_not_read_is_behind_until_the_client_has_read_all() {
    let gateway = Setup::fake(&[])
        .settings("testing.send_buffer_bytes = \"32KiB\"\ntesting.write_stall_timeout = \"10m\"")
        .start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/events");
    let mut stalled = gateway.events(&path).await;
    let mut reader = gateway.events(&path).await;
    // More than the buffers of the connection hold.
    gateway.prompt(&session, "flood n=12000 size=1000").await;
    reader.until("prompt.completed").await;
    until(&gateway, "acp_gateway_streams_behind", &[], 1.0).await;
    let lag = scrape(&gateway)
        .await
        .value("acp_gateway_stream_lag_seconds", &[]);
    assert!(lag > Some(1.0), "{lag:?}");
    stalled.until("prompt.completed").await;
    until(&gateway, "acp_gateway_streams_behind", &[], 0.0).await;
    let lag = scrape(&gateway)
        .await
        .value("acp_gateway_stream_lag_seconds", &[]);
    assert_eq!(lag, Some(0.0));
}
