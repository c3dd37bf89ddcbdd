//! Grants to groups: their members have the access as long as they are members.

use serde_json::json;

use super::revoked::stop_reason;
use super::{ALL, LIMITS, get, grant_by, ids, share};
use crate::key_life::{by, created, user_key};
use crate::store::migration::run;
use crate::support::gateway::KEY;
use crate::support::wait::LONGEST;
use crate::support::{Answer, Events, Gateway, Setup, eventually};
use reqwest::Method;

fn groups(gateway: &Gateway, words: &[&str]) {
    let words = [&["user", "update"], words].concat();
    let (is_done, text) = run(gateway, &words);
    assert!(is_done, "{text}");
}

/// Shares a session with the group `team` once the gateway knows a member of it.
async fn share_with_team(gateway: &Gateway, session: &str, access: &str) {
    eventually("the group has a member", LONGEST, || async {
        let answer = Answer::of(grant_by(gateway, KEY, session, "group:team", access)).await;
        (answer.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn member_has_the_access_until_it_leaves_the_group() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    let carol = user_key(&gateway, "carol", ALL).await;
    let namesake = created(&gateway, &["create", "bob", "--tenant", "other"]).await;
    groups(&gateway, &["bob", "--groups", "team,others"]);
    groups(&gateway, &["bob", "--tenant", "other", "--groups", "team"]);
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}");
    share_with_team(&gateway, &session, "prompt").await;
    assert_eq!(get(&gateway, &bob, &path).await.body["access"], "prompt");
    for other in [&carol, &namesake] {
        get(&gateway, other, &path).await.problem(404, "not_found");
    }
    let list = get(&gateway, &bob, "/v1/sessions?shared=true").await;
    assert_eq!(ids(&list.body), [&session]);

    gateway.kill();
    gateway.start();
    assert_eq!(get(&gateway, &bob, &path).await.body["access"], "prompt");

    // The prompt of bob waits for the end of the one of the owner.
    gateway.prompt(&session, "hang").await;
    let prompts = format!("{path}/prompts");
    let queued = by(&gateway, &bob, Method::POST, &prompts);
    let queued = queued.json(&json!({ "prompt": "echo late", "queue": true }));
    let queued = Answer::of(queued).await;
    assert_eq!(queued.status, 202, "{queued:?}");
    let stream = by(
        &gateway,
        &bob,
        Method::GET,
        &format!("{path}/events/stream"),
    );
    let mut stream = Events::new(stream.send().await.expect("a stream"));
    stream.until("ready").await;
    groups(&gateway, &["bob", "--groups", "none"]);
    let end = stream.until("problem").await.pop().expect("the last frame");
    assert_eq!(end.data["problem"]["code"], "not_found", "{end:?}");
    get(&gateway, &bob, &path).await.problem(404, "not_found");
    let id = queued.body["promptId"].as_str().expect("an id");
    eventually("the queued prompt is cancelled", LONGEST, || async {
        (stop_reason(&gateway, &session, id).await == "cancelled").then_some(())
    })
    .await;
}

#[tokio::test]
async fn open_streams_of_a_new_member_report_the_session() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let bob = user_key(&gateway, "bob", ALL).await;
    user_key(&gateway, "carol", ALL).await;
    groups(&gateway, &["carol", "--groups", "team"]);
    let session = gateway.session("fake").await;
    share_with_team(&gateway, &session, "read").await;
    let mut streams = Vec::new();
    for path in ["/v1/events/stream", "/v1/events/stream?summaries=true"] {
        let request = by(&gateway, &bob, Method::GET, path);
        let mut stream = Events::new(request.send().await.expect("a stream"));
        stream.until("ready").await;
        streams.push(stream);
    }
    groups(&gateway, &["bob", "--groups", "team"]);
    let shared = streams[0].until("session.shared").await.pop().expect("it");
    assert_eq!(shared.data["sessionId"], *session);
    let summary = streams[1].until("session.summary").await.pop().expect("it");
    assert_eq!(summary.data["sessionId"], *session, "{summary:?}");
    groups(&gateway, &["bob", "--groups", "others"]);
    streams[0].until("session.unshared").await;
}

#[tokio::test]
async fn group_without_a_member_in_the_tenant_is_refused() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    created(&gateway, &["create", "bob", "--tenant", "other"]).await;
    groups(&gateway, &["bob", "--tenant", "other", "--groups", "team"]);
    let session = gateway.session("fake").await;
    let refuse = |grantee: &'static str| {
        let session = session.clone();
        let gateway = &gateway;
        async move {
            let answer = Answer::of(grant_by(gateway, KEY, &session, grantee, "read")).await;
            assert_eq!(answer.status, 422, "{answer:?}");
        }
    };
    refuse("group:team").await;
    refuse("group:nobody").await;
    share(&gateway, &session, "tenant", "read").await;
}
