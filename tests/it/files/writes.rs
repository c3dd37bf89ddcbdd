//! `PUT` and `DELETE` of a file, and their preconditions.

use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::task::JoinSet;

use super::{Ground, etag, shown};
use crate::support::{Answer, Setup};

fn drafts(ground: &Ground) -> usize {
    let entries = std::fs::read_dir(&ground.cwd).expect("it is there");
    let draft = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with(".acp-gateway");
    entries
        .filter(|entry| entry.as_ref().is_ok_and(|entry| draft(&entry.file_name())))
        .count()
}

#[tokio::test]
async fn a_file_is_made_and_replaced() {
    let ground = Ground::fake().await;
    let made = ground.put("/new/a%20b.txt", "one").await;
    insta::assert_snapshot!(shown(&made), @r"
    201 Created
    cache-control: private, no-cache
    content-length: 0
    content-security-policy: default-src 'none'; frame-ancestors 'none'
    etag: [etag]
    location: new/a%20b.txt
    x-content-type-options: nosniff
    ");
    assert_eq!(ground.on_disk("new/a b.txt").as_deref(), Some("one"));
    let read = ground.get("/new/a%20b.txt").await;
    assert_eq!(
        etag(&read),
        etag(&made),
        "the tag is that of the file as it is read"
    );
    let replaced = ground.put("/new/a%20b.txt", "two!").await;
    insta::assert_snapshot!(shown(&replaced), @r"
    204 No Content
    cache-control: private, no-cache
    content-security-policy: default-src 'none'; frame-ancestors 'none'
    etag: [etag]
    x-content-type-options: nosniff
    ");
    assert_ne!(etag(&replaced), etag(&made));
    assert_eq!(ground.on_disk("new/a b.txt").as_deref(), Some("two!"));
    let empty = ground.put("/empty", "").await;
    assert_eq!(
        (empty.status(), ground.on_disk("empty").as_deref()),
        (StatusCode::CREATED, Some(""))
    );
}

#[tokio::test]
async fn preconditions_are_kept() {
    let ground = Ground::fake().await;
    let put = async |name: &str, value: &str, text: &str| {
        let request = ground
            .request(Method::PUT, "/a")
            .header(name, value)
            .body(text.to_owned());
        request.send().await.expect("an answer")
    };
    assert_eq!(
        put("if-match", "*", "x").await.status(),
        StatusCode::PRECONDITION_FAILED
    );
    assert_eq!(
        put("if-match", "\"x\"", "x").await.status(),
        StatusCode::PRECONDITION_FAILED
    );
    assert_eq!(ground.on_disk("a"), None);
    let made = put("if-none-match", "*", "one").await;
    assert_eq!(made.status(), StatusCode::CREATED);
    let refused = Answer::of(
        ground
            .request(Method::PUT, "/a")
            .header("if-none-match", "*")
            .body("x"),
    )
    .await;
    let problem = refused.problem(412, "precondition_failed");
    assert!(
        problem["detail"]
            .as_str()
            .expect("text")
            .contains("If-None-Match: *")
    );
    let replaced = put("if-match", &etag(&made), "two").await;
    assert_eq!(replaced.status(), StatusCode::NO_CONTENT);
    assert_eq!(
        put("if-match", &etag(&made), "three").await.status(),
        StatusCode::PRECONDITION_FAILED
    );
    assert_eq!(ground.on_disk("a").as_deref(), Some("two"));
    let delete = async |tag: &str| {
        let request = ground.request(Method::DELETE, "/a").header("if-match", tag);
        request.send().await.expect("an answer").status()
    };
    assert_eq!(delete(&etag(&made)).await, StatusCode::PRECONDITION_FAILED);
    assert_eq!(delete(&etag(&replaced)).await, StatusCode::NO_CONTENT);
    assert_eq!(ground.on_disk("a"), None);
    assert_eq!(delete("*").await, StatusCode::NOT_FOUND);
    assert_eq!(drafts(&ground), 0);
}

#[tokio::test]
async fn one_of_many_conditional_writes_wins() {
    let setup = Setup::fake(&[]).settings("limits.per_key.max_requests_per_minute = 10000");
    let ground = Ground::new(setup, &json!({ "agent": "fake" })).await;
    let mut tag = etag(&ground.put("/a", "first").await);
    for (round, name) in (0..20).map(|round| {
        (
            round,
            if round % 2 == 0 {
                "if-match"
            } else {
                "if-none-match"
            },
        )
    }) {
        let expected = if name == "if-match" {
            tag.clone()
        } else {
            "*".to_owned()
        };
        let path = if name == "if-match" {
            "/a".to_owned()
        } else {
            format!("/new-{round}")
        };
        let mut puts = JoinSet::new();
        for writer in 0..8 {
            let request = ground.request(Method::PUT, &path).header(name, &expected);
            puts.spawn(request.body(format!("{round} by {writer}")).send());
        }
        let mut won = Vec::new();
        for response in puts.join_all().await {
            let response = response.expect("an answer");
            if response.status().is_success() {
                won.push(etag(&response));
            } else {
                assert_eq!(response.status(), StatusCode::PRECONDITION_FAILED);
            }
        }
        assert_eq!(won.len(), 1, "round {round}, {name}");
        if name == "if-match" {
            tag = won.remove(0);
        }
    }
    assert_eq!(drafts(&ground), 0);
}

#[tokio::test]
async fn delete_accepts_a_file_an_empty_folder_or_a_link() {
    let ground = Ground::fake().await;
    ground.make("folder/file", "kept");
    std::os::unix::fs::symlink("folder/file", format!("{}/link", ground.cwd)).expect("a link");
    let delete = async |path: &str| ground.gateway.call(Method::DELETE, &ground.url(path)).await;
    delete("/folder").await.problem(422, "invalid");
    delete(&format!("/{}", ground.cwd))
        .await
        .problem(422, "invalid");
    delete("/none").await.problem(404, "not_found");
    let tag = etag(&ground.get("/link").await);
    let other = ground
        .request(Method::DELETE, "/link")
        .header("if-match", "\"other\"");
    Answer::of(other).await.problem(412, "precondition_failed");
    let known = ground
        .request(Method::DELETE, "/link")
        .header("if-match", tag);
    assert_eq!(Answer::of(known).await.status, StatusCode::NO_CONTENT);
    assert_eq!(
        ground.on_disk("folder/file").as_deref(),
        Some("kept"),
        "the target of a link stays"
    );
    assert_eq!(delete("/folder/file").await.status, StatusCode::NO_CONTENT);
    assert_eq!(delete("/folder").await.status, StatusCode::NO_CONTENT);
    assert_eq!(
        std::fs::read_dir(&ground.cwd).expect("it is there").count(),
        0
    );
}

#[tokio::test]
async fn oversized_or_aborted_upload_writes_nothing() {
    let setup = Setup::fake(&[])
        .settings("server.max_file_bytes = \"1KiB\"\ntesting.body_timeout = \"5s\"");
    let ground = Ground::new(setup, &json!({ "agent": "fake" })).await;
    assert_eq!(
        ground.put("/a", &"x".repeat(1024)).await.status(),
        StatusCode::CREATED
    );
    let declared = Answer::of(ground.request(Method::PUT, "/a").body("x".repeat(1025))).await;
    declared.problem(413, "too_large");
    let chunks = || {
        let chunk = Ok::<_, std::io::Error>(vec![b'y'; 1000]);
        reqwest::Body::wrap_stream(tokio_stream::iter([chunk, Ok(vec![b'y'; 1000])]))
    };
    Answer::of(ground.request(Method::PUT, "/a").body(chunks()))
        .await
        .problem(413, "too_large");
    let stalls = tokio_stream::StreamExt::chain(
        tokio_stream::iter([Ok::<_, std::io::Error>(vec![b'z'; 10])]),
        tokio_stream::pending(),
    );
    let late = ground
        .request(Method::PUT, "/a")
        .body(reqwest::Body::wrap_stream(stalls));
    Answer::of(late).await.problem(400, "malformed");
    assert_eq!(ground.on_disk("a"), Some("x".repeat(1024)));
    assert_eq!(drafts(&ground), 0);
    let coded = ground
        .request(Method::PUT, "/b")
        .header("content-encoding", "gzip")
        .body("x");
    Answer::of(coded)
        .await
        .problem(415, "unsupported_media_type");
    let part = ground
        .request(Method::PUT, "/b")
        .header("content-range", "bytes 0-0/2")
        .body("x");
    Answer::of(part).await.problem(400, "malformed");
    assert_eq!(ground.on_disk("b"), None);
}

#[tokio::test]
async fn a_closed_session_still_has_its_files() {
    let ground = Ground::fake().await;
    let closed = ground
        .gateway
        .call(
            Method::POST,
            &format!("/v1/sessions/{}/close", ground.session),
        )
        .await;
    assert_eq!(closed.body["state"], "closed");
    assert_eq!(
        ground.put("/a", "still").await.status(),
        StatusCode::CREATED
    );
    assert_eq!(
        ground.get("/a").await.text().await.expect("a body"),
        "still"
    );
}
