//! The demo agent in v2 of ACP, behind the gateway: the messages and actions of a turn.

use agent_client_protocol_schema::v2;
use reqwest::Method;
use serde_json::{Value, json};

use super::behind::{played, session, updates};
use crate::support::Gateway;
use crate::support::log::{agent_text, all, one};

pub(super) async fn of_v2(more: &str) -> (Gateway, String) {
    session(&format!("protocol = 2\n{more}")).await
}

/// Checks that v2 defines each update completely.
fn assert_known(events: &[Value]) {
    for event in all(events, "session.update") {
        let update = &event["update"];
        let read: v2::SessionUpdate = serde_json::from_value(update.clone()).unwrap();
        assert!(!matches!(read, v2::SessionUpdate::Other(_)), "{update}");
        assert_eq!(
            serde_json::to_value(&read).unwrap(),
            *update,
            "nothing of it is unknown"
        );
    }
}

fn states(events: &[Value]) -> Vec<&str> {
    updates(events, "state_update")
        .iter()
        .filter_map(|event| event["update"]["state"].as_str())
        .collect()
}

#[tokio::test]
async fn a_turn_is_a_message_its_work_and_a_state_that_ends_it() {
    let (gateway, session) = of_v2("").await;
    assert_eq!(gateway.get("/v1/agents/demo").await["protocolVersion"], 2);
    let events = played(&gateway, &session, "Hello").await;
    assert_known(&events);
    assert_eq!(states(&events), ["running", "idle"]);
    let user = updates(&events, "user_message")[0];
    assert_eq!(
        user["update"]["content"],
        json!([{ "type": "text", "text": "Hello" }])
    );
    let end = one(&events, "prompt.completed");
    assert_eq!(
        (&end["stopReason"], &end["result"]["state"]),
        (&json!("end_turn"), &json!("idle"))
    );
    assert!(end["usage"]["totalTokens"].as_u64() > Some(0), "{end}");
    assert!(
        agent_text(&events).contains("demo agent"),
        "{}",
        agent_text(&events)
    );
    for gone in [
        "tool_call",
        "plan",
        "current_mode_update",
        "user_message_chunk",
    ] {
        assert!(updates(&events, gone).is_empty(), "v2 has no {gone} here");
    }
    let plan = updates(&events, "plan_update").last().unwrap()["update"]["plan"].clone();
    assert_eq!(
        (&plan["type"], &plan["planId"]),
        (&json!("items"), &json!("plan"))
    );

    // The command is a terminal of the agent in its tool call.
    let transcript = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await;
    let items = transcript["turns"][0]["items"].as_array().unwrap();
    let terminal = items
        .iter()
        .find(|item| item["type"] == "agent_terminal")
        .expect("it is shown");
    assert_eq!(terminal["terminal"]["command"], "cargo test");
    assert_eq!(terminal["terminal"]["exitStatus"], json!({ "exitCode": 0 }));
    let id = &terminal["terminal"]["terminalId"];
    let call = items
        .iter()
        .find(|item| item["toolCall"]["title"] == "Run the tests")
        .expect("it is shown");
    assert_eq!(
        call["toolCall"]["content"],
        json!([{ "type": "terminal", "terminalId": id }])
    );
    assert_eq!(call["toolCall"]["status"], "completed");
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn every_scene_is_valid_in_v2() {
    let (gateway, session) = of_v2("").await;
    for text in [
        "/plan",
        "/diff",
        "/terminal",
        "/content",
        "/title A",
        "/pace instant",
        "/mode auto",
        "/help",
        "/read a.txt",
        "/write a.txt b",
        "/run true",
        "/timeout 1 true",
        "/fail tool",
        "/fail max_tokens",
        "/recall",
    ] {
        let events = played(&gateway, &session, text).await;
        assert_known(&events);
        let end = one(&events, "prompt.completed");
        let reason = if text == "/fail max_tokens" {
            "max_tokens"
        } else {
            "end_turn"
        };
        assert_eq!(end["stopReason"], reason, "{text}");
    }
    // The update arrives after the turn, and a further turn would take it for its own.
    assert_known(&played(&gateway, &session, "/late").await);
    let late = |event: &Value| event["late"] == true;
    let late = gateway.log_until(&session, late).await.pop().unwrap();
    assert_eq!(
        late["update"]["content"]["text"],
        "And this arrived after the end of the turn."
    );
    assert_known(&gateway.lawful(&session).await);
    let text = agent_text(&played(&gateway, &session, "/about").await);
    assert!(
        text.contains("| speaks ACP | v2 |") && text.contains("| terminals | no |"),
        "{text}"
    );

    let events = played(&gateway, &session, "/diff").await;
    let diff = &updates(&events, "tool_call_update")[0]["update"]["content"][0];
    assert_eq!(
        (&diff["type"], &diff["changes"][0]["operation"]),
        (&json!("diff"), &json!("modify"))
    );
    let patch = diff["patch"]["text"].as_str().unwrap();
    assert!(
        patch.starts_with("diff --git a/") && patch.contains("\n+/// Says hello, also"),
        "{patch}"
    );
}

#[tokio::test]
async fn notices_plans_compactions_and_subagents_need_no_offer() {
    let (gateway, session) = of_v2("").await;
    let notice = played(&gateway, &session, "/notice warning").await;
    assert_eq!(
        updates(&notice, "notice")[0]["update"]["severity"],
        "warning"
    );
    let plans = played(&gateway, &session, "/plans").await;
    assert_eq!(
        (
            updates(&plans, "plan_update").len(),
            updates(&plans, "plan_removed").len()
        ),
        (4, 1)
    );
    let compaction = played(&gateway, &session, "/compact").await;
    assert_eq!(updates(&compaction, "compaction_summary_chunk").len(), 3);
    let failed = played(&gateway, &session, "/compact fail").await;
    assert_eq!(
        updates(&failed, "compaction_update")[1]["update"]["status"],
        "failed"
    );
    let events = played(&gateway, &session, "/subagent").await;
    let child = updates(&events, "subagent_update")[0]["update"]["sessionId"].clone();
    let of_child = |kind: &str| {
        updates(&events, kind)
            .iter()
            .filter(|event| event["subagent"] == child)
            .count()
    };
    assert_eq!(
        (of_child("tool_call_update"), of_child("tool_call")),
        (2, 0)
    );
    assert!(of_child("agent_thought_chunk") > 0 && of_child("agent_message_chunk") > 0);
    assert_eq!(
        (
            updates(&events, "session_message").len(),
            updates(&events, "session_message_chunk").len()
        ),
        (2, 1)
    );
    let idle = updates(&events, "subagent_update").last().unwrap()["update"]["state"].clone();
    assert_eq!(idle, json!({ "state": "idle", "stopReason": "end_turn" }));
    assert_known(&gateway.lawful(&session).await);

    let transcript = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await;
    let kinds: Vec<&Value> = transcript["turns"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|turn| turn["items"].as_array().unwrap())
        .map(|item| &item["type"])
        .collect();
    for kind in ["notice", "compaction", "subagent"] {
        assert!(
            kinds.iter().any(|known| *known == kind),
            "{kind} is none of {kinds:?}"
        );
    }
    let snapshot = gateway.get_session(&session).await;
    assert_eq!(snapshot["usage"]["size"], 128_000, "{snapshot}");
}

#[tokio::test]
async fn cancel_of_a_part_keeps_the_turn_running() {
    let (gateway, session) = of_v2("").await;
    for (text, kind, member, path) in [
        (
            "/part tool 60",
            "tool_call_update",
            "toolCallId",
            "tool-calls",
        ),
        (
            "/part terminal 60",
            "terminal_update",
            "terminalId",
            "agent-terminals",
        ),
    ] {
        let prompt = gateway.prompt(&session, text).await["promptId"].clone();
        let can = |event: &Value| {
            event["update"]["sessionUpdate"] == kind
                && event["update"]["capabilities"]["cancel"].is_object()
        };
        let fits = |event: &Value| event["promptId"] == prompt && can(event);
        let part = gateway.log_until(&session, fits).await.pop().unwrap()["update"][member].clone();
        let path = format!(
            "/v1/sessions/{session}/{path}/{}/cancel",
            part.as_str().unwrap()
        );
        assert_eq!(gateway.call(Method::POST, &path).await.status, 202);
        let over =
            |event: &Value| event["promptId"] == prompt && event["type"] == "prompt.completed";
        let events = gateway.log_until(&session, over).await;
        assert_eq!(events.last().unwrap()["stopReason"], "end_turn");
        assert!(
            agent_text(&events).ends_with("It was cancelled, and I continue."),
            "{}",
            agent_text(&events)
        );
        gateway
            .call(Method::POST, &path)
            .await
            .problem(404, "not_found");
    }
    let events = gateway.lawful(&session).await;
    assert_known(&events);
    let calls = updates(&events, "tool_call_update");
    assert_eq!(calls.last().unwrap()["update"]["status"], "cancelled");
    let terminals = updates(&events, "terminal_update");
    assert_eq!(
        terminals.last().unwrap()["update"]["exitStatus"],
        json!({ "signal": "SIGTERM" })
    );
    // Without a cancel it ends by itself.
    let text = agent_text(&played(&gateway, &session, "/part tool 1").await);
    assert!(text.ends_with("Nobody cancelled it."), "{text}");
    // With a cancel of the whole turn it ends with it.
    gateway.prompt(&session, "/part terminal 60").await;
    gateway
        .log_until(&session, |event| {
            event["promptId"] == "p4" && event["update"]["capabilities"]["cancel"].is_object()
        })
        .await;
    assert_eq!(
        gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
            .await
            .status,
        202
    );
    let events = gateway
        .log_until(&session, |event| {
            event["promptId"] == "p4" && event["type"] == "prompt.completed"
        })
        .await;
    assert_eq!(events.last().unwrap()["stopReason"], "cancelled");
    assert_eq!(
        updates(&events, "terminal_update").last().unwrap()["update"]["exitStatus"],
        json!({ "signal": "SIGTERM" })
    );
}

#[tokio::test]
async fn a_message_is_replaced_and_the_agent_works_by_itself() {
    let (gateway, session) = of_v2("").await;
    assert_eq!(
        gateway.turn(&session, "/correct").await["text"],
        "The capital of Australia is Canberra. (I had said Sydney first.)"
    );
    played(&gateway, &session, "/wake 1").await;
    let own = |event: &Value| event["promptId"].is_null() && event["update"]["state"] == "idle";
    let events = gateway.log_until(&session, own).await;
    let own: Vec<Value> = events
        .into_iter()
        .filter(|event| event["promptId"].is_null())
        .collect();
    assert_eq!(
        (states(&own), agent_text(&own)),
        (
            vec!["running", "idle"],
            "I am working again, without a prompt.".to_owned()
        )
    );
    assert_known(&gateway.lawful(&session).await);
    assert_eq!(
        gateway.turn(&session, "/recall").await["stopReason"],
        "end_turn"
    );
}

#[tokio::test]
async fn failed_turn_ends_with_the_agents_error() {
    let (gateway, session) = of_v2("").await;
    let turn = gateway.turn(&session, "/fail error").await;
    assert_eq!(
        (&turn["status"], &turn["error"]["code"]),
        (&json!("failed"), &json!("agent_error"))
    );
    assert_eq!(
        turn["error"]["acp"]["data"],
        "the demo agent failed, as requested"
    );
    assert_eq!(
        gateway.turn(&session, "/fail refusal").await["stopReason"],
        "refusal"
    );
    let prompt = gateway.prompt(&session, "/slow 60").await["promptId"].clone();
    gateway
        .log_until(&session, |event| {
            event["promptId"] == prompt && event["update"]["sessionUpdate"] == "agent_message_chunk"
        })
        .await;
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    let over = |event: &Value| event["promptId"] == prompt && event["type"] == "prompt.completed";
    assert_eq!(
        gateway.log_until(&session, over).await.last().unwrap()["stopReason"],
        "cancelled"
    );
    assert_eq!(
        gateway.turn(&session, "/crash").await["error"]["code"],
        "agent_exited"
    );
    let events = gateway.lawful(&session).await;
    assert_known(&events);
}
