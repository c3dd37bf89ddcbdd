//! Modes that the operator denies (`modes.deny`): no client selects one in any way, and the agent's own change is reported.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::key_life::key;
use crate::support::log::{agent_text, all, kinds, one};
use crate::support::{Answer, Gateway, Setup};

const MODES: &str = r#"{"currentModeId":"default","availableModes":[
    {"id":"default","name":"Default"},{"id":"acceptEdits","name":"Accept edits"},
    {"id":"bypassPermissions","name":"Bypass"},{"id":"m-4","name":"YOLO mode"}]}"#;
const OPTIONS: &str = r#"[
    {"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"default","options":[
        {"value":"default","name":"Default"},{"value":"full-access","name":"Full"}]},
    {"id":"model","name":"Model","category":"model","type":"select","currentValue":"a","options":[
        {"value":"a","name":"A"},{"value":"yolo","name":"Yolo"}]},
    {"id":"allow-all","name":"Allow all","type":"boolean","currentValue":false}]"#;

/// A gateway whose agent offers privileged modes and accepts every change. `more`: lines of its entry.
fn offering(more: &str, modes: &str) -> Gateway {
    let setup = format!(r#"{{"sessionId":"$SESSION","modes":{modes},"configOptions":{OPTIONS}}}"#);
    let answers = [
        ("session/new", setup.replace('\n', "")),
        ("session/set_mode", "{}".to_owned()),
    ];
    let answers = answers.map(|(method, answer)| format!("{method} {answer}"));
    let more = format!("rpc = [\"_vendor/*\"]\nmeta = [\"claudeCode\"]\n{more}");
    let gateway = Setup::fake_with(
        &["--log", "received", "--answers", "../../../../answers"],
        &more,
    )
    .settings("auth.max_failed_keys_per_minute = 100000")
    .start();
    let lines = format!(
        "{}\nsession/set_config_option {{\"configOptions\":{}}}",
        answers.join("\n"),
        OPTIONS.replace('\n', "")
    );
    std::fs::write(gateway.path("answers"), lines).expect("the folder is ours");
    gateway
}

/// All lines that the agent received.
fn received(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("data/homes/default/fake/received")).unwrap_or_default()
}

async fn call(
    gateway: &Gateway,
    key: Option<&str>,
    method: Method,
    path: &str,
    body: &Value,
) -> Answer {
    let request = match key {
        Some(key) => gateway
            .http
            .request(method, format!("{}{path}", gateway.url))
            .bearer_auth(key),
        None => gateway.request(method, path),
    };
    Answer::of(request.json(body)).await
}

/// Asserts that the gateway rejected the call because of `modes.deny`.
fn assert_denied(answer: Answer, mode: &str) {
    let problem = answer.problem(403, "forbidden");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(
        detail.contains(mode) && detail.contains("`modes.deny`"),
        "{detail}"
    );
}

/// Runs a turn in which the agent sends these lines.
async fn sends(gateway: &Gateway, session: &str, lines: &[Value]) {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    gateway
        .turn(
            session,
            &format!(
                "raw {}\nend {{\"stopReason\":\"end_turn\"}}",
                lines.join("\n")
            ),
        )
        .await;
}

fn update(update: &Value) -> Value {
    json!({ "method": "session/update", "params": { "sessionId": "$SESSION", "update": update } })
}

fn mode_update(mode: &str) -> Value {
    update(&json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }))
}

#[tokio::test]
async fn no_client_sets_a_denied_mode_or_an_equivalent_option() {
    let gateway = offering("", MODES);
    let session = gateway.session("fake").await;
    let at = |path: &str| format!("/v1/sessions/{session}/{path}");
    for (path, body, mode) in [
        (
            "mode",
            json!({ "modeId": "bypassPermissions" }),
            "bypassPermissions",
        ),
        (
            "mode",
            json!({ "modeId": "bypass_permissions" }),
            "bypassPermissions",
        ),
        ("mode", json!({ "modeId": "m-4" }), "yolo"),
        ("mode", json!({ "modeId": "yolo" }), "yolo"),
        (
            "config/mode",
            json!({ "value": "full-access" }),
            "full-access",
        ),
        (
            "config/mode",
            json!({ "value": "bypassPermissions" }),
            "bypassPermissions",
        ),
        ("config/unknown", json!({ "value": "yolo" }), "yolo"),
        ("config/allow-all", json!({ "value": true }), "allow-all"),
        ("config/yolo", json!({ "value": "on" }), "yolo"),
    ] {
        assert_denied(
            call(&gateway, None, Method::PUT, &at(path), &body).await,
            mode,
        );
    }
    assert!(
        !received(&gateway).contains("session/set_"),
        "nothing reached the agent"
    );
    for (path, body) in [
        ("mode", json!({ "modeId": "acceptEdits" })),
        ("config/mode", json!({ "value": "default" })),
        ("config/model", json!({ "value": "yolo" })),
        ("config/allow-all", json!({ "value": false })),
    ] {
        assert_eq!(
            call(&gateway, None, Method::PUT, &at(path), &body)
                .await
                .status,
            StatusCode::OK,
            "{path}"
        );
    }
    assert_eq!(received(&gateway).matches("session/set_").count(), 4);
    assert!(all(&gateway.lawful(&session).await, "session.privileged_mode").is_empty());
}

#[tokio::test]
async fn no_call_by_name_contains_a_denied_mode() {
    let gateway = offering("", MODES);
    let session = gateway.session("fake").await;
    for path in [
        format!("/v1/sessions/{session}/rpc"),
        "/v1/agents/fake/rpc".to_owned(),
    ] {
        for (method, params, mode) in [
            ("_vendor/echo", json!({ "modeId": "yolo" }), "yolo"),
            (
                "_vendor/echo",
                json!({ "a": [{ "b": "Bypass Permissions" }] }),
                "bypassPermissions",
            ),
            ("_vendor/echo", json!({ "yolo": true }), "yolo"),
            (
                "_vendor/echo",
                json!({ "_meta": { "claudeCode": "--full-access" } }),
                "full-access",
            ),
            ("_vendor/yolo", json!({}), "yolo"),
        ] {
            for notify in [false, true] {
                let body = json!({ "method": method, "params": params, "notify": notify });
                assert_denied(call(&gateway, None, Method::POST, &path, &body).await, mode);
            }
        }
        let body = json!({ "method": "_vendor/echo", "params": { "modelId": "yolo", "text": "a yolo b" } });
        assert_eq!(
            call(&gateway, None, Method::POST, &path, &body)
                .await
                .status,
            StatusCode::OK
        );
    }
    assert_eq!(received(&gateway).matches("_vendor/").count(), 2);
}

#[tokio::test]
async fn no_session_begins_in_a_denied_mode() {
    let gateway = offering("", MODES);
    let options = json!({ "options": { "extraArgs": { "permission-mode": "bypassPermissions" } } });
    for (meta, mode) in [
        (json!({ "claudeCode": options }), "bypassPermissions"),
        (
            json!({ "claudeCode": ["--dangerously-skip-permissions"] }),
            "dangerously-skip-permissions",
        ),
    ] {
        let body = json!({ "agent": "fake", "_meta": meta });
        assert_denied(
            call(&gateway, None, Method::POST, "/v1/sessions", &body).await,
            mode,
        );
    }
    let body = json!({ "methodId": "login", "_meta": { "claudeCode": "yolo" } });
    assert_denied(
        call(&gateway, None, Method::POST, "/v1/agents/fake/auth", &body).await,
        "yolo",
    );
    assert_eq!(received(&gateway), "", "no agent was started");
    let body = json!({ "agent": "fake", "modeId": "yolo" });
    assert_denied(
        call(&gateway, None, Method::POST, "/v1/sessions", &body).await,
        "yolo",
    );
    assert_eq!(
        gateway.get("/v1/sessions").await["sessions"],
        json!([]),
        "no session remains"
    );
    let body =
        json!({ "agent": "fake", "_meta": { "claudeCode": { "options": { "mode": "plan" } } } });
    assert_eq!(
        call(&gateway, None, Method::POST, "/v1/sessions", &body)
            .await
            .status,
        StatusCode::CREATED
    );
}

#[tokio::test]
async fn no_slash_command_selects_a_denied_mode() {
    let gateway = offering("", MODES);
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}/prompts");
    let text = |text: &str| json!({ "type": "text", "text": text });
    for (prompt, mode) in [
        (json!("/yolo"), "yolo"),
        (json!("  /YOLO on"), "yolo"),
        (json!("/mode bypass permissions"), "bypassPermissions"),
        (json!("/permissions full-access"), "full-access"),
        (json!([text("see"), text("/approval-mode yolo")]), "yolo"),
        (json!([text("/mode "), text("yolo")]), "yolo"),
        (
            json!([{ "type": "text", "text": "hi", "_meta": { "mode": "yolo" } }]),
            "yolo",
        ),
    ] {
        for queue in [false, true] {
            let body = json!({ "prompt": prompt, "queue": queue });
            assert_denied(call(&gateway, None, Method::POST, &path, &body).await, mode);
        }
    }
    assert!(!received(&gateway).contains("session/prompt"));
    assert_eq!(
        gateway.turn(&session, "what does /yolo do?").await["text"],
        "what does /yolo do?"
    );
}

#[tokio::test]
async fn mode_needs_approve() {
    let gateway = offering("", MODES);
    let session = gateway.session("fake").await;
    let prompts = key(&gateway, "prompts", "read,prompt").await;
    let approves = key(&gateway, "approves", "read,prompt,approve").await;
    let at = |path: &str| format!("/v1/sessions/{session}/{path}");
    for (method, path, body) in [
        (Method::PUT, at("mode"), json!({ "modeId": "acceptEdits" })),
        (
            Method::PUT,
            at("config/mode"),
            json!({ "value": "default" }),
        ),
        (
            Method::POST,
            at("rpc"),
            json!({ "method": "_vendor/echo", "params": {} }),
        ),
        (
            Method::POST,
            at("prompts"),
            json!({ "prompt": "/mode acceptEdits" }),
        ),
    ] {
        let refused = call(&gateway, Some(&prompts), method.clone(), &path, &body).await;
        let problem = refused.problem(403, "forbidden");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains("approve")),
            "{problem}"
        );
        let allowed = call(&gateway, Some(&approves), method, &path, &body).await;
        assert!(allowed.status.is_success(), "{path} {allowed:?}");
    }
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let body = json!({ "prompt": "hello" });
    let prompt = call(
        &gateway,
        Some(&prompts),
        Method::POST,
        &at("prompts"),
        &body,
    )
    .await;
    assert_eq!(prompt.status, StatusCode::ACCEPTED, "{prompt:?}");
}

/// The request of Claude's plan exit.
fn plan_exit() -> Value {
    let option =
        |id: &str, name: &str, kind: &str| json!({ "optionId": id, "name": name, "kind": kind });
    let options = json!([
        option("bypassPermissions", "Yes", "allow_once"),
        option("opt-1", "Yes, and bypass permissions", "allow_always"),
        option("default", "Yes, and approve edits", "allow_once"),
        option("plan", "No, do not bypass permissions", "reject_once"),
    ]);
    let params = json!({ "sessionId": "$SESSION", "options": options,
        "toolCall": { "toolCallId": "c", "kind": "switch_mode" } });
    json!({ "id": "ask-1", "method": "session/request_permission", "params": params })
}

#[tokio::test]
async fn no_answer_to_a_permission_request_selects_a_denied_mode() {
    let gateway = offering("", MODES);
    let session = gateway.session("fake").await;
    let script = format!("raw {}\nend {{\"stopReason\":\"end_turn\"}}", plan_exit());
    gateway.prompt(&session, &script).await;
    gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    let at = |path: &str| format!("/v1/sessions/{session}/{path}/r1");
    for option in ["bypassPermissions", "opt-1"] {
        let answer = json!({ "optionId": option });
        assert_denied(
            call(&gateway, None, Method::POST, &at("permissions"), &answer).await,
            "bypassPermissions",
        );
        let answer =
            json!({ "result": { "outcome": { "outcome": "selected", "optionId": option } } });
        assert_denied(
            call(&gateway, None, Method::POST, &at("requests"), &answer).await,
            "bypassPermissions",
        );
    }
    assert_eq!(
        gateway.get_session(&session).await["requests"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
    let answer = call(
        &gateway,
        None,
        Method::POST,
        &at("permissions"),
        &json!({ "optionId": "plan" }),
    )
    .await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(
        one(&events, "request.resolved")["result"]["outcome"]["optionId"],
        "plan"
    );
    assert!(!received(&gateway).contains("optionId\":\"bypass"));
}

#[tokio::test]
async fn no_answer_to_another_request_contains_a_denied_mode() {
    let gateway = offering("", MODES);
    let session = gateway.session("fake").await;
    let _follower = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    let form = json!({ "sessionId": "$SESSION", "mode": "form", "message": "Mode?",
        "requestedSchema": { "type": "object", "properties": { "mode": { "type": "string" } } } });
    let asks = [
        (
            json!({ "id": "ask-1", "method": "elicitation/create", "params": form }),
            "elicitations/r1",
        ),
        (
            json!({ "id": "ask-2", "method": "_vendor/thing", "params": { "sessionId": "$SESSION" } }),
            "requests/r2",
        ),
    ];
    for (ask, path) in asks {
        gateway
            .prompt(
                &session,
                &format!("raw {ask}\nend {{\"stopReason\":\"end_turn\"}}"),
            )
            .await;
        gateway
            .log_until(&session, |event| {
                event["type"] == "request.created"
                    && path.ends_with(event["requestId"].as_str().unwrap_or("-"))
            })
            .await;
        let path = format!("/v1/sessions/{session}/{path}");
        let answer = |mode: &str| {
            let result = json!({ "action": "accept", "content": { "mode": mode } });
            if path.contains("elicitations") {
                result
            } else {
                json!({ "result": result })
            }
        };
        assert_denied(
            call(&gateway, None, Method::POST, &path, &answer("Yolo")).await,
            "yolo",
        );
        let allowed = call(&gateway, None, Method::POST, &path, &answer("plan")).await;
        assert_eq!(allowed.status, StatusCode::NO_CONTENT, "{allowed:?}");
        let end =
            |event: &Value| event["type"] == "prompt.completed" && event["promptId"].is_string();
        gateway.log_until(&session, end).await;
    }
    assert!(!received(&gateway).contains("Yolo"));
}

#[tokio::test]
async fn the_policy_of_permissions_selects_no_denied_mode() {
    let gateway = offering("permissions = { allow = [\"switch_mode\"] }", MODES);
    let session = gateway.session("fake").await;
    sends(&gateway, &session, &[plan_exit()]).await;
    let events = gateway.lawful(&session).await;
    let resolved = one(&events, "request.resolved");
    assert_eq!(
        (
            &resolved["resolution"],
            &resolved["result"]["outcome"]["optionId"]
        ),
        (&json!("policy"), &json!("default"))
    );
}

#[tokio::test]
async fn a_denied_mode_that_the_agent_enters_is_reported() {
    let gateway = offering("", MODES);
    let session = gateway.session("fake").await;
    let options = |now: &str| {
        let text = OPTIONS.replacen(
            "\"currentValue\":\"default\"",
            &format!("\"currentValue\":\"{now}\""),
            1,
        );
        let options: Value = serde_json::from_str(&text).expect("options are JSON");
        update(&json!({ "sessionUpdate": "config_option_update", "configOptions": options }))
    };
    let updates = [
        mode_update("acceptEdits"),
        mode_update("bypassPermissions"),
        mode_update("bypassPermissions"),
        mode_update("default"),
        mode_update("m-4"),
        mode_update("default"),
        options("full-access"),
        options("full-access"),
        options("default"),
    ];
    sends(&gateway, &session, &updates).await;
    let events = gateway.lawful(&session).await;
    let reported: Vec<Value> = all(&events, "session.privileged_mode")
        .into_iter()
        .map(|event| json!([event["modeId"], event["configId"], event["value"]]))
        .collect();
    let expected = [
        json!(["bypassPermissions", null, null]),
        json!(["m-4", null, null]),
        json!([null, "mode", "full-access"]),
    ];
    assert_eq!(reported, expected);
    let types = kinds(&events);
    let first = types
        .iter()
        .position(|kind| *kind == "session.privileged_mode")
        .expect("a report");
    assert_eq!(
        events[first - 1]["update"]["currentModeId"],
        "bypassPermissions",
        "it follows the update"
    );
    assert_eq!(
        events[first]["promptId"], "p1",
        "it belongs to the running turn"
    );
    assert!(
        gateway
            .log()
            .contains("the agent entered a mode that its entry denies to clients")
    );
    assert_eq!(
        gateway.get_session(&session).await["modes"]["currentModeId"],
        "default"
    );
    assert_eq!(agent_text(&events), "");
}

#[tokio::test]
async fn a_session_that_the_agent_begins_in_a_denied_mode_is_reported() {
    let gateway = offering(
        "",
        &MODES.replace(
            "\"currentModeId\":\"default\"",
            "\"currentModeId\":\"bypassPermissions\"",
        ),
    );
    let session = gateway.session("fake").await;
    let events = gateway.lawful(&session).await;
    assert_eq!(
        kinds(&events),
        [
            "session.created",
            "session.attached",
            "session.privileged_mode"
        ]
    );
    assert_eq!(
        one(&events, "session.privileged_mode")["modeId"],
        "bypassPermissions"
    );
    let body = json!({ "modeId": "default" });
    let path = format!("/v1/sessions/{session}/mode");
    assert_eq!(
        call(&gateway, None, Method::PUT, &path, &body).await.status,
        StatusCode::OK
    );
    let body = json!({ "modeId": "bypassPermissions" });
    assert_denied(
        call(&gateway, None, Method::PUT, &path, &body).await,
        "bypassPermissions",
    );
}

#[tokio::test]
async fn a_session_shows_the_modes_that_are_denied() {
    let gateway = offering("", MODES);
    let (_, created) = gateway
        .post("/v1/sessions", &json!({ "agent": "fake" }))
        .await;
    let expected = json!([
        { "modeId": "bypassPermissions" },
        { "modeId": "m-4" },
        { "configId": "mode", "value": "full-access" },
        { "configId": "allow-all" },
    ]);
    assert_eq!(created["deniedModes"], expected);
    let session = created["sessionId"].as_str().expect("an id");
    assert_eq!(gateway.get_session(session).await["deniedModes"], expected);
    assert_eq!(
        one(&gateway.lawful(session).await, "session.attached")["deniedModes"],
        expected
    );
}

#[tokio::test]
async fn the_list_of_an_entry_replaces_the_default() {
    let put = async |gateway: &Gateway, mode: &str| {
        let session = gateway.session("fake").await;
        let path = format!("/v1/sessions/{session}/mode");
        call(
            gateway,
            None,
            Method::PUT,
            &path,
            &json!({ "modeId": mode }),
        )
        .await
    };
    let gateway = offering("modes = { deny = [\"Accept Edits\"] }", MODES);
    assert_denied(put(&gateway, "acceptEdits").await, "Accept Edits");
    assert_eq!(
        put(&gateway, "bypassPermissions").await.status,
        StatusCode::OK
    );
    let gateway = offering("modes.deny = []", MODES);
    for mode in ["acceptEdits", "bypassPermissions", "m-4"] {
        assert_eq!(put(&gateway, mode).await.status, StatusCode::OK, "{mode}");
    }
    let session = gateway.session("fake").await;
    assert!(
        gateway
            .get_session(&session)
            .await
            .get("deniedModes")
            .is_none()
    );
}

#[tokio::test]
async fn a_mode_or_an_option_that_was_never_offered_is_rejected_with_the_offered_ones() {
    let gateway = offering(
        "",
        r#"{"currentModeId":"default","availableModes":[{"id":"default","name":"Default"}]}"#,
    );
    let session = gateway.session("fake").await;
    let at = |path: &str| format!("/v1/sessions/{session}/{path}");
    for (path, body, pointer, offered) in [
        ("mode", json!({ "modeId": "later" }), "/modeId", "default"),
        ("config/model", json!({ "value": "later" }), "/value", "a"),
        ("config/model", json!({ "value": true }), "/value", "a"),
        (
            "config/later",
            json!({ "value": "a" }),
            "option",
            "mode, model",
        ),
    ] {
        let answer = call(&gateway, None, Method::PUT, &at(path), &body).await;
        let problem = answer.problem(422, "invalid");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        let detail = problem["detail"].as_str().expect("a detail");
        assert!(detail.contains(&format!("offers: {offered}")), "{detail}");
    }
    let lines = received(&gateway);
    assert!(
        !lines.contains("session/set_mode") && !lines.contains("session/set_config_option"),
        "{lines}"
    );
    let accepted = call(
        &gateway,
        None,
        Method::PUT,
        &at("mode"),
        &json!({ "modeId": "default" }),
    )
    .await;
    assert_eq!(accepted.status, 200, "{accepted:?}");
}
