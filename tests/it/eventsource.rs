//! A plain EventSource (npm `eventsource`) with a ticket in its URL, over two sessions and a restart.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::support::{Gateway, Setup, figure};
use crate::support::gateway::NO_CONFIG_FILE;
use crate::support::places::{gateway_program, project};

/// The maximum wait for the next line. An EventSource reconnects after one second.
const PATIENCE: Duration = Duration::from_secs(30);

/// The program that runs the EventSource, and its output.
struct EventSource {
    child: Child,
    lines: Receiver<Value>,
    /// All received events of the log, each with the `lastEventId` of the EventSource.
    events: Vec<(String, Value)>,
    opened: usize,
    /// The number of connections that delivered an event of the log, and whether the last connection did.
    delivering: usize,
    delivers: bool,
}

impl EventSource {
    fn open(url: &str) -> Self {
        let folder = project().join("tests/agents");
        let package = folder.join("node_modules/eventsource");
        assert!(
            package.exists(),
            "{} is missing: run `scripts/test rust`, which installs it",
            package.display()
        );
        let mut child = super::support::gateway::command("node")
            .arg(folder.join("eventsource.mjs"))
            .arg(url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is there");
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = sync_channel(1024);
        let read = move || {
            for line in stdout.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).expect("it prints JSON");
                if sender.send(line).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().spawn(read).expect("a thread");
        Self {
            child,
            lines,
            events: Vec::new(),
            opened: 0,
            delivering: 0,
            delivers: false,
        }
    }

    /// Reads until that many sessions' turns have ended.
    fn until_ends(&mut self, turns: usize) {
        let began = Instant::now();
        let is_end =
            |event: &Value| event["type"] == "prompt.completed" || event["type"] == "prompt.failed";
        while self
            .events
            .iter()
            .filter(|(_, event)| is_end(event))
            .count()
            < turns
        {
            self.line(began);
        }
    }

    fn until_open(&mut self) {
        let began = Instant::now();
        let opened = self.opened;
        while self.opened == opened {
            self.line(began);
        }
    }

    fn line(&mut self, began: Instant) {
        let left = PATIENCE.saturating_sub(began.elapsed());
        let line = self
            .lines
            .recv_timeout(left)
            .unwrap_or_else(|_| panic!("nothing comes: {:?}", self.events.last()));
        if line["open"] == true {
            self.opened += 1;
            self.delivers = false;
        } else if let Some(error) = line["error"].as_str() {
            assert!(
                line["code"].is_null(),
                "a status ends an EventSource for good: {error} {}",
                line["code"]
            );
        } else if line["data"]["seq"].is_u64() {
            let id = line["id"]
                .as_str()
                .expect("events of the log have ids")
                .to_owned();
            self.events.push((id, line["data"].clone()));
            self.delivering += usize::from(!self.delivers);
            self.delivers = true;
        } else {
            let kind = line["data"]["type"].as_str().expect("a type");
            assert!(["ready", "shutdown"].contains(&kind), "{line}");
        }
    }
}

impl Drop for EventSource {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

async fn ticket(gateway: &Gateway) -> String {
    let (status, ticket) = gateway
        .post("/v1/tickets", &json!({ "paths": ["/v1/events"] }))
        .await;
    assert_eq!(status, StatusCode::CREATED, "{ticket}");
    ticket["ticket"].as_str().expect("a text").to_owned()
}

fn position(id: &str) -> u64 {
    id.split_once("-g")
        .and_then(|(_, pos)| pos.parse().ok())
        .expect("<epoch>-g<pos>")
}

#[tokio::test]
async fn it_follows_two_sessions_through_a_kill_and_a_drain() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state");
    let state = state.to_str().expect("UTF-8");
    let mut gateway = Setup::fake(&["--resume", "--state", state])
        .settings("timeouts.drain_timeout = \"200ms\"")
        .start();
    let one = gateway.session("fake").await;
    let two = gateway.session("fake").await;
    let other = gateway.session("fake").await;
    let ticket = ticket(&gateway).await;
    let url = format!(
        "{}/v1/events?session={one}&session={two}&named=false&ticket={ticket}",
        gateway.url
    );
    let mut source = EventSource::open(&url);
    source.until_open();

    gateway.turn(&other, "echo not for it").await;
    tokio::join!(
        gateway.turn(&one, "stream n=200"),
        gateway.turn(&two, "stream n=200")
    );
    source.until_ends(2);
    gateway.prompt(&one, "slow chunks=2000 ms=1").await;
    gateway.prompt(&two, "flood n=3000; hang cancel=no").await;
    let before = source.events.len();
    while source.events.len() < before + 100 {
        source.line(Instant::now());
    }
    gateway.kill();
    gateway.start();
    // Both turns were interrupted.
    source.until_ends(4);
    tokio::join!(
        gateway.turn(&one, "stream n=20"),
        gateway.turn(&two, "echo again")
    );
    source.until_ends(6);
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    gateway.start();
    tokio::join!(
        gateway.turn(&one, "stream n=20"),
        gateway.turn(&two, "echo the last")
    );
    source.until_ends(8);

    let positions: Vec<u64> = source.events.iter().map(|(id, _)| position(id)).collect();
    assert!(
        positions.is_sorted_by(|a, b| a < b),
        "in commit order, and each once"
    );
    let mut seen = 0;
    for session in [&one, &two] {
        let log = gateway.all_events(session).await;
        let theirs: Vec<&Value> = source
            .events
            .iter()
            .map(|(_, event)| event)
            .filter(|event| event["sessionId"] == **session)
            .collect();
        for (ours, theirs) in log.iter().zip(&theirs) {
            assert_eq!(ours, *theirs);
        }
        let last = log
            .iter()
            .rposition(|event| event["type"] == "prompt.completed")
            .expect("the last turn ended");
        assert!(theirs.len() > last, "{} of {}", theirs.len(), log.len());
        seen += theirs.len();
    }
    assert_eq!(seen, source.events.len(), "and nothing of other sessions");
    figure(&format!(
        "{seen} events of two sessions, {} connections",
        source.opened
    ));
    // A client that connects during the drain receives only the notice of the drain.
    assert_eq!(source.delivering, 3, "a kill and a drain cut it off");
}

#[tokio::test]
async fn a_revoked_key_ends_its_tickets_also_after_a_restart() {
    let mut gateway = Setup::fake(&[]).start();
    let (status, made) = create_key(&gateway, &["create", "alice", "--scopes", "read"]);
    assert!(status, "{made}");
    let key = made.lines().find_map(|line| {
        line.split_whitespace()
            .find(|word| word.starts_with("acpg_"))
    });
    let key = key.expect("it prints the key").to_owned();
    let request = gateway
        .http
        .post(format!("{}/v1/tickets", gateway.url))
        .json(&json!({ "paths": ["/v1/events"] }));
    let issued = super::support::eventually(
        "the gateway knows the key",
        Duration::from_secs(30),
        || async {
            let answer = request
                .try_clone()
                .expect("it can")
                .bearer_auth(&key)
                .send()
                .await
                .expect("an answer");
            (answer.status() == 201).then_some(answer)
        },
    )
    .await;
    let issued: Value = issued.json().await.expect("JSON");
    let ticket = issued["ticket"].as_str().expect("a text").to_owned();
    let status = async |gateway: &Gateway| {
        let url = format!("{}/v1/events?ticket={ticket}", gateway.url);
        gateway
            .http
            .get(url)
            .header("Accept", "text/event-stream")
            .send()
            .await
            .expect("an answer")
            .status()
    };
    assert_eq!(status(&gateway).await, 200);
    gateway.kill();
    gateway.start();
    assert_eq!(status(&gateway).await, 200, "it was in use");
    gateway.kill();
    let (revoked, output) = create_key(&gateway, &["revoke", "alice"]);
    assert!(revoked, "{output}");
    gateway.start();
    assert_eq!(status(&gateway).await, 401);
}

/// `acp-gateway key ...` on the gateway's folder.
fn create_key(gateway: &Gateway, args: &[&str]) -> (bool, String) {
    let output = super::support::gateway::command(gateway_program())
        .arg("key")
        .args(args)
        .arg("--data")
        .arg(gateway.path("data"))
        .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
        .output()
        .expect("the binary was built");
    (
        output.status.success(),
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        ),
    )
}
