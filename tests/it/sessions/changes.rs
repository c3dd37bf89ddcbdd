//! Title, metadata, modes and options.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::log::{all, one};
use crate::support::{Answer, Gateway, Setup};

async fn fake() -> (Gateway, String) {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    (gateway, session)
}

async fn patch(gateway: &Gateway, session: &str, if_match: Option<&str>, body: &Value) -> Answer {
    let mut request = gateway
        .request(Method::PATCH, &format!("/v1/sessions/{session}"))
        .json(body);
    if let Some(etag) = if_match {
        request = request.header("If-Match", etag);
    }
    Answer::of(request).await
}

async fn put(gateway: &Gateway, session: &str, path: &str, body: &Value) -> Answer {
    Answer::of(
        gateway
            .request(Method::PUT, &format!("/v1/sessions/{session}/{path}"))
            .json(body),
    )
    .await
}

#[tokio::test]
async fn a_patch_merges_and_null_clears() {
    let (gateway, session) = fake().await;
    let by = gateway.get("/v1").await["principal"]["id"].clone();
    for (body, title, metadata) in [
        (
            json!({ "title": "A", "metadata": { "a": 1, "b": { "c": 2, "d": 3 } } }),
            json!("A"),
            json!({ "a": 1, "b": { "c": 2, "d": 3 } }),
        ),
        (
            json!({ "metadata": { "a": null, "b": { "c": null } } }),
            json!("A"),
            json!({ "b": { "d": 3 } }),
        ),
        (
            json!({ "title": null }),
            Value::Null,
            json!({ "b": { "d": 3 } }),
        ),
        (
            json!({ "metadata": null, "title": "B" }),
            json!("B"),
            json!({}),
        ),
    ] {
        let answer = patch(&gateway, &session, None, &body).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        assert_eq!(
            (&answer.body["title"], &answer.body["metadata"]),
            (&title, &metadata)
        );
        assert_eq!(gateway.get_session(&session).await, answer.body);
        let events = gateway.lawful(&session).await;
        let changed = *all(&events, "session.changed").last().expect("the change");
        assert_eq!(changed["by"], by);
        let requested = |member: &str| body.get(member).is_some();
        assert_eq!(changed.get("title"), requested("title").then_some(&title));
        assert_eq!(
            changed.get("metadata"),
            requested("metadata").then_some(&metadata)
        );
        assert_eq!(changed["id"], answer.body["lastEventId"]);
    }
    let before = gateway.all_events(&session).await;
    assert_eq!(
        patch(&gateway, &session, None, &json!({})).await.status,
        StatusCode::OK
    );
    for body in [
        json!({ "state": "closed" }),
        json!({ "title": 7 }),
        json!({ "title": "x".repeat(513) }),
        json!({ "metadata": "x" }),
        json!({ "cwd": "/" }),
    ] {
        patch(&gateway, &session, None, &body)
            .await
            .problem(422, "invalid");
    }
    assert_eq!(
        gateway.all_events(&session).await,
        before,
        "nothing changed, nothing is said"
    );
}

async fn delete(gateway: &Gateway, session: &str, if_match: &str) -> Answer {
    let request = gateway
        .request(Method::DELETE, &format!("/v1/sessions/{session}"))
        .header("If-Match", if_match);
    Answer::of(request).await
}

#[tokio::test]
async fn if_match_compares_the_revision_and_no_other_tag() {
    let (gateway, session) = fake().await;
    let got = gateway
        .call(Method::GET, &format!("/v1/sessions/{session}"))
        .await;
    assert_eq!(got.header("cache-control"), Some("private, no-cache"));
    assert_eq!(got.header("vary"), Some("Authorization"));
    let representation = got.header("etag").expect("an ETag").to_owned();
    let tag = |body: &Value| format!("\"r{}\"", body["revision"]);
    let seen = tag(&got.body);
    let first = patch(&gateway, &session, Some(&seen), &json!({ "title": "mine" })).await;
    assert_eq!(
        (first.status, &first.body["title"]),
        (StatusCode::OK, &json!("mine"))
    );
    let current = tag(&first.body);
    assert_ne!(current, seen);
    let newer = first.header("etag").expect("an ETag");
    assert_ne!(newer, representation);
    for stale in [&seen, newer, "\"r99\"", "\"x\""] {
        let late = patch(&gateway, &session, Some(stale), &json!({ "title": "late" })).await;
        let problem = late.problem(412, "precondition_failed");
        assert_eq!(problem["revision"], first.body["revision"], "{stale}");
        let kept = delete(&gateway, &session, stale).await;
        let problem = kept.problem(412, "precondition_failed");
        assert_eq!(problem["revision"], first.body["revision"], "{stale}");
    }
    let any = patch(&gateway, &session, Some("*"), &json!({ "title": "any" })).await;
    assert_eq!(any.status, StatusCode::OK);
    assert_eq!(
        delete(&gateway, &session, &tag(&any.body)).await.status,
        StatusCode::NO_CONTENT
    );
}

#[tokio::test]
async fn revision_stays_the_same_in_turns_and_after_a_restart() {
    let (mut gateway, session) = fake().await;
    patch(&gateway, &session, None, &json!({ "title": "mine" })).await;
    let revision = gateway.get_session(&session).await["revision"].clone();
    gateway.turn(&session, "echo one").await;
    gateway.turn(&session, "title text=Agent").await;
    gateway.prompt(&session, "permission").await;
    gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    let tag = format!("\"r{revision}\"");
    let during = patch(
        &gateway,
        &session,
        Some(&tag),
        &json!({ "metadata": { "a": 1 } }),
    )
    .await;
    assert_eq!(during.status, StatusCode::OK, "{}", during.body);
    let revision = during.body["revision"].clone();
    gateway.kill();
    gateway.start();
    assert_eq!(gateway.get_session(&session).await["revision"], revision);
}

#[tokio::test]
async fn a_persons_title_outranks_the_agents_until_it_is_cleared() {
    let (gateway, session) = fake().await;
    gateway.turn(&session, "title text=Agent").await;
    assert_eq!(gateway.get_session(&session).await["title"], "Agent");
    patch(&gateway, &session, None, &json!({ "title": "Person" })).await;
    gateway.turn(&session, "title text=Agent2").await;
    assert_eq!(gateway.get_session(&session).await["title"], "Person");
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"][0]["title"],
        "Person"
    );
    let cleared = patch(&gateway, &session, None, &json!({ "title": null })).await;
    assert_eq!(cleared.body["title"], "Agent2");
}

#[tokio::test]
async fn the_first_prompt_is_the_title_until_there_is_another() {
    let (mut gateway, session) = fake().await;
    let shown = async |gateway: &Gateway| {
        let shown = gateway.get_session(&session).await;
        (shown["title"].clone(), shown["titleBy"].clone())
    };
    assert_eq!(shown(&gateway).await, (Value::Null, Value::Null));
    gateway
        .turn(
            &session,
            "Fix the roof, then the door, and the window, and all other things",
        )
        .await;
    gateway.turn(&session, "hello").await;
    let title = "Fix the roof, then the door, and the window, and all other\u{2026}";
    gateway.kill();
    gateway.start();
    assert_eq!(shown(&gateway).await, (json!(title), json!("prompt")));
    assert_eq!(
        gateway.get("/v1/sessions?q=ROOF").await["sessions"][0]["title"],
        title
    );
    gateway.turn(&session, "title text=Agent").await;
    assert_eq!(shown(&gateway).await, (json!("Agent"), json!("agent")));
    patch(&gateway, &session, None, &json!({ "title": "Person" })).await;
    assert_eq!(shown(&gateway).await, (json!("Person"), json!("client")));
}

#[tokio::test]
async fn the_outcome_of_the_last_turn_is_shown() {
    let (gateway, session) = fake().await;
    let shown = || async {
        let session = gateway.get_session(&session).await;
        let list = gateway.get("/v1/sessions").await;
        assert_eq!(list["sessions"][0]["lastOutcome"], session["lastOutcome"]);
        assert_eq!(
            list["sessions"][0]["lastActivityAt"],
            session["lastActivityAt"]
        );
        session
    };
    let before = shown().await;
    assert_eq!(
        (&before["lastOutcome"], &before["lastActivityAt"]),
        (&Value::Null, &before["createdAt"])
    );
    gateway.turn(&session, "hello").await;
    assert_eq!(shown().await["lastOutcome"], "completed");
    gateway.turn(&session, "error code=-32603").await;
    assert_eq!(shown().await["lastOutcome"], "failed");
    gateway.prompt(&session, "stream n=1; hang").await;
    assert_eq!(
        shown().await["lastOutcome"],
        "failed",
        "the running turn has no outcome"
    );
    assert_eq!(
        gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
            .await
            .status,
        202
    );
    gateway
        .log_until(&session, |event| event["stopReason"] == "cancelled")
        .await;
    let last = shown().await;
    assert_eq!(last["lastOutcome"], "cancelled");
    patch(&gateway, &session, None, &json!({ "title": "A" })).await;
    let renamed = shown().await;
    assert_eq!(
        renamed["lastActivityAt"], last["lastActivityAt"],
        "a title is no activity"
    );
    assert!(renamed["updatedAt"].as_str() > last["updatedAt"].as_str());
}

#[tokio::test]
async fn a_mode_is_set_at_the_agent_and_shown() {
    let (gateway, session) = fake().await;
    let answer = put(&gateway, &session, "mode", &json!({ "modeId": "code" })).await;
    assert_eq!(
        (answer.status, &answer.body["modes"]["currentModeId"]),
        (StatusCode::OK, &json!("code"))
    );
    assert_eq!(
        answer.body["modes"]["availableModes"]
            .as_array()
            .map(Vec::len),
        Some(2)
    );
    assert_eq!(
        gateway.get_session(&session).await["modes"],
        answer.body["modes"]
    );
    let events = gateway.lawful(&session).await;
    let changed = one(&events, "session.changed");
    assert_eq!(changed["currentModeId"], "code");
    assert_eq!(changed["by"], gateway.get("/v1").await["principal"]["id"]);

    let problem = put(&gateway, &session, "mode", &json!({ "modeId": "nope" }))
        .await
        .problem(422, "invalid");
    assert!(problem["acp"].is_null(), "the agent did not get it");
    for body in [
        json!({}),
        json!({ "modeId": 7 }),
        json!({ "modeId": "code", "more": 1 }),
    ] {
        put(&gateway, &session, "mode", &body)
            .await
            .problem(422, "invalid");
    }
    assert_eq!(gateway.lawful(&session).await.len(), events.len());
}

#[tokio::test]
async fn an_option_is_set_at_the_agent_and_shown() {
    let (gateway, session) = fake().await;
    let answer = put(
        &gateway,
        &session,
        "config/model",
        &json!({ "value": "large" }),
    )
    .await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.body["configOptions"][0]["currentValue"], "large");
    let shown = gateway.get_session(&session).await;
    assert_eq!(shown["configOptions"], answer.body["configOptions"]);
    let events = gateway.lawful(&session).await;
    assert_eq!(
        one(&events, "session.changed")["configOptions"],
        shown["configOptions"]
    );
    for (option, value) in [
        ("model", json!("huge")),
        ("nope", json!("large")),
        ("model", json!(true)),
    ] {
        let answer = put(
            &gateway,
            &session,
            &format!("config/{option}"),
            &json!({ "value": value }),
        )
        .await;
        let problem = answer.problem(422, "invalid");
        assert!(problem["acp"].is_null(), "{option} {value}");
    }
    for value in [json!(7), json!({}), Value::Null] {
        put(
            &gateway,
            &session,
            "config/model",
            &json!({ "value": value }),
        )
        .await
        .problem(422, "invalid");
    }
    assert_eq!(
        gateway.get_session(&session).await["configOptions"],
        shown["configOptions"]
    );
}

#[tokio::test]
async fn changes_by_the_agent_are_reported() {
    let (gateway, session) = fake().await;
    gateway.turn(&session, "modes; plan").await;
    let shown = gateway.get_session(&session).await;
    assert_eq!(shown["modes"]["currentModeId"], "code");
    assert_eq!(shown["configOptions"][0]["currentValue"], "large");
    assert_eq!(
        shown["plan"]["entries"]
            .as_array()
            .or(shown["plan"].as_array())
            .map(Vec::len),
        Some(2)
    );
}

#[tokio::test]
async fn set_mode_works_during_a_turn_and_starts_a_process_if_none_is_attached() {
    let gateway = Setup::fake(&["--state", "state"])
        .settings("testing.min_backoff = \"10ms\"")
        .start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "stream n=1; hang").await;
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    let answer = put(&gateway, &session, "mode", &json!({ "modeId": "code" })).await;
    assert_eq!(
        (answer.status, &answer.body["modes"]["currentModeId"]),
        (StatusCode::OK, &json!("code"))
    );
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    gateway.turn(&session, "crash").await;
    assert_eq!(gateway.get_session(&session).await["attached"], false);
    let answer = put(&gateway, &session, "mode", &json!({ "modeId": "code" })).await;
    assert_eq!(
        (answer.status, &answer.body["modes"]["currentModeId"]),
        (StatusCode::OK, &json!("code"))
    );
    assert_eq!(gateway.get_session(&session).await["attached"], true);
    gateway.lawful(&session).await;
}
