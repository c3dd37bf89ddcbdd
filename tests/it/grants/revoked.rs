//! Requests of users whose access is too low, or has ended.

use futures_util::{Stream, StreamExt as _, stream};
use reqwest::{Body, Method};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{ALL, LIMITS, share, unshare};
use crate::key_life::{by, user_key};
use crate::support::gateway::KEY;
use crate::support::{Answer, Gateway, Setup};

const ONE_PROCESS: &str = "pool = { max_size = 1, min_idle = 0 }";

async fn queue(gateway: &Gateway, key: &str, session: &str, text: &str) -> Value {
    let path = format!("/v1/sessions/{session}/prompts");
    let body = json!({ "prompt": text, "queue": true });
    let answer = Answer::of(by(gateway, key, Method::POST, &path).json(&body)).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    assert_eq!(answer.body["status"], "queued");
    answer.body
}

pub(super) async fn stop_reason(gateway: &Gateway, session: &str, prompt: &str) -> Value {
    let path = format!("/v1/sessions/{session}/prompts/{prompt}");
    gateway.get(&path).await["stopReason"].clone()
}

#[tokio::test]
async fn prompt_that_waits_for_a_process_does_not_run_after_the_access_has_ended() {
    let gateway = Setup::fake_with(&[], ONE_PROCESS).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    let holder = gateway.session("fake").await;
    gateway.prompt(&holder, "hang").await;
    share(&gateway, &session, "user:bob", "prompt").await;
    queue(&gateway, &bob, &session, "hello").await;
    queue(&gateway, KEY, &session, "of the owner").await;
    unshare(&gateway, &session, "user:bob").await;
    assert_eq!(stop_reason(&gateway, &session, "p1").await, "cancelled");
    assert_eq!(stop_reason(&gateway, &session, "p2").await, Value::Null);
}

#[tokio::test]
async fn prompt_of_the_owner_that_a_user_without_access_has_edited_does_not_run() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "hang").await;
    queue(&gateway, KEY, &session, "hello").await;
    share(&gateway, &session, "user:bob", "prompt").await;
    let path = format!("/v1/sessions/{session}/prompts/p2");
    let edit = by(&gateway, &bob, Method::PATCH, &path).json(&json!({ "prompt": "other" }));
    assert_eq!(Answer::of(edit).await.status, 200);
    unshare(&gateway, &session, "user:bob").await;
    assert_eq!(stop_reason(&gateway, &session, "p2").await, "cancelled");
}

#[tokio::test]
async fn upload_that_began_before_the_end_of_the_access_writes_nothing() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    share(&gateway, &session, "user:bob", "prompt").await;
    let (begun, has_begun) = oneshot::channel();
    let (end, may_end) = oneshot::channel::<()>();
    let chunks = two_chunks(begun, may_end);
    let path = format!("/v1/sessions/{session}/files/late.txt");
    let upload = by(&gateway, &bob, Method::PUT, &path).body(Body::wrap_stream(chunks));
    let revoke = async {
        has_begun.await.expect("the body is read");
        unshare(&gateway, &session, "user:bob").await;
        end.send(()).expect("the body waits");
    };
    let (answer, ()) = tokio::join!(Answer::of(upload), revoke);
    answer.problem(404, "not_found");
    let files = gateway.get(&format!("/v1/sessions/{session}/files")).await;
    assert!(!files.to_string().contains("late.txt"), "{files}");
}

/// Two chunks: the second one after a message.
fn two_chunks(
    begun: oneshot::Sender<()>,
    may_end: oneshot::Receiver<()>,
) -> impl Stream<Item = Result<Vec<u8>, std::io::Error>> + Send + 'static {
    let first = async move {
        // The gateway has the request when it reads the body.
        let _ = begun.send(());
        Ok(b"first".to_vec())
    };
    let second = async move {
        let _ = may_end.await;
        Ok(b"second".to_vec())
    };
    stream::once(first).chain(stream::once(second))
}

#[tokio::test]
async fn command_that_changes_the_mode_needs_the_access_to_approve() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/prompts");
    let command = || {
        let body = json!({ "prompt": "/mode code" });
        Answer::of(by(&gateway, &bob, Method::POST, &path).json(&body))
    };
    share(&gateway, &session, "user:bob", "prompt").await;
    let problem = command().await.problem(403, "forbidden");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("access approve"), "{detail}");
    share(&gateway, &session, "user:bob", "approve").await;
    assert_eq!(command().await.status, 202);
}

#[tokio::test]
async fn chat_with_the_id_of_a_shared_session_continues_it() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo one").await;
    share(&gateway, &session, "user:bob", "prompt").await;
    let chat = async |text: &str| {
        let part = json!({ "type": "text", "text": text });
        let message = json!({ "id": text, "role": "user", "parts": [part] });
        let body = json!({ "id": session, "messages": [message], "trigger": "submit-message" });
        let request = by(&gateway, &bob, Method::POST, "/ai-sdk/fake").json(&body);
        let answer = request.send().await.expect("an answer");
        answer.text().await.expect("a body")
    };
    let path = format!("/v1/sessions/{session}/prompts");
    let count = async || {
        let turns = gateway.get(&path).await;
        turns["prompts"].as_array().expect("a list").len()
    };
    let answer = chat("echo two").await;
    assert!(answer.contains("two"), "{answer}");
    assert_eq!(count().await, 2);
    share(&gateway, &session, "user:bob", "read").await;
    let refused = chat("echo three").await;
    assert!(refused.contains("needs the access `prompt`"), "{refused}");
    assert_eq!(count().await, 2);
}
