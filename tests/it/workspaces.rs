//! The folders in which sessions can work.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::Setup;

fn names(page: &Value) -> Vec<&str> {
    let folders = page["folders"].as_array().expect("folders");
    folders
        .iter()
        .map(|folder| folder["name"].as_str().expect("a name"))
        .collect()
}

#[tokio::test]
async fn workspaces_lists_the_roots_and_the_folders_below_them() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let root = gateway
        .path("data/workspaces")
        .canonicalize()
        .expect("the root is there");
    for folder in ["harbor/web", "lantern", ".hidden"] {
        std::fs::create_dir_all(root.join(folder)).expect("the root is ours");
    }
    assert!(
        root.join(&session).is_dir(),
        "the session has a folder of its own"
    );
    let root = root.to_str().expect("UTF-8");

    let roots = gateway.get("/v1/workspaces").await;
    assert_eq!(
        (&roots["path"], &roots["parent"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        roots["folders"],
        json!([{ "path": root, "name": "workspaces" }])
    );
    let top = gateway.get(&format!("/v1/workspaces?path={root}")).await;
    assert_eq!(names(&top), ["harbor", "lantern"], "{top}");
    let first = gateway
        .get(&format!("/v1/workspaces?path={root}&limit=1"))
        .await;
    assert_eq!(
        (names(&first), &first["nextCursor"]),
        (vec!["harbor"], &json!("harbor"))
    );
    let second = gateway
        .get(&format!("/v1/workspaces?path={root}&limit=1&cursor=harbor"))
        .await;
    assert_eq!(
        (names(&second), &second["nextCursor"]),
        (vec!["lantern"], &Value::Null)
    );
    let deeper = gateway.get("/v1/workspaces?path=harbor").await;
    assert_eq!(
        (names(&deeper), &deeper["parent"]),
        (vec!["web"], &json!(root))
    );

    let path = deeper["folders"][0]["path"].as_str().expect("a path");
    let (status, session) = gateway
        .post("/v1/sessions", &json!({ "agent": "fake", "cwd": path }))
        .await;
    assert_eq!(
        (status, &session["cwd"]),
        (StatusCode::CREATED, &json!(path)),
        "{session}"
    );
    let get = async |query: &str| {
        gateway
            .call(Method::GET, &format!("/v1/workspaces?{query}"))
            .await
    };
    get("path=/etc").await.problem(403, "forbidden");
    get("path=harbor/missing").await.problem(404, "not_found");
    get("path=harbor/..").await.problem(422, "invalid");
    get("other=1").await.problem(422, "invalid");
}
