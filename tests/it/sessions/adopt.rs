//! Sessions that the agent has and the gateway has not: adopted.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::log::{agent_text, all, kinds, one};
use crate::support::{Answer, Gateway, Setup};

/// Creates a session with one turn that only the agent knows. Returns the agent's id. The gateway that created it has
/// deleted it.
async fn left_behind(gateway: &Gateway) -> (String, String) {
    std::fs::create_dir(gateway.path("data/workspaces/project")).expect("the root is ours");
    let created = gateway
        .posted(
            "/v1/sessions",
            &[],
            &json!({ "agent": "fake", "cwd": "project" }),
        )
        .await;
    let session = created.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned();
    gateway.turn(&session, "echo before").await;
    let cwd = created.body["cwd"].as_str().expect("a folder").to_owned();
    let state = gateway.path("data/homes/default/fake/state");
    let lines = std::fs::read_to_string(&state).expect("the agent's state");
    let first: Value = serde_json::from_str(lines.lines().next().expect("a line")).expect("JSON");
    gateway
        .call(Method::DELETE, &format!("/v1/sessions/{session}"))
        .await;
    gateway.none_alive().await;
    (first["sessionId"].as_str().expect("an id").to_owned(), cwd)
}

async fn adopt(gateway: &Gateway, body: &Value) -> Answer {
    let mut all = json!({ "agent": "fake" });
    for (name, value) in body.as_object().expect("an object") {
        all[name] = value.clone();
    }
    gateway.posted("/v1/sessions", &[], &all).await
}

fn replayed(events: &[Value]) -> Vec<&Value> {
    events
        .iter()
        .filter(|event| event["replayed"] == true)
        .collect()
}

#[tokio::test]
async fn a_session_of_the_agent_is_adopted_with_its_history() {
    let gateway = Setup::fake(&["--state", "state", "--log", "received"]).start();
    let (theirs, cwd) = left_behind(&gateway).await;
    let answer = adopt(
        &gateway,
        &json!({ "agentSessionId": theirs, "cwd": cwd, "title": "Found" }),
    )
    .await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let session = answer.body["sessionId"].as_str().expect("an id");
    assert_eq!(
        answer.header("location"),
        Some(&*format!("/v1/sessions/{session}"))
    );
    assert_eq!(
        (&answer.body["title"], &answer.body["cwd"]),
        (&json!("Found"), &json!(cwd))
    );
    let events = gateway.lawful(session).await;
    assert_eq!(
        kinds(&events),
        [
            "session.created",
            "session.update",
            "session.update",
            "session.attached"
        ],
        "the history arrives before the session exists"
    );
    let created = one(&events, "session.created");
    assert_eq!(
        (&created["adopted"], created.get("forkedFrom")),
        (&json!(true), None)
    );
    let attached = one(&events, "session.attached");
    assert_eq!(
        (&attached["by"], &attached["context"]),
        (&json!("adopt"), &json!("kept"))
    );
    let history = replayed(&events);
    assert_eq!(history.len(), 2);
    assert!(history.iter().all(|event| event.get("promptId").is_none()));
    assert_eq!(history[0]["update"]["sessionUpdate"], "user_message_chunk");
    assert_eq!(agent_text(&events), "before");
    // From here on it is an ordinary session, and its history is not sent twice.
    assert_eq!(gateway.turn(session, "echo after").await["text"], "after");
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/close"))
        .await;
    let attached = gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/attach"))
        .await;
    assert_eq!(attached.status, StatusCode::OK, "{attached:?}");
    let events = gateway.lawful(session).await;
    assert_eq!(agent_text(&events), "beforeafter");
    assert_eq!(all(&events, "session.attached")[1]["by"], "load");
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"][0]["sessionId"],
        session
    );
}

#[tokio::test]
async fn adopted_session_uses_the_folder_of_the_agents_list() {
    let gateway = Setup::fake(&["--state", "state", "--list"]).start();
    let (theirs, cwd) = left_behind(&gateway).await;
    let answer = adopt(&gateway, &json!({ "agentSessionId": theirs })).await;
    assert_eq!(
        (answer.status, &answer.body["cwd"]),
        (StatusCode::CREATED, &json!(cwd)),
        "{answer:?}"
    );
    let listed = gateway.get("/v1/agents/fake/sessions").await;
    assert_eq!(
        listed["sessions"][0]["sessionId"], answer.body["sessionId"],
        "{listed}"
    );
    let problem = adopt(&gateway, &json!({ "agentSessionId": "nothing" }))
        .await
        .problem(422, "invalid");
    assert_eq!(problem["errors"][0]["pointer"], "/agentSessionId");
}

#[tokio::test]
async fn agent_with_only_resume_restores_without_history() {
    let gateway = Setup::fake(&["--state", "state", "--resume", "--no-load"]).start();
    let (theirs, cwd) = left_behind(&gateway).await;
    let answer = adopt(&gateway, &json!({ "agentSessionId": theirs, "cwd": cwd })).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
    let session = answer.body["sessionId"].as_str().expect("an id");
    let events = gateway.lawful(session).await;
    assert_eq!(kinds(&events), ["session.created", "session.attached"]);
    assert_eq!(events[1]["by"], "adopt");
    let gateway = Setup::fake(&["--no-load"]).start();
    std::fs::create_dir(gateway.path("data/workspaces/w")).expect("the root is ours");
    let answer = adopt(&gateway, &json!({ "agentSessionId": "x", "cwd": "w" })).await;
    answer.problem(501, "agent_unsupported");
}

#[tokio::test]
async fn failed_adoption_has_no_effect() {
    let gateway = Setup::fake(&["--state", "state"]).start();
    let work = gateway.path("data/workspaces/w");
    std::fs::create_dir(&work).expect("the root is ours");
    let problem = adopt(
        &gateway,
        &json!({ "agentSessionId": "unknown", "cwd": "w" }),
    )
    .await
    .problem(404, "not_found");
    assert_eq!(problem["acp"]["code"], -32002);
    for (body, status, code, pointer) in [
        (
            json!({ "agentSessionId": "", "cwd": "w" }),
            422,
            "invalid",
            "/agentSessionId",
        ),
        (
            json!({ "agentSessionId": "x".repeat(1025), "cwd": "w" }),
            422,
            "invalid",
            "/agentSessionId",
        ),
        (
            json!({ "agentSessionId": 7, "cwd": "w" }),
            422,
            "invalid",
            "/agentSessionId",
        ),
        (json!({ "agentSessionId": "x" }), 422, "invalid", "/cwd"),
        (
            json!({ "agentSessionId": "x", "cwd": "missing" }),
            422,
            "invalid",
            "/cwd",
        ),
    ] {
        let problem = adopt(&gateway, &body).await.problem(status, code);
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
    }
    adopt(&gateway, &json!({ "agentSessionId": "x", "cwd": "/etc" }))
        .await
        .problem(403, "forbidden");
    let made = crate::key_life::key(&gateway, "prompter", "read,prompt,approve,files").await;
    let request = gateway
        .http
        .post(format!("{}/v1/sessions", gateway.url))
        .bearer_auth(made)
        .json(&json!({ "agent": "fake", "agentSessionId": "x", "cwd": "w" }));
    let problem = Answer::of(request).await.problem(403, "forbidden");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("admin")),
        "{problem}"
    );
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    assert!(work.exists(), "the folder was there before");
}

#[tokio::test]
async fn a_session_that_is_one_of_ours_already_is_named_and_not_made_twice() {
    let gateway = Setup::fake(&["--state", "state"]).start();
    let (theirs, cwd) = left_behind(&gateway).await;
    let body = json!({ "agentSessionId": theirs, "cwd": cwd });
    let (one, other) = tokio::join!(adopt(&gateway, &body), adopt(&gateway, &body));
    let (made, refused) = if one.status == StatusCode::CREATED {
        (one, other)
    } else {
        (other, one)
    };
    let session = made.body["sessionId"].as_str().expect("an id").to_owned();
    assert_eq!(
        refused.problem(422, "invalid")["errors"][0]["pointer"],
        "/agentSessionId"
    );
    let problem = adopt(&gateway, &body).await.problem(422, "invalid");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains(&session)),
        "{problem}"
    );
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[tokio::test]
async fn agent_crash_during_the_history_creates_no_session() {
    let gateway = Setup::fake(&["--state", "state", "--break-load"]).start();
    let (theirs, cwd) = left_behind(&gateway).await;
    let mut everything = gateway.events("/v1/events").await;
    everything.until("ready").await;
    adopt(&gateway, &json!({ "agentSessionId": theirs, "cwd": cwd }))
        .await
        .problem(502, "agent_exited");
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    let deleted = everything
        .until("session.deleted")
        .await
        .pop()
        .expect("a frame");
    let session = deleted.data["sessionId"].as_str().expect("an id");
    gateway
        .call(Method::GET, &format!("/v1/sessions/{session}"))
        .await
        .problem(404, "not_found");
    // The agent's session can be asked for again.
    adopt(&gateway, &json!({ "agentSessionId": theirs, "cwd": cwd }))
        .await
        .problem(502, "agent_exited");
}

#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "the test ends the request with its gateway"
)]
async fn session_with_an_incomplete_history_is_hidden_and_removed_by_a_restart() {
    let mut gateway = Setup::fake(&["--state", "state", "--stall-load"]).start();
    let (theirs, cwd) = left_behind(&gateway).await;
    let mut everything = gateway.events("/v1/events").await;
    everything.until("ready").await;
    let body = json!({ "agent": "fake", "agentSessionId": theirs, "cwd": cwd });
    let asked = tokio::spawn(
        gateway
            .request(Method::POST, "/v1/sessions")
            .json(&body)
            .send(),
    );
    let created = everything
        .until("session.created")
        .await
        .pop()
        .expect("a frame");
    let session = format!(
        "/v1/sessions/{}",
        created.data["sessionId"].as_str().expect("an id")
    );
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    gateway
        .call(Method::GET, &session)
        .await
        .problem(404, "not_found");
    gateway
        .posted(
            &format!("{session}/prompts"),
            &[],
            &json!({ "prompt": "x" }),
        )
        .await
        .problem(404, "not_found");
    gateway.kill();
    assert!(
        asked.await.expect("it was asked").is_err(),
        "no client received a session"
    );
    gateway.start();
    assert_eq!(gateway.get("/v1/sessions").await["sessions"], json!([]));
    gateway
        .call(Method::GET, &session)
        .await
        .problem(404, "not_found");
}
