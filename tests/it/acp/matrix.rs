//! The routes of `/acp` with every kind of principal and every method. They speak JSON-RPC and are not in the OpenAPI document.

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use super::raw::{Acp, initialize};
use crate::key_life::user_key;
use crate::route_walk::principals::{Principal, principals};
use crate::support::{Gateway, Setup};

const PATHS: [&str; 4] = ["/acp", "/acp/fake", "/acp?agent=fake", "/acp/nobody"];
/// The test sends more invalid keys than a person may.
const LIMITS: &str = "auth.max_failed_keys_per_minute = 100000";
const UNKNOWN: &str = "01938c5e-7a3b-7c4d-8e5f-0123456789ab";

fn request(
    gateway: &Gateway,
    principal: &Principal,
    method: &Method,
    path: &str,
) -> RequestBuilder {
    let request = gateway
        .http
        .request(method.clone(), format!("{}{path}", gateway.url));
    match &principal.key {
        Some(key) => request.bearer_auth(key),
        None => request,
    }
}

/// A key that has only `fleet` or `metrics` gets nothing here.
fn opens_nothing(principal: &Principal) -> bool {
    ["fleet", "metrics"].contains(&principal.name)
}

/// Checks the status and that the body is a JSON-RPC error without an id.
async fn rejected(request: RequestBuilder, status: u16, what: &str) -> Response {
    let response = request.send().await.expect("a response");
    assert_eq!(response.status().as_u16(), status, "{what}");
    assert_eq!(
        response.headers()["content-type"],
        "application/json",
        "{what}"
    );
    assert_eq!(
        response.headers()["x-content-type-options"],
        "nosniff",
        "{what}"
    );
    assert!(!response.headers().contains_key("set-cookie"), "{what}");
    response
}

async fn error(request: RequestBuilder, status: u16, what: &str) {
    let body: Value = rejected(request, status, what)
        .await
        .json()
        .await
        .expect("JSON");
    assert_eq!(
        (&body["jsonrpc"], &body["id"]),
        (&json!("2.0"), &Value::Null),
        "{what}: {body}"
    );
    assert!(
        body["error"]["code"].is_i64() && body["error"]["message"].is_string(),
        "{what}: {body}"
    );
}

#[tokio::test]
async fn every_route_answers_every_principal_and_method() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let stranger = user_key(&gateway, "stranger", "read,prompt").await;
    let foreign = Acp::open_with(&gateway, &stranger, &json!({})).await;
    let known = [
        "GET", "HEAD", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get",
    ];
    for principal in &principals(&gateway).await {
        for path in PATHS {
            for method in known {
                let what = format!("{}: {method} {path}", principal.name);
                let method: Method = method.parse().expect("a token");
                let of = || request(&gateway, principal, &method, path);
                if principal.scopes.is_none() {
                    let response = rejected(of(), 401, &what).await;
                    assert!(
                        response.headers().contains_key("www-authenticate"),
                        "{what}"
                    );
                    continue;
                }
                if opens_nothing(principal) {
                    match method.as_str() {
                        "HEAD" => drop(rejected(of(), 403, &what).await),
                        "GET" | "POST" | "DELETE" => error(of(), 403, &what).await,
                        _ => error(of(), 405, &what).await,
                    }
                    continue;
                }
                let json =
                    of().json(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/list" }));
                let events = of().header("accept", "text/event-stream");
                match method.as_str() {
                    "HEAD" => drop(rejected(of(), 406, &what).await),
                    "GET" => {
                        error(of(), 406, &what).await;
                        error(events.try_clone().expect("no body"), 400, &what).await;
                        for id in [UNKNOWN, "x"] {
                            let get = events
                                .try_clone()
                                .expect("no body")
                                .header("acp-connection-id", id);
                            error(get, 404, &what).await;
                        }
                        error(of().header("upgrade", "websocket"), 400, &what).await;
                    }
                    "POST" => {
                        error(of(), 415, &what).await;
                        error(
                            of().header("content-type", "text/plain").body("{}"),
                            415,
                            &what,
                        )
                        .await;
                        error(
                            of().header("content-type", "application/json").body("["),
                            400,
                            &what,
                        )
                        .await;
                        error(json.try_clone().expect("a body"), 400, &what).await;
                        error(json.header("acp-connection-id", UNKNOWN), 404, &what).await;
                    }
                    "DELETE" => {
                        error(of(), 400, &what).await;
                        error(of().header("acp-connection-id", UNKNOWN), 404, &what).await;
                    }
                    _ => error(of(), 405, &what).await,
                }
                // The connection of another principal does not exist.
                if principal.name != "the configured admin" && method == Method::DELETE {
                    error(of().header("acp-connection-id", &foreign.id), 404, &what).await;
                }
            }
            let post =
                request(&gateway, principal, &Method::POST, path).json(&initialize(0, &json!({})));
            if principal.scopes.is_some() {
                let answer: Value = post
                    .send()
                    .await
                    .expect("a response")
                    .json()
                    .await
                    .expect("JSON");
                let is_there = !path.contains("nobody") && !opens_nothing(principal);
                assert_eq!(
                    answer["result"].is_object(),
                    is_there,
                    "{}: {path}: {answer}",
                    principal.name
                );
            }
        }
    }
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"],
        json!([]),
        "no request has changed anything"
    );
}

#[tokio::test]
async fn every_method_checks_the_scopes_before_the_session() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let methods = [
        ("session/new", "prompt"),
        ("session/load", "read"),
        ("session/resume", "read"),
        ("session/attach", "read"),
        ("session/list", "read"),
        ("session/fork", "prompt"),
        ("session/close", "prompt"),
        ("session/delete", "prompt"),
        ("session/prompt", "prompt"),
        ("session/set_mode", "approve"),
        ("session/set_config_option", "approve"),
        ("_vendor/x", "approve"),
        ("authenticate", "admin"),
    ];
    let asks = json!({ "_meta": { "acp-gateway": { "attach": true } } });
    for principal in &principals(&gateway).await {
        let (Some(_), Some(key)) = (principal.scopes, &principal.key) else {
            continue;
        };
        if opens_nothing(principal) {
            continue;
        }
        let mut acp = Acp::open_with(&gateway, key, &asks).await;
        let mut stream = acp.stream(None, None).await;
        for (method, scope) in methods {
            let id = acp.send(method, json!({ "sessionId": UNKNOWN })).await;
            let response = stream.response(id).await;
            let is_forbidden = response["error"]["data"]["code"] == "forbidden";
            let has_scope = principal.has_scope(scope);
            assert_eq!(
                is_forbidden, !has_scope,
                "{} {method}: {response}",
                principal.name
            );
        }
    }
}
