//! Every operation on a session by a user of each access, as the OpenAPI document declares it.

use reqwest::Method;
use serde_json::Value;

use super::{ALL, LEVELS, LIMITS, share};
use crate::key_life::{by, user_key};
use crate::route_walk::operations::{Operation, operations_on};
use crate::support::gateway::KEY;
use crate::support::places::project;
use crate::support::{Answer, Gateway, Setup, figure};

/// The access that the document requires for an operation.
fn needed(document: &Value, operation: &Operation) -> String {
    let method = operation.method.as_str().to_lowercase();
    let access = &document["paths"][&operation.template][&method]["x-access"];
    access
        .as_str()
        .expect("an operation on a session")
        .to_owned()
}

fn on_a_session(session: &str) -> Vec<Operation> {
    let mut found = operations_on(session, "fake");
    found.retain(|operation| operation.template.contains("{session}"));
    found
}

/// The status of an answer, without the rest of a stream.
async fn status(gateway: &Gateway, operation: &Operation, key: &str) -> u16 {
    let request = operation.request(gateway).bearer_auth(key);
    request.send().await.expect("an answer").status().as_u16()
}

/// A session with a turn that has ended.
async fn session(gateway: &Gateway) -> String {
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    session
}

#[tokio::test]
async fn each_access_permits_exactly_the_operations_of_the_document() {
    let gateway = Setup::fake_with(&["--state", "state"], "rpc = [\"_x\"]")
        .settings(LIMITS)
        .start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let document = std::fs::read_to_string(project().join("openapi/openapi.json"));
    let document: Value = serde_json::from_str(&document.expect("it is committed")).expect("JSON");
    let shared = session(&gateway).await;
    let mut refused = 0;
    let mut accepted = 0;
    for (level, access) in LEVELS.iter().enumerate() {
        share(&gateway, &shared, "user:bob", access).await;
        for (at, operation) in on_a_session(&shared).iter().enumerate() {
            let needed = needed(&document, operation);
            let rank = LEVELS.iter().position(|known| *known == needed);
            let what = format!("{access}: {} {}", operation.method, operation.template);
            if rank.expect("a level") > level {
                let request = operation.request(&gateway).bearer_auth(&bob);
                let problem = Answer::of(request).await.problem(403, "forbidden");
                let detail = problem["detail"].as_str().expect("a detail");
                assert!(
                    detail.contains(&needed) && detail.contains(access),
                    "{what}: {detail}"
                );
                refused += 1;
                continue;
            }
            // The operation changes the session, so its owner gets a session in the same state.
            let own = session(&gateway).await;
            let other = session(&gateway).await;
            share(&gateway, &other, "user:bob", access).await;
            let expected = status(&gateway, &on_a_session(&own)[at], KEY).await;
            let got = status(&gateway, &on_a_session(&other)[at], &bob).await;
            if operation.template.ends_with("/fork") {
                assert_eq!(got, 403, "only the owner can fork");
            } else {
                assert_eq!(got, expected, "{what}");
                assert_ne!(got, 403, "{what}");
            }
            accepted += 1;
        }
    }
    figure(&format!(
        "{refused} requests refused and {accepted} accepted by access"
    ));
    assert!(refused > 40 && accepted > 40, "{refused} {accepted}");
    let turns = gateway.get(&format!("/v1/sessions/{shared}/prompts")).await;
    assert_eq!(
        turns["prompts"].as_array().map(Vec::len),
        Some(1),
        "nothing was done"
    );
}

#[tokio::test]
async fn access_is_limited_by_the_scopes_of_the_key() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let reader = user_key(&gateway, "bob", "read").await;
    let session = session(&gateway).await;
    share(&gateway, &session, "user:bob", "own").await;
    let path = format!("/v1/sessions/{session}");
    let read = Answer::of(by(&gateway, &reader, Method::GET, &path)).await;
    assert_eq!(read.status, 200);
    let delete = by(&gateway, &reader, Method::DELETE, &path);
    let problem = Answer::of(delete).await.problem(403, "forbidden");
    assert!(
        problem["detail"]
            .as_str()
            .expect("a detail")
            .contains("scope prompt")
    );
}
