//! `If-None-Match`: a client that polls transfers an unchanged body only once.

use reqwest::{Method, Response};

use crate::support::{Gateway, Setup};

async fn asked(gateway: &Gateway, path: &str, tags: &[&str]) -> Response {
    let request = tags
        .iter()
        .fold(gateway.request(Method::GET, path), |request, tag| {
            request.header("if-none-match", *tag)
        });
    request.send().await.expect("an answer")
}

fn etag(response: &Response) -> String {
    response.headers()["etag"]
        .to_str()
        .expect("ASCII")
        .to_owned()
}

#[tokio::test]
async fn if_none_match_of_a_session_returns_304_until_the_session_changes() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let base = format!("/v1/sessions/{session}");
    for path in [
        base.clone(),
        format!("{base}/transcript"),
        "/v1/sessions".to_owned(),
    ] {
        let first = asked(&gateway, &path, &[]).await;
        assert_eq!(first.status(), 200, "{path}");
        let tag = etag(&first);
        let opaque = tag.strip_prefix("W/").unwrap_or(&tag).to_owned();
        let weak = format!("W/{opaque}");
        let listed = format!("\"x,y\", {tag}");
        for tags in [
            &[tag.as_str()][..],
            &[&weak],
            &["*"],
            &[&listed],
            &["\"x\"", &tag],
        ] {
            let same = asked(&gateway, &path, tags).await;
            assert_eq!(same.status(), 304, "{path}: {tags:?}");
            assert_eq!(etag(&same), tag, "{path}: {tags:?}");
            assert!(same.bytes().await.expect("a body").is_empty());
        }
        assert_eq!(
            asked(&gateway, &path, &["\"x\""]).await.status(),
            200,
            "{path}"
        );
        assert_eq!(
            asked(&gateway, &path, &["stale"]).await.status(),
            422,
            "{path}"
        );
        gateway.turn(&session, "echo hello").await;
        let changed = asked(&gateway, &path, &[&tag]).await;
        assert_eq!(changed.status(), 200, "{path}");
        assert_ne!(etag(&changed), tag, "{path}");
    }
}

#[tokio::test]
async fn each_format_of_a_transcript_has_an_etag_of_its_own() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/transcript");
    let json = etag(&asked(&gateway, &path, &[]).await);
    let markdown = etag(&asked(&gateway, &format!("{path}?format=md"), &[]).await);
    assert_ne!(json, markdown);
    assert_eq!(
        asked(&gateway, &format!("{path}?format=md"), &[&json])
            .await
            .status(),
        200
    );
    assert_eq!(
        asked(&gateway, &format!("{path}?format=md"), &[&markdown])
            .await
            .status(),
        304
    );
}
