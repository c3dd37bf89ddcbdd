//! Requests of clients to agents, and the agents' responses.

use reqwest::Method;

use super::examples::BLOCKS;
use super::spelling::odd;
use super::{Raw, answering, create, log, object, received, says, send};
use crate::support::Gateway;

const CAPABILITIES: &str = r#"{"loadSession":true,"promptCapabilities":{"image":true,"audio":true,"embeddedContext":true},"sessionCapabilities":{"resume":{}}}"#;
const INFO: &str = r#"{"name":"golden","title":"Golden","version":"1.10"}"#;
const METHODS: &str =
    r#"[{"id":"login","name":"Log in"},{"type":"env_var","id":"key","vars":["KEY"]}]"#;
const MODES: &str = r#"{"currentModeId":"a","availableModes":[{"id":"a","name":"A"}]}"#;
const OPTIONS: &str = r#"[{"id":"m","name":"M","type":"select","currentValue":"a","options":[{"value":"a","name":"A"}]}]"#;

/// A gateway whose agent answers with these results and records its input.
async fn golden() -> (Gateway, String) {
    let answers = [
        (
            "initialize",
            format!(
                r#"{{"agentCapabilities":{},"protocolVersion":1,"authMethods":{},"agentInfo":{},"_later":1.10}}"#,
                odd(CAPABILITIES),
                odd(METHODS),
                odd(INFO)
            ),
        ),
        (
            "session/new",
            odd(&format!(
                r#"{{"modes":{MODES},"sessionId":"$SESSION","configOptions":{OPTIONS}}}"#
            )),
        ),
        (
            "session/set_config_option",
            odd(&format!(r#"{{"configOptions":{OPTIONS}}}"#)),
        ),
    ];
    let gateway = answering(&answers, "");
    let session = create(&gateway).await;
    (gateway, session)
}

fn one<'a>(events: &'a [Raw], kind: &str) -> &'a Raw {
    events
        .iter()
        .find(|event| event.of(kind))
        .unwrap_or_else(|| panic!("no {kind} in {events:?}"))
}

#[tokio::test]
async fn initialize_and_session_new_pass_byte_for_byte() {
    let (gateway, session) = golden().await;
    let events = log(&gateway, &session).await;
    let attached = one(&events, "session.attached");
    assert_eq!(attached.get("agentCapabilities"), odd(CAPABILITIES));
    assert_eq!(attached.get("agentInfo"), odd(INFO));
    let result = odd(&format!(
        r#"{{"modes":{MODES},"sessionId":"{session}","configOptions":{OPTIONS}}}"#
    ));
    assert_eq!(attached.get("result"), result);
    let (_, agent) = send(&gateway, Method::GET, "/v1/agents/fake", "").await;
    let agent = object(&agent);
    assert_eq!(
        (agent.get("capabilities"), agent.get("agentInfo")),
        (&*odd(CAPABILITIES), &*odd(INFO))
    );
    assert_eq!(agent.get("authMethods"), odd(METHODS));
    let (_, shown) = send(
        &gateway,
        Method::GET,
        &format!("/v1/sessions/{session}"),
        "",
    )
    .await;
    let shown = object(&shown);
    assert_eq!(
        (shown.get("modes"), shown.get("configOptions")),
        (&*odd(MODES), &*odd(OPTIONS))
    );
    assert_eq!(
        shown.get("promptCapabilities"),
        object(&odd(CAPABILITIES)).get("promptCapabilities")
    );
}

#[tokio::test]
async fn a_prompt_reaches_the_agent_byte_for_byte() {
    let (gateway, session) = golden().await;
    let blocks = BLOCKS
        .iter()
        .map(|block| odd(block))
        .collect::<Vec<_>>()
        .join(" ,\t");
    let blocks = format!("[ {blocks} ]");
    let path = format!("/v1/sessions/{session}/prompts");
    let (status, answer) = send(
        &gateway,
        Method::POST,
        &path,
        &format!(r#"{{"prompt":{blocks}}}"#),
    )
    .await;
    assert_eq!(status, 200, "{answer}");
    let lines = received(&gateway);
    let line = lines
        .iter()
        .find(|line| line.contains("session/prompt"))
        .expect("the agent got it");
    assert!(line.contains(&format!("\"prompt\":{blocks}")), "{line}");
    assert_eq!(
        one(&log(&gateway, &session).await, "prompt.started").get("prompt"),
        blocks
    );
}

#[tokio::test]
async fn how_a_turn_ends_passes_byte_for_byte() {
    let (gateway, session) = golden().await;
    let usage = r#"{"totalTokens":3,"inputTokens":1,"outputTokens":2}"#;
    let result = odd(&format!(
        r#"{{"stopReason":"_later\u0041","usage":{usage}}}"#
    ));
    let turn = says(&gateway, &session, &[format!("end {result}")]).await;
    assert_eq!(
        (turn.get("stopReason"), turn.get("usage")),
        ("\"_laterA\"", &*odd(usage))
    );
    let events = log(&gateway, &session).await;
    let end = one(&events, "prompt.completed");
    assert_eq!(
        (end.get("result"), end.get("usage")),
        (&*result, &*odd(usage))
    );

    let data = odd(r#"{"why":"so"}"#);
    let error = format!(r#"{{"code":-32603,"message":"No \ud83d","data":{data}}}"#);
    let turn = says(&gateway, &session, &[format!("fail {error}")]).await;
    assert_eq!(turn.get("status"), "\"failed\"");
    let events = log(&gateway, &session).await;
    let problem = object(one(&events, "prompt.failed").get("problem"));
    let acp = object(problem.get("acp"));
    assert_eq!((acp.get("code"), acp.get("data")), ("-32603", &*data));
}

#[tokio::test]
async fn the_options_that_an_agent_answers_pass_byte_for_byte() {
    let (gateway, session) = golden().await;
    let path = format!("/v1/sessions/{session}/config/m");
    let (status, shown) = send(&gateway, Method::PUT, &path, r#"{"value":"a"}"#).await;
    assert_eq!(status, 200, "{shown}");
    let shown = object(&shown);
    assert_eq!(shown.get("configOptions"), odd(OPTIONS));
    let events = log(&gateway, &session).await;
    assert_eq!(
        one(&events, "session.changed").get("configOptions"),
        odd(OPTIONS)
    );
}
