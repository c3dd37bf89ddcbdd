//! Telemetry of agents: the receiver on loopback, its tokens and limits, and what reaches the collector of the operator.

use std::collections::BTreeMap;

use memchr::memmem;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as AttributeValue;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;
use reqwest::{RequestBuilder, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::attacks::surfaces::check;
use crate::support::collector::{Collector, Export};
use crate::support::places::fake_agent;
use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup, eventually};

const ENTRY: &str = "telemetry = true\n";
const ONE_PROCESS: &str = "telemetry = true\npool = { max_size = 1, min_idle = 0 }\n";
const PROTOBUF: &str = "application/x-protobuf";
/// The name of the fake agent's span.
const SPAN: &str = "work of an agent";

fn exporting(setup: Setup, collector: &Collector) -> Setup {
    setup.settings(&format!("telemetry.otlp_endpoint = {:?}", collector.url()))
}

/// The next request of an agent. The gateway sends its own telemetry to the same collector.
async fn next_of_agent(collector: &mut Collector) -> Export {
    loop {
        let export = collector.next().await;
        if memmem::find(&export.body, SPAN.as_bytes()).is_some() {
            return export;
        }
    }
}

/// The texts among the attributes of the resource of a request with one resource.
fn attributes(export: &Export) -> BTreeMap<String, String> {
    let request = ExportTraceServiceRequest::decode(&*export.body).expect("spans");
    let [block] = &*request.resource_spans else {
        panic!("{request:?}");
    };
    assert_eq!(block.scope_spans[0].spans[0].name, SPAN);
    let Resource { attributes, .. } = block.resource.as_ref().expect("a resource");
    let texts = attributes.iter().map(|attribute| {
        let value = attribute.value.as_ref().and_then(|any| any.value.clone());
        let Some(AttributeValue::StringValue(text)) = value else {
            panic!("{attribute:?}");
        };
        (attribute.key.clone(), text)
    });
    let by_key: BTreeMap<String, String> = texts.collect();
    assert_eq!(by_key.len(), attributes.len(), "{attributes:?}");
    by_key
}

fn expected(agent: &str, session: Option<&str>) -> BTreeMap<String, String> {
    let session = session.map(|id| ("acp_gateway.session.id", id));
    let own = [
        ("service.name", agent),
        ("acp_gateway.agent", agent),
        ("acp_gateway.agent.service.name", agent),
    ];
    let all = own.into_iter().chain(session);
    all.map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// The environment of the process of a session.
async fn environment(gateway: &Gateway, session: &str) -> BTreeMap<String, String> {
    let turn = gateway.turn(session, "env").await;
    let text = turn["text"].as_str().expect("a text");
    let variables = text.lines().filter_map(|line| line.split_once('='));
    variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The receiver of a process, with its token.
struct Access {
    url: String,
    token: String,
}

impl Access {
    async fn of(gateway: &Gateway, session: &str) -> Self {
        let environment = environment(gateway, session).await;
        let header = &environment["OTEL_EXPORTER_OTLP_HEADERS"];
        let token = header.strip_prefix("authorization=Bearer%20");
        Self {
            url: environment["OTEL_EXPORTER_OTLP_ENDPOINT"].clone(),
            token: token.expect("a token").to_owned(),
        }
    }

    fn post(&self, gateway: &Gateway) -> RequestBuilder {
        let request = gateway.http.post(format!("{}/v1/traces", self.url));
        request.bearer_auth(&self.token)
    }

    /// Sends the head of a request, until the gateway reads the body.
    async fn begin_body(&self) -> TcpStream {
        let host = self.url.strip_prefix("http://").expect("a URL");
        let mut socket = TcpStream::connect(host).await.expect("it listens");
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {}\r\n\
             content-type: {PROTOBUF}\r\ncontent-length: 1000\r\nexpect: 100-continue\r\n\r\n",
            self.token
        );
        socket.write_all(head.as_bytes()).await.expect("it is open");
        let mut status = [0; 12];
        let read = timeout(LONGEST, socket.read_exact(&mut status)).await;
        read.expect("an answer in time").expect("it is open");
        assert_eq!(&status, b"HTTP/1.1 100");
        socket
    }

    /// The status of a request without spans.
    async fn status(&self, gateway: &Gateway) -> StatusCode {
        status(self.post(gateway).header("content-type", PROTOBUF)).await
    }
}

async fn status(request: RequestBuilder) -> StatusCode {
    request.send().await.expect("an answer").status()
}

#[tokio::test]
async fn spans_of_an_agent_reach_the_collector_with_agent_and_session_at_every_level() {
    let mut collector = Collector::start().await;
    let mut setup = exporting(Setup::default(), &collector);
    let levels = ["off", "private", "workspace"];
    for level in levels {
        let entry = format!("telemetry = true\nisolation = {level:?}\n");
        setup = setup.agent(level, fake_agent(), &[], &entry);
    }
    let gateway = setup.start();
    for level in levels {
        let session = gateway.session(level).await;
        let turn = gateway.turn(&session, "telemetry").await;
        assert_eq!(turn["text"], "200", "{level}: {turn}");
        let export = next_of_agent(&mut collector).await;
        assert_eq!(export.path, "/v1/traces");
        assert_eq!(export.headers["content-type"], PROTOBUF);
        assert_eq!(export.headers.get("authorization"), None);
        assert_eq!(attributes(&export), expected(level, Some(&session)));
    }
}

#[tokio::test]
async fn metrics_and_logs_of_an_agent_are_forwarded_too() {
    let mut collector = Collector::start().await;
    let gateway = exporting(Setup::fake_with(&[], ENTRY), &collector).start();
    let session = gateway.session("fake").await;
    for signal in ["metrics", "logs"] {
        let turn = gateway
            .turn(&session, &format!("telemetry signal={signal}"))
            .await;
        assert_eq!(turn["text"], "200", "{signal}");
        let export = next_of_agent(&mut collector).await;
        assert_eq!(export.path, format!("/v1/{signal}"));
        assert!(memmem::find(&export.body, session.as_bytes()).is_some());
    }
    let turn = gateway.turn(&session, "telemetry signal=profiles").await;
    assert_eq!(turn["text"], "404");
}

#[tokio::test]
async fn telemetry_of_a_process_with_several_sessions_has_no_session() {
    let mut collector = Collector::start().await;
    let setup = Setup::fake_with(&["--close"], ONE_PROCESS);
    let gateway = exporting(setup, &collector).start();
    let one = gateway.session("fake").await;
    let pid = gateway.turn(&one, "pid").await["text"].clone();
    gateway.turn(&one, "telemetry").await;
    let export = next_of_agent(&mut collector).await;
    assert_eq!(attributes(&export), expected("fake", Some(&one)));
    let other = gateway.session("fake").await;
    assert_eq!(gateway.turn(&other, "pid").await["text"], pid);
    gateway.turn(&other, "telemetry").await;
    let export = next_of_agent(&mut collector).await;
    assert_eq!(attributes(&export), expected("fake", None));
}

#[tokio::test]
async fn only_the_token_of_a_running_process_is_accepted() {
    let collector = Collector::start().await;
    let gateway = exporting(Setup::fake_with(&[], ENTRY), &collector).start();
    let session = gateway.session("fake").await;
    let access = Access::of(&gateway, &session).await;
    assert_eq!(access.status(&gateway).await, StatusCode::OK);
    let request = || {
        let request = gateway.http.post(format!("{}/v1/traces", access.url));
        request.header("content-type", PROTOBUF)
    };
    let basic = format!("Basic {}", access.token);
    let wrong = format!("Bearer {}x", access.token);
    for (request, what) in [
        (request(), "no token"),
        (request().header("authorization", wrong), "a wrong token"),
        (request().header("authorization", basic), "a wrong scheme"),
        (
            request().bearer_auth(crate::support::gateway::KEY),
            "a key of the gateway",
        ),
    ] {
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{what}");
        assert!(answer.headers().contains_key("www-authenticate"), "{what}");
    }
    // The token is no key.
    let request = gateway.http.get(format!("{}/v1/sessions", gateway.url));
    let request = request.bearer_auth(&access.token);
    assert_eq!(status(request).await, StatusCode::UNAUTHORIZED);
    gateway.turn(&session, "crash").await;
    eventually("the token ends with its process", LONGEST, || async {
        let status = access.status(&gateway).await;
        (status == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
}

#[tokio::test]
async fn requests_beyond_size_and_rate_and_invalid_bodies_are_rejected() {
    let mut collector = Collector::start().await;
    let gateway = exporting(Setup::fake_with(&[], ENTRY), &collector).start();
    let session = gateway.session("fake").await;
    let turn = gateway.turn(&session, "telemetry bytes=1100000").await;
    assert_eq!(turn["text"], "413");
    let turn = gateway.turn(&session, "telemetry bytes=1000000").await;
    assert_eq!(turn["text"], "200");
    assert!(next_of_agent(&mut collector).await.body.len() > 1_000_000);

    let access = Access::of(&gateway, &session).await;
    let typed = |media_type: &str| access.post(&gateway).header("content-type", media_type);
    let invalid = typed(PROTOBUF).body("no protobuf");
    assert_eq!(status(invalid).await, StatusCode::BAD_REQUEST);
    let json = typed("application/json").body("{}");
    assert_eq!(status(json).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let compressed = typed(PROTOBUF).header("content-encoding", "gzip");
    assert_eq!(status(compressed).await, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let get = gateway.http.get(format!("{}/v1/traces", access.url));
    assert_eq!(status(get).await, StatusCode::METHOD_NOT_ALLOWED);

    let turn = gateway.turn(&session, "telemetry n=200").await;
    let text = turn["text"].as_str().expect("a text");
    assert!(text.starts_with("200 ") && text.contains(" 429"), "{text}");
    let limited = eventually("the rate is exceeded again", LONGEST, || async {
        let answer = typed(PROTOBUF).send().await.expect("an answer");
        (answer.status() == StatusCode::TOO_MANY_REQUESTS).then_some(answer)
    })
    .await;
    assert_eq!(limited.headers()["retry-after"], "1");
    // The rate of another process is its own.
    let other = gateway.session("fake").await;
    assert_eq!(gateway.turn(&other, "telemetry").await["text"], "200");
}

#[tokio::test]
async fn agent_with_the_name_of_another_service_keeps_it_under_a_key_of_its_own() {
    let mut collector = Collector::start().await;
    let entry = format!("{ENTRY}env = {{ OTEL_SERVICE_NAME = \"acp-gateway\" }}\n");
    let gateway = exporting(Setup::fake_with(&[], &entry), &collector).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "telemetry").await;
    let found = attributes(&next_of_agent(&mut collector).await);
    assert_eq!(found["service.name"], "fake");
    assert_eq!(found["acp_gateway.agent.service.name"], "acp-gateway");
}

#[tokio::test]
async fn processes_that_send_slowly_do_not_exclude_others() {
    let collector = Collector::start().await;
    let gateway = exporting(Setup::fake_with(&[], ENTRY), &collector).start();
    let mut open = Vec::new();
    for _ in 0..4 {
        let session = gateway.session("fake").await;
        let slow = Access::of(&gateway, &session).await;
        for _ in 0..4 {
            open.push(slow.begin_body().await);
        }
        let status = slow.status(&gateway).await;
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    }
    let session = gateway.session("fake").await;
    let other = Access::of(&gateway, &session).await;
    assert_eq!(other.status(&gateway).await, StatusCode::OK);
    drop(open);
}

#[tokio::test]
async fn failure_of_the_collector_is_reported_to_the_agent() {
    for (answer, expected) in [
        (StatusCode::SERVICE_UNAVAILABLE, "502"),
        (StatusCode::BAD_REQUEST, "400"),
    ] {
        let collector = Collector::answering(answer).await;
        let setup = Setup::fake_with(&[], ENTRY).agent("other", fake_agent(), &[], ENTRY);
        let gateway = exporting(setup, &collector).start();
        for agent in ["fake", "fake", "other"] {
            let session = gateway.session(agent).await;
            let turn = gateway.turn(&session, "telemetry").await;
            assert_eq!(turn["text"], expected, "{agent}");
        }
        // The gateway sends its metrics at the start.
        let log = eventually(
            "a warning for the gateway and each agent",
            LONGEST,
            || async {
                let log = gateway.log();
                (warnings(&log).count() >= 3).then_some(log)
            },
        )
        .await;
        assert_eq!(warnings(&log).count(), 3, "{log}");
        for agent in ["\"agent\":\"fake\"", "\"agent\":\"other\""] {
            let of_agent = warnings(&log).filter(|line| line.contains(agent));
            assert_eq!(of_agent.count(), 1, "{agent}: {log}");
        }
    }
}

fn warnings(log: &str) -> impl Iterator<Item = &str> {
    let lines = log.lines();
    lines.filter(|line| line.contains("could not send telemetry"))
}

/// The number of IPv4 ports on which a gateway listens. `None`: the gateway hides its descriptors from its own user, unless the
/// tests run as root.
fn listening_ports(gateway: &Gateway) -> Option<usize> {
    let pid = gateway.pid();
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    let targets = descriptors.flatten().map(|entry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        target.to_string_lossy().into_owned()
    });
    let sockets: Vec<String> = targets.collect();
    let table = std::fs::read_to_string("/proc/net/tcp").expect("/proc");
    let is_listening = |line: &&str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        columns[3] == "0A" && sockets.contains(&format!("socket:[{}]", columns[9]))
    };
    Some(table.lines().skip(1).filter(is_listening).count())
}

#[tokio::test]
async fn without_an_entry_there_is_no_receiver_and_no_variable() {
    let collector = Collector::start().await;
    let gateway = exporting(Setup::fake(&[]), &collector).start();
    let ports = listening_ports(&gateway);
    assert!(ports.is_none_or(|ports| ports == 1), "{ports:?}");
    let session = gateway.session("fake").await;
    let set = environment(&gateway, &session).await;
    let telemetry = set.keys().filter(|name| name.starts_with("OTEL_"));
    assert_eq!(telemetry.collect::<Vec<_>>(), Vec::<&String>::new());

    // Only the agent of an entry with the key gets variables.
    let setup = Setup::fake(&[]).agent("sending", fake_agent(), &[], ENTRY);
    let gateway = exporting(setup, &collector).start();
    let ports = listening_ports(&gateway);
    assert!(ports.is_none_or(|ports| ports == 2), "{ports:?}");
    let session = gateway.session("fake").await;
    let turn = gateway.turn(&session, "telemetry").await;
    assert_eq!(turn["text"], "no receiver");
    let session = gateway.session("sending").await;
    let set = environment(&gateway, &session).await;
    let telemetry = set.iter().filter(|(name, _)| name.starts_with("OTEL_"));
    let telemetry: BTreeMap<&str, &str> = telemetry
        .map(|(name, value)| (&**name, &**value))
        .filter(|(name, _)| !name.ends_with("_ENDPOINT") && !name.ends_with("_HEADERS"))
        .collect();
    let others = [
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_LOGS_EXPORTER", "otlp"),
        ("OTEL_METRICS_EXPORTER", "otlp"),
        ("OTEL_SERVICE_NAME", "sending"),
        ("OTEL_TRACES_EXPORTER", "otlp"),
    ];
    assert_eq!(telemetry, BTreeMap::from(others));
}

#[test]
fn telemetry_needs_a_collector_and_no_receiver_of_its_own() {
    const AGENT: &str = "[agents.a]\ncommand = \"sh\"\ntelemetry = true\n";
    const COLLECTOR: &str = "[telemetry]\notlp_endpoint = \"http://127.0.0.1:4318\"\n";
    let own = "env = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = \"http://127.0.0.1:1\" }\n";
    let service = "env = { OTEL_SERVICE_NAME = \"mine\", OTEL_LOGS_EXPORTER = \"none\" }\n";
    for (config, errors) in [
        (
            AGENT.to_owned(),
            &["agents.a.telemetry", "telemetry.otlp_endpoint"][..],
        ),
        (
            format!("{COLLECTOR}{AGENT}{own}"),
            &["agents.a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"],
        ),
        (format!("{COLLECTOR}{AGENT}{service}"), &[]),
    ] {
        let output = check(&config);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), errors.is_empty(), "{text}");
        for error in errors {
            assert!(text.contains(error), "{text}");
        }
    }
}
