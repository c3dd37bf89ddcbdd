//! Clients that others wrote, with the few lines around them that docs/reference/events.md shows: each gets every event once and in order
//! through a kill and a drain, and knows a cut from an end.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::gateway::{KEY, command};
use crate::support::places::project;
use crate::support::{Gateway, Setup, figure};

/// The maximum wait for the next line. Clients reconnect after at most four seconds.
const PATIENCE: Duration = Duration::from_mins(1);

fn folder() -> PathBuf {
    project().join("tests/agents")
}

/// A client and the events that it delivered.
struct Client {
    child: Child,
    lines: Receiver<Value>,
    events: Vec<Value>,
    /// The number of events of each type.
    counts: HashMap<String, usize>,
    /// How its streams closed: `cut`, `shutdown` or `end`.
    closed: Vec<String>,
}

impl Client {
    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("its program is there: `scripts/test rust` installs it");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (send, lines) = sync_channel(1024);
        let read = move || {
            for line in stdout.lines().map_while(Result::ok) {
                let line =
                    serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line:?}"));
                if send.send(line).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().spawn(read).expect("a thread");
        Self {
            child,
            lines,
            events: Vec::new(),
            counts: HashMap::new(),
            closed: Vec::new(),
        }
    }

    /// Reads until a condition holds.
    fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            let left = PATIENCE.saturating_sub(began.elapsed());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| {
                panic!("no {what}: {:?} {:?}", self.closed, self.events.last())
            });
            match line["closed"].as_str() {
                Some(closed) => self.closed.push(closed.to_owned()),
                None => self.push(if line["event"].is_object() {
                    line["event"].clone()
                } else {
                    line
                }),
            }
        }
    }

    fn push(&mut self, event: Value) {
        let kind = event["type"]
            .as_str()
            .expect("an event has a type")
            .to_owned();
        *self.counts.entry(kind).or_default() += 1;
        self.events.push(event);
    }

    /// Reads until there are so many events of a type.
    fn until_event(&mut self, kind: &str, count: usize) {
        self.until(kind, |client| {
            client.counts.get(kind).is_some_and(|seen| *seen >= count)
        });
    }

    fn until_closed(&mut self, how: &str) {
        self.until(how, |client| {
            client.closed.iter().any(|closed| closed == how)
        });
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn ticket(gateway: &Gateway, path: &str) -> String {
    let (status, ticket) = gateway
        .post("/v1/tickets", &json!({ "paths": [path] }))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{ticket}");
    ticket["ticket"].as_str().expect("a text").to_owned()
}

fn node(client: &str, url: &str) -> Command {
    let mut node = command("node");
    node.arg(folder().join("clients/run.mjs"))
        .args([client, url, KEY]);
    node
}

/// Follows a session to its deletion, through a kill in the middle of a turn and a drain.
async fn follows(client: impl AsyncFn(&Gateway, &str) -> Client) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state");
    let state = state.to_str().expect("UTF-8");
    // Keep-alives arrive at any position.
    let setup = Setup::fake(&["--resume", "--state", state]);
    let mut gateway = setup
        .settings("timeouts.drain_timeout = \"200ms\"\ntimeouts.keep_alive_interval = \"100ms\"")
        .start();
    let session = gateway.session("fake").await;
    let mut client = client(&gateway, &session).await;
    client.until_event("ready", 1);
    gateway
        .turn(&session, "slow chunks=4 ms=250; stream n=200")
        .await;
    gateway.prompt(&session, "flood n=60000 rate=3000").await;
    client.until("events of the flood", |client| client.events.len() > 1000);
    gateway.kill();
    gateway.start();
    client.until_event("prompt.failed", 1);
    gateway.turn(&session, "stream n=20").await;
    client.until_event("prompt.completed", 2);
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    client.until_closed("shutdown");
    gateway.start();
    gateway.turn(&session, "stream n=20").await;
    client.until_event("prompt.completed", 3);
    let log = gateway.all_events(&session).await;
    let deleted = gateway
        .request(Method::DELETE, &format!("/v1/sessions/{session}"))
        .send()
        .await;
    assert!(deleted.expect("an answer").status().is_success());
    client.until_closed("end");
    let ended = client.child.wait().expect("it is our child");
    assert!(
        ended.success(),
        "it ends by itself when its stream is complete: {ended}"
    );

    let seen: Vec<&Value> = client
        .events
        .iter()
        .filter(|event| event["seq"].is_u64())
        .collect();
    for (seq, event) in (1..).zip(&seen) {
        assert_eq!(event["seq"], seq, "once, and in order");
    }
    assert!(log.iter().zip(&seen).all(|(event, seen)| event == *seen));
    assert!(
        seen.len() > log.len()
            && seen
                .last()
                .is_some_and(|event| event["type"] == "session.deleted")
    );
    figure(&format!(
        "{} events, closed {:?}",
        seen.len(),
        client.closed
    ));
    // While the gateway is away some clients report each attempt as a cut.
    let at = client
        .closed
        .iter()
        .position(|closed| closed == "shutdown")
        .expect("it came");
    assert!(
        at > 0 && client.closed[..at].iter().all(|closed| closed == "cut"),
        "{:?}",
        client.closed
    );
    let [between @ .., last] = &client.closed[at..] else {
        panic!("{:?}", client.closed)
    };
    assert_eq!(last, "end");
    assert!(
        between.iter().all(|closed| closed != "end"),
        "{:?}",
        client.closed
    );
}

fn path(session: &str) -> String {
    format!("/v1/sessions/{session}/events")
}

#[tokio::test]
async fn node_fetch_with_eventsource_parser_follows_through_a_kill_and_a_drain() {
    follows(async |gateway, session| {
        Client::start(&mut node(
            "fetch",
            &format!("{}{}", gateway.url, path(session)),
        ))
    })
    .await;
}

#[tokio::test]
async fn fetch_event_source_follows_through_a_kill_and_a_drain() {
    follows(async |gateway, session| {
        Client::start(&mut node(
            "fetch-event-source",
            &format!("{}{}", gateway.url, path(session)),
        ))
    })
    .await;
}

#[tokio::test]
async fn npm_eventsource_follows_through_a_kill_and_a_drain() {
    follows(async |gateway, session| {
        let ticket = ticket(gateway, &path(session)).await;
        let url = format!(
            "{}{}?named=false&ticket={ticket}",
            gateway.url,
            path(session)
        );
        Client::start(&mut node("eventsource", &url))
    })
    .await;
}

#[tokio::test]
async fn httpx_sse_follows_through_a_kill_and_a_drain() {
    follows(async |gateway, session| {
        let mut python = command(folder().join(".venv/bin/python").to_str().expect("UTF-8"));
        let url = format!("{}{}", gateway.url, path(session));
        Client::start(
            python
                .arg(folder().join("clients/run.py"))
                .args([&url, KEY]),
        )
    })
    .await;
}

#[tokio::test]
async fn curl_follows_through_a_kill_and_a_drain() {
    follows(async |gateway, session| {
        // The script writes closes to stderr; here they are lines like any other.
        let script = folder().join("clients/follow.sh");
        let url = format!("{}{}", gateway.url, path(session));
        let both = r#""$0" "$1" "$2" 2> >(sed -u 's/closed: \(.*\)/{"closed":"\1"}/')"#;
        Client::start(
            command("bash")
                .args(["-c", both])
                .arg(script)
                .args([&url, KEY]),
        )
    })
    .await;
}

/// A truncated body is a transport error, also for clients that do not check its end. Node's fetch accepts a
/// truncated body if the response contains `Connection: close`.
#[tokio::test]
async fn node_fetch_and_curl_fail_on_a_stream_that_a_kill_cuts() {
    let mut gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "flood n=60000 rate=3000").await;
    let url = format!("{}{}", gateway.url, path(&session));
    let read = "const [url, key] = process.argv.slice(1);
        const headers = { Authorization: `Bearer ${key}`, Accept: 'text/event-stream' };
        const response = await fetch(url, { headers });
        let bytes = 0;
        for await (const piece of response.body) {
          if (bytes === 0) console.log('it reads');
          bytes += piece.length;
        }
        console.log('complete');";
    let mut node = command("node");
    node.args(["--input-type=module", "-e", read, &url, KEY]);
    let mut curl = command("curl");
    curl.args([
        "-sN",
        &url,
        "-H",
        "Accept: text/event-stream",
        "-H",
        &format!("Authorization: Bearer {KEY}"),
    ]);
    let clients = [node, curl].map(|mut client| {
        let mut child = client.stdout(Stdio::piped()).spawn().expect("it is there");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut first = String::new();
        stdout.read_line(&mut first).expect("it reads");
        let rest = std::thread::Builder::new()
            .spawn(move || std::io::read_to_string(stdout).expect("text"));
        (child, rest.expect("a thread"))
    });
    gateway.kill();
    let [node, curl] = clients.map(|(mut child, rest)| {
        let rest = rest.join().expect("it reads to the end");
        assert!(!rest.contains("complete"), "it takes the cut for an end");
        child.wait().expect("it is our child")
    });
    assert!(!node.success(), "{node}");
    assert_eq!(curl.code(), Some(18), "CURLE_PARTIAL_FILE");
}

/// Runs the program that sends a request the moment that a stream on the same connection ends.
fn reuse(kind: &str, gateway: &Gateway, session: &str) -> Value {
    let turns = if kind == "agent" { "40" } else { "20" };
    let program = folder().join("clients/reuse.mjs");
    let output = command("node")
        .arg(program)
        .args([kind, &gateway.url, session, KEY, turns])
        .output();
    let output = output.expect("node is there");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{kind}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(&text).expect("JSON")
}

#[tokio::test]
async fn clients_that_keep_connections_send_the_next_request_over_that_of_a_stream() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_prompts_per_minute = 1000")
        .start();
    let session = gateway.session("fake").await;
    assert_eq!(reuse("fetch", &gateway, &session)["turns"], 20);
    // Its only connection carries all of them: streams do not cost it.
    assert_eq!(
        reuse("agent", &gateway, &session),
        json!({ "turns": 40, "connections": 1 })
    );

    let url = |path: &str| format!("{}{path}", gateway.url);
    let mut curl = command("curl");
    let authorization = format!("Authorization: Bearer {KEY}");
    let stream = url(&format!("/v1/sessions/{session}/prompts/p1/events"));
    curl.args([
        "-sS",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{num_connects}\\n",
        &stream,
    ]);
    curl.args([
        "-H",
        "Accept: text/event-stream",
        "-H",
        &authorization,
        "--next",
        "-sS",
        "-o",
        "/dev/null",
    ]);
    curl.args([
        "-w",
        "%{http_code} %{num_connects}\\n",
        &url(&format!("/v1/sessions/{session}/prompts")),
    ]);
    curl.args([
        "-H",
        "Content-Type: application/json",
        "-H",
        &authorization,
        "-d",
        r#"{"prompt":"hello"}"#,
    ]);
    let output = curl.output().expect("curl is there");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "200 1\n202 0\n");
}

/// The snippets of the documentation are the clients that run here.
#[test]
fn the_documentation_shows_these_clients() {
    let api = project().join("docs/reference/events.md");
    let api = std::fs::read_to_string(api).expect("the documentation");
    for name in [
        "fetch.mjs",
        "fetch-event-source.mjs",
        "eventsource.mjs",
        "httpx_sse_client.py",
        "follow.sh",
    ] {
        let client =
            std::fs::read_to_string(folder().join("clients").join(name)).expect("it is there");
        assert!(
            api.contains(client.trim_end()),
            "docs/reference/events.md shows another {name}"
        );
    }
}
