//! A prompt whose request or response is cut, and a client that sends it again.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::gateway::KEY;
use crate::support::history::PromptAnswer;
use crate::support::lean::Kept;
use crate::support::proxy::{Flow, Proxy};
use crate::support::{Gateway, History, Setup};

/// The bytes of a prompt's request.
fn request(gateway: &Gateway, session: &str, key: &str) -> Vec<u8> {
    let body = json!({ "prompt": format!("echo {key}") }).to_string();
    let host = gateway.address();
    let length = body.len();
    format!(
        "POST /v1/sessions/{session}/prompts HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\nidempotency-key: {key}\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}

/// All bytes received before the end of the connection, for any kind of end.
async fn send(to: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    let Ok(mut socket) = TcpStream::connect(to).await else {
        return answer;
    };
    if socket.write_all(request).await.is_ok() {
        while socket
            .read_buf(&mut answer)
            .await
            .is_ok_and(|read| read > 0)
        {}
    }
    answer
}

/// Sends the prompt again without a fault, waits for the turn's end, and records the response.
async fn again(
    gateway: &Gateway,
    session: &str,
    key: &str,
    history: &mut History,
) -> (Value, bool) {
    let path = format!("/v1/sessions/{session}/prompts");
    let body = json!({ "prompt": format!("echo {key}") });
    let answer = gateway
        .posted(
            &path,
            &[("idempotency-key", key), ("prefer", "wait=30")],
            &body,
        )
        .await;
    let prompt = answer.body["promptId"]
        .as_str()
        .expect("it was admitted")
        .to_owned();
    history.prompts.push(PromptAnswer {
        session: session.to_owned(),
        key: Some(key.to_owned()),
        status: answer.status.as_u16(),
        prompt: Some(prompt),
    });
    let replayed = answer.header("idempotency-replayed") == Some("true");
    assert_eq!(
        (&answer.body["status"], &answer.body["text"]),
        (&json!("completed"), &json!(key))
    );
    (answer.body, replayed)
}

#[tokio::test]
async fn a_prompt_that_is_cut_and_sent_again_runs_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().to_str().expect("UTF-8");
    let setup = Setup::fake(&["--journal", journal]);
    let limits = "limits.per_key.max_prompts_per_minute = 10000\nlimits.per_key.max_requests_per_minute = 10000";
    let gateway = setup.settings(limits).start();
    let session = gateway.session("fake").await;
    let proxy = Proxy::start(gateway.address()).await;
    let prompts = async || {
        let listed = gateway
            .get(&format!("/v1/sessions/{session}/prompts"))
            .await;
        listed["prompts"].as_array().expect("prompts").len()
    };
    let mut history = History::default();
    let mut client = Kept::new(&gateway, &session);

    // Cut in its head or in its body: no turn has run, and the key is unused.
    let whole = request(&gateway, &session, "up-0").len();
    for (at, passes) in [1, 40, whole - 20, whole - 1].into_iter().enumerate() {
        let key = format!("up-{at}");
        proxy.up(Flow::CutAfter(passes));
        assert_eq!(
            send(proxy.address, &request(&gateway, &session, &key)).await,
            b"",
            "{passes} bytes"
        );
        assert_eq!(prompts().await, at, "{passes} bytes are no prompt");
        assert!(!again(&gateway, &session, &key, &mut history).await.1);
    }
    proxy.up(Flow::Pass);

    // Cut in its response: the turn has run, and a repeated request returns the same turn.
    let response = send(gateway.address(), &request(&gateway, &session, "whole")).await;
    let ran = prompts().await;
    assert!(response.starts_with(b"HTTP/1.1 202 "));
    again(&gateway, &session, "whole", &mut history).await;
    for (at, passes) in [1, 9, 200, response.len() / 2, response.len() - 30]
        .into_iter()
        .enumerate()
    {
        let key = format!("down-{at}");
        proxy.down(Flow::CutAfter(passes));
        let answer = send(proxy.address, &request(&gateway, &session, &key)).await;
        assert_eq!(answer.len(), passes, "the rest was cut");
        let (prompt, replayed) = again(&gateway, &session, &key, &mut history).await;
        assert!(replayed, "{passes} bytes: {prompt}");
        assert_eq!(prompts().await, ran + at + 1);
    }

    let last = gateway.last_seq(&session).await;
    client.reach(gateway.address(), last).await;
    let seen = History::kept(&gateway, &session, vec![client])
        .await
        .with_agents(folder.path());
    History {
        prompts: history.prompts,
        plain_words: true,
        ..seen
    }
    .assert_holds();
}
