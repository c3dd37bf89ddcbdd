//! The list of sessions.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::places::fake_agent;
use crate::support::{Answer, Gateway, Setup};

async fn made(gateway: &Gateway, body: &Value) -> String {
    let answer = gateway.posted("/v1/sessions", &[], body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body["sessionId"].as_str().expect("an id").to_owned()
}

async fn ids(gateway: &Gateway, query: &str) -> Vec<String> {
    let list = gateway.get(&format!("/v1/sessions{query}")).await;
    let sessions = list["sessions"].as_array().expect("a list");
    sessions
        .iter()
        .map(|session| session["sessionId"].as_str().expect("an id").to_owned())
        .collect()
}

#[tokio::test]
async fn the_list_has_pages_the_newest_activity_first() {
    let gateway = Setup::fake(&[]).start();
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(gateway.session("fake").await);
    }
    gateway.turn(&made[1], "hello").await;
    // A title is no activity.
    let renamed = gateway
        .request(Method::PATCH, &format!("/v1/sessions/{}", made[0]))
        .json(&json!({ "title": "A" }));
    assert_eq!(Answer::of(renamed).await.status, 200);
    let order = [&made[1], &made[4], &made[3], &made[2], &made[0]];
    let mut seen = Vec::new();
    let mut cursor = String::new();
    let mut pages = 0;
    loop {
        let page = gateway.get(&format!("/v1/sessions?limit=2{cursor}")).await;
        let sessions = page["sessions"].as_array().expect("a list");
        seen.extend(sessions.iter().map(|session| session["sessionId"].clone()));
        pages += 1;
        let Some(next) = page["nextCursor"].as_str() else {
            break;
        };
        assert_eq!(sessions.len(), 2);
        cursor = format!("&cursor={next}");
    }
    assert_eq!((json!(seen), pages), (json!(order), 3));
    let list = gateway.get("/v1/sessions").await;
    assert_eq!(list["nextCursor"], Value::Null);
    let first = &list["sessions"][0];
    let whole = gateway.get_session(&made[1]).await;
    for member in [
        "agent",
        "title",
        "metadata",
        "cwd",
        "state",
        "attached",
        "lastActivityAt",
        "lastOutcome",
        "lastEventId",
    ] {
        assert_eq!(first[member], whole[member], "{member}");
    }
    for folded in ["modes", "configOptions", "plan", "requests", "policy"] {
        assert_eq!(first.get(folded), None, "{folded}");
    }
    for wrong in [
        "limit=0",
        "limit=201",
        "cursor=x",
        "cursor=AAAA",
        "state=busy",
        "agent=A%20b",
        "unknown=1",
    ] {
        gateway
            .call(Method::GET, &format!("/v1/sessions?{wrong}"))
            .await
            .problem(422, "invalid");
    }
}

#[tokio::test]
async fn session_list_filters_by_agent_state_text_and_folder() {
    let setup = Setup::fake(&[]).agent("other", fake_agent(), &[], "");
    let gateway = setup.start();
    let root = gateway
        .path("data/workspaces")
        .canonicalize()
        .expect("the root of workspaces");
    std::fs::create_dir(root.join("project")).expect("the folder is ours");
    let a = made(
        &gateway,
        &json!({ "agent": "fake", "title": "Fix the ROOF" }),
    )
    .await;
    let b = made(
        &gateway,
        &json!({ "agent": "other", "title": "Paint", "cwd": "project" }),
    )
    .await;
    let c = made(&gateway, &json!({ "agent": "fake" })).await;
    gateway.prompt(&c, "permission").await;
    gateway
        .log_until(&c, |event| event["type"] == "request.created")
        .await;
    gateway.prompt(&a, "stream n=1; hang").await;
    assert_eq!(
        gateway
            .call(Method::POST, &format!("/v1/sessions/{b}/close"))
            .await
            .status,
        200
    );
    let project = root.join("project").display().to_string();
    for (query, expected) in [
        ("?agent=other", vec![&b]),
        ("?agent=nobody", vec![]),
        ("?state=running", vec![&a]),
        ("?state=waiting", vec![&c]),
        ("?state=closed", vec![&b]),
        ("?state=idle", vec![]),
        ("?q=roof", vec![&a]),
        ("?q=AINT", vec![&b]),
        (&*format!("?q={}", &c[20..]), vec![&c]),
        ("?q=nothing", vec![]),
        (&*format!("?cwd={project}"), vec![&b]),
        ("?agent=fake&state=running&q=the", vec![&a]),
        ("?agent=other&state=running", vec![]),
    ] {
        assert_eq!(
            json!(ids(&gateway, query).await),
            json!(expected),
            "{query}"
        );
    }
    assert_eq!(ids(&gateway, "").await.len(), 3);
}
