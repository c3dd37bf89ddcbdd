//! `GET` and `HEAD` of a file: its bytes, ranges of them, and nothing that a browser would run.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;

use super::{Ground, etag, shown};
use crate::support::{Answer, eventually};

#[tokio::test]
async fn a_file_is_always_served_inert() {
    let ground = Ground::fake().await;
    ground.make("pages/ä \"x\".html", "<script>alert(1)</script>");
    let response = ground.get("/pages/%C3%A4%20%22x%22.html").await;
    insta::assert_snapshot!(shown(&response), @r"
    200 OK
    accept-ranges: bytes
    cache-control: private, no-cache
    content-disposition: attachment; filename*=UTF-8''%C3%A4%20%22x%22.html
    content-length: 25
    content-security-policy: default-src 'none'; frame-ancestors 'none'; sandbox
    content-type: application/octet-stream
    etag: [etag]
    x-content-type-options: nosniff
    ");
    assert_eq!(
        response.text().await.expect("a body"),
        "<script>alert(1)</script>"
    );
    let head = ground
        .request(Method::HEAD, "/pages/%C3%A4%20%22x%22.html")
        .send()
        .await
        .expect("an answer");
    insta::assert_snapshot!(shown(&head), @r"
    200 OK
    accept-ranges: bytes
    cache-control: private, no-cache
    content-disposition: attachment; filename*=UTF-8''%C3%A4%20%22x%22.html
    content-length: 25
    content-security-policy: default-src 'none'; frame-ancestors 'none'; sandbox
    content-type: application/octet-stream
    etag: [etag]
    x-content-type-options: nosniff
    ");
    assert_eq!(head.text().await.expect("a body"), "");
}

#[tokio::test]
async fn one_range_is_partial_and_others_are_the_whole() {
    let ground = Ground::fake().await;
    ground.make("a", "0123456789");
    let tag = etag(&ground.get("/a").await);
    let get = async |headers: &[(&str, &str)]| {
        let mut request = ground.request(Method::GET, "/a");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.expect("an answer");
        let range = response
            .headers()
            .get("content-range")
            .map(|range| range.to_str().expect("ASCII").to_owned());
        (
            response.status().as_u16(),
            range.unwrap_or_default(),
            response.text().await.expect("a body"),
        )
    };
    let part = |range: &str, text: &str| (206, format!("bytes {range}/10"), text.to_owned());
    let whole = || (200, String::new(), "0123456789".to_owned());
    assert_eq!(get(&[("range", "bytes=2-4")]).await, part("2-4", "234"));
    assert_eq!(get(&[("range", "bytes=-3")]).await, part("7-9", "789"));
    assert_eq!(get(&[("range", "bytes=8-")]).await, part("8-9", "89"));
    assert_eq!(
        get(&[("range", "bytes=8-"), ("if-range", &tag)]).await,
        part("8-9", "89")
    );
    assert_eq!(
        get(&[("range", "bytes=8-"), ("if-range", "\"other\"")]).await,
        whole()
    );
    assert_eq!(get(&[("range", "bytes=0-1,3-4")]).await, whole());
    assert_eq!(get(&[("range", "lines=0-1")]).await, whole());
    let refused = Answer::of(
        ground
            .request(Method::GET, "/a")
            .header("range", "bytes=10-"),
    )
    .await;
    assert_eq!(refused.header("content-range"), Some("bytes */10"));
    refused.problem(416, "range_not_satisfiable");
}

#[tokio::test]
async fn known_etag_returns_304() {
    let ground = Ground::fake().await;
    ground.make("a", "one");
    let tag = etag(&ground.get("/a").await);
    let get = async |name: &str, value: &str| {
        let request = ground.request(Method::GET, "/a").header(name, value);
        request.send().await.expect("an answer").status().as_u16()
    };
    for (name, value, status) in [
        ("if-none-match", tag.as_str(), 304),
        ("if-none-match", &format!("W/{tag}, \"b\""), 304),
        ("if-none-match", "*", 304),
        ("if-none-match", "\"b\"", 200),
        ("if-match", &tag, 200),
        ("if-match", "*", 200),
        ("if-match", "\"b\"", 412),
        ("if-match", &format!("W/{tag}"), 412),
        ("if-match", "b", 422),
    ] {
        assert_eq!(get(name, value).await, status, "{name}: {value}");
    }
    let known = ground
        .request(Method::GET, "/a")
        .header("if-none-match", &tag)
        .send()
        .await
        .expect("an answer");
    insta::assert_snapshot!(shown(&known), @r"
    304 Not Modified
    cache-control: private, no-cache
    content-security-policy: default-src 'none'; frame-ancestors 'none'
    etag: [etag]
    x-content-type-options: nosniff
    ");
    ground.make("a", "two");
    assert_eq!(
        get("if-none-match", &tag).await,
        200,
        "the same size, another content"
    );
}

#[tokio::test]
async fn large_file_is_served_completely() {
    let ground = Ground::fake().await;
    let bytes: Vec<u8> = (0..20_000_003_u32)
        .map(|n| n.to_le_bytes()[(n % 4) as usize])
        .collect();
    ground.make("large", &bytes);
    let response = ground.get("/large").await;
    assert_eq!(response.headers()["content-length"], "20000003");
    assert!(
        response.bytes().await.expect("a body") == bytes,
        "it is not the same"
    );
    let tail = ground
        .request(Method::GET, "/large")
        .header("range", "bytes=19999999-")
        .send()
        .await;
    assert_eq!(
        tail.expect("an answer").bytes().await.expect("a body"),
        bytes[19_999_999..]
    );
}

#[tokio::test]
async fn special_file_is_rejected() {
    let ground = Ground::fake().await;
    ground.make("folder/file", "");
    for (path, status, code) in [
        ("/none", 404, "not_found"),
        ("/folder/file/x", 404, "not_found"),
        ("/folder", 422, "invalid"),
    ] {
        let problem = ground
            .gateway
            .call(Method::GET, &ground.url(path))
            .await
            .problem(status, code);
        if code == "invalid" {
            assert_eq!(problem["errors"][0]["pointer"], "path");
        }
    }
    ground
        .gateway
        .call(Method::GET, &ground.url("/folder/file?x=1"))
        .await
        .problem(422, "invalid");
    let deleted = ground
        .gateway
        .call(Method::DELETE, &format!("/v1/sessions/{}", ground.session))
        .await;
    assert_eq!((deleted.status.as_u16(), deleted.body), (204, Value::Null));
    ground
        .gateway
        .call(Method::GET, &ground.url("/folder/file"))
        .await
        .problem(404, "not_found");
    // The session's own folder is deleted after the last process of the session has ended.
    eventually(
        "the session's own folder goes with it",
        Duration::from_secs(10),
        || async { (!std::path::Path::new(&ground.cwd).exists()).then_some(()) },
    )
    .await;
}
