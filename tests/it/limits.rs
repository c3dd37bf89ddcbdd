//! Limits of a principal: from the configuration, from its keys, changed while the gateway runs.

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::key_life::{key_command, user_key};
use super::support::gateway::KEY_RELOAD_INTERVAL;
use super::support::{Answer, Events, Gateway, Setup, eventually};

const PATIENCE: Duration = Duration::from_secs(20);

fn by(gateway: &Gateway, key: &str, method: Method, path: &str) -> RequestBuilder {
    gateway
        .http
        .request(method, format!("{}{path}", gateway.url))
        .bearer_auth(key)
}

async fn limits(gateway: &Gateway, key: &str) -> Value {
    Answer::of(by(gateway, key, Method::GET, "/v1")).await.body["limits"]["perKey"].clone()
}

async fn stream(gateway: &Gateway, key: &str, path: &str) -> reqwest::Response {
    let request = by(gateway, key, Method::GET, path).header("accept", "text/event-stream");
    request.send().await.expect("an answer")
}

/// Checks a refusal by a principal's limit: its code, its words, and the fields of its head.
#[track_caller]
fn refused(answer: Answer, status: u16, code: &str, words: &[&str], policy: &str) {
    let name = policy.split(';').next().expect("a name").to_owned();
    assert_eq!(answer.header("ratelimit-policy"), Some(policy));
    let after = answer
        .header("retry-after")
        .expect("when to ask again")
        .to_owned();
    assert_eq!(
        answer.header("ratelimit"),
        Some(&*format!("{name};r=0;t={after}"))
    );
    let problem = answer.problem(status, code);
    let detail = problem["detail"].as_str().expect("a detail");
    for word in words {
        assert!(detail.contains(word), "{word}: {detail}");
    }
}

#[tokio::test]
async fn a_refusal_names_the_configuration_key_and_the_quota() {
    let limits = "limits.per_key.max_requests_per_minute = 20\nlimits.per_key.max_prompts_per_minute = 1\nlimits.per_key.max_streams = 1\nlimits.per_key.max_live_sessions = 1";
    let gateway = Setup::fake(&["--state", "state"]).settings(limits).start();
    let session = gateway.session("fake").await;
    let prompts = format!("/v1/sessions/{session}/prompts");
    assert_eq!(
        gateway
            .posted(&prompts, &[], &json!({ "prompt": "hang" }))
            .await
            .status,
        202
    );
    let answer = gateway
        .posted(&prompts, &[], &json!({ "prompt": "x", "queue": true }))
        .await;
    refused(
        answer,
        429,
        "rate_limited",
        &[
            "prompts",
            "limits.per_key.max_prompts_per_minute",
            "limit 1",
        ],
        "\"max_prompts_per_minute\";q=1;w=60",
    );
    let answer = gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "fake" }))
        .await;
    let policy = "\"max_live_sessions\";q=1;qu=\"sessions\"";
    refused(
        answer,
        429,
        "rate_limited",
        &[
            "live sessions",
            "limits.per_key.max_live_sessions",
            "limit 1",
        ],
        policy,
    );
    let mut open = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    open.until("ready").await;
    let held = gateway
        .request(Method::GET, &format!("{prompts}/p1"))
        .header("prefer", "wait=60");
    let policy = "\"max_streams\";q=1;qu=\"concurrent-requests\"";
    refused(
        Answer::of(held).await,
        429,
        "rate_limited",
        &["streams", "limits.per_key.max_streams", "limit 1"],
        policy,
    );
    let answer = loop {
        let answer = gateway.call(Method::GET, "/v1").await;
        if answer.status != 200 {
            break answer;
        }
    };
    refused(
        answer,
        429,
        "rate_limited",
        &[
            "requests",
            "limits.per_key.max_requests_per_minute",
            "limit 20",
        ],
        "\"max_requests_per_minute\";q=20;w=60",
    );
}

#[tokio::test]
async fn the_wait_queue_has_room_for_others_when_one_principal_has_filled_its_part() {
    let setup = Setup::fake_with(
        &["--state", "state"],
        "pool = { max_size = 1, min_idle = 0 }",
    );
    let gateway = setup
        .settings("limits.per_key.max_queued_prompts = 1")
        .start();
    let alice = user_key(&gateway, "alice", "read,prompt").await;
    let made = async |key: &str| {
        let request =
            by(&gateway, key, Method::POST, "/v1/sessions").json(&json!({ "agent": "fake" }));
        let answer = Answer::of(request).await;
        answer.body["sessionId"].as_str().expect("an id").to_owned()
    };
    let prompt = async |key: &str, session: &str, text: &str| {
        let path = format!("/v1/sessions/{session}/prompts");
        Answer::of(by(&gateway, key, Method::POST, &path).json(&json!({ "prompt": text }))).await
    };
    let sessions = [made(&alice).await, made(&alice).await];
    let other = gateway.session("fake").await;
    let busy = gateway.session("fake").await;
    gateway.prompt(&busy, "stream n=1; hang").await;
    gateway
        .log_until(&busy, |event| event["type"] == "session.update")
        .await;
    assert_eq!(prompt(&alice, &sessions[0], "hello").await.status, 202);
    let policy = "\"max_queued_prompts\";q=1;qu=\"prompts\"";
    let answer = prompt(&alice, &sessions[1], "hello").await;
    refused(
        answer,
        429,
        "queue_full",
        &["wait", "limits.per_key.max_queued_prompts", "limit 1"],
        policy,
    );
    assert_eq!(
        gateway.prompt(&other, "hello").await["status"],
        "queued",
        "another principal has its own part"
    );
}

#[tokio::test]
async fn limits_of_a_key_are_its_principals_own() {
    let gateway = Setup::fake(&[]).start();
    let flags = [
        "--max-requests-per-minute",
        "1000",
        "--max-prompts-per-minute",
        "7",
        "--max-streams",
        "1",
        "--max-live-sessions",
        "3",
        "--max-queued-prompts",
        "2",
        "--max-queued-task-bytes",
        "5000",
        "--max-fleet-members",
        "4",
    ];
    let alice = key_command(&gateway, &[&["create", "alice"], &flags[..]].concat());
    let bob = user_key(&gateway, "bob", "read,prompt").await;
    let shown = limits(&gateway, &alice).await;
    for (member, value) in [
        ("maxRequestsPerMinute", 1000),
        ("maxPromptsPerMinute", 7),
        ("maxStreams", 1),
        ("maxLiveSessions", 3),
        ("maxQueuedPrompts", 2),
        ("maxQueuedTaskBytes", 5000),
        ("maxFleetMembers", 4),
    ] {
        assert_eq!(shown[member], value, "{member}: {shown}");
    }
    let defaults = limits(&gateway, &bob).await;
    assert!(defaults["maxStreams"].as_u64() >= Some(1000), "{defaults}");

    let open = stream(&gateway, &alice, "/v1/events").await;
    assert_eq!(open.status(), 200);
    let held =
        by(&gateway, &alice, Method::GET, "/v1/events?after=tail").header("prefer", "wait=60");
    let policy = "\"max_streams\";q=1;qu=\"concurrent-requests\"";
    refused(
        Answer::of(held).await,
        429,
        "rate_limited",
        &["streams", "limit 1", "the key", "--max-streams"],
        policy,
    );
    assert_eq!(
        stream(&gateway, &bob, "/v1/events").await.status(),
        200,
        "not of another key"
    );

    // A second key of the name is the same principal, with the same limits.
    let second = key_command(&gateway, &["create", "alice", "--scopes", "read"]);
    eventually("the gateway knows the key", PATIENCE, || async {
        (limits(&gateway, &second).await["maxStreams"] == 1).then_some(())
    })
    .await;
    let list = key_command(&gateway, &["list"]);
    assert!(
        list.lines()
            .next()
            .is_some_and(|head| head.contains("LIMITS")),
        "{list}"
    );
    let rows: Vec<_> = list.lines().filter(|line| line.contains("alice")).collect();
    assert_eq!(rows.len(), 2, "{list}");
    for row in rows {
        assert!(
            row.contains("max-streams=1") && row.contains("max-prompts-per-minute=7"),
            "{row}"
        );
    }
}

#[tokio::test]
async fn key_updates_apply_to_a_running_gateway_within_a_second() {
    let default = |_: &Path| vec![(KEY_RELOAD_INTERVAL.0, "1s".into())];
    let mut gateway = Setup::fake(&[]).start_with(default);
    let alice = user_key(&gateway, "alice", "read,prompt").await;
    let id = key_command(&gateway, &["list"]);
    let id = id
        .lines()
        .find(|line| line.contains("alice"))
        .expect("its row")
        .split(' ')
        .next()
        .expect("an id")
        .to_owned();
    let prompt = async |status: u16| {
        eventually("the scope is as it was set", PATIENCE, || async {
            let session = "/v1/sessions/01a201c9-bcdf-7b47-9093-eb85feaa1215";
            (by(&gateway, &alice, Method::DELETE, session)
                .send()
                .await
                .expect("an answer")
                .status()
                == status)
                .then_some(())
        })
        .await;
    };
    prompt(404).await;
    let began = Instant::now();
    key_command(
        &gateway,
        &["update", &id, "--max-streams", "2", "--scopes", "read"],
    );
    prompt(403).await;
    assert_eq!(limits(&gateway, &alice).await["maxStreams"], 2);
    // One second is the gateway's, the rest is that of a busy machine and of starting the command.
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );

    // A stream ends when its key loses the scope for it.
    let mut open = Events::new(stream(&gateway, &alice, "/v1/events").await);
    open.until("ready").await;
    key_command(
        &gateway,
        &[
            "update",
            "alice",
            "--max-streams",
            "default",
            "--scopes",
            "prompt",
        ],
    );
    let frames = open.rest().await;
    assert!(
        frames
            .last()
            .is_some_and(|last| last.data["problem"]["code"] == "unauthorized"),
        "{frames:?}"
    );
    key_command(
        &gateway,
        &["update", "alice", "--max-prompts-per-minute", "3"],
    );
    gateway.kill();
    gateway.start();
    let after = limits(&gateway, &alice).await;
    assert_eq!(after["maxPromptsPerMinute"], 3, "it is stored with the key");
    assert!(after["maxStreams"].as_u64() >= Some(1000), "{after}");
}

#[tokio::test]
async fn default_limits_change_with_a_reload() {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_streams = 1\ntimeouts.drain_timeout = \"7s\"")
        .run_by(&["setsid"])
        .start();
    let bob = user_key(&gateway, "bob", "read").await;
    assert_eq!(limits(&gateway, &bob).await["maxStreams"], 1);
    let first = stream(&gateway, &bob, "/v1/events").await;
    assert_eq!(first.status(), 200);
    let file = gateway.path("config.toml");
    let text = std::fs::read_to_string(&file).expect("its configuration");
    std::fs::write(
        &file,
        text.replace(
            "limits.per_key.max_streams = 1",
            "limits.per_key.max_streams = 2\nlimits.per_key.max_prompts_per_minute = 9",
        ),
    )
    .expect("the folder is ours");
    gateway.signal(Signal::HUP);
    eventually("the new limit holds", PATIENCE, || async {
        (limits(&gateway, &bob).await["maxStreams"] == 2).then_some(())
    })
    .await;
    assert_eq!(limits(&gateway, &bob).await["maxPromptsPerMinute"], 9);
    let second =
        by(&gateway, &bob, Method::GET, "/v1/events?after=tail").header("prefer", "wait=1");
    assert_eq!(Answer::of(second).await.status, 200);
    assert!(
        !gateway.log().contains("take effect only at the next start"),
        "{}",
        gateway.log()
    );
}
