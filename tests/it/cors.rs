//! Pages of other origins: those that the operator lists may read every answer, others none.

use std::collections::BTreeSet;

use acp_gateway::surface::rest;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;

use crate::support::wait::LONGEST;
use crate::support::{Events, Gateway, Setup, eventually};

const PAGE: &str = "https://app.example";

async fn from(page: &str, request: RequestBuilder) -> Response {
    request
        .header("origin", page)
        .send()
        .await
        .expect("an answer")
}

fn readable_by(response: &Response) -> Option<&str> {
    let origins: Vec<_> = response
        .headers()
        .get_all("access-control-allow-origin")
        .iter()
        .collect();
    assert!(origins.len() < 2, "{origins:?}");
    let origin = origins.first()?.to_str().expect("ASCII");
    assert_eq!(response.headers()["vary"], "Origin");
    let exposed = response.headers()["access-control-expose-headers"]
        .to_str()
        .expect("ASCII");
    assert!(exposed.contains("x-request-id"));
    Some(origin)
}

#[tokio::test]
async fn a_page_that_is_listed_may_read_refusals_too() {
    let gateway = Setup::fake(&[])
        .settings("auth.allowed_origins = [\"https://app.example\"]")
        .settings("limits.per_key.max_streams = 1\nauth.max_failed_keys_per_minute = 2")
        .start();
    let session = gateway.session("fake").await;
    let http = &gateway.http;
    let url = |path: &str| format!("{}{path}", gateway.url);
    let request = |path: &str| gateway.request(Method::GET, path);
    for (status, asked) in [
        (200, request("/v1")),
        (200, http.get(url("/livez"))),
        (401, http.get(url("/v1"))),
        (401, http.get(url("/v1")).bearer_auth("wrong")),
        (401, http.get(url("/v1")).bearer_auth("wrong")),
        (429, http.get(url("/v1")).bearer_auth("wrong")),
        (
            429,
            http.get(url("/v1/events"))
                .header("accept", "text/event-stream")
                .bearer_auth("wrong"),
        ),
        (401, http.get(url("/v1/events?ticket=wrong"))),
        (421, request("/v1").header("host", "evil.example")),
        (404, request("/v1/nothing")),
        (405, gateway.request(Method::PUT, "/v1")),
        (422, request("/v1?x=1")),
        (
            204,
            http.request(Method::OPTIONS, url("/v1"))
                .header("access-control-request-method", "GET"),
        ),
    ] {
        let answer = from(PAGE, asked).await;
        assert_eq!(
            (answer.status().as_u16(), readable_by(&answer)),
            (status, Some(PAGE)),
            "{}",
            answer.url()
        );
    }
    let stream =
        || request(&format!("/v1/sessions/{session}/events")).header("accept", "text/event-stream");
    let held = from(PAGE, stream()).await;
    assert_eq!(readable_by(&held), Some(PAGE));
    let refused = from(PAGE, stream()).await;
    assert_eq!(readable_by(&refused), Some(PAGE));
    let frames = Events::new(refused).rest().await;
    assert!(
        frames[0].of("problem") && frames[0].data["problem"]["code"] == "rate_limited",
        "{frames:?}"
    );
    drop(held);
    for page in ["https://evil.example", "null"] {
        let answer = from(page, request("/v1")).await;
        assert_eq!(
            (answer.status().as_u16(), readable_by(&answer)),
            (403, None),
            "{page}"
        );
    }
    assert_eq!(
        readable_by(&request("/v1").send().await.expect("an answer")),
        None
    );
}

/// The records of the log about rejected origins.
fn rejections(gateway: &Gateway) -> Vec<Value> {
    let log = gateway.log();
    let records = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("each line is JSON"));
    let is_rejection = |record: &Value| {
        let message = record["message"].as_str().unwrap_or_default();
        message.contains("auth.allowed_origins")
    };
    records.filter(is_rejection).collect()
}

#[tokio::test]
async fn rejected_origin_is_logged_with_the_key_that_permits_it() {
    let gateway = Setup::fake(&[])
        .settings("auth.allowed_origins = [\"https://app.example\"]")
        .start();
    let url = format!("{}/v1", gateway.url);
    let preflight = || {
        let request = gateway.http.request(Method::OPTIONS, &url);
        request.header("access-control-request-method", "GET")
    };
    // These are not rejected for their origin.
    for admitted in [preflight().header("origin", PAGE), gateway.http.get(&url)] {
        admitted.send().await.expect("an answer");
    }
    let long = format!("https://{}.example", "a".repeat(5000));
    for origin in ["https://other.example", "null", &long] {
        let response = from(origin, preflight()).await;
        assert_eq!(response.status(), 403);
    }
    let records = rejections(&gateway);
    let origins: Vec<&str> = records
        .iter()
        .map(|record| record["origin"].as_str().expect("an origin"))
        .collect();
    assert_eq!(origins, ["https://other.example", "null", &long[..200]]);
    for record in &records {
        assert_eq!(record["level"], "WARN", "{record}");
        assert_eq!(record["suppressed"], 0, "{record}");
    }
    // The bound is for all clients and origins. Later, one line has the number of the others.
    for number in 0..100 {
        from(&format!("https://{number}.example"), preflight()).await;
    }
    let burst = rejections(&gateway).len();
    assert!((20..60).contains(&burst), "{burst}");
    eventually("a line with the number of the others", LONGEST, || async {
        from("https://last.example", preflight()).await;
        let records = rejections(&gateway);
        let suppressed = |record: &&Value| record["suppressed"].as_u64() > Some(0);
        records.iter().find(suppressed).map(|_| ())
    })
    .await;
}

/// The names in a header that lists header names.
fn listed(response: &Response, name: &str) -> BTreeSet<String> {
    let list = response.headers()[name].to_str().expect("ASCII");
    list.split(',')
        .map(|name| name.trim().to_lowercase())
        .collect()
}

/// Headers that an operation of the OpenAPI document accepts (`in: header`), and headers of its responses.
fn documented() -> (BTreeSet<String>, BTreeSet<String>) {
    let document: Value = serde_json::from_str(&rest::document_json()).expect("JSON");
    let mut sent = BTreeSet::new();
    let mut received = BTreeSet::new();
    let operations = document["paths"].as_object().expect("paths").values();
    for operation in operations.flat_map(|item| item.as_object().expect("operations").values()) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            // Scripts cannot set `Upgrade`: the browser sends it for a WebSocket, without a preflight.
            if parameter["in"] == "header" && parameter["name"] != "Upgrade" {
                sent.insert(parameter["name"].as_str().expect("a name").to_lowercase());
            }
        }
        for response in operation["responses"]
            .as_object()
            .expect("responses")
            .values()
        {
            let headers = response["headers"]
                .as_object()
                .into_iter()
                .flat_map(serde_json::Map::keys);
            received.extend(headers.map(|name| name.to_lowercase()));
        }
    }
    assert!(
        sent.len() > 5 && received.len() > 4,
        "{sent:?} {received:?}"
    );
    (sent, received)
}

#[tokio::test]
async fn cors_allows_and_exposes_every_header_of_the_api() {
    // Headers that every page may read, and headers for the browser itself.
    const SAFELISTED: [&str; 5] = [
        "cache-control",
        "content-language",
        "content-length",
        "content-type",
        "last-modified",
    ];
    const FOR_BROWSERS: [&str; 16] = [
        "access-control-allow-origin",
        "access-control-expose-headers",
        "connection",
        "content-encoding",
        "content-security-policy",
        "cross-origin-opener-policy",
        "cross-origin-resource-policy",
        "date",
        "keep-alive",
        "referrer-policy",
        "transfer-encoding",
        "vary",
        "x-accel-buffering",
        "x-content-type-options",
        "x-frame-options",
        "strict-transport-security",
    ];
    let gateway = Setup::fake(&[])
        .settings("auth.allowed_origins = [\"https://app.example\"]")
        .settings("limits.per_key.max_requests_per_minute = 30")
        .start();
    let url = |path: &str| format!("{}{path}", gateway.url);
    let asked = gateway.http.request(Method::OPTIONS, url("/v1/sessions"));
    let preflight = from(PAGE, asked.header("access-control-request-method", "POST")).await;
    let allowed = listed(&preflight, "access-control-allow-headers");
    let exposed = listed(&preflight, "access-control-expose-headers");
    let (mut sent, received) = documented();
    sent.extend(
        [
            "accept",
            "authorization",
            "content-type",
            "x-request-id",
            "traceparent",
            "tracestate",
        ]
        .map(str::to_owned),
    );
    assert!(
        allowed.is_superset(&sent),
        "not allowed: {:?}",
        sent.difference(&allowed)
    );
    assert!(
        exposed.is_superset(&received),
        "not exposed: {:?}",
        received.difference(&exposed)
    );

    // Headers of answers that the document does not list.
    let session = gateway.session("fake").await;
    let base = format!("/v1/sessions/{session}");
    let key = "idempotency-key";
    let prompt = serde_json::json!({ "prompt": "hello" });
    let post = |path: &str| gateway.request(Method::POST, path).json(&prompt);
    gateway
        .request(Method::PUT, &format!("{base}/files/a"))
        .body("abc")
        .send()
        .await
        .expect("an answer");
    let mut met = BTreeSet::new();
    for request in [
        gateway.request(Method::GET, "/v1"),
        gateway.http.get(url("/v1")),
        gateway.request(Method::PUT, "/v1"),
        gateway.request(Method::GET, &base),
        post(&format!("{base}/prompts"))
            .header(key, "a")
            .header("prefer", "wait=30"),
        post(&format!("{base}/prompts"))
            .header(key, "a")
            .header("prefer", "wait=30"),
        gateway
            .request(Method::GET, &format!("{base}/events?follow=false"))
            .header("accept", "text/event-stream"),
        gateway
            .request(Method::GET, &format!("{base}/files/a"))
            .header("range", "bytes=0-1"),
        gateway
            .request(Method::GET, &format!("{base}/files/a"))
            .header("range", "bytes=9-"),
    ]
    .into_iter()
    .chain((0..40).map(|_| gateway.request(Method::GET, "/v1")))
    {
        met.extend(
            from(PAGE, request)
                .await
                .headers()
                .keys()
                .map(|name| name.as_str().to_owned()),
        );
    }
    for name in [
        "content-range",
        "retry-after",
        "www-authenticate",
        "idempotency-replayed",
        "allow",
    ] {
        assert!(met.contains(name), "no answer had {name}: {met:?}");
    }
    for name in SAFELISTED.into_iter().chain(FOR_BROWSERS) {
        met.remove(name);
    }
    assert!(
        exposed.is_superset(&met),
        "not exposed: {:?}",
        met.difference(&exposed)
    );
}
