//! Every operation with every kind of principal and every method, as the OpenAPI document declares them.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::operations::{Needs, Operation, operations, operations_on};
use super::principals::{Principal, principals};
use crate::support::gateway::KEY;
use crate::support::{Answer, Setup, figure};

/// The tests send more requests than a person may, and create webhooks for a host that does not exist.
const LIMITS: &str =
    "auth.max_failed_keys_per_minute = 100000\nwebhooks.allowed_hosts = [\"hooks.example\"]\n";

fn by(principal: &Principal, request: RequestBuilder) -> RequestBuilder {
    match &principal.key {
        Some(key) => request.bearer_auth(key),
        None => request,
    }
}

fn code(status: StatusCode) -> &'static str {
    if status == StatusCode::UNAUTHORIZED {
        "unauthorized"
    } else {
        "forbidden"
    }
}

/// The status of an answer, without the rest of a stream.
async fn status(request: RequestBuilder) -> StatusCode {
    let response = request.send().await.expect("an answer");
    assert!(
        !response.headers().contains_key("set-cookie"),
        "{response:?}"
    );
    response.status()
}

/// Sends a request that admission accepts. Checks that the document lists its status.
async fn admitted(operation: &Operation, request: RequestBuilder, who: &str) -> StatusCode {
    let status = status(request).await;
    let what = format!("{who}: {} {}: {status}", operation.method, operation.path);
    assert!(operation.statuses.contains(&status.as_u16()), "{what}");
    assert!(!matches!(status.as_u16(), 401 | 403), "{what}");
    status
}

#[tokio::test]
async fn every_operation_accepts_exactly_the_principals_of_the_document() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let principals = principals(&gateway).await;
    assert!(principals.len() > 10);
    let mut tried = BTreeMap::new();
    for principal in &principals {
        for operation in &operations() {
            let request = by(principal, operation.request(&gateway));
            let outcome = match principal.rejection(operation.needs) {
                Some(status) => {
                    operation
                        .refused(request, status, code(status))
                        .await
                        .status
                }
                None if operation.named() => {
                    operation
                        .refused(request, StatusCode::NOT_FOUND, "not_found")
                        .await
                        .status
                }
                None => admitted(operation, request, principal.name).await,
            };
            *tried.entry(outcome.as_u16()).or_insert(0) += 1;
        }
    }
    figure(&format!(
        "requests of {} principals by status: {tried:?}",
        principals.len()
    ));
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
}

/// The operations on a session, the ones that end it last.
fn on_a_session(session: &str) -> Vec<Operation> {
    let mut found = operations_on(session, "fake");
    found.retain(|operation| operation.template.contains("{session}"));
    found.sort_by_key(|operation| {
        let ends =
            operation.template == "/v1/sessions/{session}" && operation.method == Method::DELETE;
        (ends, operation.template.ends_with("/{session}/close"))
    });
    found
}

#[tokio::test]
async fn scopes_are_checked_before_the_session() {
    let gateway = Setup::fake_with(&["--state", "state"], "rpc = [\"_x\"]")
        .settings(LIMITS)
        .start();
    let session = gateway.session("fake").await;
    let before = gateway.last_seq(&session).await;
    let principals = principals(&gateway).await;
    let unknown = on_a_session("01938c5e-7a3b-7c4d-8e5f-0123456789ab");
    for principal in &principals {
        for (own, unknown) in on_a_session(&session).iter().zip(&unknown) {
            let Some(status) = principal.rejection(own.needs) else {
                continue;
            };
            let own = own
                .refused(by(principal, own.request(&gateway)), status, code(status))
                .await;
            let other = unknown
                .refused(
                    by(principal, unknown.request(&gateway)),
                    status,
                    code(status),
                )
                .await;
            assert_eq!(
                comparable(&own),
                comparable(&other),
                "{} {}",
                principal.name,
                unknown.path
            );
        }
    }
    assert_eq!(
        gateway.last_seq(&session).await,
        before,
        "a rejected request changes nothing"
    );
    // The same operations, each with the smallest key that it needs.
    for operation in &on_a_session(&session) {
        let fits = |principal: &&Principal| {
            let Needs::Key(Some(scope)) = operation.needs else {
                return false;
            };
            principal.name == scope.name()
        };
        let principal = principals.iter().find(fits).expect("a key with this scope");
        let found = admitted(
            operation,
            by(principal, operation.request(&gateway)),
            principal.name,
        )
        .await;
        let missing = found == StatusCode::NOT_FOUND;
        assert!(
            !missing || operation.names_a_part(),
            "{} {}",
            operation.method,
            operation.path
        );
    }
    gateway
        .call(Method::GET, &format!("/v1/sessions/{session}"))
        .await
        .problem(404, "not_found");
}

/// An answer without its request id and its date.
pub(super) fn comparable(answer: &Answer) -> (StatusCode, Vec<(String, String)>, Value) {
    let mut headers: Vec<_> = answer.headers.iter().collect();
    headers.retain(|(name, _)| !matches!(name.as_str(), "x-request-id" | "date"));
    let headers = headers
        .iter()
        .map(|(name, value)| (name.to_string(), format!("{value:?}")))
        .collect();
    let mut body = answer.body.clone();
    if let Some(body) = body.as_object_mut() {
        body.remove("instance");
    }
    (answer.status, headers, body)
}

#[tokio::test]
async fn a_ticket_opens_only_documented_operations_at_its_path() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let ticket = async |path: &str| {
        let answer = gateway
            .posted("/v1/tickets", &[], &json!({ "paths": [path] }))
            .await;
        assert_eq!(answer.status, StatusCode::CREATED, "{path}: {answer:?}");
        answer.body["ticket"].as_str().expect("a ticket").to_owned()
    };
    let other = ticket("/v1/sessions/01938c5e-7a3b-7c4d-8e5f-ffffffffffff/events").await;
    for operation in operations()
        .iter()
        .filter(|operation| operation.needs != Needs::Nothing)
    {
        let refused = StatusCode::UNAUTHORIZED;
        let code = "unauthorized";
        let elsewhere = operation.request_with(&gateway, &format!("?ticket={other}"));
        operation.refused(elsewhere, refused, code).await;
        operation
            .refused(
                operation.request(&gateway).bearer_auth(&other),
                refused,
                code,
            )
            .await;
        if operation.ticket {
            let ticket = ticket(&operation.path).await;
            let request = operation.request_with(&gateway, &format!("?ticket={ticket}"));
            let status = admitted(operation, request, "a ticket").await;
            let expected = if operation.named() {
                StatusCode::NOT_FOUND
            } else {
                StatusCode::OK
            };
            assert_eq!(status, expected, "{}", operation.path);
        } else {
            let body = json!({ "paths": [operation.path] });
            gateway
                .posted("/v1/tickets", &[], &body)
                .await
                .problem(422, "invalid");
        }
    }
}

#[tokio::test]
async fn every_other_method_is_405_with_the_documented_ones() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let mut paths: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
    for operation in operations() {
        paths
            .entry(operation.path.clone())
            .or_default()
            .push(operation);
    }
    let known = [
        "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "get",
    ];
    for (path, operations) in &paths {
        let mut allowed: BTreeSet<&str> = operations
            .iter()
            .map(|operation| operation.method.as_str())
            .collect();
        if allowed.contains("GET") {
            allowed.insert("HEAD");
        }
        for method in known.into_iter().filter(|method| !allowed.contains(method)) {
            let other = Operation {
                method: method.parse().expect("a token"),
                ..operations[0].clone()
            };
            let request = || {
                gateway
                    .http
                    .request(other.method.clone(), format!("{}{path}", gateway.url))
            };
            let refused = StatusCode::METHOD_NOT_ALLOWED;
            let answer = other
                .refused(request().bearer_auth(KEY), refused, "method_not_allowed")
                .await;
            let found: BTreeSet<&str> = answer
                .header("allow")
                .expect("the methods")
                .split(',')
                .map(str::trim)
                .collect();
            assert_eq!(found, allowed, "{method} {path}");
            if other.needs != Needs::Nothing {
                other
                    .refused(request(), StatusCode::UNAUTHORIZED, "unauthorized")
                    .await;
            }
        }
    }
}
