//! Sessions are found by their metadata, and closed and deleted by it.

use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::support::places::fake_agent;
use crate::support::{Answer, Gateway, Setup};

async fn made(gateway: &Gateway, agent: &str, metadata: Value) -> String {
    let body = json!({ "agent": agent, "metadata": metadata });
    let answer = gateway.posted("/v1/sessions", &[], &body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body["sessionId"].as_str().expect("an id").to_owned()
}

fn ids(list: &Value) -> Vec<String> {
    let sessions = list["sessions"].as_array().expect("a list");
    sessions
        .iter()
        .map(|session| session["sessionId"].as_str().expect("an id").to_owned())
        .collect()
}

async fn found(gateway: &Gateway, query: &str) -> Vec<String> {
    ids(&gateway.get(&format!("/v1/sessions?{query}")).await)
}

async fn patch(gateway: &Gateway, session: &str, metadata: Value) -> Answer {
    let request = gateway.request(Method::PATCH, &format!("/v1/sessions/{session}"));
    Answer::of(request.json(&json!({ "metadata": metadata }))).await
}

/// The rows of the metadata index of a gateway that does not run.
fn index_rows(gateway: &Gateway) -> i64 {
    let file = Connection::open(gateway.path("data/private/log.sqlite")).expect("the log");
    file.query_row("SELECT count(*) FROM record WHERE tbl = 14", [], |row| {
        row.get(0)
    })
    .expect("a count")
}

#[tokio::test]
async fn sessions_are_found_by_metadata() {
    let gateway = Setup::fake(&[])
        .agent("other", fake_agent(), &[], "")
        .start();
    let text = made(
        &gateway,
        "fake",
        json!({ "user": "42", "app": "chat", "x": null }),
    )
    .await;
    let number = made(
        &gateway,
        "fake",
        json!({ "user": 42, "app": "mail", "flag": true }),
    )
    .await;
    let other = made(
        &gateway,
        "other",
        json!({ "user": "42", "app": "chat", "n": 1.5 }),
    )
    .await;
    let nested = made(
        &gateway,
        "fake",
        json!({ "user": { "id": "42" }, "list": ["42"], "a.b": "dot" }),
    )
    .await;
    for (query, expected) in [
        ("metadata.user=42", vec![&other, &number, &text]),
        ("metadata[user]=42", vec![&other, &number, &text]),
        ("metadata%5Buser%5D=42", vec![&other, &number, &text]),
        ("metadata.user=42&metadata.app=chat", vec![&other, &text]),
        ("metadata.user=42&metadata.app=chat&agent=fake", vec![&text]),
        ("metadata.user=42&q=nothing", vec![]),
        ("metadata.user=4", vec![]),
        ("metadata.User=42", vec![]),
        ("metadata.flag=true", vec![&number]),
        ("metadata.flag=false", vec![]),
        ("metadata.n=1.5", vec![&other]),
        ("metadata.x=null", vec![]),
        ("metadata.a.b=dot", vec![&nested]),
        ("metadata.list=42", vec![]),
        ("metadata.user.id=42", vec![]),
    ] {
        assert_eq!(
            found(&gateway, query).await,
            expected.into_iter().cloned().collect::<Vec<_>>(),
            "{query}"
        );
    }
    for wrong in [
        "metadata.=42".to_owned(),
        "metadata.user=1&metadata.user=2".to_owned(),
        "metadata.user=1&metadata[user]=1".to_owned(),
        format!("metadata.{}=1", "k".repeat(129)),
        format!("metadata.user={}", "v".repeat(513)),
        (0..9)
            .map(|n| format!("metadata.k{n}=1"))
            .collect::<Vec<_>>()
            .join("&"),
        "metadata=1".to_owned(),
    ] {
        gateway
            .call(Method::GET, &format!("/v1/sessions?{wrong}"))
            .await
            .problem(422, "invalid");
    }
    let many: Value = (0..65)
        .map(|n| (format!("k{n}"), json!(n)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let body = json!({ "agent": "fake", "metadata": many });
    gateway
        .posted("/v1/sessions", &[], &body)
        .await
        .problem(422, "invalid");
    patch(&gateway, &text, many).await.problem(422, "invalid");
}

#[tokio::test]
async fn the_metadata_filter_has_pages_the_newest_change_first() {
    let gateway = Setup::fake(&[]).start();
    let mut all = Vec::new();
    for n in 0..5 {
        all.push(made(&gateway, "fake", json!({ "user": "alice", "n": n })).await);
    }
    // Seven sessions have a process each, so none of them changes because another one needs it.
    made(&gateway, "fake", json!({ "user": "bob" })).await;
    made(&gateway, "fake", json!({})).await;
    gateway.turn(&all[1], "hello").await;
    let order = [1, 4, 3, 2, 0].map(|at: usize| all[at].clone());
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = gateway
            .get(&format!("/v1/sessions?metadata.user=alice&limit=2{cursor}"))
            .await;
        seen.extend(ids(&page));
        let Some(next) = page["nextCursor"].as_str() else {
            break;
        };
        assert_eq!(ids(&page).len(), 2);
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, order);
}

#[tokio::test]
async fn the_metadata_index_follows_patch_fork_delete_and_restart() {
    let mut gateway = Setup::fake(&["--fork", "--close", "--state", "state"]).start();
    let one = made(&gateway, "fake", json!({ "user": "alice", "kept": "yes" })).await;
    let two = made(&gateway, "fake", json!({ "user": "alice" })).await;
    assert_eq!(
        patch(&gateway, &one, json!({ "user": "bob", "new": 1 }))
            .await
            .status,
        200
    );
    let look = async |gateway: &Gateway| {
        for (query, expected) in [
            ("metadata.user=alice", vec![two.clone()]),
            ("metadata.user=bob", vec![one.clone()]),
            ("metadata.kept=yes&metadata.new=1", vec![one.clone()]),
        ] {
            assert_eq!(found(gateway, query).await, expected, "{query}");
        }
    };
    look(&gateway).await;
    gateway.kill();
    gateway.start();
    look(&gateway).await;
    assert_eq!(
        patch(&gateway, &one, json!({ "user": null, "new": null }))
            .await
            .status,
        200
    );
    assert_eq!(
        found(&gateway, "metadata.user=bob").await,
        Vec::<String>::new()
    );
    assert_eq!(
        found(&gateway, "metadata.kept=yes").await,
        std::slice::from_ref(&one)
    );
    let forked = gateway
        .posted(&format!("/v1/sessions/{one}/fork"), &[], &json!({}))
        .await;
    if forked.status == 201 {
        let fork = forked.body["sessionId"].as_str().expect("an id").to_owned();
        assert_eq!(
            found(&gateway, "metadata.kept=yes").await,
            [fork.clone(), one.clone()]
        );
        assert_eq!(
            gateway
                .call(Method::DELETE, &format!("/v1/sessions/{fork}"))
                .await
                .status,
            204
        );
    }
    for session in [&one, &two] {
        assert_eq!(
            gateway
                .call(Method::DELETE, &format!("/v1/sessions/{session}"))
                .await
                .status,
            204
        );
    }
    assert_eq!(
        found(&gateway, "metadata.kept=yes").await,
        Vec::<String>::new()
    );
    assert_eq!(gateway.stop(), Some(0));
    assert_eq!(index_rows(&gateway), 0, "a deleted session leaves no row");
}

/// All pages of a bulk call; the sessions in their order, each with its status.
async fn bulk(gateway: &Gateway, method: &Method, path: &str) -> Vec<(String, u64)> {
    let mut done = Vec::new();
    let mut cursor = String::new();
    loop {
        let answer = gateway
            .call(method.clone(), &format!("{path}{cursor}"))
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let results = answer.body["results"].as_array().expect("results");
        assert!(results.len() <= 2, "a batch has a bound: {results:?}");
        done.extend(results.iter().map(|result| {
            let id = result["sessionId"].as_str().expect("an id").to_owned();
            (id, result["status"].as_u64().expect("a status"))
        }));
        let Some(next) = answer.body["nextCursor"].as_str() else {
            return done;
        };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn sessions_are_closed_and_deleted_by_metadata() {
    let gateway = Setup::fake(&["--close", "--state", "state"]).start();
    let mut alice = Vec::new();
    for _ in 0..5 {
        alice.push(made(&gateway, "fake", json!({ "user": "alice" })).await);
    }
    let bob = made(&gateway, "fake", json!({ "user": "bob" })).await;
    gateway.prompt(&alice[0], "stream n=1; hang").await;
    for (method, path) in [
        (Method::POST, "/v1/sessions/close"),
        (Method::DELETE, "/v1/sessions"),
        (Method::DELETE, "/v1/sessions?limit=2"),
        (Method::DELETE, "/v1/sessions?q=a"),
        (Method::DELETE, "/v1/sessions?metadata.user="),
        (Method::DELETE, "/v1/sessions?metadata.user=alice&limit=101"),
        (
            Method::POST,
            "/v1/sessions/close?metadata.user=alice&nothing=1",
        ),
    ] {
        gateway
            .call(method.clone(), path)
            .await
            .problem(422, "invalid");
    }
    let mut expected: Vec<_> = alice.iter().map(|id| (id.clone(), 200)).collect();
    expected.sort();
    for _ in 0..2 {
        let mut closed = bulk(
            &gateway,
            &Method::POST,
            "/v1/sessions/close?metadata.user=alice&limit=2",
        )
        .await;
        closed.sort();
        assert_eq!(closed, expected);
    }
    for session in &alice {
        assert_eq!(gateway.get_session(session).await["state"], "closed");
    }
    assert_eq!(gateway.get_session(&bob).await["state"], "idle");
    let path = "/v1/sessions?metadata.user=alice&state=closed&limit=2";
    let mut deleted = bulk(&gateway, &Method::DELETE, path).await;
    deleted.sort();
    assert_eq!(
        deleted,
        alice
            .iter()
            .map(|id| (id.clone(), 204))
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
    );
    assert_eq!(bulk(&gateway, &Method::DELETE, path).await, []);
    assert_eq!(ids(&gateway.get("/v1/sessions").await), [bob]);
}
