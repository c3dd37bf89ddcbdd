//! `/v1/keys`: a user makes, replaces and ends its own keys, and none gives more than the one that makes it.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{LIMITS, User};
use crate::admin::link_key;
use crate::key_life::created;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Events, Gateway, Setup};

fn gateway() -> Gateway {
    Setup::fake(&[]).settings(LIMITS).start()
}

/// The user of `key create` with these words, with no more scopes than they say.
async fn user<'a>(gateway: &'a Gateway, words: &[&str]) -> User<'a> {
    let words = [&["create"], words].concat();
    let key = created(gateway, &words).await;
    User { gateway, key }
}

async fn made(by: &User<'_>, body: &Value) -> Value {
    let answer = by.post("/v1/keys", body).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    answer.body
}

fn with<'a>(gateway: &'a Gateway, created: &Value) -> User<'a> {
    let key = created["key"].as_str().expect("a key").to_owned();
    User { gateway, key }
}

/// Waits until a stream has ended because of its key.
async fn ends(stream: Events) {
    let frames = stream.rest().await;
    let last = frames.last().expect("a stream says why it ends");
    assert_eq!(last.data["problem"]["code"], "unauthorized", "{last:?}");
}

async fn id_of(by: &User<'_>, name: &str) -> String {
    let list = by.get("/v1/keys").await;
    let mut keys = list["keys"].as_array().expect("a list").iter();
    let key = keys
        .find(|key| key["name"] == name)
        .expect("a key of this name");
    key["keyId"].as_str().expect("an id").to_owned()
}

async fn ids(by: &User<'_>) -> Vec<String> {
    let list = by.get("/v1/keys").await;
    let keys = list["keys"].as_array().expect("a list");
    let ids = keys.iter().map(|key| key["keyId"].as_str().expect("an id"));
    ids.map(str::to_owned).collect()
}

#[tokio::test]
async fn key_gives_the_same_sessions_and_its_text_is_shown_once() {
    let gateway = gateway();
    let alice = user(&gateway, &["alice"]).await;
    let session = alice.session().await;
    let key = made(&alice, &json!({ "name": "ci", "scopes": ["read"] })).await;
    assert_eq!(
        (&key["user"], &key["scopes"], &key["kind"]),
        (&json!("alice"), &json!(["read"]), &json!("named"))
    );
    let program = with(&gateway, &key);
    program.get(&format!("/v1/sessions/{session}")).await;
    let refused = program
        .post("/v1/sessions", &json!({ "agent": "fake" }))
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");

    let list = program.get("/v1/keys").await;
    let keys = list["keys"].as_array().expect("a list");
    let current = |key: &&Value| key["isCurrent"] == true;
    let current: Vec<_> = keys.iter().filter(current).collect();
    assert_eq!(keys.len(), 2, "{list}");
    assert_eq!(current.len(), 1, "{list}");
    assert_eq!(current[0]["keyId"], key["keyId"]);
    assert!(!list.to_string().contains(&program.key), "{list}");
}

#[tokio::test]
async fn other_users_neither_see_nor_end_a_key() {
    let gateway = gateway();
    let alice = user(&gateway, &["alice"]).await;
    let bob = user(&gateway, &["bob"]).await;
    let namesake = user(&gateway, &["alice", "--tenant", "other"]).await;
    let key = made(&alice, &json!({ "name": "ci" })).await;
    let id = key["keyId"].as_str().expect("an id");
    for other in [&bob, &namesake] {
        assert_eq!(ids(other).await.len(), 1);
        let path = format!("/v1/keys/{id}");
        let unknown = other.call(Method::DELETE, "/v1/keys/000000000000").await;
        let foreign = other.call(Method::DELETE, &path).await;
        assert_eq!(foreign.status, StatusCode::NOT_FOUND);
        assert_eq!(foreign.body["detail"], unknown.body["detail"]);
        let rotated = other.post(&format!("{path}/rotate"), &json!({})).await;
        assert_eq!(rotated.status, StatusCode::NOT_FOUND);
    }
    with(&gateway, &key).get("/v1").await;
}

#[tokio::test]
async fn key_has_no_right_that_its_maker_lacks() {
    let gateway = gateway();
    let reader = user(
        &gateway,
        &["alice", "--scopes", "read", "--expires-in", "1h"],
    )
    .await;
    let scopes = json!({ "name": "more", "scopes": ["read", "prompt", "admin"] });
    let refused = reader.post("/v1/keys", &scopes).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    let detail = refused.body["detail"].as_str().expect("a text");
    assert!(detail.contains("prompt, admin"), "{detail}");

    let later = json!({ "name": "later", "expiresAt": "2999-01-01T00:00:00Z" });
    let refused = reader.post("/v1/keys", &later).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    let own = ids(&reader).await;
    let same = made(&reader, &json!({ "name": "same" })).await;
    let list = reader.get("/v1/keys").await;
    assert_eq!(list["keys"][0]["keyId"], own[0].as_str());
    assert_eq!(list["keys"][0]["expiresAt"], same["expiresAt"]);
    assert_eq!(same["scopes"], json!(["read"]));

    // A key that ends does not turn into one that lasts.
    let lasting = user(
        &gateway,
        &["alice-ci", "--user", "alice", "--scopes", "read"],
    )
    .await;
    let lasting = id_of(&lasting, "alice-ci").await;
    let refused = reader
        .post(&format!("/v1/keys/{lasting}/rotate"), &json!({}))
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");

    // An admin key does not include `mcp` and `actAs`.
    let admin = user(&gateway, &["carol", "--scopes", "admin"]).await;
    for scope in ["mcp", "actAs"] {
        let body = json!({ "name": "more", "scopes": [scope] });
        let refused = admin.post("/v1/keys", &body).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    }
    // A key with fewer rights does not end one with more.
    let strong = user(&gateway, &["dave"]).await;
    let weak = with(
        &gateway,
        &made(&strong, &json!({ "name": "weak", "scopes": ["read"] })).await,
    );
    let id = ids(&strong).await.remove(0);
    let refused = weak.call(Method::DELETE, &format!("/v1/keys/{id}")).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
    let refused = weak
        .post(&format!("/v1/keys/{id}/rotate"), &json!({}))
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{refused:?}");
}

#[tokio::test]
async fn invalid_keys_are_refused_with_the_member() {
    let gateway = gateway();
    let alice = user(&gateway, &["alice"]).await;
    for (body, member) in [
        (json!({ "name": "no spaces" }), "/name"),
        (json!({ "name": "owner" }), "/name"),
        (json!({ "name": "link" }), "/name"),
        (json!({ "name": "a", "scopes": [] }), "/scopes"),
        (
            json!({ "name": "a", "expiresAt": "2020-01-01T00:00:00Z" }),
            "/expiresAt",
        ),
    ] {
        let refused = alice.post("/v1/keys", &body).await;
        assert_eq!(
            refused.status,
            StatusCode::UNPROCESSABLE_ENTITY,
            "{refused:?}"
        );
        assert_eq!(refused.body["errors"][0]["pointer"], member, "{refused:?}");
    }
}

#[tokio::test]
async fn number_of_keys_of_a_user_is_limited() {
    let gateway = Setup::fake(&[])
        .settings(LIMITS)
        .settings("testing.max_keys_per_user = 2")
        .start();
    let alice = user(&gateway, &["alice"]).await;
    made(&alice, &json!({ "name": "one" })).await;
    let refused = alice.post("/v1/keys", &json!({ "name": "two" })).await;
    assert_eq!(
        refused.status,
        StatusCode::UNPROCESSABLE_ENTITY,
        "{refused:?}"
    );
    let bob = user(&gateway, &["bob"]).await;
    made(&bob, &json!({ "name": "one" })).await;
}

#[tokio::test]
async fn rotated_and_revoked_keys_end_with_their_streams() {
    let gateway = gateway();
    let alice = user(&gateway, &["alice"]).await;
    let session = alice.session().await;
    let stream = format!("/v1/sessions/{session}/events/stream");
    let first = made(&alice, &json!({ "name": "ci", "scopes": ["read"] })).await;
    let old = with(&gateway, &first);
    let mut events = old.stream(&stream).await;
    events.until("ready").await;
    let path = format!("/v1/keys/{}", first["keyId"].as_str().expect("an id"));
    let rotated = alice.post(&format!("{path}/rotate"), &json!({})).await;
    assert_eq!(rotated.status, StatusCode::CREATED, "{rotated:?}");
    ends(events).await;
    assert_eq!(
        old.call(Method::GET, "/v1").await.status,
        StatusCode::UNAUTHORIZED
    );
    let second = rotated.body;
    for member in ["name", "scopes", "user", "expiresAt"] {
        assert_eq!(first[member], second[member], "{member}");
    }
    let new = with(&gateway, &second);
    let mut events = new.stream(&stream).await;
    events.until("ready").await;
    let path = format!("/v1/keys/{}", second["keyId"].as_str().expect("an id"));
    let revoked = alice.call(Method::DELETE, &path).await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT, "{revoked:?}");
    ends(events).await;
    assert_eq!(
        new.call(Method::GET, "/v1").await.status,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(ids(&alice).await.len(), 1);
}

#[tokio::test]
async fn key_of_a_link_makes_keys_of_the_owner() {
    let gateway = gateway();
    let link = User {
        gateway: &gateway,
        key: link_key(&gateway),
    };
    let key = eventually("the gateway knows the link", LONGEST, || async {
        let answer = link.post("/v1/keys", &json!({ "name": "script" })).await;
        (answer.status == StatusCode::CREATED).then_some(answer.body)
    })
    .await;
    assert_eq!(key["user"], "owner");
    assert_eq!(key["name"], "script");
}
