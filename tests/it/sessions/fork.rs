//! Forks: sessions that the agent makes of another one.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::log::{agent_text, all, kinds, one};
use crate::support::{Answer, Gateway, Setup, eventually};

async fn fork(gateway: &Gateway, session: &str, key: Option<&str>) -> Answer {
    let mut request = gateway.request(Method::POST, &format!("/v1/sessions/{session}/fork"));
    if let Some(key) = key {
        request = request.header("Idempotency-Key", key);
    }
    Answer::of(request).await
}

fn id(answer: &Answer) -> String {
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    answer.body["sessionId"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn fork_has_the_history_and_continues_independently() {
    for args in [
        &["--fork", "--state", "state", "--close"][..],
        &["--fork", "--state", "state", "--resume"],
    ] {
        let gateway = Setup::fake(args).start();
        let body = json!({ "agent": "fake", "title": "Tree", "metadata": { "a": 1 },
            "policy": { "permissions": { "timeoutSeconds": 60 } } });
        let parent = id(&gateway.posted("/v1/sessions", &[], &body).await);
        gateway.turn(&parent, "echo trunk").await;
        let answer = fork(&gateway, &parent, None).await;
        let forked = id(&answer);
        assert_eq!(
            answer.header("location"),
            Some(&*format!("/v1/sessions/{forked}"))
        );
        let shown = gateway.get_session(&parent).await;
        for member in ["agent", "title", "metadata", "policy", "cwd"] {
            assert_eq!(answer.body[member], shown[member], "{member}");
        }
        let events = gateway.lawful(&forked).await;
        let created = one(&events, "session.created");
        assert_eq!(
            (&created["forkedFrom"], created.get("adopted")),
            (&json!(parent), None)
        );
        assert_eq!(one(&events, "session.attached")["by"], "fork");
        assert_eq!(
            kinds(&events),
            [
                "session.created",
                "session.update",
                "session.update",
                "session.attached"
            ]
        );
        assert!(
            all(&events, "session.update")
                .iter()
                .all(|event| event["replayed"] == true)
        );
        assert_eq!(agent_text(&events), "trunk");
        let (one, other) = tokio::join!(
            gateway.turn(&parent, "echo left"),
            gateway.turn(&forked, "echo right")
        );
        assert_eq!(
            (&one["text"], &other["text"]),
            (&json!("left"), &json!("right"))
        );
        assert_eq!(agent_text(&gateway.lawful(&parent).await), "trunkleft");
        assert_eq!(agent_text(&gateway.lawful(&forked).await), "trunkright");
    }
}

#[tokio::test]
async fn a_fork_has_its_parents_title_until_its_agent_names_it() {
    let mut gateway = Setup::fake(&["--fork", "--state", "state"]).start();
    let body = json!({ "agent": "fake", "title": "Tree" });
    let parent = id(&gateway.posted("/v1/sessions", &[], &body).await);
    let forked = id(&fork(&gateway, &parent, None).await);
    gateway.turn(&parent, "title text=Trunk").await;
    assert_eq!(
        gateway.get_session(&parent).await["title"],
        "Tree",
        "a person gave it"
    );
    assert_eq!(gateway.get_session(&forked).await["title"], "Tree");
    gateway.turn(&forked, "title text=Branch").await;
    assert_eq!(gateway.get_session(&forked).await["title"], "Branch");
    gateway.kill();
    gateway.start();
    let shown = gateway
        .get(&format!("/v1/sessions/{forked}/transcript"))
        .await;
    assert_eq!(
        (
            &shown["session"]["title"],
            &gateway.get_session(&forked).await["title"]
        ),
        (&json!("Branch"), &json!("Branch"))
    );
    let rename = gateway.request(Method::PATCH, &format!("/v1/sessions/{forked}"));
    assert_eq!(
        Answer::of(rename.json(&json!({ "title": "Mine" })))
            .await
            .status,
        StatusCode::OK
    );
    gateway.turn(&forked, "title text=Twig").await;
    assert_eq!(gateway.get_session(&forked).await["title"], "Mine");
}

#[tokio::test]
async fn delete_of_a_fork_keeps_the_parents_folder() {
    // Without `session/close` the fork is there before anything else is written.
    let gateway = Setup::fake(&["--fork", "--state", "state"]).start();
    let parent = gateway.session("fake").await;
    let cwd = gateway.get_session(&parent).await["cwd"]
        .as_str()
        .expect("a folder")
        .to_owned();
    let forked = id(&fork(&gateway, &parent, None).await);
    let deleted = gateway
        .call(Method::DELETE, &format!("/v1/sessions/{forked}"))
        .await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    gateway.turn(&parent, "echo still here").await;
    assert!(
        std::path::Path::new(&cwd).exists(),
        "its parent still works there"
    );
    let deleted = gateway
        .call(Method::DELETE, &format!("/v1/sessions/{parent}"))
        .await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    eventually(
        "the last one takes the folder along",
        Duration::from_secs(10),
        || async { (!std::path::Path::new(&cwd).exists()).then_some(()) },
    )
    .await;
}

#[tokio::test]
async fn a_fork_is_made_once_for_a_key() {
    let gateway = Setup::fake(&["--fork", "--state", "state"]).start();
    let parent = gateway.session("fake").await;
    let first = fork(&gateway, &parent, Some("k")).await;
    let again = fork(&gateway, &parent, Some("k")).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(id(&first), id(&again));
    assert_ne!(
        id(&first),
        id(&fork(&gateway, &parent, Some("other")).await)
    );
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(3)
    );
}

#[tokio::test]
async fn a_detached_session_gets_a_process_to_be_forked() {
    let setup = Setup::fake_with(
        &["--fork", "--state", "state"],
        "pool = { max_size = 1, min_idle = 0 }",
    );
    let gateway = setup.settings("testing.min_backoff = \"10ms\"").start();
    let parent = gateway.session("fake").await;
    gateway.turn(&parent, "crash").await;
    assert_eq!(gateway.get_session(&parent).await["attached"], false);
    let forked = id(&fork(&gateway, &parent, None).await);
    assert_eq!(gateway.turn(&forked, "echo after").await["text"], "after");
}

#[tokio::test]
async fn failed_fork_has_a_reason_and_no_effect() {
    let gateway = Setup::fake(&["--fork", "--state", "state"]).start();
    let parent = gateway.session("fake").await;
    gateway.prompt(&parent, "stream n=1; hang").await;
    gateway
        .log_until(&parent, |event| event["type"] == "session.update")
        .await;
    let problem = fork(&gateway, &parent, None)
        .await
        .problem(409, "turn_running");
    assert_eq!(problem["promptId"], "p1");
    gateway
        .call(Method::POST, &format!("/v1/sessions/{parent}/close"))
        .await;
    fork(&gateway, &parent, None)
        .await
        .problem(409, "session_closed");
    for (args, part) in [
        (&[][..], "session/fork"),
        (&["--fork", "--no-load"], "session/load"),
    ] {
        let gateway = Setup::fake(args).start();
        let parent = gateway.session("fake").await;
        let problem = fork(&gateway, &parent, None)
            .await
            .problem(501, "agent_unsupported");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains(part)),
            "{problem}"
        );
        assert_eq!(
            gateway.get("/v1/sessions").await["sessions"]
                .as_array()
                .map(Vec::len),
            Some(1)
        );
        gateway.lawful(&parent).await;
    }
}

#[tokio::test]
async fn folder_shared_by_forks_is_deleted_with_the_last_one() {
    let gateway = Setup::fake(&["--fork", "--state", "state"]).start();
    let parent = gateway.session("fake").await;
    let forked = id(&fork(&gateway, &parent, None).await);
    let folder = gateway.path("data/workspaces").join(&parent);
    std::fs::write(folder.join("file"), "work").expect("the folder is there");
    gateway
        .call(Method::DELETE, &format!("/v1/sessions/{parent}"))
        .await;
    // The next of its kind is deleted after it, so its folder has been looked at.
    assert_eq!(gateway.turn(&forked, "echo on").await["text"], "on");
    assert!(folder.join("file").exists(), "the fork works there");
    gateway
        .call(Method::DELETE, &format!("/v1/sessions/{forked}"))
        .await;
    eventually("the folder is gone", Duration::from_secs(10), || async {
        (!folder.exists()).then_some(())
    })
    .await;
    let listed: Value = gateway.get("/v1/sessions").await;
    assert_eq!(listed["sessions"], json!([]));
}
