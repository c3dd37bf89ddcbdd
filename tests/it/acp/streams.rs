//! Streams that are read by several readers, cut, and resumed.

use serde_json::{Value, json};

use super::raw::{Acp, chunks};
use crate::support::Setup;

#[tokio::test]
async fn cut_stream_continues_after_the_last_read_message() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let (session, mut messages) = acp.session().await;
    let prompt = acp.prompt(&session, "stream n=2000").await;
    let mut read = Vec::new();
    for _ in 0..18 {
        read.push(messages.next().await);
    }
    let last = messages.last.clone();
    drop(messages);
    let mut messages = acp.stream(Some(&session), Some(&last)).await;
    let rest = messages.until(|message| message["id"] == prompt).await;
    assert_eq!(
        rest.last().expect("the response")["result"]["stopReason"],
        "end_turn"
    );
    read.extend(rest);
    let texts = chunks(&read);
    assert_eq!(texts.len(), 2000);
    assert!(
        texts
            .iter()
            .enumerate()
            .all(|(at, text)| text.starts_with(&format!("{at:08} "))),
        "once and in order"
    );
    // The whole stream again, from its first message.
    let first = acp.stream(Some(&session), None).await;
    drop(first);
    let begin = format!(
        "{}-0.0/{}.0",
        last.split('-').next().expect("an epoch"),
        acp.id
    );
    let mut again = acp.stream(Some(&session), Some(&begin)).await;
    let again = again.until(|message| message["id"] == prompt).await;
    assert_eq!(again, read, "a replay yields the same messages");
}

#[tokio::test]
async fn two_readers_get_every_message_of_a_session() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let (session, mut one) = acp.session().await;
    let mut other = acp.stream(Some(&session), None).await;
    let prompt = acp.prompt(&session, "stream n=50; permission").await;
    let request = one.request("session/request_permission").await;
    acp.allow(&request).await;
    assert_eq!(
        one.response(prompt).await["result"]["stopReason"],
        "end_turn"
    );
    let all = other.until(|message| message["id"] == prompt).await;
    assert_eq!(chunks(&all).len(), 51);
    assert!(all.iter().any(|message| message["id"] == request["id"]));
}

#[tokio::test]
async fn responses_of_the_connection_survive_a_cut() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let mut stream = acp.stream(None, None).await;
    let first = acp.send("session/list", json!({})).await;
    stream.response(first).await;
    let last = stream.last.clone();
    drop(stream);
    let second = acp.send("session/list", json!({})).await;
    let mut stream = acp.stream(None, Some(&last)).await;
    assert_eq!(stream.next().await["id"], second);
    let mut from_begin = acp.stream(None, Some(&format!("{}.0", acp.id))).await;
    assert_eq!(from_begin.next().await["id"], first);
}

#[tokio::test]
async fn events_with_several_messages_resume_between_them() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let (session, mut messages) = acp.session().await;
    let blocks: Vec<Value> = (0..4)
        .map(|at| json!({ "type": "text", "text": format!("block {at}") }))
        .collect();
    let (status, _) = gateway
        .post(
            &format!("/v1/sessions/{session}/prompts"),
            &json!({ "prompt": blocks }),
        )
        .await;
    assert!(status.is_success());
    let user = |message: &Value| {
        let update = &message["params"]["update"];
        (update["sessionUpdate"] == "user_message_chunk").then(|| update["content"]["text"].clone())
    };
    let first = messages.next().await;
    assert_eq!(
        user(&first),
        Some(json!("block 0")),
        "the prompt of another client"
    );
    assert_eq!(first["params"]["_meta"]["acp-gateway"]["by"], "owner");
    let mut rest = acp.stream(Some(&session), Some(&messages.last)).await;
    for at in 1..4 {
        assert_eq!(user(&rest.next().await), Some(json!(format!("block {at}"))));
    }
}

#[tokio::test]
async fn named_client_continues_on_a_new_connection_after_a_kill() {
    let mut gateway = Setup::fake(&["--resume", "--state", "state"]).start();
    let name = json!({ "_meta": { "acp-gateway": { "client": "client-0123456789" } } });
    let mut acp = Acp::open_with(&gateway, crate::support::gateway::KEY, &name).await;
    let (session, mut messages) = acp.session().await;
    let prompt = acp.prompt(&session, "stream n=5; hang").await;
    messages
        .until(|message| {
            message["params"]["update"]["content"]["text"]
                .as_str()
                .is_some_and(|t| t.starts_with("00000004"))
        })
        .await;
    let last = messages.last.clone();
    drop((messages, acp));
    gateway.kill();
    gateway.start();
    let mut acp = Acp::open_with(&gateway, crate::support::gateway::KEY, &name).await;
    let mut stream = acp.stream(None, None).await;
    let resume = acp
        .send(
            "session/resume",
            json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }),
        )
        .await;
    assert!(stream.response(resume).await["error"].is_null());
    let mut messages = acp.stream(Some(&session), Some(&last)).await;
    let rest = messages.until(|message| message["id"] == prompt).await;
    assert!(chunks(&rest).is_empty(), "nothing twice: {rest:?}");
    let error = &rest.last().expect("the response")["error"];
    assert_eq!(
        (&error["code"], &error["data"]["code"]),
        (&json!(-32603), &json!("interrupted")),
        "{error}"
    );
    // A prompt whose POST had no response is sent again, and runs once.
    for _ in 0..2 {
        let blocks = json!([{ "type": "text", "text": "echo once" }]);
        let params = json!({ "sessionId": session, "prompt": blocks });
        acp.post(&json!({ "jsonrpc": "2.0", "id": "again", "method": "session/prompt", "params": params }))
            .await;
    }
    messages.until(|message| message["id"] == "again").await;
    let prompts = gateway
        .get(&format!("/v1/sessions/{session}/prompts"))
        .await;
    assert_eq!(prompts["prompts"].as_array().expect("a list").len(), 2);
}

#[tokio::test]
async fn position_of_an_earlier_connection_hides_no_response() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let id = acp.send("session/list", json!({})).await;
    let mut stream = acp
        .stream(None, Some("01938c5e-7a3b-7c4d-8e5f-0123456789ab.57"))
        .await;
    assert_eq!(stream.next().await["id"], id);
}

#[tokio::test]
async fn second_load_keeps_the_response_that_no_stream_has_delivered() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let (session, messages) = acp.session().await;
    drop(messages);
    let prompt = acp.prompt(&session, "echo one").await;
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    let resume = acp.send("session/resume", params.clone()).await;
    let load = acp.send("session/load", params).await;
    let mut connection = acp.stream(None, None).await;
    for id in [resume, load] {
        assert!(connection.response(id).await["error"].is_null());
    }
    let mut messages = acp.stream(Some(&session), None).await;
    let seen = messages.until(|message| message["id"] == prompt).await;
    assert_eq!(chunks(&seen), ["one"]);
}

#[tokio::test]
async fn streams_of_unknown_sessions_are_bounded_and_released() {
    let gateway = Setup::fake(&[]).start();
    let acp = Acp::open(&gateway).await;
    let open = async |name: &str| {
        let get = acp
            .head(reqwest::Method::GET)
            .header("accept", "text/event-stream");
        get.header("acp-session-id", name)
            .send()
            .await
            .expect("a response")
    };
    let mut streams = Vec::new();
    for at in 0..16 {
        streams.push(open(&format!("unknown-{at}")).await);
        assert!(streams[at].status().is_success());
    }
    assert_eq!(open("one-more").await.status().as_u16(), 429);
    drop(streams);
    crate::support::eventually(
        "room for a stream",
        std::time::Duration::from_secs(10),
        || async { open("one-more").await.status().is_success().then_some(()) },
    )
    .await;
}

#[tokio::test]
async fn repeated_requests_of_a_named_client_run_once_and_count_once() {
    let gateway = Setup::fake(&["--fork", "--state", "state", "--resume"])
        .settings("limits.per_key.max_prompts_per_minute = 1")
        .start();
    let name = json!({ "_meta": { "acp-gateway": { "client": "client-0123456789" } } });
    let mut acp = Acp::open_with(&gateway, crate::support::gateway::KEY, &name).await;
    let (session, mut messages) = acp.session().await;
    let blocks = json!([{ "type": "text", "text": "echo once" }]);
    let params = json!({ "sessionId": session, "prompt": blocks });
    let prompt =
        json!({ "jsonrpc": "2.0", "id": "again", "method": "session/prompt", "params": params });
    for _ in 0..3 {
        acp.post(&prompt).await;
        gateway
            .log_until(&session, |event| event["type"] == "prompt.completed")
            .await;
    }
    let response = messages
        .until(|message| message["id"] == "again")
        .await
        .pop()
        .expect("it");
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    let other = acp.prompt(&session, "echo other").await;
    let rest = messages.until(|message| message["id"] == other).await;
    assert_eq!(
        rest.len(),
        1,
        "a repeated prompt has no second response: {rest:?}"
    );
    assert_eq!(rest[0]["error"]["data"]["code"], "rate_limited");
    // A fork that is sent again is the same session.
    let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
    let fork =
        json!({ "jsonrpc": "2.0", "id": "fork", "method": "session/fork", "params": params });
    let mut connection = acp.stream(None, None).await;
    let mut forks = Vec::new();
    for _ in 0..2 {
        acp.post(&fork).await;
        let response = connection
            .until(|message| message["id"] == "fork")
            .await
            .pop()
            .expect("it");
        forks.push(
            response["result"]["sessionId"]
                .as_str()
                .unwrap_or_else(|| panic!("{response}"))
                .to_owned(),
        );
    }
    assert_eq!(forks[0], forks[1]);
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
}
