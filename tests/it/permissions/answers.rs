//! Answers to permission requests: the response to the agent, and rejected answers.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::asking;
use crate::support::log::{agent_text, all, kinds, one};
use crate::support::{Answer, Gateway, Setup};

async fn answer(gateway: &Gateway, session: &str, path: &str, body: &Value) -> Answer {
    gateway
        .posted(&format!("/v1/sessions/{session}/{path}"), &[], body)
        .await
}

/// Waits for the end of the only turn. Returns the log.
async fn end(gateway: &Gateway, session: &str) -> Vec<Value> {
    gateway
        .log_until(session, |event| event["type"] == "prompt.completed")
        .await;
    gateway.lawful(session).await
}

#[tokio::test]
async fn a_request_is_shown_raw_and_the_session_waits() {
    let (gateway, session, created) = asking(Setup::fake(&[]), "permission").await;
    assert_eq!(
        (&created["requestId"], &created["promptId"]),
        (&json!("r1"), &json!("p1"))
    );
    assert_eq!(created["method"], "session/request_permission");
    let params = &created["params"];
    assert_eq!(
        params["sessionId"], session,
        "the agent's own id is never shown"
    );
    let options: Vec<&Value> = params["options"]
        .as_array()
        .expect("options")
        .iter()
        .map(|option| &option["optionId"])
        .collect();
    assert_eq!(options, ["allow", "allow_always", "reject"]);
    assert_eq!(params["toolCall"]["toolCallId"], "call_1");
    assert!(created["deadline"].as_str() > created["time"].as_str());

    let requests = gateway
        .get(&format!("/v1/sessions/{session}/requests"))
        .await["requests"]
        .clone();
    assert_eq!(requests.as_array().map(Vec::len), Some(1));
    for member in ["requestId", "method", "params", "promptId", "deadline"] {
        assert_eq!(requests[0][member], created[member], "{member}");
    }
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        (&shown["state"], &shown["requests"]),
        (&json!("waiting"), &requests)
    );
}

#[tokio::test]
async fn the_option_that_was_chosen_reaches_the_agent() {
    for option in ["allow", "allow_always", "reject"] {
        let (gateway, session, _) = asking(Setup::fake(&[]), "permission").await;
        let given = answer(
            &gateway,
            &session,
            "permissions/r1",
            &json!({ "optionId": option }),
        )
        .await;
        assert_eq!(given.status, StatusCode::NO_CONTENT);
        let events = end(&gateway, &session).await;
        assert_eq!(agent_text(&events), format!("permission: {option}"));
        let resolved = one(&events, "request.resolved");
        assert_eq!(
            (&resolved["resolution"], &resolved["requestId"]),
            (&json!("answered"), &json!("r1"))
        );
        assert_eq!(resolved["by"], gateway.get("/v1").await["principal"]["id"]);
        let outcome = json!({ "outcome": { "outcome": "selected", "optionId": option } });
        assert_eq!(resolved["result"], outcome);
        assert_eq!(
            gateway
                .get(&format!("/v1/sessions/{session}/requests"))
                .await["requests"],
            json!([])
        );
        assert_eq!(gateway.get_session(&session).await["state"], "idle");
    }
}

#[tokio::test]
async fn first_answer_wins_and_the_second_receives_its_author() {
    let (gateway, session, _) = asking(Setup::fake(&[]), "permission").await;
    let allow = json!({ "optionId": "allow" });
    let reject = json!({ "optionId": "reject" });
    let (one_answer, other) = tokio::join!(
        answer(&gateway, &session, "permissions/r1", &allow),
        answer(&gateway, &session, "permissions/r1", &reject),
    );
    let (won, lost, option) = if one_answer.status == StatusCode::NO_CONTENT {
        (one_answer, other, "allow")
    } else {
        (other, one_answer, "reject")
    };
    assert_eq!(won.status, StatusCode::NO_CONTENT);
    let problem = lost.problem(409, "request_resolved");
    let me = gateway.get("/v1").await["principal"]["id"].clone();
    assert_eq!(
        (&problem["by"], &problem["resolution"]),
        (&me, &json!("answered"))
    );
    assert_eq!(
        (&problem["requestId"], &problem["retryable"]),
        (&json!("r1"), &json!(false))
    );
    let events = end(&gateway, &session).await;
    assert_eq!(agent_text(&events), format!("permission: {option}"));
    one(&events, "request.resolved");
    let late = answer(&gateway, &session, "requests/r1", &json!({ "result": {} })).await;
    assert_eq!(
        late.problem(409, "request_resolved")["resolution"],
        "answered"
    );
}

#[tokio::test]
async fn unoffered_option_or_invalid_answer_is_rejected_and_the_request_stays_open() {
    let (gateway, session, _) = asking(Setup::fake(&[]), "permission").await;
    let before = gateway.all_events(&session).await;
    for (path, body) in [
        ("permissions/r1", json!({ "optionId": "allow_everything" })),
        ("permissions/r1", json!({})),
        ("permissions/r1", json!({ "cancelled": false })),
        (
            "permissions/r1",
            json!({ "optionId": "allow", "cancelled": true }),
        ),
        ("permissions/r1", json!({ "optionId": "allow", "more": 1 })),
        ("requests/r1", json!({})),
        (
            "requests/r1",
            json!({ "result": {}, "error": { "code": 1, "message": "" } }),
        ),
        (
            "requests/r1",
            json!({ "result": { "outcome": { "outcome": "selected", "optionId": "x" } } }),
        ),
        ("requests/r1", json!({ "result": "yes" })),
        ("requests/r1", json!({ "error": { "message": "no code" } })),
    ] {
        answer(&gateway, &session, path, &body)
            .await
            .problem(422, "invalid");
    }
    for path in [
        "permissions/r2",
        "permissions/r0",
        "permissions/1",
        "requests/x",
    ] {
        let body = if path.starts_with('p') {
            json!({ "optionId": "allow" })
        } else {
            json!({ "result": {} })
        };
        answer(&gateway, &session, path, &body)
            .await
            .problem(404, "not_found");
    }
    assert_eq!(gateway.all_events(&session).await, before);
    let given = answer(
        &gateway,
        &session,
        "permissions/r1",
        &json!({ "optionId": "allow" }),
    )
    .await;
    assert_eq!(given.status, StatusCode::NO_CONTENT);
    assert_eq!(
        agent_text(&end(&gateway, &session).await),
        "permission: allow"
    );
}

#[tokio::test]
async fn a_person_can_decline_to_choose() {
    let (gateway, session, _) = asking(Setup::fake(&[]), "permission").await;
    let given = answer(
        &gateway,
        &session,
        "permissions/r1",
        &json!({ "cancelled": true }),
    )
    .await;
    assert_eq!(given.status, StatusCode::NO_CONTENT);
    let events = end(&gateway, &session).await;
    assert_eq!(agent_text(&events), "permission: cancelled");
    assert_eq!(one(&events, "request.resolved")["resolution"], "answered");
    assert_eq!(
        one(&events, "prompt.completed")["stopReason"],
        "end_turn",
        "only the request is cancelled"
    );
}

#[tokio::test]
async fn general_answer_is_a_result_or_an_error() {
    let outcome =
        json!({ "outcome": { "outcome": "selected", "optionId": "reject" }, "_meta": { "a": 1 } });
    let error = json!({ "code": -32099, "message": "not now", "data": [1] });
    for (body, expected) in [
        (json!({ "result": outcome }), "permission: reject"),
        (json!({ "error": error }), "permission: error -32099"),
    ] {
        let (gateway, session, _) = asking(Setup::fake(&[]), "permission").await;
        let given = answer(&gateway, &session, "requests/r1", &body).await;
        assert_eq!(given.status, StatusCode::NO_CONTENT);
        let events = end(&gateway, &session).await;
        assert_eq!(agent_text(&events), expected);
        let resolved = one(&events, "request.resolved");
        assert_eq!(
            (&resolved["result"], &resolved["error"]),
            (&body["result"], &body["error"])
        );
    }
}

#[tokio::test]
async fn several_requests_are_answered_each_in_any_order() {
    let (gateway, session, _) = asking(Setup::fake(&[]), "permissions n=3").await;
    gateway
        .log_until(&session, |event| event["requestId"] == "r3")
        .await;
    for (request, option) in [("r3", "reject"), ("r1", "allow"), ("r2", "allow_always")] {
        assert_eq!(gateway.get_session(&session).await["state"], "waiting");
        let path = format!("permissions/{request}");
        let given = answer(&gateway, &session, &path, &json!({ "optionId": option })).await;
        assert_eq!(given.status, StatusCode::NO_CONTENT);
    }
    let expected = "permission 1: allow\npermission 2: allow_always\npermission 3: reject\n";
    assert_eq!(agent_text(&end(&gateway, &session).await), expected);
}

#[tokio::test]
async fn permission_request_can_precede_its_tool_call() {
    for (option, calls) in [("allow", 2), ("reject", 0)] {
        let (gateway, session, _) = asking(Setup::fake(&[]), "permission-first").await;
        let given = answer(
            &gateway,
            &session,
            "permissions/r1",
            &json!({ "optionId": option }),
        )
        .await;
        assert_eq!(given.status, StatusCode::NO_CONTENT);
        let events = end(&gateway, &session).await;
        assert_eq!(agent_text(&events), format!("permission: {option}"));
        let of_tools = |event: &&&Value| event["update"]["toolCallId"].is_string();
        assert_eq!(
            all(&events, "session.update")
                .iter()
                .filter(of_tools)
                .count(),
            calls
        );
        assert_eq!(
            kinds(&events)[3],
            "request.created",
            "right after the turn's beginning"
        );
    }
}

#[tokio::test]
async fn the_agents_own_ids_may_be_zero_or_strings() {
    for flag in ["--zero-ids", "--string-ids"] {
        let (gateway, session, _) = asking(Setup::fake(&[flag]), "permissions n=2").await;
        gateway
            .log_until(&session, |event| event["requestId"] == "r2")
            .await;
        for (request, option) in [("r2", "reject"), ("r1", "allow")] {
            let path = format!("permissions/{request}");
            let given = answer(&gateway, &session, &path, &json!({ "optionId": option })).await;
            assert_eq!(given.status, StatusCode::NO_CONTENT);
        }
        let expected = "permission 1: allow\npermission 2: reject\n";
        assert_eq!(
            agent_text(&end(&gateway, &session).await),
            expected,
            "{flag}"
        );
    }
}

#[tokio::test]
async fn one_sessions_request_is_no_other_sessions() {
    let (gateway, session, _) = asking(Setup::fake(&["--collide-ids"]), "permission").await;
    let other = gateway.session("fake").await;
    let allow = json!({ "optionId": "allow" });
    answer(&gateway, &other, "permissions/r1", &allow)
        .await
        .problem(404, "not_found");
    assert_eq!(
        gateway.get(&format!("/v1/sessions/{other}/requests")).await["requests"],
        json!([])
    );
    assert_eq!(
        gateway.turn(&other, "hello").await["text"],
        "hello",
        "it does not wait"
    );
    let path = format!("/v1/sessions/{session}/requests");
    assert_eq!(
        gateway.call(Method::GET, &path).await.body["requests"][0]["requestId"],
        "r1"
    );
}
