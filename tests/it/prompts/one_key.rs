//! A backend with one key and the defaults: its users wait for processes, and none of them is refused.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::gateway::KEY;
use crate::support::{Answer, Events, Gateway, Setup, figure};

/// Users of the backend; `ACP_GATEWAY_TEST_USERS` sets another number.
#[expect(clippy::disallowed_methods, reason = "a manual run sets the number")]
fn users() -> usize {
    std::env::var("ACP_GATEWAY_TEST_USERS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(200)
}

/// A session for each user, a few at a time.
async fn sessions(gateway: &Arc<Gateway>, users: usize) -> Vec<String> {
    let mut sessions = Vec::new();
    let mut making = JoinSet::new();
    for user in 0..users {
        if making.len() == 16 {
            sessions.push(
                making
                    .join_next()
                    .await
                    .expect("one is made")
                    .expect("no panic"),
            );
        }
        let gateway = Arc::clone(gateway);
        making.spawn(async move {
            let body = json!({ "agent": "demo", "metadata": { "user": user } });
            let answer = gateway.posted("/v1/sessions", &[], &body).await;
            assert_eq!(answer.status, 201, "{answer:?}");
            answer.body["sessionId"].as_str().expect("an id").to_owned()
        });
    }
    sessions.extend(making.join_all().await);
    sessions
}

/// Follows a session until the first end of a turn.
async fn followed(gateway: Arc<Gateway>, session: String) -> bool {
    let path = format!("{}/v1/sessions/{session}/events?after=tail", gateway.url);
    let request = gateway.request(Method::GET, &path[gateway.url.len()..]);
    let answer = request
        .header("accept", "text/event-stream")
        .send()
        .await
        .expect("an answer");
    let mut events = Events::new(answer);
    events
        .until("prompt.completed")
        .await
        .iter()
        .any(|event| event.of("prompt.completed"))
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_blocking_prompts_of_one_key_succeed_with_the_defaults() {
    let users = users();
    let gateway = Arc::new(
        Setup::default()
            .table("[agents.demo]\nbuiltin = \"demo\"")
            .start(),
    );
    let began = Instant::now();
    let sessions = sessions(&gateway, users).await;
    let made = began.elapsed();
    let mut following = JoinSet::new();
    for session in &sessions {
        following.spawn(followed(Arc::clone(&gateway), session.clone()));
    }
    // The wait for a process takes time. The client waits as long as the gateway does.
    let http = reqwest::Client::builder()
        .no_proxy()
        .timeout(Duration::from_mins(6))
        .build()
        .expect("a client");
    let mut prompts = JoinSet::new();
    let began = Instant::now();
    for session in sessions {
        let gateway = Arc::clone(&gateway);
        let http = http.clone();
        prompts.spawn(async move {
            let path = format!("/v1/sessions/{session}/prompts");
            let request = http
                .post(format!("{}{path}", gateway.url))
                .bearer_auth(KEY)
                .header("prefer", "wait=300");
            let answer = Answer::of(request.json(&json!({ "prompt": "hello" }))).await;
            (answer.status.as_u16(), answer.body, began.elapsed())
        });
    }
    let mut statuses = BTreeMap::<u16, usize>::new();
    let mut latencies = Vec::new();
    let mut failed = Vec::new();
    for (status, body, took) in prompts.join_all().await {
        *statuses.entry(status).or_default() += 1;
        latencies.push(took);
        if status != 200 || body["status"] != "completed" {
            failed.push(body);
        }
    }
    latencies.sort();
    let seen = following
        .join_all()
        .await
        .into_iter()
        .filter(|seen| *seen)
        .count();
    figure(&format!(
        "{users} users of one key: sessions in {made:?}; {users} prompts at once on 8 processes: {statuses:?}, the first after {:?}, \
         half after {:?}, the last after {:?}; {seen} streams saw the end of their turn",
        latencies[0],
        latencies[users / 2],
        latencies[users - 1],
    ));
    assert!(
        failed.is_empty(),
        "{} failed, for example {:#}",
        failed.len(),
        failed.first().unwrap_or(&Value::Null)
    );
    assert_eq!(seen, users);
}
