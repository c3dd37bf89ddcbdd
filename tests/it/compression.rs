//! JSON of the API is compressed for clients that accept it, except answers that can contain secrets.

use std::io::Read as _;

use reqwest::{Method, Response, StatusCode};
use serde_json::json;

use crate::support::{Gateway, Setup};

async fn get(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = gateway.request(Method::GET, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.expect("an answer")
}

fn header<'a>(response: &'a Response, name: &str) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

fn varies(response: &Response) -> bool {
    let mut values = response.headers().get_all("vary").into_iter();
    values.any(|value| value == "accept-encoding")
}

#[tokio::test]
async fn large_json_is_compressed_and_keeps_its_tag() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "stream n=100 size=100").await;
    for path in [
        format!("/v1/sessions/{session}/transcript"),
        format!("/v1/sessions/{session}/events?follow=false"),
        "/openapi.json".to_owned(),
    ] {
        let plain = get(&gateway, &path, &[]).await;
        assert!(
            header(&plain, "content-encoding").is_none() && varies(&plain),
            "{path}"
        );
        let tag = header(&plain, "etag").map(str::to_owned);
        let plain = plain.bytes().await.expect("a body");
        let packed = get(&gateway, &path, &[("accept-encoding", "br, gzip")]).await;
        assert_eq!(header(&packed, "content-encoding"), Some("gzip"), "{path}");
        assert!(varies(&packed));
        if let Some(tag) = tag {
            let weak = header(&packed, "etag").expect("a tag").to_owned();
            assert_eq!(weak.trim_start_matches("W/"), tag.trim_start_matches("W/"));
            assert!(weak.starts_with("W/"));
            let cached = get(&gateway, &path, &[("if-none-match", &weak)]).await;
            assert_eq!(cached.status(), StatusCode::NOT_MODIFIED, "{path}");
        }
        let length: usize = header(&packed, "content-length")
            .expect("it is known")
            .parse()
            .expect("a number");
        let packed = packed.bytes().await.expect("a body");
        assert!(
            packed.len() == length && length < plain.len() / 2,
            "{path} {length}"
        );
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(&packed[..])
            .read_to_end(&mut unpacked)
            .expect("gzip");
        assert!(unpacked == plain, "{path}");
    }
}

#[tokio::test]
async fn short_json_files_streams_and_answers_to_post_are_not_compressed() {
    let gateway = Setup::fake(&[])
        .settings("webhooks.allowed_hosts = [\"localhost\"]")
        .start();
    let session = gateway.session("fake").await;
    let files = format!("/v1/sessions/{session}/files/large.json");
    let file = json!({ "text": "x".repeat(4096) }).to_string();
    let written = gateway
        .request(Method::PUT, &files)
        .body(file.clone())
        .send()
        .await
        .expect("an answer");
    assert_eq!(written.status(), StatusCode::CREATED);
    let gzip = ("accept-encoding", "gzip");
    let short = get(&gateway, "/livez", &[gzip]).await;
    assert!(header(&short, "content-encoding").is_none());
    let read = get(&gateway, &files, &[gzip]).await;
    assert!(header(&read, "content-encoding").is_none());
    assert_eq!(read.text().await.expect("a body"), file);
    let events = format!("/v1/sessions/{session}/events");
    let stream = get(&gateway, &events, &[gzip, ("accept", "text/event-stream")]).await;
    assert!(header(&stream, "content-encoding").is_none());

    let url = format!("https://localhost:9/{}", "x".repeat(1500));
    let created = gateway
        .request(Method::POST, "/v1/webhooks")
        .header("accept-encoding", "gzip")
        .json(&json!({ "url": url, "events": ["prompt.completed"] }))
        .send()
        .await
        .expect("an answer");
    assert!(header(&created, "content-encoding").is_none());
    let text = created.text().await.expect("a body");
    assert!(text.len() > 1024, "{text}");
}

fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let read = flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain);
    read.expect("gzip");
    plain
}

#[tokio::test]
async fn documentation_has_the_encoding_that_the_client_accepts() {
    let gateway = Setup::fake(&[]).start();
    for path in [
        "/docs/",
        "/docs/api",
        "/docs/swagger-ui.css",
        "/docs/swagger-ui-bundle.js",
        "/docs/problems",
        "/docs/guides/first-session.md",
        "/docs/reference/api.md",
    ] {
        let plain = get(&gateway, path, &[]).await;
        assert_eq!(plain.status(), StatusCode::OK, "{path}");
        assert!(
            header(&plain, "content-encoding").is_none() && varies(&plain),
            "{path}"
        );
        let kind = header(&plain, "content-type").map(str::to_owned);
        let plain = plain.bytes().await.expect("a body");
        let refused = get(&gateway, path, &[("accept-encoding", "gzip;q=0, br")]).await;
        assert!(header(&refused, "content-encoding").is_none(), "{path}");
        assert!(refused.bytes().await.expect("a body") == plain, "{path}");
        let packed = get(&gateway, path, &[("accept-encoding", "gzip")]).await;
        assert_eq!(header(&packed, "content-encoding"), Some("gzip"), "{path}");
        assert!(varies(&packed), "{path}");
        assert_eq!(header(&packed, "content-type"), kind.as_deref(), "{path}");
        let packed = packed.bytes().await.expect("a body");
        assert!(
            packed.len() < plain.len() && unpacked(&packed) == plain,
            "{path}"
        );
    }
}
