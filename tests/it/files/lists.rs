//! `GET /files`: a folder's contents, and finding files below it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::Ground;
use crate::support::Setup;

async fn list(ground: &Ground, query: &str) -> Value {
    ground.gateway.get(&ground.url(query)).await
}

fn paths(page: &Value) -> Vec<&str> {
    page["files"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|file| file["path"].as_str().expect("a path"))
        .collect()
}

#[tokio::test]
async fn folder_listing_contains_the_metadata_of_each_file() {
    let ground = Ground::fake().await;
    ground.make("src/main.rs", "fn main() {}");
    ground.make("notes.md", "# Notes");
    ground.make("LICENSE", "");
    std::os::unix::fs::symlink("notes.md", format!("{}/link", ground.cwd)).expect("a link");
    let mut page = list(&ground, "").await;
    for file in page["files"].as_array_mut().expect("a list") {
        let time = file["modifiedAt"].take();
        assert!(
            time.as_str()
                .is_some_and(|time| time.ends_with('Z') && time.starts_with("20")),
            "{time}"
        );
    }
    insta::assert_snapshot!(page, @r#"{"files":[{"path":"LICENSE","name":"LICENSE","type":"file","size":0,"modifiedAt":null,"mimeType":null},{"path":"link","name":"link","type":"link","size":null,"modifiedAt":null,"mimeType":null},{"path":"notes.md","name":"notes.md","type":"file","size":7,"modifiedAt":null,"mimeType":"text/markdown"},{"path":"src","name":"src","type":"folder","size":null,"modifiedAt":null,"mimeType":null}],"nextCursor":null}"#);
    assert_eq!(paths(&list(&ground, "?path=src").await), ["src/main.rs"]);
    assert_eq!(
        list(&ground, "?path=src").await["files"][0]["mimeType"],
        "text/x-rust"
    );
}

#[tokio::test]
async fn pages_follow_each_other_and_searches_go_on_where_they_were_cut() {
    let setup = Setup::fake(&[])
        .settings("testing.max_search_names = 10\nlimits.per_key.max_requests_per_minute = 10000");
    let ground = Ground::new(setup, &json!({ "agent": "fake" })).await;
    let mut all: Vec<String> = (0..30)
        .map(|n| format!("folder-{}/file-{n:02}.txt", n / 10))
        .collect();
    for name in &all {
        ground.make(name, "");
    }
    for (query, limit) in [
        ("?match=*.TXT", 7),
        ("?match=file", 200),
        ("?match=file-", 1),
    ] {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = list(&ground, &format!("{query}&limit={limit}{cursor}")).await;
            assert!(paths(&page).len() <= limit);
            found.extend(paths(&page).into_iter().map(str::to_owned));
            let Some(next) = page["nextCursor"].as_str() else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(found, all, "{query}");
    }
    all.truncate(10);
    let first = list(&ground, "?path=folder-0&limit=6").await;
    let second = "?path=folder-0&limit=6&cursor=";
    let second = format!(
        "{second}{}",
        first["nextCursor"].as_str().expect("there is more")
    );
    let second = list(&ground, &second).await;
    assert_eq!([paths(&first), paths(&second)].concat(), all);
    assert_eq!(second["nextCursor"], Value::Null);
}

#[tokio::test]
async fn listing_of_an_invalid_path_is_rejected() {
    let ground = Ground::fake().await;
    ground.make("file", "");
    for (query, status, code) in [
        ("?path=none", 404, "not_found"),
        ("?path=file", 422, "invalid"),
        ("?path=..", 422, "invalid"),
        ("?path=a%00b", 422, "invalid"),
        ("?path=/etc", 403, "forbidden"),
        ("?limit=0", 422, "invalid"),
        ("?limit=201", 422, "invalid"),
        ("?match=a&match=b", 422, "invalid"),
        ("?depth=1", 422, "invalid"),
    ] {
        ground
            .gateway
            .call(Method::GET, &ground.url(query))
            .await
            .problem(status, code);
    }
}

#[tokio::test]
async fn additional_directories_are_named_by_absolute_paths() {
    let ground = Ground::new(Setup::fake(&["--directories"]), &json!({ "agent": "fake" })).await;
    let root = ground
        .gateway
        .path("data/workspaces")
        .canonicalize()
        .expect("the root is there");
    std::fs::create_dir(root.join("more")).expect("the folder is ours");
    std::fs::write(root.join("more/file"), "more").expect("the folder is ours");
    let body = json!({ "agent": "fake", "additionalDirectories": ["more"] });
    let (status, session) = ground.gateway.post("/v1/sessions", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    let files = format!(
        "/v1/sessions/{}/files",
        session["sessionId"].as_str().expect("an id")
    );
    let more = root.join("more").display().to_string();
    let page = ground.gateway.get(&format!("{files}?path={more}")).await;
    assert_eq!(paths(&page), [format!("{more}/file")]);
    // As it is, and with the first slash in disguise, for proxies that merge doubled ones.
    for spelled in [format!("{more}/file"), format!("%2F{}/file", &more[1..])] {
        let path = format!("{files}/{spelled}");
        let response = ground
            .gateway
            .request(Method::GET, &path)
            .send()
            .await
            .expect("an answer");
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        assert_eq!(response.text().await.expect("a body"), "more");
    }
    // The first session has only its own folder.
    let other = ground.url(&format!("/{more}/file"));
    ground
        .gateway
        .call(Method::GET, &other)
        .await
        .problem(403, "forbidden");
}
