//! Requests to every route of the OpenAPI document, by every kind of principal. Admission rejects every request that the document
//! does not allow.

mod matrix;
pub(crate) mod operations;
pub(crate) mod principals;
mod unknown_ids;

use reqwest::StatusCode;

use self::operations::{Needs, operations};
use crate::support::Setup;
use crate::support::gateway::KEY;

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
