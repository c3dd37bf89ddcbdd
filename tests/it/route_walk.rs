//! Requests to every route of the OpenAPI document, by every kind of principal. Admission rejects every request that the document
//! does not allow.

mod matrix;
pub(crate) mod operations;
pub(crate) mod principals;
mod unknown_ids;

use reqwest::StatusCode;

use self::operations::{Needs, Operation, operations, operations_on};
use crate::support::gateway::KEY;
use crate::support::{Answer, Setup};

#[tokio::test]
async fn invalid_key_reveals_nothing() {
    let gateway = Setup::fake(&[])
        .settings("auth.max_failed_keys_per_minute = 1000")
        .start();
    for operation in operations()
        .iter()
        .filter(|operation| operation.needs != Needs::Nothing)
    {
        let refused = StatusCode::UNAUTHORIZED;
        let basic = operation.request(&gateway).basic_auth("user", Some(KEY));
        operation.refused(basic, refused, "unauthorized").await;
        let cookie = operation
            .request(&gateway)
            .header("cookie", format!("key={KEY}; token={KEY}"));
        operation.refused(cookie, refused, "unauthorized").await;
        for name in ["key", "token", "access_token", "authorization"] {
            let query = operation.request_with(&gateway, &format!("?{name}={KEY}"));
            operation.refused(query, refused, "unauthorized").await;
        }
    }
    assert!(!gateway.log().contains(KEY), "a key in a URL is not logged");
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_also_with_the_key() {
    let gateway = Setup::fake(&[]).start();
    for operation in &operations() {
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "localhost.",
        ] {
            let request = operation
                .request(&gateway)
                .bearer_auth(KEY)
                .header("host", host);
            operation
                .refused(
                    request,
                    StatusCode::MISDIRECTED_REQUEST,
                    "misdirected_request",
                )
                .await;
        }
        for origin in [
            "http://evil.example",
            "null",
            "http://localhost:1",
            "http://127.0.0.1",
        ] {
            let request = operation
                .request(&gateway)
                .bearer_auth(KEY)
                .header("origin", origin);
            operation
                .refused(request, StatusCode::FORBIDDEN, "forbidden")
                .await;
        }
    }
}

#[tokio::test]
async fn arrays_are_not_accepted_as_objects_by_any_operation() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let upload = "/v1/sessions/{session}/files/{path}";
    let with_json = |operation: &&Operation| operation.has_body && operation.template != upload;
    let operations = operations_on(&session, "fake");
    let all: Vec<_> = operations.iter().filter(with_json).collect();
    assert!(all.len() > 10, "{}", all.len());
    for operation in all {
        for body in ["[]", r#"["fake","fake",null,[1],{"a":2}]"#] {
            let request = operation.request(&gateway).bearer_auth(KEY);
            let answer = Answer::of(request.body(body)).await;
            let what = format!("{} {body}: {answer:?}", operation.path);
            assert!(matches!(answer.status.as_u16(), 400 | 422), "{what}");
            let text = answer.body.to_string();
            assert!(!text.contains("struct") && !text.contains("::"), "{what}");
        }
    }
}
