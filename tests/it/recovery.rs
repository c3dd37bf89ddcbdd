//! The state after the end of a gateway: no process of its agents, and its complete log.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::support::{Gateway, Setup, eventually, figure, is_alive, procfs};
use crate::support::places::fake_agent;

mod changed;
mod drain;
mod drain_load;
mod kills;
mod queued;

/// The tests ask more often than a person may.
const LIMITS: &str = "limits.per_key.max_requests_per_minute = 100000\nlimits.per_key.max_prompts_per_minute = 100000\nlimits.per_key.max_live_sessions = 200\n";

/// Ends of turns by turn; each event names its turn.
fn ends(events: &[Value]) -> HashMap<&str, Vec<&Value>> {
    let mut ends: HashMap<&str, Vec<&Value>> = HashMap::new();
    for event in events {
        let kind = event["type"].as_str().expect("a type");
        let turn = || event["promptId"].as_str().expect("it belongs to a turn");
        if matches!(kind, "prompt.started" | "prompt.queued") {
            ends.entry(turn()).or_default();
        } else if matches!(kind, "prompt.completed" | "prompt.failed") {
            ends.get_mut(turn())
                .expect("a turn ends after it began")
                .push(event);
        }
    }
    ends
}

fn chunk_text(event: &Value) -> &str {
    event["update"]["content"]["text"]
        .as_str()
        .unwrap_or_default()
}

/// Starts a turn that reports the pids of the agent and of a descendant in another session, and continues to run.
async fn turn_with_strays(gateway: &Gateway, session: &str) -> Vec<u32> {
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    gateway
        .prompt(session, "pid; fork; fork; ignore-cancel ms=200")
        .await;
    let mut pids = Vec::new();
    while pids.len() < 3 {
        let event = stream.next().await.expect("the stream goes on");
        pids.extend(
            chunk_text(&event.data)
                .strip_prefix("pid=")
                .map(|pid| pid.parse::<u32>().expect("a pid")),
        );
    }
    pids
}

#[tokio::test]
async fn no_descendant_survives_a_kill_of_the_gateway() {
    let mut gateway = Setup::fake(&["--ignore-term", "--ignore-eof"])
        .settings(LIMITS)
        .start();
    let mut pids = Vec::new();
    for _ in 0..2 {
        let session = gateway.session("fake").await;
        pids.extend(turn_with_strays(&gateway, &session).await);
    }
    let started = procfs::descendants(gateway.pid());
    // For each session: a supervisor, the agent, and two descendants in their own sessions.
    assert_eq!(started.len(), 8, "{started:?}");
    assert!(
        pids.iter()
            .all(|pid| started.contains(pid) && is_alive(*pid)),
        "{pids:?} of {started:?}"
    );

    gateway.kill();
    let killed = Instant::now();
    eventually(
        "everything that the agents started is gone",
        Duration::from_secs(10),
        || async { (!started.iter().any(|pid| is_alive(*pid))).then_some(()) },
    )
    .await;
    figure(&format!(
        "{} processes were gone {:?} after kill -9",
        started.len(),
        killed.elapsed()
    ));
}

#[tokio::test]
async fn second_gateway_on_the_same_folder_exits_and_the_first_continues() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let began = Instant::now();
    let second = gateway
        .serve("127.0.0.1:0")
        .output()
        .expect("the binary was built");
    let stderr = String::from_utf8(second.stderr).expect("text");
    assert!(
        second.status.code().is_some_and(|code| code != 0),
        "{:?}",
        second.status
    );
    assert_eq!(
        String::from_utf8_lossy(&second.stdout),
        "",
        "no link of a gateway that does not run"
    );
    assert!(
        stderr.contains("data") && stderr.lines().count() <= 5,
        "a message for a person: {stderr}"
    );
    figure(&format!(
        "the second ended after {:?}: {}",
        began.elapsed(),
        stderr.trim()
    ));
    assert_eq!(
        gateway.turn(&session, "echo still here").await["text"],
        "still here"
    );
}

#[tokio::test]
async fn sessions_survive_a_restart_and_accept_the_next_prompt() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let fake = fake_agent();
    let mut gateway = Setup::default()
        .agent(
            "resumes",
            fake,
            &["--state", &state("resumes"), "--resume"],
            "",
        )
        .agent("loads", fake, &["--state", &state("loads")], "")
        .agent("forgets", fake, &["--no-load"], "")
        .settings(LIMITS)
        .start();
    let mut sessions = Vec::new();
    for (agent, by, context) in [
        ("resumes", "resume", "kept"),
        ("loads", "load", "kept"),
        ("forgets", "fresh", "lost"),
    ] {
        let session = gateway.session(agent).await;
        gateway.turn(&session, "echo first").await;
        let path = format!("/v1/sessions/{session}");
        let body = json!({ "title": format!("Of {agent}") });
        assert_eq!(
            gateway.send(Method::PATCH, &path, &body).await.0,
            StatusCode::OK
        );
        sessions.push((session, by, context));
    }
    let mut before = Vec::new();
    for (session, ..) in &sessions {
        before.push(
            gateway
                .get(&format!("/v1/sessions/{session}/transcript"))
                .await,
        );
    }

    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    gateway.start();

    let list = gateway.get("/v1/sessions").await;
    let listed: Vec<&str> = list["sessions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|s| s["sessionId"].as_str().expect("id"))
        .collect();
    assert_eq!(listed.len(), 3, "{list}");
    for ((session, by, context), before) in sessions.iter().zip(before) {
        assert!(listed.contains(&session.as_str()), "{list}");
        let path = format!("/v1/sessions/{session}");
        let now = gateway.get(&path).await;
        assert_eq!(
            (&now["title"], &now["state"]),
            (&before["session"]["title"], &json!("idle")),
            "{now}"
        );
        assert_eq!(now["attached"], false);
        let transcript = gateway.get(&format!("{path}/transcript")).await;
        assert_eq!(transcript["turns"], before["turns"]);

        let next = gateway.turn(session, "echo second").await;
        assert_eq!(
            (&next["text"], &next["promptId"]),
            (&json!("second"), &json!("p2")),
            "{next}"
        );
        let events = gateway.all_events(session).await;
        let attached: Vec<&Value> = events
            .iter()
            .filter(|e| e["type"] == "session.attached")
            .collect();
        assert_eq!(attached.len(), 2);
        assert_eq!(
            (&attached[1]["by"], &attached[1]["context"]),
            (&json!(by), &json!(context))
        );
        let first = events
            .iter()
            .filter(|event| chunk_text(event) == "first")
            .count();
        assert_eq!(first, 1, "the log does not repeat the replayed history");
    }
}
