//! The user `owner`: the admin key, link keys and keys with `--user owner` share one list.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{LIMITS, User, sorted};
use crate::admin::link_key;
use crate::support::gateway::KEY;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Gateway, Setup};

/// The user of the key that `acp-gateway link` prints.
fn link(gateway: &Gateway) -> User<'_> {
    let key = link_key(gateway);
    User { gateway, key }
}

/// A user for each kind of key of the person that runs the gateway.
async fn keys(gateway: &Gateway) -> [User<'_>; 3] {
    let key = KEY.to_owned();
    let keys = [
        User { gateway, key },
        link(gateway),
        User::with(gateway, &["laptop", "--user", "owner"]).await,
    ];
    for user in &keys {
        eventually("the gateway knows the key", LONGEST, || async {
            let answer = user.call(Method::GET, "/v1").await;
            (answer.status == StatusCode::OK).then_some(())
        })
        .await;
    }
    keys
}

#[tokio::test]
async fn keys_of_the_owner_have_one_list_of_sessions_and_tasks() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let keys = keys(&gateway).await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = bob.session().await;
    let mut sessions = Vec::new();
    let mut tasks = Vec::new();
    for user in &keys {
        sessions.push(user.session().await);
        let task = json!({ "agent": "fake", "description": "echo done" });
        tasks.push(user.created("/v1/tasks", &task, "taskId").await);
    }
    for user in &keys {
        for query in ["", "&order=created", "&agent=fake"] {
            let listed = user.sessions(query).await;
            assert_eq!(sorted(listed), sessions, "{query}");
        }
        let listed = user.entries("/v1/tasks?limit=1", "tasks", "taskId").await;
        assert_eq!(sorted(listed), tasks);
        // Each key can work in the sessions of the other keys.
        for session in &sessions {
            user.turn(session, "echo hello").await;
        }
        let path = format!("/v1/sessions/{theirs}");
        user.call(Method::GET, &path)
            .await
            .problem(404, "not_found");
    }
    assert_eq!(bob.sessions("").await, [theirs]);
}

#[tokio::test]
async fn streams_and_chats_of_one_key_have_the_work_of_the_others() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let keys = keys(&gateway).await;
    let mut streams = Vec::new();
    for user in &keys {
        let mut stream = user.stream("/v1/events/stream").await;
        stream.until("ready").await;
        streams.push(stream);
    }
    for user in &keys {
        let session = user.session().await;
        for stream in &mut streams {
            let events = stream.until("session.created").await;
            let created = events.last().expect("the last one");
            assert_eq!(created.data["sessionId"], session);
        }
    }
    // A chat continues with another key.
    let mut messages = Vec::new();
    let mut sessions = Vec::new();
    for (at, user) in keys.iter().enumerate() {
        let text = format!("echo {at}");
        let parts = json!([{ "type": "text", "text": text }]);
        messages.push(json!({ "id": text, "role": "user", "parts": parts }));
        let body = json!({ "id": "chat", "messages": messages, "trigger": "submit-message" });
        let response = user.request(Method::POST, "/ai-sdk/fake").json(&body);
        let response = response.send().await.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK);
        sessions.push(response.headers()["x-acp-session-id"].clone());
        response.text().await.expect("a body");
    }
    assert!(
        sessions.iter().all(|session| *session == sessions[0]),
        "{sessions:?}"
    );
}

#[tokio::test]
async fn idempotency_key_is_shared_by_the_keys_of_the_owner() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let keys = keys(&gateway).await;
    let mut sessions = Vec::new();
    for user in &keys {
        let request = user.request(Method::POST, "/v1/sessions");
        let request = request.header("idempotency-key", "once");
        let answer = Answer::of(request.json(&json!({ "agent": "fake" }))).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        sessions.push(answer.body["sessionId"].clone());
    }
    assert!(
        sessions.iter().all(|session| *session == sessions[0]),
        "{sessions:?}"
    );
    assert_eq!(keys[0].sessions("").await.len(), 1);
}
