//! Which version is spoken, and the second start of an agent that knows only v1.

use serde_json::{Value, json};

use crate::support::log::{agent_text, one};
use crate::support::{Gateway, Setup};

/// The messages of one method that the agent received.
fn received(gateway: &Gateway, method: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(gateway.path("data/homes/default/fake/received"));
    let text = text.expect("the agent's own record");
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines
        .filter(|message| message["method"] == method)
        .map(|message| message["params"].clone())
        .collect()
}

#[tokio::test]
async fn an_agent_that_answers_two_is_spoken_to_in_two() {
    let gateway = super::setup(&["--log", "received"], "").start();
    let session = gateway.session("fake").await;
    let asked = received(&gateway, "initialize");
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (&asked[0]["protocolVersion"], &asked[0]["info"]["name"]),
        (&json!(2), &json!("acp-gateway"))
    );
    assert_eq!(
        asked[0]["capabilities"]["elicitation"],
        json!({ "form": {}, "url": {} })
    );
    assert!(asked[0].get("clientCapabilities").is_none());
    let agent = gateway.get("/v1/agents/fake").await;
    assert_eq!(agent["protocolVersion"], 2, "{agent}");
    assert_eq!(agent["authMethods"], json!([]));
    let shown = gateway.get_session(&session).await;
    assert_eq!(
        shown["promptCapabilities"],
        json!({ "embeddedContext": {} })
    );
    assert_eq!(shown["configOptions"][0]["configId"], "how");
    assert_eq!(shown["availableCommands"][0]["name"], "plan");
    assert_eq!(shown["modes"], Value::Null);
    let attached = gateway.lawful(&session).await;
    let attached = one(&attached, "session.attached");
    assert_eq!(attached["agentInfo"]["version"], "0.2.0");
    assert_eq!(
        attached["agentCapabilities"]["session"]["mcp"],
        json!({ "stdio": {} })
    );
}

/// An agent that knows only v1 is asked once in v2, and works then with everything that it can.
async fn falls_back(args: &[&str]) {
    let args: Vec<&str> = ["--log", "received", "--state", "state"]
        .iter()
        .chain(args)
        .copied()
        .collect();
    let setup = Setup::fake_with(
        &args,
        "protocol = 2\nfiles = \"client\"\npool = { max_size = 4, min_idle = 0 }",
    );
    let gateway = setup.start();
    let session = gateway.session("fake").await;
    assert_eq!(gateway.get("/v1/agents/fake").await["protocolVersion"], 1);
    let turn = gateway.turn(&session, "echo one").await;
    assert_eq!(
        (&turn["stopReason"], &turn["text"]),
        (&json!("end_turn"), &json!("one"))
    );
    let path = format!("/v1/sessions/{session}/mode");
    let (status, modes) = gateway
        .send(reqwest::Method::PUT, &path, &json!({ "modeId": "code" }))
        .await;
    assert_eq!(
        (status.as_u16(), &modes["modes"]["currentModeId"]),
        (200, &json!("code"))
    );
    // A second process of the same entry: the gateway does not try v2 again.
    let other = gateway.session("fake").await;
    assert_eq!(agent_text(&gateway.lawful(&session).await), "one");
    assert_eq!(gateway.turn(&other, "echo two").await["text"], "two");
    let asked = received(&gateway, "initialize");
    let versions: Vec<&Value> = asked
        .iter()
        .map(|params| &params["protocolVersion"])
        .collect();
    assert_eq!(versions, [2, 1, 1]);
    let capabilities = &asked[1]["clientCapabilities"];
    assert_eq!(
        capabilities["fs"],
        json!({ "readTextFile": true, "writeTextFile": true })
    );
}

#[tokio::test]
async fn an_agent_that_answers_one_is_started_again_in_one() {
    falls_back(&[]).await;
}

#[tokio::test]
async fn an_agent_that_refuses_the_version_is_started_again_in_one() {
    for code in ["-32022", "-32602", "-32600"] {
        falls_back(&["--refuse-version", code]).await;
    }
}

#[tokio::test]
async fn any_other_error_or_version_is_an_end() {
    let body = json!({ "agent": "fake" });
    for args in [["--refuse-version", "-32603"], ["--protocol", "3"]] {
        let gateway = Setup::fake_with(&args, "protocol = 2").start();
        let answer = gateway.posted("/v1/sessions", &[], &body).await;
        assert_eq!(answer.status, 502, "{answer:?}");
        gateway.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn default_protocol_version_is_one() {
    let gateway = Setup::fake(&["--v2"]).start();
    let problem = gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "fake" }))
        .await;
    assert_eq!(problem.problem(502, "agent_error")["acp"]["code"], -32022);
    let gateway = Setup::fake(&["--protocol", "2"]).start();
    let problem = gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "fake" }))
        .await;
    problem.problem(502, "agent_start_failed");
}

#[tokio::test]
async fn missing_sign_in_is_reported_with_the_methods() {
    let gateway = super::setup(&["--auth-required"], "").start();
    let answer = gateway
        .posted("/v1/sessions", &[], &json!({ "agent": "fake" }))
        .await;
    assert_eq!(
        answer.problem(424, "agent_auth_required")["authMethods"][0]["methodId"],
        "login"
    );
    let path = "/v1/agents/fake/auth";
    gateway
        .posted(path, &[], &json!({ "methodId": "other" }))
        .await
        .problem(422, "invalid");
    assert_eq!(
        gateway
            .posted(path, &[], &json!({ "methodId": "login" }))
            .await
            .status,
        204
    );
    let session = gateway.session("fake").await;
    assert_eq!(gateway.turn(&session, "say text=x").await["text"], "x");
    assert_eq!(gateway.get(path).await["canLogout"], true);
}
