//! Decisions about permissions and refused requests of agents, with their authors.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{audit, of, settled};
use crate::support::places::fake_agent;
use crate::support::{Gateway, Setup, eventually};

/// A turn that requests a permission. Returns its session.
async fn asked(gateway: &Gateway) -> String {
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "permission").await;
    gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    session
}

/// Answers the request. Returns the status.
async fn answer(gateway: &Gateway, session: &str, option: &str) -> u16 {
    let path = format!("/v1/sessions/{session}/permissions/r1");
    let headers = [("x-request-id", "decision-1")];
    gateway
        .posted(&path, &headers, &json!({ "optionId": option }))
        .await
        .status
        .as_u16()
}

/// The text of a prompt that requests a permission for this tool call.
fn asks_for(call: &str) -> String {
    let options = r#"[{"optionId":"allow","name":"Yes","kind":"allow_once"}]"#;
    let params = format!(
        r#"{{"sessionId":$SESSION,"toolCall":{{"toolCallId":"{call}"}},"options":{options}}}"#
    );
    format!("ask method=session/request_permission params={params}")
}

/// The only decision.
fn only(decided: &[Value]) -> &Value {
    let [decided] = decided else {
        panic!("{decided:?}")
    };
    decided
}

#[tokio::test]
async fn an_answer_is_recorded_once_with_the_key_of_its_author() {
    let mut gateway = Setup::fake(&[]).start();
    let session = asked(&gateway).await;
    for status in [204, 409] {
        assert_eq!(answer(&gateway, &session, "reject").await, status);
    }
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let decided = settled(&mut gateway, "permission.decided").await;
    let decided = only(&decided);
    for (member, value) in [
        ("sessionId", session.as_str()),
        ("promptId", "p1"),
        ("requestId", "r1"),
        ("agent", "fake"),
        ("resolution", "answered"),
        ("optionKind", "reject_once"),
        ("toolCallId", "call_1"),
    ] {
        assert_eq!(decided[member], value, "{decided}");
    }
    let actor = &decided["actor"];
    assert_eq!(
        (&actor["kind"], &actor["name"], &actor["address"]),
        (&json!("key"), &json!("owner"), &json!("127.0.0.1"))
    );
    assert!(
        actor["keyId"].as_str().is_some_and(|id| id.len() == 12),
        "{actor}"
    );
    assert_eq!(actor["httpRequestId"], "decision-1");
    let events = audit(&gateway).await;
    let ended = of(&events, "permission.tool_call_ended");
    assert!(ended.is_empty(), "nothing was allowed: {ended:?}");
}

/// The event of the end of the only allowed call, after its decision.
async fn ended(gateway: &mut Gateway) -> Value {
    let decided = settled(gateway, "permission.decided").await;
    let ended = settled(gateway, "permission.tool_call_ended").await;
    let (decided, ended) = (only(&decided), only(&ended));
    for member in ["sessionId", "promptId", "requestId", "toolCallId"] {
        assert!(ended[member].is_string(), "{member}: {ended}");
        assert_eq!(ended[member], decided[member]);
    }
    assert!(ended["seq"].as_u64() > decided["seq"].as_u64());
    ended.clone()
}

#[tokio::test]
async fn decision_is_joined_with_the_end_of_its_tool_call() {
    let mut gateway = Setup::fake(&[]).start();
    let session = asked(&gateway).await;
    assert_eq!(answer(&gateway, &session, "allow").await, 204);
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let completed = ended(&mut gateway).await;
    assert_eq!(
        (&completed["toolCallId"], &completed["outcome"]),
        (&json!("call_1"), &json!("completed"))
    );
    let agent = json!({ "kind": "agent", "name": "fake" });
    assert_eq!(completed["actor"], agent);
}

#[tokio::test]
async fn failed_tool_call_is_joined_also_if_its_id_is_a_text() {
    let mut gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let id = "run rm -rf canary";
    let update =
        format!(r#"{{"sessionUpdate":"tool_call_update","toolCallId":"{id}","status":"failed"}}"#);
    let lines = [
        format!(
            r#"{{"jsonrpc":"2.0","id":"ask","method":"session/request_permission","params":{{"sessionId":"$SESSION","toolCall":{{"toolCallId":"{id}"}},"options":[{{"optionId":"allow","name":"Yes","kind":"allow_always"}}]}}}}"#
        ),
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"$SESSION","update":{update}}}}}"#
        ),
        r#"end {"stopReason":"end_turn"}"#.to_owned(),
    ];
    gateway
        .prompt(&session, &format!("raw {}", lines.join("\n")))
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    assert_eq!(answer(&gateway, &session, "allow").await, 204);
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let failed = ended(&mut gateway).await;
    let hash = Sha256::digest(id).into_iter();
    let hash = hash.fold("sha256:".to_owned(), |text, byte| {
        format!("{text}{byte:02x}")
    });
    assert_eq!(failed["toolCallId"], hash);
    assert_eq!(failed["outcome"], "failed");
    assert!(!format!("{:?}", audit(&gateway).await).contains("canary"));
}

#[tokio::test]
async fn outcome_of_a_call_without_an_end_is_unknown() {
    // The turn ends, the process exits, or the gateway stops.
    for rest in ["", "; crash", "; hang"] {
        let mut gateway = Setup::fake(&[]).start();
        let session = gateway.session("fake").await;
        let text = asks_for("c");
        gateway.prompt(&session, &format!("{text}{rest}")).await;
        gateway
            .log_until(&session, |event| event["type"] == "request.created")
            .await;
        assert_eq!(answer(&gateway, &session, "allow").await, 204);
        if rest != "; hang" {
            gateway
                .log_until(&session, |event| {
                    let kind = event["type"].as_str().expect("a type");
                    matches!(kind, "prompt.completed" | "prompt.failed")
                })
                .await;
        }
        let unknown = ended(&mut gateway).await;
        assert_eq!(unknown["outcome"], "unknown", "{rest}");
        assert_eq!(unknown["actor"], json!({ "kind": "gateway" }));
    }
}

#[tokio::test]
async fn parallel_calls_have_their_own_outcomes() {
    let mut gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "permissions n=3").await;
    gateway
        .log_until(&session, |event| event["requestId"] == "r3")
        .await;
    for (number, option) in [(3, "allow"), (2, "reject"), (1, "allow")] {
        let path = format!("/v1/sessions/{session}/permissions/r{number}");
        let answer = json!({ "optionId": option });
        let answered = gateway.posted(&path, &[], &answer);
        assert_eq!(answered.await.status, 204);
    }
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let ended = settled(&mut gateway, "permission.tool_call_ended").await;
    let ended: Vec<_> = ended
        .iter()
        .map(|event| (&event["requestId"], &event["toolCallId"], &event["outcome"]))
        .collect();
    let [first, third] = ["r1", "r3"].map(|id| json!(id));
    let [one, three] = ["call_1", "call_3"].map(|id| json!(id));
    let completed = json!("completed");
    assert_eq!(
        ended,
        [(&first, &one, &completed), (&third, &three, &completed)]
    );
}

#[tokio::test]
async fn a_decision_of_the_policy_is_recorded() {
    let mut gateway = Setup::fake_with(&[], "permissions = { allow = [\"edit\"] }").start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "permission").await;
    let decided = settled(&mut gateway, "permission.decided").await;
    let decided = only(&decided);
    assert_eq!(
        (&decided["actor"], &decided["resolution"]),
        (&json!({ "kind": "policy" }), &json!("policy"))
    );
    assert_eq!(
        (&decided["optionKind"], &decided["toolKind"]),
        (&json!("allow_once"), &json!("edit"))
    );
}

#[tokio::test]
async fn an_expired_request_is_recorded_as_a_decision_of_the_timeout() {
    let mut gateway = Setup::fake_with(&[], "permissions = { timeout = \"1s\" }").start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "permission").await;
    let decided = settled(&mut gateway, "permission.decided").await;
    let decided = only(&decided);
    assert_eq!(
        (&decided["actor"], &decided["resolution"]),
        (&json!({ "kind": "timeout" }), &json!("expired"))
    );
    assert_eq!(decided["optionKind"], "reject_once");
}

#[tokio::test]
async fn a_request_that_a_crash_left_open_is_recorded_once() {
    let mut gateway = Setup::fake(&[]).start();
    let session = asked(&gateway).await;
    gateway.kill();
    gateway.start();
    eventually("the request ends", super::PATIENCE, || async {
        let events = gateway.all_events(&session).await;
        events
            .iter()
            .any(|event| event["type"] == "request.resolved")
            .then_some(())
    })
    .await;
    let decided = settled(&mut gateway, "permission.decided").await;
    assert_eq!(
        (
            &only(&decided)["actor"]["kind"],
            &only(&decided)["resolution"]
        ),
        (&json!("timeout"), &json!("expired"))
    );
}

#[tokio::test]
async fn an_answer_that_the_agent_received_is_in_the_audit_log_after_a_kill() {
    for _ in 0..5 {
        let mut gateway = Setup::fake(&[]).start();
        let session = asked(&gateway).await;
        assert_eq!(answer(&gateway, &session, "allow").await, 204);
        gateway.kill();
        gateway.start();
        let events = audit(&gateway).await;
        let decided = of(&events, "permission.decided");
        assert_eq!(
            (decided.len(), &decided[0]["optionKind"]),
            (1, &json!("allow_once"))
        );
    }
}

#[tokio::test]
async fn refused_files_and_terminals_are_recorded() {
    let gateway = Setup::fake(&[]).agent("served", fake_agent(), &[], "files = \"gateway\"\n");
    let mut gateway = gateway.start();
    let read =
        r#"ask method=fs/read_text_file params={"sessionId":$SESSION,"path":"/etc/passwd-canary"}"#;
    let off = gateway.session("fake").await;
    let served = gateway.session("served").await;
    for session in [&off, &served] {
        gateway.turn(session, read).await;
    }
    let refused = settled(&mut gateway, "agent.request_refused").await;
    assert_eq!(refused.len(), 2, "{refused:?}");
    for (agent, session, reason) in [
        ("fake", &off, "off"),
        ("served", &served, "outside_folders"),
    ] {
        let event = refused
            .iter()
            .find(|event| event["sessionId"] == **session)
            .expect("one of the session");
        assert_eq!(event["actor"], json!({ "kind": "agent", "name": agent }));
        assert_eq!(
            (&event["method"], &event["reason"]),
            (&json!("fs/read_text_file"), &json!(reason))
        );
        assert_eq!(event["count"], 1);
    }
    assert!(!format!("{refused:?}").contains("canary"));
}

#[tokio::test]
async fn the_audit_log_has_no_text_of_prompts_or_tools() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let params = r#"{"sessionId":$SESSION,"toolCall":{"toolCallId":"c","title":"canary","kind":"canary"},"options":[{"optionId":"canary","name":"canary","kind":"canary"}]}"#;
    gateway
        .prompt(
            &session,
            &format!("ask method=session/request_permission params={params}"),
        )
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "request.created")
        .await;
    assert_eq!(answer(&gateway, &session, "canary").await, 204);
    let events = audit(&gateway).await;
    let decided = of(&events, "permission.decided");
    assert_eq!(
        (&decided[0]["optionKind"], &decided[0]["toolKind"]),
        (&json!("other"), &json!("other"))
    );
    assert!(!format!("{events:?}").contains("canary"));
}
