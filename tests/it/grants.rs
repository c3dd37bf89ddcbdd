//! Sessions that are shared with other users.

mod groups;
mod matrix;
mod model;
mod revoked;
mod streams;

use std::time::Duration;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::key_life::{by, user_key};
use crate::support::gateway::KEY;
use crate::support::{Answer, Gateway, Setup, eventually};

/// The tests send more requests than a person may.
const LIMITS: &str = "limits.per_key.max_requests_per_minute = 100000\n";
const ALL: &str = "read,prompt,approve,files";
const LEVELS: [&str; 4] = ["read", "prompt", "approve", "own"];

fn grant_by(
    gateway: &Gateway,
    key: &str,
    session: &str,
    grantee: &str,
    access: &str,
) -> RequestBuilder {
    let path = format!("/v1/sessions/{session}/grants/{grantee}");
    by(gateway, key, Method::PUT, &path).json(&json!({ "access": access }))
}

/// Shares a session of the owner.
async fn share(gateway: &Gateway, session: &str, grantee: &str, access: &str) {
    let answer = Answer::of(grant_by(gateway, KEY, session, grantee, access)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.body["grantee"], grantee);
    assert_eq!(answer.body["access"], access);
    assert_eq!(answer.body["grantedBy"], "owner");
}

async fn unshare(gateway: &Gateway, session: &str, grantee: &str) {
    let path = format!("/v1/sessions/{session}/grants/{grantee}");
    let answer = Answer::of(gateway.request(Method::DELETE, &path)).await;
    assert_eq!(answer.status, 204, "{}", answer.body);
}

async fn get(gateway: &Gateway, key: &str, path: &str) -> Answer {
    Answer::of(by(gateway, key, Method::GET, path)).await
}

fn ids(list: &Value) -> Vec<&str> {
    let sessions = list["sessions"].as_array().expect("a list");
    let ids = sessions.iter().map(|session| session["sessionId"].as_str());
    ids.map(|id| id.expect("an id")).collect()
}

#[tokio::test]
async fn shared_session_is_in_the_list_of_shared_sessions_of_its_users_only() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let carol = user_key(&gateway, "carol", ALL).await;
    let first = gateway.session("fake").await;
    let second = gateway.session("fake").await;
    gateway.session("fake").await;
    share(&gateway, &first, "user:bob", "read").await;
    share(&gateway, &second, "tenant", "prompt").await;

    let list = get(&gateway, &bob, "/v1/sessions?shared=true&order=created").await;
    assert_eq!(ids(&list.body), [&first, &second]);
    assert_eq!(list.body["sessions"][0]["owner"], "owner");
    let page = get(
        &gateway,
        &bob,
        "/v1/sessions?shared=true&order=created&limit=1",
    )
    .await;
    assert_eq!(ids(&page.body), [&first]);
    let cursor = page.body["nextCursor"].as_str().expect("another page");
    let path = format!("/v1/sessions?shared=true&order=created&limit=1&cursor={cursor}");
    let page = get(&gateway, &bob, &path).await;
    assert_eq!(ids(&page.body), [&second]);
    assert_eq!(page.body["nextCursor"], Value::Null);
    let list = get(&gateway, &carol, "/v1/sessions?shared=true").await;
    assert_eq!(ids(&list.body), [&second]);
    for key in [&bob, &carol] {
        let own = get(&gateway, key, "/v1/sessions").await;
        assert_eq!(
            own.body["sessions"],
            json!([]),
            "it is not a session of their own"
        );
    }
    let list = get(&gateway, KEY, "/v1/sessions?shared=true").await;
    assert_eq!(
        list.body["sessions"],
        json!([]),
        "the owner has it in the other list"
    );
}

#[tokio::test]
async fn grants_survive_a_kill_and_end_with_their_session() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}");
    share(&gateway, &session, "user:bob", "approve").await;
    gateway.kill();
    gateway.start();
    assert_eq!(get(&gateway, &bob, &path).await.body["access"], "approve");
    unshare(&gateway, &session, "user:bob").await;
    gateway.kill();
    gateway.start();
    get(&gateway, &bob, &path).await.problem(404, "not_found");

    share(&gateway, &session, "user:bob", "read").await;
    let deleted = Answer::of(gateway.request(Method::DELETE, &path)).await;
    assert_eq!(deleted.status, 204);
    let list = get(&gateway, &bob, "/v1/sessions?shared=true").await;
    assert_eq!(list.body["sessions"], json!([]));
    assert_eq!(gateway.stop(), Some(0));
    let log = rusqlite::Connection::open(gateway.path("data/private/log.sqlite")).expect("the log");
    let rows = log.query_row("SELECT count(*) FROM record WHERE tbl = 27", [], |row| {
        row.get::<_, i64>(0)
    });
    assert_eq!(rows.expect("the table exists"), 0);
}

#[tokio::test]
async fn grant_needs_a_user_of_the_tenant_and_the_scopes_that_it_gives() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let foreign = [
        "create", "mallory", "--user", "mallory", "--tenant", "other",
    ];
    crate::key_life::created(&gateway, &foreign).await;
    user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    let put = |grantee: &str, access: &str| {
        Answer::of(grant_by(&gateway, KEY, &session, grantee, access))
    };
    let unknown = put("user:nobody", "read").await.problem(422, "invalid");
    let other = put("user:mallory", "read").await.problem(422, "invalid");
    let text = |problem: &Value| problem["errors"].to_string();
    assert_eq!(text(&unknown).replace("nobody", "mallory"), text(&other));
    for malformed in ["bob", "user:", "group:x", "user:a%20b", "tenants"] {
        put(malformed, "read").await.problem(422, "invalid");
    }
    put("user:bob", "write").await.problem(422, "invalid");
    put("user:owner", "read").await.problem(409, "last_owner");
    let path = format!("/v1/sessions/{session}/grants");
    let remove =
        |grantee: &str| Answer::of(gateway.request(Method::DELETE, &format!("{path}/{grantee}")));
    remove("user:owner").await.problem(409, "last_owner");
    remove("user:bob").await.problem(404, "not_found");

    let weak = crate::key_life::key(&gateway, "weak", "read,prompt").await;
    let give = |access| Answer::of(grant_by(&gateway, &weak, &session, "user:bob", access));
    assert_eq!(give("prompt").await.status, 200);
    for more in ["approve", "own"] {
        let problem = give(more).await.problem(403, "forbidden");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains("approve"), "{detail}");
    }
    let grants = gateway.get(&path).await;
    assert_eq!(grants["owner"], "owner");
    assert_eq!(grants["grants"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn session_has_at_most_64_grants() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    user_key(&gateway, "last", ALL).await;
    for number in 0..63 {
        crate::key_life::key_command(&gateway, &["create", &format!("user-{number}")]);
    }
    user_key(&gateway, "one-more", ALL).await;
    for number in 0..63 {
        share(&gateway, &session, &format!("user:user-{number}"), "read").await;
    }
    share(&gateway, &session, "tenant", "read").await;
    share(&gateway, &session, "tenant", "prompt").await;
    let more = grant_by(&gateway, KEY, &session, "user:last", "read");
    Answer::of(more).await.problem(422, "invalid");
}

#[tokio::test]
async fn queued_prompt_of_a_user_that_lost_the_access_does_not_run() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "hang").await;
    share(&gateway, &session, "user:bob", "prompt").await;
    let path = format!("/v1/sessions/{session}/prompts");
    let body = json!({ "prompt": "hello", "queue": true });
    for key in [&*bob, KEY] {
        let queued = by(&gateway, key, Method::POST, &path).json(&body);
        assert_eq!(Answer::of(queued).await.body["status"], "queued");
    }
    share(&gateway, &session, "user:bob", "read").await;
    let status = async |prompt: &str| {
        let turn = gateway.get(&format!("{path}/{prompt}")).await;
        turn["status"].clone()
    };
    assert_eq!(status("p2").await, "completed", "it was cancelled");
    assert_eq!(
        gateway.get(&format!("{path}/p2")).await["stopReason"],
        "cancelled"
    );
    assert_eq!(
        status("p3").await,
        "queued",
        "the prompt of the owner stays"
    );
}

#[tokio::test]
async fn grants_and_deletions_are_in_the_audit_log() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    user_key(&gateway, "bob", ALL).await;
    let session = gateway.session("fake").await;
    share(&gateway, &session, "user:bob", "prompt").await;
    unshare(&gateway, &session, "user:bob").await;
    let path = format!("/v1/sessions/{session}");
    let deleted = Answer::of(gateway.request(Method::DELETE, &path)).await;
    assert_eq!(deleted.status, 204);
    // The records of grants become events within a second.
    let events = eventually("the events", Duration::from_secs(20), || async {
        let audit = gateway.get("/v1/audit?types=grant.,session.").await;
        let events = audit["events"].as_array().expect("a page").clone();
        (events.len() == 3).then_some(events)
    })
    .await;
    let mut sorted: Vec<_> = events.iter().map(|event| event["type"].as_str()).collect();
    sorted.sort_unstable();
    let expected = ["grant.removed", "grant.set", "session.erased"];
    assert_eq!(sorted, expected.map(Some));
    for event in &events {
        assert_eq!(event["sessionId"], *session);
        assert_eq!(event["actor"]["name"], "owner");
        assert_eq!(event["actor"]["kind"], "key");
    }
    let of = |kind: &str| {
        events
            .iter()
            .find(|event| event["type"] == kind)
            .expect("it")
    };
    assert_eq!(of("grant.set")["grantee"], "user:bob");
    assert_eq!(of("grant.set")["access"], "prompt");
    assert_eq!(of("grant.removed")["grantee"], "user:bob");
    assert_eq!(of("session.erased")["owner"], "default/owner");
}
