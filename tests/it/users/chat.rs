//! The chat protocols: a conversation of another user is an unknown conversation.

use std::time::Instant;

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use super::ends::SOON;
use super::{LIMITS, User, comparable};
use crate::key_life::key_command;
use crate::route_walk::operations::UNKNOWN;
use crate::support::wait::LONGEST;
use crate::support::{Setup, figure};

const AI_SDK: &str = "/ai-sdk/fake";
const AG_UI: &str = "/ag-ui/fake";
const COMPLETIONS: &str = "/openai/v1/chat/completions";
const RESPONSES: &str = "/openai/v1/responses";

fn ui_message(chat: &str, text: &str) -> Value {
    let parts = json!([{ "type": "text", "text": text }]);
    json!({ "id": chat, "trigger": "submit-message",
        "messages": [{ "id": "m1", "role": "user", "parts": parts }] })
}

fn run_input(thread: &str, messages: &Value) -> Value {
    json!({ "threadId": thread, "runId": "r", "messages": messages, "tools": [], "context": [] })
}

/// Requests that name a session, its conversation, its first turn or its first permission request.
fn requests(user: &User<'_>, session: &str) -> Vec<(String, RequestBuilder)> {
    let response = format!("resp_{session}_p1");
    let conversation = format!("conv_{session}");
    let question = format!("{session}_p1_r1");
    let messages = json!([{ "role": "user", "content": "echo intruder" }]);
    let completion = json!({ "model": "fake", "messages": messages });
    let mut in_metadata = completion.clone();
    in_metadata["metadata"] = json!({ "session_id": session });
    let continued = |member: &str, id: &str| {
        let mut body = json!({ "model": "fake", "input": "echo intruder" });
        body[member] = json!(id);
        body
    };
    let mut approval = continued("previous_response_id", &response);
    approval["input"] = json!([{ "type": "mcp_approval_response", "approve": true,
        "approval_request_id": format!("mcpr_{question}") }]);
    let part = json!({ "type": "dynamic-tool", "toolCallId": "x", "state": "approval-responded",
        "approval": { "id": question, "approved": true } });
    let ui_answer =
        json!({ "id": session, "messages": [{ "id": "m", "role": "assistant", "parts": [part] }] });
    let mut run_answer = run_input(session, &json!([]));
    run_answer["resume"] = json!([{ "interruptId": question, "status": "resolved",
        "payload": { "approved": true } }]);
    let conversations = format!("/openai/v1/conversations/{conversation}");
    let bodyless = [
        (Method::GET, format!("{RESPONSES}/{response}")),
        (Method::GET, format!("{RESPONSES}/{response}?stream=true")),
        (Method::GET, format!("{RESPONSES}/{response}/input_items")),
        (Method::POST, format!("{RESPONSES}/{response}/cancel")),
        (Method::GET, conversations.clone()),
        (Method::GET, format!("{conversations}/items")),
        (Method::DELETE, conversations),
        (Method::GET, format!("{AI_SDK}/{session}/stream")),
        (Method::POST, format!("{AI_SDK}/{session}/stop")),
    ];
    let with_body = [
        (RESPONSES, continued("previous_response_id", &response)),
        (RESPONSES, continued("conversation", &conversation)),
        (RESPONSES, approval),
        (COMPLETIONS, in_metadata),
        (AI_SDK, ui_answer),
        (AG_UI, run_answer),
        (AG_UI, run_input(session, &json!([]))),
    ];
    let mut requests = Vec::new();
    for (method, path) in bodyless {
        let name = format!("{method} {path}").replace(session, "ID");
        requests.push((name, user.request(method, &path)));
    }
    for (path, body) in with_body {
        let name = format!("POST {path} {body}").replace(session, "ID");
        requests.push((name, user.request(Method::POST, path).json(&body)));
    }
    // The only protocol that names a session in a header.
    let request = user.request(Method::POST, COMPLETIONS);
    let request = request.header("x-acp-session-id", session);
    let name = "POST of a completion with a header".to_owned();
    requests.push((name, request.json(&completion)));
    requests
}

#[tokio::test]
async fn foreign_conversation_has_the_answers_of_an_unknown_one() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = alice.waiting_session().await;
    let before = alice.snapshot(&theirs).await;
    let own = requests(&bob, &theirs).into_iter();
    for ((name, foreign), (_, unknown)) in own.zip(requests(&bob, UNKNOWN)) {
        let foreign = comparable(foreign, &theirs).await;
        let unknown = comparable(unknown, UNKNOWN).await;
        assert_eq!(foreign, unknown, "{name}");
    }
    assert_eq!(alice.snapshot(&theirs).await, before);
    assert_eq!(bob.sessions("").await, [""; 0]);
    // The same requests reach the session of their own user.
    let path = format!("/openai/v1/conversations/conv_{theirs}");
    assert_eq!(alice.get(&path).await["object"], "conversation");
}

/// The session of the response to a new message.
async fn session_of(request: RequestBuilder) -> String {
    let response = request.send().await.expect("an answer");
    let headers = response.headers().clone();
    let status = response.status();
    let body = response.text().await.expect("a body");
    assert_eq!(status, StatusCode::OK, "{body}");
    let session = headers["x-acp-session-id"].to_str();
    session.expect("ASCII").to_owned()
}

#[tokio::test]
async fn message_to_a_chat_with_the_id_of_a_foreign_session_begins_an_own_session() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let theirs = alice.session().await;
    alice.turn(&theirs, "echo harbor").await;
    let before = alice.snapshot(&theirs).await;
    let mut own = Vec::new();
    for (path, body) in [
        (AI_SDK, ui_message(&theirs, "echo one")),
        (
            AG_UI,
            run_input(
                &theirs,
                &json!([{ "id": "m", "role": "user", "content": "echo one" }]),
            ),
        ),
    ] {
        let session = session_of(bob.request(Method::POST, path).json(&body)).await;
        assert_ne!(session, theirs, "{path}");
        own.push(session);
    }
    assert_eq!(super::sorted(bob.sessions("").await), super::sorted(own));
    assert_eq!(alice.snapshot(&theirs).await, before);
}

#[tokio::test]
async fn users_with_the_same_chat_ids_and_histories_have_their_own_sessions() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let users = [
        User::new(&gateway, "alice").await,
        User::new(&gateway, "bob").await,
    ];
    let history = |answer: Option<&str>| {
        let mut messages = vec![json!({ "role": "user", "content": "echo one" })];
        if let Some(answer) = answer {
            messages.push(json!({ "role": "assistant", "content": answer }));
            messages.push(json!({ "role": "user", "content": "echo two" }));
        }
        json!({ "model": "fake", "messages": messages })
    };
    let mut first = Vec::new();
    for user in &users {
        for (path, body) in [
            (AI_SDK, ui_message("chat", "echo one")),
            (COMPLETIONS, history(None)),
        ] {
            first.push(session_of(user.request(Method::POST, path).json(&body)).await);
        }
    }
    let [chat, completion, other_chat, other_completion] = &first[..] else {
        panic!("{first:?}");
    };
    // The first turn of each user is continued, and not that of the user before.
    for (user, chat, completion) in [
        (&users[0], chat, completion),
        (&users[1], other_chat, other_completion),
    ] {
        let body = history(Some("one"));
        let next = user.request(Method::POST, COMPLETIONS).json(&body);
        assert_eq!(session_of(next).await, *completion);
        let mut body = ui_message("chat", "echo one");
        let parts = json!([{ "type": "text", "text": "echo two" }]);
        let second = json!({ "id": "m2", "role": "user", "parts": parts });
        let messages = body["messages"].as_array_mut().expect("messages");
        messages.push(second);
        let next = user.request(Method::POST, AI_SDK).json(&body);
        assert_eq!(session_of(next).await, *chat);
        let own = [chat.clone(), completion.clone()].to_vec();
        assert_eq!(super::sorted(user.sessions("").await), super::sorted(own));
    }
}

/// The streams of a turn that hangs, one through each protocol, with the session of each.
async fn hanging_turns(user: &User<'_>) -> Vec<(&'static str, String, Response)> {
    let prompt = "slow chunks=1 ms=1; hang";
    let messages = json!([{ "id": "m", "role": "user", "content": prompt }]);
    let mut streams = Vec::new();
    for (path, body) in [
        (
            COMPLETIONS,
            json!({ "model": "fake", "messages": messages, "stream": true }),
        ),
        (
            RESPONSES,
            json!({ "model": "fake", "input": prompt, "stream": true }),
        ),
        (AI_SDK, ui_message("chat", prompt)),
        (AG_UI, run_input("thread", &messages)),
    ] {
        let response = user.request(Method::POST, path).json(&body).send().await;
        let response = response.expect("an answer");
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        let session = response.headers()["x-acp-session-id"].to_str();
        let session = session.expect("ASCII").to_owned();
        streams.push((path, session, response));
    }
    let resumed = format!("{AI_SDK}/chat/stream");
    let resumed = user.request(Method::GET, &resumed).send().await;
    let resumed = resumed.expect("an answer");
    assert_eq!(resumed.status(), StatusCode::OK);
    let session = streams[2].1.clone();
    streams.push(("the stream of a chat", session, resumed));
    streams
}

#[tokio::test]
async fn chat_streams_end_with_the_key_and_those_of_others_continue() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let kept = hanging_turns(&alice).await;
    let ending = hanging_turns(&bob).await;
    key_command(&gateway, &["revoke", "bob"]);
    let began = Instant::now();
    for (path, _, response) in ending {
        let text = tokio::time::timeout(LONGEST, response.text()).await;
        let text = text.expect("the stream ends").expect("an orderly end");
        let reason = "the key of this request was revoked or has expired";
        assert!(text.contains(reason), "{path}: {text}");
    }
    let took = began.elapsed();
    figure(&format!(
        "the chat streams of a revoked key ended after {took:?}"
    ));
    assert!(took < SOON, "{took:?}");
    for (path, session, response) in kept {
        let cancel = format!("/v1/sessions/{session}/cancel");
        let cancelled = alice.call(Method::POST, &cancel).await;
        assert!(cancelled.status.is_success(), "{path}: {cancelled:?}");
        let text = response.text().await.expect("an orderly end");
        assert!(!text.contains("the key of this request"), "{path}: {text}");
        assert_eq!(alice.snapshot(&session).await["state"], "idle", "{path}");
    }
}
