//! MCP servers that a client brings: the scope `mcp`.

use std::time::Duration;

use serde_json::{Value, json};

use super::raw::Acp;
use crate::key_life::key;
use crate::support::gateway::KEY;
use crate::support::{Answer, Gateway, Setup, eventually};

const ALL_BUT_MCP: &str = "read,prompt,approve,files,admin";

fn server(name: &str) -> Value {
    let env = json!([{ "name": "TOKEN", "value": "s3cret-value" }]);
    json!({ "name": name, "command": "/bin/mcp", "args": ["-v"], "env": env })
}

fn remote() -> Value {
    json!({ "type": "http", "name": "docs", "url": "https://mcp.example/docs", "headers": [] })
}

/// The MCP servers of each request with this method that the agent received.
async fn received(gateway: &Gateway, method: &str, count: usize) -> Vec<Value> {
    let file = gateway.path("data/homes/default/fake/received");
    eventually(
        "the agent has its record",
        Duration::from_secs(10),
        async || {
            let text = std::fs::read_to_string(&file).ok()?;
            let calls = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let calls = calls.filter(|call| call["method"] == method);
            let servers: Vec<Value> = calls
                .map(|call| call["params"]["mcpServers"].clone())
                .collect();
            (servers.len() == count).then_some(servers)
        },
    )
    .await
}

async fn create(acp: &mut Acp<'_>, servers: &Value) -> Value {
    let mut connection = acp.stream(None, None).await;
    let id = acp
        .send("session/new", json!({ "cwd": "", "mcpServers": servers }))
        .await;
    connection.response(id).await
}

async fn capabilities(gateway: &Gateway, key: &str) -> Value {
    let opened = super::raw::request(gateway, reqwest::Method::POST, key);
    let opened = opened
        .json(&super::raw::initialize(0, &json!({})))
        .send()
        .await
        .expect("a response");
    let opened: Value = opened.json().await.expect("JSON");
    opened["result"]["agentCapabilities"]["mcpCapabilities"].clone()
}

#[tokio::test]
async fn key_with_the_scope_mcp_brings_servers_and_others_do_not() {
    let gateway = Setup::fake_with(&["--log", "received", "--mcp"], "").start();
    let own = key(&gateway, "editor", "read,prompt,mcp").await;
    let other = key(&gateway, "other", ALL_BUT_MCP).await;
    for (key, http) in [(own.as_str(), true), (&other, false), (KEY, false)] {
        assert_eq!(capabilities(&gateway, key).await["http"], http);
    }
    let servers = json!([server("files"), remote()]);
    for key in [other.as_str(), KEY] {
        let mut acp = Acp::open_with(&gateway, key, &json!({})).await;
        let refused = create(&mut acp, &servers).await;
        assert_eq!(refused["error"]["data"]["code"], "forbidden", "{refused}");
        let body = json!({ "agent": "fake", "mcpServers": servers });
        let rest = Answer::of(
            gateway
                .http
                .post(format!("{}/v1/sessions", gateway.url))
                .bearer_auth(key)
                .json(&body),
        )
        .await;
        assert_eq!(
            (rest.status.as_u16(), &rest.body["code"]),
            (403, &json!("forbidden"))
        );
    }
    let mut acp = Acp::open_with(&gateway, &own, &json!({})).await;
    let created = create(&mut acp, &servers).await;
    assert!(created["result"]["sessionId"].is_string(), "{created}");
    let body = json!({ "agent": "fake", "mcpServers": servers });
    let rest = gateway
        .http
        .post(format!("{}/v1/sessions", gateway.url))
        .bearer_auth(&own)
        .json(&body);
    let rest = Answer::of(rest).await;
    assert_eq!(rest.status.as_u16(), 201, "{:?}", rest.body);
    assert_eq!(
        received(&gateway, "session/new", 2).await,
        [servers.clone(), servers]
    );

    // The secrets of the client are in no answer, no event, no log and no file of the gateway.
    let session = rest.body["sessionId"].as_str().expect("an id");
    let events = json!(gateway.all_events(session).await).to_string();
    for (place, text) in [
        ("answer", rest.body.to_string()),
        ("events", events),
        ("log", gateway.log()),
    ] {
        assert!(!text.contains("s3cret-value"), "{place}: {text}");
    }
    let database = gateway.path("data");
    for entry in std::fs::read_dir(database).expect("the data folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("a file");
            assert!(
                memchr::memmem::find(&bytes, b"s3cret-value").is_none(),
                "{}",
                path.display()
            );
        }
    }
}

#[tokio::test]
async fn invalid_servers_are_rejected_before_a_process_gets_them() {
    let gateway = Setup::fake_with(&["--log", "received"], "").start();
    let own = key(&gateway, "editor", "read,prompt,mcp").await;
    let mut acp = Acp::open_with(&gateway, &own, &json!({})).await;
    for (servers, expected) in [
        (json!([{ "name": "x" }]), "/mcpServers/0"),
        (json!([server("a"), server("a")]), "/mcpServers/1"),
        (json!([remote()]), "/mcpServers/0"),
        (json!([server("\u{1b}[2J")]), "/mcpServers/0"),
    ] {
        let refused = create(&mut acp, &servers).await;
        assert_eq!(
            refused["error"]["data"]["errors"][0]["pointer"], expected,
            "{refused}"
        );
    }
    assert!(received(&gateway, "session/new", 0).await.is_empty());
}

#[tokio::test]
async fn loaded_session_gets_the_servers_of_the_client() {
    let gateway = Setup::fake_with(&["--log", "received", "--state", "state"], "").start();
    let own = key(&gateway, "editor", "read,prompt,mcp").await;
    let session = gateway.session("fake").await;
    gateway.turn(&session, "echo hello").await;
    let load = |servers: Value| json!({ "sessionId": session, "cwd": "/", "mcpServers": servers });
    // Without the scope, the servers of a load are ignored.
    let mut weak = Acp::open(&gateway).await;
    let mut ignored = weak.stream(Some(&session), None).await;
    let id = weak
        .send("session/load", load(json!([server("ignored")])))
        .await;
    assert!(ignored.response(id).await["error"].is_null());
    let mut acp = Acp::open_with(&gateway, &own, &json!({})).await;
    let mut messages = acp.stream(Some(&session), None).await;
    for servers in [
        json!([server("files")]),
        json!([server("files")]),
        json!([]),
    ] {
        let id = acp.send("session/load", load(servers)).await;
        assert!(messages.response(id).await["error"].is_null());
        assert_eq!(gateway.turn(&session, "echo again").await["text"], "again");
    }
    let restored = received(&gateway, "session/load", 1).await;
    assert_eq!(
        restored,
        [json!([server("files")])],
        "the same or no servers change nothing"
    );
}
