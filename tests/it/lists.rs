//! Every list of the document pages in the same way, and no entry is missed or repeated.

use std::collections::BTreeSet;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::places::{fake_agent, project};
use crate::support::{Gateway, Setup};

/// A list of the document: its path, the member of its response with the entries, and their identity.
const LISTS: &[(&str, &str, &str)] = &[
    ("/v1/agents", "agents", "/name"),
    ("/v1/agents/{agent}/status", "processes", "/agentId"),
    ("/v1/fleet", "members", "/name"),
    ("/v1/keys", "keys", "/keyId"),
    ("/v1/registry", "agents", "/id"),
    ("/v1/sessions", "sessions", "/sessionId"),
    ("/v1/sessions/{session}/changes", "files", "/path"),
    ("/v1/sessions/{session}/files", "files", "/name"),
    ("/v1/sessions/{session}/prompts", "prompts", "/promptId"),
    ("/v1/sessions/{session}/requests", "requests", "/requestId"),
    (
        "/v1/sessions/{session}/terminals",
        "terminals",
        "/terminalId",
    ),
    ("/v1/sessions/{session}/transcript", "turns", "/promptId"),
    ("/v1/tasks", "tasks", "/taskId"),
    ("/v1/webhooks", "webhooks", "/webhookId"),
    ("/v1/webhooks/deliveries", "deliveries", "/deliveryId"),
    ("/v1/workspaces", "folders", "/path"),
];

/// A list of the agent, whose pages and sizes are those of the agent.
const OF_THE_AGENT: &str = "/v1/agents/{agent}/sessions";

fn documented() -> Value {
    let file = project().join("openapi/openapi.json");
    let text = std::fs::read_to_string(file).expect("the document is committed");
    serde_json::from_str(&text).expect("JSON")
}

/// The paths whose `GET` returns pages of entries, not positions of a log.
fn list_paths(document: &Value) -> BTreeSet<&str> {
    let schemas = &document["components"]["schemas"];
    let is_list = |operation: &Value| {
        let reference = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        let name = reference["$ref"]
            .as_str()
            .and_then(|reference| reference.rsplit('/').next());
        name.is_some_and(|name| schemas[name]["properties"]["nextCursor"].is_object())
    };
    let paths = document["paths"].as_object().expect("paths").iter();
    paths
        .filter(|(_, item)| is_list(&item["get"]))
        .map(|(path, _)| path.as_str())
        .collect()
}

/// The ids of all entries, read in pages of one. `between` runs after each page.
async fn read_in_pages(
    gateway: &Gateway,
    path: &str,
    member: &str,
    id: &str,
    mut between: impl AsyncFnMut(),
) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..100 {
        let separator = if path.contains('?') { '&' } else { '?' };
        let mut page = format!("{path}{separator}limit=1");
        if let Some(cursor) = &cursor {
            page = format!("{page}&cursor={cursor}");
        }
        let page = gateway.get(&page).await;
        let entries = page[member].as_array().expect("a list");
        assert!(entries.len() <= 1, "{path}: {page}");
        ids.extend(entries.iter().map(|entry| {
            let id = entry.pointer(id).and_then(Value::as_str);
            id.unwrap_or_else(|| panic!("{path}: {entry}")).to_owned()
        }));
        let Some(next) = page["nextCursor"].as_str() else {
            return ids;
        };
        cursor = Some(next.replace('/', "%2F").replace('+', "%2B"));
        between().await;
    }
    panic!("{path} has no last page: {ids:?}");
}

#[tokio::test]
async fn every_list_of_the_document_pages_with_limit_and_cursor() {
    let document = documented();
    let mut paths = list_paths(&document);
    let mut known: BTreeSet<&str> = LISTS.iter().map(|(path, _, _)| *path).collect();
    known.insert(OF_THE_AGENT);
    paths.retain(|path| !path.contains("/events") && *path != "/v1/audit");
    assert_eq!(paths, known);
    for path in &paths {
        let parameters = document["paths"][path]["get"]["parameters"].to_string();
        for name in ["\"limit\"", "\"cursor\""] {
            assert!(parameters.contains(name), "{path}: {name}");
        }
    }

    let gateway = Setup::fake(&[])
        .agent("other", fake_agent(), &[], "")
        .start();
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(gateway.session("fake").await);
    }
    let session = sessions[0].clone();
    for name in ["a", "b", "c"] {
        gateway.turn(&session, "echo hello").await;
        let file = format!("/v1/sessions/{session}/files/{name}");
        let written = gateway
            .request(Method::PUT, &file)
            .body("text")
            .send()
            .await
            .expect("an answer");
        assert_eq!(written.status(), StatusCode::CREATED);
    }
    for (path, member, id) in LISTS {
        let path = path
            .replace("{session}", &session)
            .replace("{agent}", "fake");
        let whole = gateway.get(&path).await;
        let entries = whole[*member].as_array().expect("a list");
        assert!(whole["nextCursor"].is_null(), "{path}: {whole}");
        let expected: BTreeSet<String> = entries
            .iter()
            .map(|entry| {
                let id = entry.pointer(id).and_then(Value::as_str);
                id.unwrap_or_else(|| panic!("{path}: {entry}")).to_owned()
            })
            .collect();
        assert_eq!(expected.len(), entries.len(), "{path}: {whole}");
        let read = read_in_pages(&gateway, &path, member, id, async || {}).await;
        assert_eq!(read.len(), expected.len(), "{path}: {read:?}");
        assert_eq!(
            read.into_iter().collect::<BTreeSet<_>>(),
            expected,
            "{path}"
        );
    }
    let turns = format!("/v1/sessions/{session}/transcript?limit=1");
    let first = gateway.get(&turns).await;
    let next = first["nextCursor"].as_str().expect("three turns");
    let before = gateway.get(&format!("{turns}&before={next}")).await;
    let cursor = gateway.get(&format!("{turns}&cursor={next}")).await;
    assert_eq!(before["turns"], cursor["turns"]);
}

#[tokio::test]
async fn a_session_that_becomes_active_between_pages_is_listed_once() {
    let gateway = Setup::fake(&[]).start();
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(gateway.session("fake").await);
    }
    let last = sessions[3].clone();
    let first = sessions[0].clone();
    for path in [
        "/v1/sessions?order=created",
        "/v1/sessions?order=created&agent=fake",
    ] {
        let read = read_in_pages(&gateway, path, "sessions", "/sessionId", async || {
            gateway.turn(&last, "echo hello").await;
            gateway.turn(&first, "echo hello").await;
        })
        .await;
        assert_eq!(read, sessions, "{path}");
    }
    let (status, refused) = gateway
        .send(Method::GET, "/v1/sessions?order=title", &Value::Null)
        .await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    assert_eq!(
        refused["errors"],
        json!([
            { "pointer": "order", "detail": "expected updated or created" }
        ])
    );
}
