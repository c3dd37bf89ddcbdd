//! URL elicitations: the session that an elicitation belongs to, and its end.

use std::time::Duration;

use serde_json::{Value, json};

use super::{answer, answer_accepted, ask, asked, asking, end, final_text, pointers};
use crate::support::log::{agent_text, all, one};
use crate::support::{Setup, eventually};

fn visit(scope: &str, id: &str, url: &str) -> String {
    let params =
        format!(r#"{{{scope},"mode":"url","message":"Go","elicitationId":"{id}","url":"{url}"}}"#);
    ask("elicitation/create", &params)
}

const OWN: &str = r#""sessionId":$SESSION"#;
const PAGE: &str = "https://sign.example/in?x=1";

#[tokio::test]
async fn a_page_is_shown_and_its_answer_has_no_content() {
    let gateway = Setup::fake(&[]).start();
    for action in ["accept", "decline", "cancel"] {
        let session = gateway.session("fake").await;
        let created = asked(&gateway, &session, &visit(OWN, "e9", PAGE)).await;
        let params = &created["params"];
        assert_eq!(
            (&params["url"], &params["elicitationId"], &params["message"]),
            (&json!(PAGE), &json!("e9"), &json!("Go"))
        );
        for (path, body, pointer) in [
            (
                "elicitations/r1",
                r#"{"action":"accept","content":{}}"#,
                "/content",
            ),
            (
                "requests/r1",
                r#"{"result":{"action":"accept","content":{"a":1}}}"#,
                "/result/content",
            ),
        ] {
            assert_eq!(
                pointers(answer(&gateway, &session, path, body).await),
                [pointer]
            );
        }
        answer_accepted(
            &gateway,
            &session,
            "elicitations/r1",
            &format!(r#"{{"action":"{action}"}}"#),
        )
        .await;
        let text = final_text(&gateway, &session).await;
        assert_eq!(
            text,
            format!("elicitation/create: {{\"action\":\"{action}\"}}\n")
        );
    }
}

#[tokio::test]
async fn only_pages_of_the_web_are_shown() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    for url in [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "ftp://a.example",
        "https://",
        "x",
    ] {
        let turn = gateway.turn(&session, &visit(OWN, "e1", url)).await;
        assert_eq!(turn["text"], "elicitation/create: error -32602\n", "{url}");
    }
    for id in [String::new(), "e".repeat(1025)] {
        let turn = gateway.turn(&session, &visit(OWN, &id, PAGE)).await;
        assert_eq!(turn["text"], "elicitation/create: error -32602\n");
    }
    let turn = gateway.turn(&session, "complete id=e1").await;
    assert_eq!(turn["status"], "completed");
    let events = gateway.lawful(&session).await;
    assert!(
        all(&events, "request.created").is_empty()
            && all(&events, "elicitation.completed").is_empty()
    );
}

#[tokio::test]
async fn completion_of_a_url_elicitation_is_reported_once() {
    let (gateway, session, _) = asking(Setup::fake(&[]), &visit(OWN, "e9", PAGE)).await;
    answer_accepted(
        &gateway,
        &session,
        "elicitations/r1",
        r#"{"action":"accept"}"#,
    )
    .await;
    end(&gateway, &session).await;
    let other = gateway.session("fake").await;
    gateway.turn(&other, "complete id=e9").await;
    gateway
        .turn(
            &session,
            "complete id=unknown; complete id=e9; complete id=e9",
        )
        .await;
    let events = gateway.lawful(&session).await;
    let completed = one(&events, "elicitation.completed");
    assert_eq!(
        (&completed["elicitationId"], &completed["promptId"]),
        (&json!("e9"), &json!("p2"))
    );
    let events = gateway.lawful(&other).await;
    assert!(
        all(&events, "elicitation.completed").is_empty(),
        "it is no other session's"
    );
    assert!(all(&events, "extension").is_empty());
}

#[tokio::test]
async fn elicitation_for_a_gateway_call_has_the_clients_id() {
    let gateway = Setup::fake(&[]).start();
    for scope in [
        r#""requestId":$PROMPT"#,
        r#""sessionId":$SESSION,"requestId":$PROMPT"#,
    ] {
        let session = gateway.session("fake").await;
        gateway.turn(&session, "hello").await;
        let created = asked(&gateway, &session, &visit(scope, "e1", PAGE)).await;
        assert_eq!(
            (&created["params"]["requestId"], &created["promptId"]),
            (&json!("p2"), &json!("p2"))
        );
        let named = created["params"]
            .get("sessionId")
            .map(|id| id == session.as_str());
        assert_eq!(named, scope.contains("sessionId").then_some(true));
        answer_accepted(
            &gateway,
            &session,
            "elicitations/r1",
            r#"{"action":"decline"}"#,
        )
        .await;
        gateway
            .log_until(&session, |event| {
                event["promptId"] == "p2" && event["type"] == "prompt.completed"
            })
            .await;
        gateway.lawful(&session).await;
    }
}

#[tokio::test]
async fn an_elicitation_for_no_call_of_ours_is_refused() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    for scope in [
        r#""requestId":99"#,
        r#""requestId":0"#,
        r#""requestId":-1"#,
        r#""requestId":null"#,
        r#""requestId":"1""#,
        r#""requestId":1"#,
        r#""sessionId":$SESSION,"requestId":99"#,
        r#""toolCallId":"call_1""#,
    ] {
        let turn = gateway.turn(&session, &visit(scope, "e1", PAGE)).await;
        assert_eq!(
            turn["text"], "elicitation/create: error -32602\n",
            "{scope}"
        );
    }
}

#[tokio::test]
async fn request_during_set_up_is_not_offered() {
    let gateway = Setup::fake(&["--ask-at-new", "--log", "received"]).start();
    let session = gateway.session("fake").await;
    let received = gateway.path("data/homes/default/fake/received");
    eventually(
        "the agent received the response",
        Duration::from_secs(10),
        async || {
            let text = std::fs::read_to_string(&received).expect("the agent's own record");
            text.contains(r#""result":{"action":"cancel"}"#)
                .then_some(())
        },
    )
    .await;
    assert_eq!(gateway.turn(&session, "hello").await["text"], "hello");
    let events = gateway.lawful(&session).await;
    assert!(all(&events, "request.created").is_empty());
}

#[tokio::test]
async fn unanswered_elicitation_is_cancelled_by_policy() {
    let setup = Setup::fake_with(&[], "permissions = { timeout = \"300ms\" }");
    let (gateway, session, _) = asking(setup, &visit(OWN, "e1", PAGE)).await;
    let events = end(&gateway, &session).await;
    assert_eq!(
        agent_text(&events),
        "elicitation/create: {\"action\":\"cancel\"}\n"
    );
    assert_eq!(one(&events, "request.resolved")["resolution"], "expired");
    let late = answer(
        &gateway,
        &session,
        "elicitations/r1",
        r#"{"action":"accept"}"#,
    )
    .await;
    assert_eq!(
        late.problem(409, "request_resolved")["resolution"],
        "expired"
    );
    let waits = Setup::fake_with(
        &[],
        "permissions = { on_timeout = \"wait\", timeout = \"50ms\" }",
    );
    let (gateway, session, created) = asking(waits, &visit(OWN, "e1", PAGE)).await;
    assert_eq!(created["deadline"], Value::Null);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(gateway.get_session(&session).await["state"], "waiting");
}
