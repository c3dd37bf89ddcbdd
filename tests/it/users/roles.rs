//! Roles limit the keys of a user, and a deactivated user has none.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{LIMITS, User};
use crate::key_life::created;
use crate::store::migration::run;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Gateway, Setup};

const REVIEWER: &str = "[roles.reviewer]\nscopes = [\"read\", \"approve\"]";

fn gateway() -> Gateway {
    Setup::fake(&[]).settings(LIMITS).table(REVIEWER).start()
}

/// Runs `user update` for alice with the configuration of the gateway.
fn update(gateway: &Gateway, words: &[&str]) -> (bool, String) {
    let config = gateway.path("config.toml");
    let config = config.to_str().expect("UTF-8");
    run(
        gateway,
        &[&["user", "update", "alice", "--config", config], words].concat(),
    )
}

fn updated(gateway: &Gateway, words: &[&str]) {
    let (is_done, text) = update(gateway, words);
    assert!(is_done, "{text}");
}

/// The scopes of the key when they are these; `None`: the key is not valid.
async fn until_scopes(user: &User<'_>, scopes: Option<Value>) {
    eventually("the rights of the key", LONGEST, || async {
        let answer = user.call(Method::GET, "/v1").await;
        let is_expected = match &scopes {
            Some(scopes) => answer.body["scopes"] == *scopes,
            None => answer.status == StatusCode::UNAUTHORIZED,
        };
        is_expected.then_some(())
    })
    .await;
}

#[tokio::test]
async fn role_limits_the_keys_of_a_user_and_ends_streams_without_a_right() {
    let gateway = gateway();
    let key = created(&gateway, &["create", "alice"]).await;
    let alice = User {
        gateway: &gateway,
        key,
    };
    let session = alice.session().await;
    let path = format!("/v1/sessions/{session}/events/stream");
    let mut stream = alice.stream(&path).await;
    stream.until("ready").await;

    updated(&gateway, &["--role", "viewer"]);
    until_scopes(&alice, Some(json!(["read"]))).await;
    let last = stream.rest().await.pop().expect("the end of the stream");
    assert_eq!(last.data["problem"]["code"], "unauthorized", "{last:?}");
    alice.get(&format!("/v1/sessions/{session}")).await;
    let refused = alice
        .post("/v1/sessions", &json!({ "agent": "fake" }))
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");

    updated(&gateway, &["--role", "reviewer"]);
    until_scopes(&alice, Some(json!(["read", "approve"]))).await;
    updated(&gateway, &["--role", "none"]);
    let all = json!(["read", "prompt", "approve", "files"]);
    until_scopes(&alice, Some(all)).await;
}

#[tokio::test]
async fn keys_of_a_deactivated_user_are_not_valid() {
    let gateway = gateway();
    let alice = User::new(&gateway, "alice").await;
    let session = alice.session().await;
    let mut stream = alice.stream("/v1/events/stream").await;
    stream.until("ready").await;
    updated(&gateway, &["--active", "false"]);
    until_scopes(&alice, None).await;
    let last = stream.rest().await.pop().expect("the end of the stream");
    assert_eq!(last.data["problem"]["code"], "unauthorized", "{last:?}");
    let (is_done, users) = run(&gateway, &["user", "list"]);
    assert!(is_done && users.contains("deactivated"), "{users}");

    // A grant needs a user.
    let bob = User::new(&gateway, "bob").await;
    let own = bob.session().await;
    let path = format!("/v1/sessions/{own}/grants/user:alice");
    let request = bob.request(Method::PUT, &path);
    let grant = crate::support::Answer::of(request.json(&json!({ "access": "read" }))).await;
    assert_eq!(grant.status, StatusCode::UNPROCESSABLE_ENTITY, "{grant:?}");

    updated(&gateway, &["--active", "true"]);
    until_scopes(&alice, Some(json!(["admin"]))).await;
    alice.get(&format!("/v1/sessions/{session}")).await;
}

#[tokio::test]
async fn unknown_roles_and_users_are_refused() {
    let gateway = gateway();
    let (is_done, text) = update(&gateway, &["--role", "viewer"]);
    assert!(
        !is_done && text.contains("there is no user alice"),
        "{text}"
    );
    created(&gateway, &["create", "alice"]).await;
    let (is_done, text) = update(&gateway, &["--role", "boss"]);
    assert!(!is_done, "{text}");
    assert!(
        text.contains("admin, member, operator, reviewer, viewer"),
        "{text}"
    );
    let (is_done, text) = run(&gateway, &["user", "update", "owner", "--role", "viewer"]);
    assert!(!is_done && text.contains("'owner'"), "{text}");
}
