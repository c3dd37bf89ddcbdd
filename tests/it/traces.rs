//! Traces and metrics over OTLP: one trace of a prompt, the context for the agent, and collectors that fail.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use memchr::memmem;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AttributeValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::collector::{Collector, Export};
use crate::support::gateway::KEY;
use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup, eventually};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";
/// A part of every text of the client and of the agent.
const CANARY: &str = "a-text-that-no-span-contains";
const COLLECTOR_KEY: &str = "a-key-of-the-collector";
const TURN: &str = "invoke_agent fake";
const POST_PROMPT: &str = "POST /v1/sessions/{session}/prompts";
const TURNS: u32 = 10;
/// A request to a collector that does not answer lasts ten seconds.
const POST_TIMEOUT: Duration = Duration::from_secs(10);

fn exporting(url: &str) -> Setup {
    Setup::fake(&["--log", "received"])
        .settings(&format!("telemetry.otlp_endpoint = {url:?}"))
        .settings(&format!(
            "telemetry.otlp_headers = {{ x-key = {COLLECTOR_KEY:?} }}"
        ))
}

fn line(update: &Value) -> String {
    json!({
        "jsonrpc": "2.0",
        "method": "session/update",
        "params": { "sessionId": "$SESSION", "update": update },
    })
    .to_string()
}

/// A prompt whose turn has two tool calls, a permission and tokens.
fn scripted() -> String {
    let call = |id: &str, kind: &str| {
        line(&json!({
            "sessionUpdate": "tool_call",
            "toolCallId": id,
            "title": CANARY,
            "kind": kind,
            "status": "in_progress",
            "rawInput": { "path": CANARY },
        }))
    };
    let ended = |id: &str, status: &str| {
        line(&json!({
            "sessionUpdate": "tool_call_update",
            "toolCallId": id,
            "status": status,
            "rawOutput": CANARY,
        }))
    };
    let permission = json!({
        "jsonrpc": "2.0",
        "id": "q",
        "method": "session/request_permission",
        "params": {
            "sessionId": "$SESSION",
            "toolCall": { "toolCallId": "second", "title": CANARY, "kind": "execute" },
            "options": [{ "optionId": "allow", "name": CANARY, "kind": "allow_once" }],
        },
    });
    let answer = line(&json!({
        "sessionUpdate": "agent_message_chunk",
        "content": { "type": "text", "text": CANARY },
    }));
    let usage = json!({ "inputTokens": 5, "outputTokens": 7, "totalTokens": 12 });
    let end = json!({ "stopReason": "end_turn", "usage": usage });
    let lines = [
        call("first", "read"),
        ended("first", "completed"),
        call("second", "execute"),
        permission.to_string(),
        ended("second", "failed"),
        answer,
        format!("end {end}"),
    ];
    format!("raw {}", lines.join("\n"))
}

impl Gateway {
    /// Starts a turn as a part of the client's trace.
    async fn traced_prompt(&self, session: &str, traceparent: &str, text: &str) {
        let path = format!("/v1/sessions/{session}/prompts");
        let request = self
            .request(Method::POST, &path)
            .header("traceparent", traceparent)
            .header("tracestate", "v=1")
            .json(&json!({ "prompt": text }));
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), StatusCode::ACCEPTED);
    }

    /// `_meta` of the only prompt that the agent received.
    fn meta_of_prompt(&self) -> Value {
        let received = std::fs::read_to_string(self.path("data/homes/default/fake/received"));
        let received = received.expect("the agent has a log");
        let line = received
            .lines()
            .find(|line| line.contains("\"method\":\"session/prompt\""));
        let message: Value = serde_json::from_str(line.expect("a prompt")).expect("JSON");
        message["params"]["_meta"].clone()
    }
}

fn hex(id: &[u8]) -> String {
    let digit = |digit: u8| char::from_digit(u32::from(digit), 16).expect("a hex digit");
    let digits = id.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}

fn spans(exports: &[Export]) -> Vec<Span> {
    let of_traces = exports.iter().filter(|export| export.path == "/v1/traces");
    let requests =
        of_traces.map(|export| ExportTraceServiceRequest::decode(&*export.body).expect("spans"));
    let resources = requests.flat_map(|request| request.resource_spans);
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn attribute<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a AttributeValue> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.as_ref()?.value.as_ref()
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    match attribute(&span.attributes, key)? {
        AttributeValue::StringValue(text) => Some(text),
        other => panic!("{key} is {other:?}"),
    }
}

fn number(span: &Span, key: &str) -> Option<i64> {
    match attribute(&span.attributes, key)? {
        AttributeValue::IntValue(number) => Some(*number),
        other => panic!("{key} is {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_the_client_over_the_queue_and_the_turn_to_its_tools() {
    let mut collector = Collector::start().await;
    let mut gateway = exporting(&collector.url()).start();
    let session = gateway.session("fake").await;
    let traceparent = format!("00-{TRACE}-{CLIENT_SPAN}-01");
    gateway
        .traced_prompt(&session, &traceparent, &scripted())
        .await;
    let is_request = |event: &Value| event["type"] == "request.created";
    let mut events = gateway.log_until(&session, is_request).await;
    let request = events.pop().expect("the request")["requestId"].clone();
    let request = request.as_str().expect("an id");
    let path = format!("/v1/sessions/{session}/permissions/{request}");
    let (status, answered) = gateway.post(&path, &json!({ "optionId": "allow" })).await;
    assert!(status.is_success(), "{answered}");
    let is_end = |event: &Value| event["type"] == "prompt.completed";
    gateway.log_until(&session, is_end).await;
    let unknown = gateway.http.get(format!("{}/v1/sessions", gateway.url));
    let rejected = unknown
        .bearer_auth("unknown")
        .send()
        .await
        .expect("an answer");
    assert_eq!(rejected.status(), StatusCode::UNAUTHORIZED);
    let meta = gateway.meta_of_prompt();
    assert_eq!(gateway.stop(), Some(0));

    let exports = collector.received();
    let all = spans(&exports);
    let rejected = all
        .iter()
        .find(|span| number(span, "http.response.status_code") == Some(401));
    assert_eq!(rejected, None, "strangers could fill the collector");
    let of_trace: BTreeMap<&str, &Span> = all
        .iter()
        .filter(|span| hex(&span.trace_id) == TRACE)
        .map(|span| (&*span.name, span))
        .collect();
    let names: BTreeMap<String, &str> = of_trace
        .iter()
        .map(|(name, span)| (hex(&span.span_id), *name))
        .collect();
    let parents: Vec<(&str, &str)> = of_trace
        .iter()
        .map(|(name, span)| {
            let parent = hex(&span.parent_span_id);
            let known = names.get(&parent).copied();
            let parent = known.unwrap_or_else(|| {
                assert_eq!(parent, CLIENT_SPAN, "the parent of {name}");
                "client"
            });
            (*name, parent)
        })
        .collect();
    assert_eq!(
        parents,
        [
            (POST_PROMPT, "client"),
            ("execute_tool execute", TURN),
            ("execute_tool read", TURN),
            (TURN, POST_PROMPT),
            ("queue", TURN),
            ("wait permission", TURN),
        ]
    );
    let in_trace = all.iter().filter(|span| hex(&span.trace_id) == TRACE);
    assert_eq!(in_trace.count(), parents.len(), "each span ends once");

    let posted = of_trace[POST_PROMPT];
    assert_eq!(number(posted, "http.response.status_code"), Some(202));
    assert_eq!(text(posted, "http.request.method"), Some("POST"));
    let turn = of_trace[TURN];
    assert_eq!(text(turn, "gen_ai.operation.name"), Some("invoke_agent"));
    assert_eq!(text(turn, "gen_ai.agent.name"), Some("fake"));
    assert_eq!(text(turn, "gen_ai.conversation.id"), Some(&*session));
    assert_eq!(number(turn, "gen_ai.usage.input_tokens"), Some(5));
    assert_eq!(number(turn, "gen_ai.usage.output_tokens"), Some(7));
    let reasons = attribute(&turn.attributes, "gen_ai.response.finish_reasons");
    let Some(AttributeValue::ArrayValue(reasons)) = reasons else {
        panic!("{reasons:?}")
    };
    let reason = reasons.values[0].value.clone();
    let expected = AttributeValue::StringValue("end_turn".to_owned());
    assert_eq!(reason, Some(expected));
    let failed = text(of_trace["execute_tool execute"], "error.type");
    assert_eq!(failed, Some("tool_call_failed"));
    assert_eq!(text(of_trace["execute_tool read"], "error.type"), None);
    let resolution = text(
        of_trace["wait permission"],
        "acp_gateway.request.resolution",
    );
    assert_eq!(resolution, Some("answered"));
    for span in of_trace.values() {
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
        assert!(
            span.start_time_unix_nano >= posted.start_time_unix_nano,
            "{} begins before the request",
            span.name
        );
    }

    let context = format!("00-{TRACE}-{}-01", hex(&turn.span_id));
    assert_eq!(
        meta,
        json!({ "traceparent": context, "tracestate": "v=1" }),
        "the spans of the agent are below the turn"
    );
    assert!(
        gateway.log().contains(&format!("\"trace\":{TRACE:?}")),
        "log lines of the request name the trace: {}",
        gateway.log()
    );
    for export in &exports {
        assert_eq!(export.headers["x-key"], COLLECTOR_KEY);
        assert_eq!(export.headers["content-type"], "application/x-protobuf");
        for secret in [CANARY, KEY, COLLECTOR_KEY] {
            let found = memmem::find(&export.body, secret.as_bytes());
            assert_eq!(found, None, "{secret} in a body of {}", export.path);
        }
    }
    assert!(!gateway.log().contains(COLLECTOR_KEY));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_exported_at_the_start_and_at_the_stop() {
    let mut collector = Collector::start().await;
    let mut gateway = exporting(&collector.url()).start();
    let first = loop {
        let export = collector.next().await;
        if export.path == "/v1/metrics" {
            break export;
        }
    };
    let request = ExportMetricsServiceRequest::decode(&*first.body).expect("metrics");
    let resource = request.resource_metrics[0].resource.as_ref();
    let resource = &resource.expect("a resource").attributes;
    let name = AttributeValue::StringValue("acp-gateway".to_owned());
    assert_eq!(attribute(resource, "service.name"), Some(&name));
    assert!(attribute(resource, "service.instance.id").is_some());

    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo hello").await;
    assert_eq!(gateway.stop(), Some(0));
    let exports = collector.received();
    let last = exports
        .iter()
        .rfind(|export| export.path == "/v1/metrics")
        .expect("metrics at the stop");
    let request = ExportMetricsServiceRequest::decode(&*last.body).expect("metrics");
    let resources = request.resource_metrics.into_iter();
    let scopes = resources.flat_map(|resource| resource.scope_metrics);
    let mut metrics = scopes.flat_map(|scope| scope.metrics);
    let prompts = metrics.find(|metric| metric.name == "acp_gateway.prompts");
    let Some(Data::Sum(prompts)) = prompts.and_then(|prompts| prompts.data) else {
        panic!("no counter of prompts")
    };
    let [point] = &*prompts.data_points else {
        panic!("{prompts:?}")
    };
    let outcome = AttributeValue::StringValue("end_turn".to_owned());
    assert_eq!(attribute(&point.attributes, "outcome"), Some(&outcome));
    assert!(prompts.is_monotonic);
}

#[tokio::test(flavor = "multi_thread")]
async fn unsampled_trace_has_no_spans_and_its_context_reaches_the_agent() {
    let mut collector = Collector::start().await;
    let mut gateway = exporting(&collector.url()).start();
    let session = gateway.session("fake").await;
    let traceparent = format!("00-{TRACE}-{CLIENT_SPAN}-00");
    gateway
        .traced_prompt(&session, &traceparent, "echo hello")
        .await;
    let is_end = |event: &Value| event["type"] == "prompt.completed";
    gateway.log_until(&session, is_end).await;
    let context = json!({ "traceparent": traceparent, "tracestate": "v=1" });
    assert_eq!(gateway.meta_of_prompt(), context);
    assert_eq!(gateway.stop(), Some(0));
    let all = spans(&collector.received());
    assert!(all.iter().any(|span| span.name == "POST /v1/sessions"));
    let of_trace = all.iter().find(|span| hex(&span.trace_id) == TRACE);
    assert_eq!(of_trace, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_context_of_a_client_begins_a_trace_without_its_state() {
    let collector = Collector::start().await;
    let gateway = exporting(&collector.url()).start();
    let session = gateway.session("fake").await;
    let upper = TRACE.to_uppercase();
    gateway
        .traced_prompt(
            &session,
            &format!("00-{upper}-{CLIENT_SPAN}-01"),
            "echo hello",
        )
        .await;
    let is_end = |event: &Value| event["type"] == "prompt.completed";
    gateway.log_until(&session, is_end).await;
    let meta = gateway.meta_of_prompt();
    let parent = meta["traceparent"].as_str().expect("a new trace");
    assert!(!parent.contains(TRACE), "{parent}");
    assert_eq!(meta.get("tracestate"), None);
}

/// Runs some turns and a stop, none of which waits for the collector.
async fn works_without(gateway: &mut Gateway) {
    let began = Instant::now();
    let session = gateway.session("fake").await;
    for _ in 0..TURNS {
        gateway.turn(&session, "echo hello").await;
    }
    assert!(
        began.elapsed() < POST_TIMEOUT * TURNS / 3,
        "{}",
        gateway.log()
    );
}

fn warnings(gateway: &Gateway) -> usize {
    gateway.log().matches("could not send telemetry").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_that_is_down_or_rejects_requests_costs_one_warning() {
    let mut rejecting = Collector::answering(StatusCode::INTERNAL_SERVER_ERROR).await;
    let mut gateway = exporting(&rejecting.url()).start();
    works_without(&mut gateway).await;
    for _ in 0..2 {
        rejecting.next().await;
    }
    assert_eq!(gateway.stop(), Some(0));
    assert_eq!(warnings(&gateway), 1, "{}", gateway.log());
    assert!(gateway.log().contains("500 Internal Server Error"));

    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("it is bound");
    drop(free);
    let mut gateway = exporting(&format!("http://{address}")).start();
    works_without(&mut gateway).await;
    eventually("a warning", LONGEST, || async {
        (warnings(&gateway) > 0).then_some(())
    })
    .await;
    assert_eq!(gateway.stop(), Some(0));
    assert_eq!(warnings(&gateway), 1, "{}", gateway.log());
    assert!(!gateway.log().contains(COLLECTOR_KEY));
}

#[tokio::test]
async fn collector_that_never_answers_delays_no_turn_and_no_stop() {
    // The system accepts its connections.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("it is bound");
    let mut gateway = exporting(&format!("http://{address}")).start();
    works_without(&mut gateway).await;
    let stopped = Instant::now();
    assert_eq!(gateway.stop(), Some(0));
    assert!(stopped.elapsed() < POST_TIMEOUT, "{}", gateway.log());
}
