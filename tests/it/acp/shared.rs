//! Sessions that ACP clients share with each other and with REST.

use serde_json::{Value, json};

use super::raw::{Acp, chunks};
use crate::key_life::{key, user_key};
use crate::support::Setup;
use crate::support::gateway::KEY;

const PERMISSION: &str = "session/request_permission";

async fn load(acp: &mut Acp<'_>, session: &str) -> super::raw::Messages {
    let messages = acp.stream(Some(session), None).await;
    acp.send(
        "session/load",
        json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }),
    )
    .await;
    messages
}

#[tokio::test]
async fn rest_answers_the_permission_of_an_acp_client() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let (session, mut messages) = acp.session().await;
    let prompt = acp.prompt(&session, "permission").await;
    let request = messages.request(PERMISSION).await;
    assert_eq!(request["id"], format!("{session}:r1"));
    let path = format!("/v1/sessions/{session}/permissions/r1");
    let (status, _) = gateway.post(&path, &json!({ "optionId": "reject" })).await;
    assert!(status.is_success());
    let rest = messages.until(|message| message["id"] == prompt).await;
    let cancel = rest
        .iter()
        .find(|message| message["method"] == "$/cancel_request")
        .expect("the withdrawal");
    assert_eq!(cancel["params"]["requestId"], request["id"]);
    assert_eq!(chunks(&rest), ["permission: reject"]);
    // A late answer changes nothing.
    acp.allow(&request).await;
    let prompt = acp.prompt(&session, "echo still").await;
    let rest = messages.until(|message| message["id"] == prompt).await;
    assert_eq!(chunks(&rest), ["still"]);
}

#[tokio::test]
async fn first_answer_of_two_clients_wins() {
    let gateway = Setup::fake(&[]).start();
    let mut first = Acp::open(&gateway).await;
    let (session, mut one) = first.session().await;
    let mut second = Acp::open(&gateway).await;
    let mut two = load(&mut second, &session).await;
    let prompt = first.prompt(&session, "permission").await;
    let at_one = one.request(PERMISSION).await;
    let at_two = two.request(PERMISSION).await;
    assert_eq!(at_one, at_two, "the ids derive from the request");
    second.allow(&at_two).await;
    let cancelled = |message: &Value| message["method"] == "$/cancel_request";
    let seen = one.until(|message| message["id"] == prompt).await;
    assert_eq!(seen.iter().filter(|message| cancelled(message)).count(), 1);
    assert_eq!(chunks(&seen), ["permission: allow"]);
    let own = two
        .until(|message| !chunks(std::slice::from_ref(message)).is_empty())
        .await;
    assert!(
        !own.iter().any(cancelled),
        "its own answer is no withdrawal"
    );
}

#[tokio::test]
async fn second_prompt_waits_and_others_see_it_as_a_user_message() {
    let gateway = Setup::fake(&[]).start();
    let mut first = Acp::open(&gateway).await;
    let (session, mut one) = first.session().await;
    let mut second = Acp::open(&gateway).await;
    let mut two = load(&mut second, &session).await;
    let running = first.prompt(&session, "slow chunks=3 ms=100").await;
    let waiting = second.prompt(&session, "echo second").await;
    let seen = one
        .until(|message| chunks(std::slice::from_ref(message)) == ["second"])
        .await;
    let at = |fits: &dyn Fn(&Value) -> bool| seen.iter().position(fits).expect("it came");
    let end = at(&|message| message["id"] == running);
    let user = at(&|message| message["params"]["update"]["sessionUpdate"] == "user_message_chunk");
    assert!(
        end < user,
        "the message of a queued prompt comes when its turn starts"
    );
    assert_eq!(
        seen[user]["params"]["update"]["content"]["text"],
        "echo second"
    );
    let own = two.until(|message| message["id"] == waiting).await;
    let users = own
        .iter()
        .filter(|m| m["params"]["update"]["sessionUpdate"] == "user_message_chunk");
    let users: Vec<_> = users
        .map(|m| {
            m["params"]["update"]["content"]["text"]
                .as_str()
                .expect("a text")
        })
        .collect();
    assert_eq!(users, ["slow chunks=3 ms=100"]);
}

#[tokio::test]
async fn load_offers_open_permissions_after_its_response() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo before").await;
    gateway.prompt(&session, "permission").await;
    gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    let mut acp = Acp::open(&gateway).await;
    let mut messages = acp.stream(Some(&session), None).await;
    let id = acp
        .send(
            "session/load",
            json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }),
        )
        .await;
    let history = messages.until(|message| message["id"] == id).await;
    assert_eq!(chunks(&history), ["before"]);
    assert!(
        !history
            .iter()
            .any(|message| message["method"] == PERMISSION)
    );
    let request = messages.request(PERMISSION).await;
    acp.allow(&request).await;
    messages
        .until(|message| chunks(std::slice::from_ref(message)) == ["permission: allow"])
        .await;
}

#[tokio::test]
async fn keys_limit_the_calls_of_a_connection() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let reader = key(&gateway, "reader", "read").await;
    let mut acp = Acp::open_with(&gateway, &reader, &json!({})).await;
    let mut messages = load(&mut acp, &session).await;
    let created = acp
        .send("session/new", json!({ "cwd": "", "mcpServers": [] }))
        .await;
    let prompted = acp.prompt(&session, "echo no").await;
    let mode = acp
        .send(
            "session/set_mode",
            json!({ "sessionId": session, "modeId": "code" }),
        )
        .await;
    let mut connection = acp.stream(None, None).await;
    let refused = connection.response(created).await;
    assert_eq!(
        (&refused["error"]["code"], &refused["error"]["data"]["code"]),
        (&json!(-32602), &json!("forbidden"))
    );
    for id in [prompted, mode] {
        assert_eq!(
            messages.response(id).await["error"]["data"]["code"],
            "forbidden"
        );
    }
    // Its key cannot answer, so it does not get the request.
    gateway.prompt(&session, "permission").await;
    gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    let path = format!("/v1/sessions/{session}/permissions/r1");
    assert!(
        gateway
            .post(&path, &json!({ "optionId": "allow" }))
            .await
            .0
            .is_success()
    );
    let seen = messages
        .until(|message| chunks(std::slice::from_ref(message)) == ["permission: allow"])
        .await;
    assert!(
        !seen
            .iter()
            .any(|message| message["method"] == PERMISSION
                || message["method"] == "$/cancel_request")
    );
}

#[tokio::test]
async fn modes_options_and_lists_work_for_every_agent() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open_with(&gateway, KEY, &json!({})).await;
    let (session, mut messages) = acp.session().await;
    let mode = acp
        .send(
            "session/set_mode",
            json!({ "sessionId": session, "modeId": "code" }),
        )
        .await;
    let seen = messages.until(|message| message["id"] == mode).await;
    assert_eq!(seen.last().expect("it")["result"], json!({}));
    let option = json!({ "sessionId": session, "configId": "model", "value": "large" });
    let option = acp.send("session/set_config_option", option).await;
    let options = messages.response(option).await;
    assert_eq!(
        options["result"]["configOptions"][0]["currentValue"], "large",
        "{options}"
    );
    let unknown = acp
        .send("session/nonsense", json!({ "sessionId": session }))
        .await;
    assert!(messages.response(unknown).await["error"]["code"].is_i64());
    let mut connection = acp.stream(None, None).await;
    let list = acp.send("session/list", json!({})).await;
    let list = connection.response(list).await;
    assert_eq!(list["result"]["sessions"][0]["sessionId"], session);
    let closed = acp
        .send("session/close", json!({ "sessionId": session }))
        .await;
    assert_eq!(connection.response(closed).await["result"], json!({}));
    let load = acp
        .send(
            "session/load",
            json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }),
        )
        .await;
    assert!(
        messages.response(load).await["error"].is_null(),
        "load opens a closed session"
    );
    let deleted = acp
        .send("session/delete", json!({ "sessionId": session }))
        .await;
    assert_eq!(connection.response(deleted).await["result"], json!({}));
    let gone = acp
        .send(
            "session/resume",
            json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }),
        )
        .await;
    assert_eq!(connection.response(gone).await["error"]["code"], -32002);
    let other = acp.send("nonsense", json!({})).await;
    assert_eq!(connection.response(other).await["error"]["code"], -32601);
    let servers = json!([{ "name": "x", "command": "/bin/sh", "args": [], "env": [] }]);
    let brought = acp
        .send("session/new", json!({ "cwd": "", "mcpServers": servers }))
        .await;
    assert_eq!(
        connection.response(brought).await["error"]["data"]["code"],
        "forbidden"
    );
}

#[tokio::test]
async fn client_of_another_user_finds_no_session() {
    let gateway = Setup::fake(&[]).start();
    let mut acp = Acp::open(&gateway).await;
    let (session, mut messages) = acp.session().await;
    let prompt = acp.prompt(&session, "permission").await;
    let request = messages.request(PERMISSION).await;
    let events = gateway.all_events(&session).await;
    let started = events
        .iter()
        .find(|event| event["type"] == "prompt.started")
        .expect("it");
    assert_eq!(
        started["acpRequest"],
        json!({ "client": format!("owner/{}", acp.id), "id": prompt })
    );
    // The client of another user chooses the id of the connection as its name, and does not find the session.
    let other = user_key(&gateway, "other", "read,prompt").await;
    let name = json!({ "_meta": { "acp-gateway": { "client": acp.id } } });
    let mut thief = Acp::open_with(&gateway, &other, &name).await;
    let mut connection = thief.stream(None, None).await;
    for method in ["session/load", "session/resume"] {
        let params = json!({ "sessionId": session, "cwd": "/", "mcpServers": [] });
        let id = thief.send(method, params).await;
        assert_eq!(
            connection.response(id).await["error"]["code"],
            -32002,
            "{method}"
        );
    }
    acp.allow(&request).await;
    assert_eq!(
        messages.response(prompt).await["result"]["stopReason"],
        "end_turn"
    );
    // A key without `read` cannot follow a session, also not one that it creates.
    let blind = key(&gateway, "blind", "prompt").await;
    let mut blind = Acp::open_with(&gateway, &blind, &json!({})).await;
    let mut connection = blind.stream(None, None).await;
    for (method, params) in [
        ("session/new", json!({ "cwd": "", "mcpServers": [] })),
        (
            "session/load",
            json!({ "sessionId": session, "cwd": "/", "mcpServers": [] }),
        ),
    ] {
        let id = blind.send(method, params).await;
        assert_eq!(
            connection.response(id).await["error"]["data"]["code"],
            "forbidden",
            "{method}"
        );
    }
}
