//! The demo agent behind the gateway, tested through the public API.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::log::{agent_text, all, one};
use crate::support::{Answer, Gateway, Setup, eventually};

/// A gateway with the demo agent, and a session of it without pauses, in the mode that asks nothing.
pub(super) async fn session(more: &str) -> (Gateway, String) {
    let table = format!(
        "[agents.demo]\nbuiltin = \"demo\"\npool = {{ max_size = 2, min_idle = 0 }}\n{more}\n"
    );
    let gateway = Setup::default().table(&table).start();
    let session = gateway.session("demo").await;
    quicken(&gateway, &session).await;
    (gateway, session)
}

pub(super) async fn quicken(gateway: &Gateway, session: &str) {
    for (path, body) in [
        ("config/pace", json!({ "value": "instant" })),
        ("mode", json!({ "modeId": "auto" })),
    ] {
        let (status, answer) = gateway
            .send(
                Method::PUT,
                &format!("/v1/sessions/{session}/{path}"),
                &body,
            )
            .await;
        assert_eq!(status, 200, "{answer}");
    }
}

/// Begins a turn that asks something; the question as the log has it.
pub(super) async fn asked(gateway: &Gateway, session: &str, text: &str) -> Value {
    // A request that ACP does not define is offered only while a client follows the session.
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events?after=tail"))
        .await;
    stream.until("ready").await;
    let prompt = gateway.prompt(session, text).await["promptId"].clone();
    let of_turn = |event: &Value, kind: &str| event["type"] == kind && event["promptId"] == prompt;
    loop {
        let event = stream.next().await.expect("the stream goes on").data;
        assert!(
            !of_turn(&event, "prompt.completed") && !of_turn(&event, "prompt.failed"),
            "{event}"
        );
        if of_turn(&event, "request.created") {
            return event;
        }
    }
}

pub(super) async fn answer(
    gateway: &Gateway,
    session: &str,
    kind: &str,
    question: &Value,
    body: &Value,
) -> Answer {
    let request = question["requestId"].as_str().expect("an id");
    gateway
        .posted(
            &format!("/v1/sessions/{session}/{kind}/{request}"),
            &[],
            body,
        )
        .await
}

/// The events of the turn that a question belongs to, to its end.
pub(super) async fn end(gateway: &Gateway, session: &str, question: &Value) -> Vec<Value> {
    let prompt = &question["promptId"];
    let ends = ["prompt.completed", "prompt.failed"];
    let over = |event: &Value| {
        event["promptId"] == *prompt
            && event["type"]
                .as_str()
                .is_some_and(|kind| ends.contains(&kind))
    };
    let mut events = gateway.log_until(session, over).await;
    events.retain(|event| event["promptId"] == *prompt);
    events
}

/// A turn that asks nothing, to its end.
pub(super) async fn played(gateway: &Gateway, session: &str, text: &str) -> Vec<Value> {
    let prompt = gateway.prompt(session, text).await;
    end(gateway, session, &prompt).await
}

pub(super) fn updates<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["update"]["sessionUpdate"] == kind)
        .collect()
}

#[tokio::test]
async fn a_form_is_checked_before_it_reaches_the_agent() {
    let (gateway, session) = session("").await;
    let question = asked(&gateway, &session, "/form").await;
    assert_eq!(question["method"], "elicitation/create");
    let content = |guests: i64| json!({ "name": "Ada", "colour": "red", "guests": guests, "toppings": ["olives"] });
    let wrong = json!({ "action": "accept", "content": content(99) });
    let problem = answer(&gateway, &session, "elicitations", &question, &wrong)
        .await
        .problem(422, "invalid");
    assert_eq!(problem["errors"][0]["pointer"], "/content/guests");
    let right = json!({ "action": "accept", "content": content(3) });
    assert_eq!(
        answer(&gateway, &session, "elicitations", &question, &right)
            .await
            .status,
        204
    );
    let text = agent_text(&end(&gateway, &session, &question).await);
    assert!(
        text.contains("- “guests”: 3\n") && text.contains("- “name”: “Ada”\n"),
        "{text}"
    );
}

#[tokio::test]
async fn url_elicitation_is_opened_and_its_completion_is_reported() {
    let (gateway, session) = session("").await;
    let question = asked(&gateway, &session, "/link").await;
    let accept = json!({ "action": "accept" });
    assert_eq!(
        answer(&gateway, &session, "elicitations", &question, &accept)
            .await
            .status,
        204
    );
    let events = end(&gateway, &session, &question).await;
    assert_eq!(
        one(&events, "elicitation.completed")["elicitationId"],
        question["params"]["elicitationId"]
    );
}

#[tokio::test]
async fn files_are_real_when_the_gateway_serves_them() {
    let (gateway, session) = session("files = \"gateway\"").await;
    let text = agent_text(&played(&gateway, &session, "/write notes/a.txt one\ntwo\nthree").await);
    assert!(text.contains("I wrote 14 bytes"), "{text}");
    let cwd = gateway.get_session(&session).await["cwd"].clone();
    let file = format!("{}/notes/a.txt", cwd.as_str().expect("a folder"));
    assert_eq!(
        std::fs::read_to_string(file).expect("it is there"),
        "one\ntwo\nthree\n"
    );
    let events = played(&gateway, &session, "/read notes/a.txt 2 1").await;
    assert!(
        agent_text(&events).contains("1 lines"),
        "{}",
        agent_text(&events)
    );
    let text = agent_text(&played(&gateway, &session, "/read ../../../etc/passwd").await);
    assert!(text.contains("I could not read"), "{text}");
}

#[tokio::test]
async fn files_are_questions_when_a_client_serves_them() {
    let (gateway, session) = session("files = \"client\"").await;
    let question = asked(&gateway, &session, "/read notes.txt 3").await;
    assert_eq!(
        (&question["method"], &question["params"]["line"]),
        (&json!("fs/read_text_file"), &json!(3))
    );
    let wrong = json!({ "result": { "content": 5 } });
    answer(&gateway, &session, "requests", &question, &wrong)
        .await
        .problem(422, "invalid");
    let right = json!({ "result": { "content": "a\nb" } });
    assert_eq!(
        answer(&gateway, &session, "requests", &question, &right)
            .await
            .status,
        204
    );
    let text = agent_text(&end(&gateway, &session, &question).await);
    assert!(text.contains("3 characters here, and 2 lines"), "{text}");
}

#[tokio::test]
async fn commands_run_when_the_gateway_serves_terminals() {
    let (gateway, session) = session("terminals = \"gateway\"").await;
    let events = played(&gateway, &session, "/run sh -c 'echo hi; exit 3'").await;
    assert!(
        agent_text(&events).contains("exit code 3, after 3 bytes"),
        "{}",
        agent_text(&events)
    );
    let terminal = one(&events, "terminal.created")["terminalId"].clone();
    let shown: String = all(&events, "terminal.output")
        .iter()
        .filter_map(|output| output["data"].as_str())
        .collect();
    assert_eq!(shown, "hi\n");
    assert_eq!(one(&events, "terminal.exited")["exitCode"], 3);
    let content = &updates(&events, "tool_call_update")[0]["update"]["content"];
    assert_eq!(
        *content,
        json!([{ "type": "terminal", "terminalId": terminal }])
    );

    let events = played(&gateway, &session, "/timeout 1 sleep 600").await;
    assert!(
        agent_text(&events).contains("by the signal SIGKILL"),
        "{}",
        agent_text(&events)
    );
}

#[tokio::test]
async fn unknown_methods_are_shown_and_answered() {
    let (gateway, session) = session("").await;
    let question = asked(&gateway, &session, "/ext").await;
    assert_eq!(
        (&question["method"], &question["params"]["sessionId"]),
        (&json!("_demo/ask"), &json!(session))
    );
    let given = json!({ "result": { "answer": 42 } });
    assert_eq!(
        answer(&gateway, &session, "requests", &question, &given)
            .await
            .status,
        204
    );
    let events = end(&gateway, &session, &question).await;
    assert_eq!(one(&events, "extension")["method"], "_demo/note");
    assert!(
        agent_text(&events).contains("\"answer\": 42"),
        "{}",
        agent_text(&events)
    );
}

#[tokio::test]
async fn withdrawn_request_is_no_longer_open() {
    let (gateway, session) = session("").await;
    let question = asked(&gateway, &session, "/withdraw 1").await;
    let events = end(&gateway, &session, &question).await;
    assert_eq!(one(&events, "request.resolved")["resolution"], "withdrawn");
    assert!(
        agent_text(&events).contains("I cancelled the request"),
        "{}",
        agent_text(&events)
    );
}

#[tokio::test]
async fn every_kind_of_update_arrives() {
    let (gateway, session) = session("").await;
    let plans = played(&gateway, &session, "/plans").await;
    assert_eq!(
        (
            updates(&plans, "plan_update").len(),
            updates(&plans, "plan_removed").len()
        ),
        (4, 1)
    );
    for (text, kind) in [
        ("/notice", "notice"),
        ("/compact", "compaction_summary_chunk"),
        ("/title A", "session_info_update"),
    ] {
        assert!(
            !updates(&played(&gateway, &session, text).await, kind).is_empty(),
            "{text}"
        );
    }
    assert_eq!(gateway.get_session(&session).await["title"], "A");
    let events = played(&gateway, &session, "/subagent").await;
    let child = updates(&events, "subagent_update")[0]["update"]["sessionId"].clone();
    let search = updates(&events, "tool_call");
    assert_eq!((search.len(), &search[0]["subagent"]), (1, &child));
    assert_eq!(agent_text(&events).matches("The subagent says").count(), 1);
    let counted = played(&gateway, &session, "/content").await;
    assert!(one(&counted, "prompt.completed")["usage"]["totalTokens"].as_u64() > Some(0));

    let late = played(&gateway, &session, "/late").await;
    let prompt = &late[0]["promptId"];
    let word = |event: &Value| event["late"] == true && event["promptId"] == *prompt;
    let word = gateway
        .log_until(&session, word)
        .await
        .pop()
        .expect("it was waited for");
    assert_eq!(
        word["update"]["content"]["text"],
        "And this arrived after the end of the turn."
    );
}

#[tokio::test]
async fn a_fork_remembers_and_a_call_carries_its_trace() {
    let (gateway, session) = session("").await;
    played(&gateway, &session, "/remember apple").await;
    let fork = gateway
        .posted(&format!("/v1/sessions/{session}/fork"), &[], &json!({}))
        .await;
    assert_eq!(fork.status, 201, "{fork:?}");
    let fork = fork.body["sessionId"].as_str().expect("an id").to_owned();
    assert_ne!(fork, session);
    assert_eq!(
        agent_text(&played(&gateway, &fork, "/recall").await),
        "The word is “apple”."
    );

    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let path = format!("/v1/sessions/{fork}/prompts");
    let prompt = gateway
        .posted(
            &path,
            &[("traceparent", trace)],
            &json!({ "prompt": "/about" }),
        )
        .await;
    let text = agent_text(&end(&gateway, &fork, &prompt.body).await);
    assert!(text.contains("0af7651916cd43dd8448eb211c80319c"), "{text}");
    assert!(
        text.contains("| forms | yes |") && text.contains("| terminals | no |"),
        "{text}"
    );
}

#[tokio::test]
async fn sign_in_enables_and_logout_disables_sessions() {
    let table = "[agents.demo]\nbuiltin = \"demo\"\npool = { max_size = 2, min_idle = 0 }\n\
                 env = { ACP_DEMO_SIGN_IN = \"required\" }\n";
    let gateway = Setup::default().table(table).start();
    let client_call = json!({ "agent": "demo" });
    let create = || gateway.posted("/v1/sessions", &[], &client_call);
    let problem = create().await.problem(424, "agent_auth_required");
    assert_eq!(problem["authMethods"][0]["id"], "demo");
    let body = json!({ "methodId": "demo" });
    assert_eq!(
        gateway
            .posted("/v1/agents/demo/auth", &[], &body)
            .await
            .status,
        204
    );
    assert_eq!(create().await.status, 201);
    assert_eq!(
        gateway
            .call(Method::DELETE, "/v1/agents/demo/auth")
            .await
            .status,
        204
    );
    eventually(
        "the agent wants a sign-in again",
        Duration::from_secs(10),
        || async { (create().await.status == 424).then_some(()) },
    )
    .await;
}
