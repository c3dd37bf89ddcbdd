//! Sends requests without the required rights to every route of the OpenAPI document. Admission rejects all of them.

use std::sync::Arc;
use std::time::Duration;

use acp_gateway::auth::{Keys, NewKey};
use acp_gateway::store::SqliteStore;
use acp_gateway::surface::rest;
use acp_gateway::types::{Ids, Limits, Scope, Tenant};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use crate::support::gateway::KEY;
use crate::support::{Events, Gateway, Setup, eventually};

/// An operation with a path that names nothing that exists.
struct Operation {
    method: Method,
    path: String,
    has_body: bool,
    /// Its path names something.
    named: bool,
}

fn operations() -> Vec<Operation> {
    operations_on("01938c5e-7a3b-7c4d-8e5f-0123456789ab", "nobody")
}

fn operations_on(session: &str, agent: &str) -> Vec<Operation> {
    let document: Value = serde_json::from_str(&rest::document_json()).expect("JSON");
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        let filled = path
            .replace("{session}", session)
            .replace("{prompt}", "p1")
            .replace("{request}", "r1")
            .replace("{terminal}", "t1")
            .replace("{agent}", agent)
            .replace("{option}", "model")
            .replace("{path}", "folder/file.txt")
            .replace("{signIn}", "01938c5e-7a3b-7c4d-8e5f-ba9876543210")
            .replace("{toolCall}", "call_1")
            .replace("{agentTerminal}", "term_1");
        assert!(!filled.contains('{'), "a new kind of path parameter: {path}");
        for (method, operation) in item.as_object().expect("operations") {
            operations.push(Operation {
                method: method.to_uppercase().parse().expect("a method"),
                named: *path != filled,
                has_body: operation["requestBody"].is_object(),
                path: filled.clone(),
            });
        }
    }
    assert!(operations.len() > 25);
    operations
}

impl Operation {
    fn request(&self, gateway: &Gateway) -> RequestBuilder {
        let request = gateway.http.request(self.method.clone(), format!("{}{}", gateway.url, self.path));
        if self.has_body { request.json(&json!({ "agent": "fake" })) } else { request }
    }

    fn is_public(&self) -> bool {
        !self.path.starts_with("/v1")
    }

    async fn refused(&self, request: RequestBuilder, status: StatusCode, code: &str) {
        let response = request.send().await.expect("an answer");
        let what = format!("{} {}", self.method, self.path);
        assert_eq!(response.status(), status, "{what}");
        assert_eq!(response.headers()["content-type"], "application/problem+json", "{what}");
        assert_eq!(response.headers()["x-content-type-options"], "nosniff", "{what}");
        assert_eq!(response.headers()["cache-control"], "no-store", "{what}");
        assert!(!response.headers().contains_key("access-control-allow-origin"), "{what}");
        let id = response.headers()["x-request-id"].to_str().expect("text").to_owned();
        let problem: Value = response.json().await.expect("JSON");
        assert_eq!(problem["code"], code, "{what}");
        assert_eq!(problem["status"], status.as_u16(), "{what}");
        assert_eq!(problem["type"], format!("/docs/problems#{code}"), "{what}");
        assert_eq!(problem["instance"], id, "{what}");
    }
}

#[tokio::test]
async fn invalid_key_reveals_nothing() {
    let gateway = Setup::fake(&[]).settings("auth.max_failed_keys_per_minute = 1000").start();
    for operation in operations().iter().filter(|operation| !operation.is_public()) {
        let refused = StatusCode::UNAUTHORIZED;
        operation.refused(operation.request(&gateway), refused, "unauthorized").await;
        let wrong = format!("{}x", &KEY[..KEY.len() - 1]);
        operation.refused(operation.request(&gateway).bearer_auth(wrong), refused, "unauthorized").await;
        let basic = operation.request(&gateway).basic_auth("user", Some(KEY));
        operation.refused(basic, refused, "unauthorized").await;
        let query = gateway
            .http
            .request(operation.method.clone(), format!("{}{}?key={KEY}", gateway.url, operation.path));
        operation.refused(query, refused, "unauthorized").await;
    }
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_also_with_the_key() {
    let gateway = Setup::fake(&[]).start();
    for operation in &operations() {
        for host in ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "localhost."] {
            let request = operation.request(&gateway).bearer_auth(KEY).header("host", host);
            operation.refused(request, StatusCode::MISDIRECTED_REQUEST, "misdirected_request").await;
        }
        for origin in ["http://evil.example", "null", "http://localhost:1", "http://127.0.0.1"] {
            let request = operation.request(&gateway).bearer_auth(KEY).header("origin", origin);
            operation.refused(request, StatusCode::FORBIDDEN, "forbidden").await;
        }
    }
}

/// A valid body for the operation.
fn body(path: &str) -> Value {
    match path.rsplit('/').nth(1).unwrap_or_default() {
        "requests" => json!({ "result": {} }),
        "permissions" => json!({ "optionId": "x" }),
        "elicitations" => json!({ "action": "cancel" }),
        "config" => json!({ "value": "x" }),
        _ if path.ends_with("/mode") => json!({ "modeId": "x" }),
        _ if path.ends_with("/auth") => json!({ "methodId": "x" }),
        _ if path.ends_with("/rpc") => json!({ "method": "_x" }),
        _ if path.ends_with("/prompts") || path.ends_with("/prompts/stream") => json!({ "prompt": "x" }),
        _ => json!({}),
    }
}

/// Makes a key of another tenant in the store of the running gateway, as `acp-gateway key` does.
async fn foreign_key(gateway: &Gateway) -> String {
    let (ids, limits) = (Ids::system(), Limits::default());
    let log = gateway.path("data/private/log.sqlite");
    let store = SqliteStore::open(&log, ids.clone(), &limits).expect("the gateway's store");
    let keys = Keys::open(Arc::new(store), ids, &limits, None).expect("its keys");
    let scopes = Scope::ALL.into_iter().collect();
    let new = NewKey { name: "mallory", tenant: Tenant::new("other"), scopes, limits: Vec::new() };
    let (text, _) = keys.create(&new).expect("a key");
    eventually("the gateway knows the key", Duration::from_secs(10), || async {
        let request = gateway.http.get(format!("{}/v1", gateway.url)).bearer_auth(text.expose());
        (request.send().await.expect("an answer").status() == StatusCode::OK).then_some(())
    })
    .await;
    text.expose().to_owned()
}

#[tokio::test]
async fn key_of_another_tenant_finds_nothing() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "permission wait=yes").await;
    let mut ours = gateway.events(&format!("/v1/sessions/{session}/events")).await;
    ours.until("request.created").await;
    let key = foreign_key(&gateway).await;
    let as_other = |method: Method, path: &str| {
        gateway.http.request(method, format!("{}{path}", gateway.url)).bearer_auth(&key)
    };
    // The response for an existing object is equal to the response for an unknown object.
    for operation in operations_on(&session, "fake").iter().filter(|one| one.path.contains(&session)) {
        let request = as_other(operation.method.clone(), &operation.path);
        let request = if operation.has_body { request.json(&body(&operation.path)) } else { request };
        operation.refused(request, StatusCode::NOT_FOUND, "not_found").await;
    }
    let one =
        as_other(Method::GET, &format!("/v1/events?session={session}")).send().await.expect("an answer");
    assert_eq!(one.status(), StatusCode::NOT_FOUND);
    let list: Value =
        as_other(Method::GET, "/v1/sessions").send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(list["sessions"], json!([]));
    let stream = as_other(Method::GET, "/v1/events").header("accept", "text/event-stream");
    let mut theirs = Events::new(stream.send().await.expect("an answer"));
    theirs.until("ready").await;
    gateway.post(&format!("/v1/sessions/{session}/cancel"), &json!({})).await;
    ours.until("prompt.completed").await;
    let made = as_other(Method::POST, "/v1/sessions").json(&json!({ "agent": "fake" }));
    let made: Value = made.send().await.expect("an answer").json().await.expect("JSON");
    let first = theirs.next().await.expect("the stream goes on");
    assert_eq!(first.data["sessionId"], made["sessionId"], "the first that it hears of is its own");
    assert_eq!(gateway.get("/v1/sessions").await["sessions"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn missing_object_is_not_found_on_every_route() {
    let gateway = Setup::fake(&[]).start();
    for operation in operations().iter().filter(|operation| operation.named) {
        let mut request = gateway.request(operation.method.clone(), &operation.path);
        if operation.has_body {
            request = request.json(&body(&operation.path));
        }
        operation.refused(request, StatusCode::NOT_FOUND, "not_found").await;
    }
}
