//! Telemetry: OTLP over HTTP to the receiver that the environment names, as an SDK of OpenTelemetry sends it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message as _;

use super::script::Command;
use super::turn::{End, Step, Turn};

pub(crate) fn play(turn: &Turn, command: &Command<'_>) -> Option<Step> {
    (command.name == "telemetry").then(|| send(turn, command))
}

/// Sends the statuses of the answers.
fn send(turn: &Turn, command: &Command<'_>) -> Step {
    let Some(receiver) = variable("OTEL_EXPORTER_OTLP_ENDPOINT") else {
        turn.say("no receiver");
        return Ok(());
    };
    let body = spans(command.number("bytes", 0));
    let path = format!("/v1/{}", command.text("signal", "traces"));
    let statuses = (0..command.number("n", 1)).map(|_| post(&receiver, &path, &body));
    let statuses: Result<Vec<String>, std::io::Error> = statuses.collect();
    let statuses = statuses.map_err(|error| End::Error(-32603, error.to_string()))?;
    turn.say(&statuses.join(" "));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "an agent reads its environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A request with a span of at least this size. Its resource claims to be another agent.
fn spans(bytes: usize) -> Vec<u8> {
    let attribute = |key: &str, value: String| KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value)),
        }),
        ..KeyValue::default()
    };
    let service = variable("OTEL_SERVICE_NAME").unwrap_or_default();
    let span = Span {
        name: "work of an agent".to_owned(),
        attributes: vec![attribute("text", "x".repeat(bytes))],
        ..Span::default()
    };
    let resource = Resource {
        attributes: vec![
            attribute("service.name", service),
            attribute("acp_gateway.agent", "forged".to_owned()),
        ],
        ..Resource::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource),
            scope_spans: vec![ScopeSpans {
                spans: vec![span],
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    };
    request.encode_to_vec()
}

/// The status of the answer.
fn post(receiver: &str, path: &str, body: &[u8]) -> std::io::Result<String> {
    let address = receiver.trim_start_matches("http://");
    let headers = variable("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default();
    let headers = headers.replacen('=', ": ", 1).replace("%20", " ");
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/x-protobuf\r\ncontent-length: {length}\r\n\
         connection: close\r\n{headers}\r\n\r\n"
    );
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer.split(' ').nth(1).unwrap_or("none").to_owned())
}
