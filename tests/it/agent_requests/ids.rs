//! The agent's own JSON-RPC ids, of every form and more than once.

use std::time::Duration;

use serde_json::{Value, json};

use super::{CLIENT, answer_accepted, ask, asked, asking, end};
use crate::support::log::{agent_text, all, one};
use crate::support::{Gateway, Setup, eventually};

const READ: &str = r#"{"sessionId":$SESSION,"path":"/w/a"}"#;
const IDS: [&str; 7] = [
    "0",
    "-7",
    "null",
    "\"\"",
    "\"a\\u0000b\"",
    "9007199254740993",
    "1.50",
];

fn read() -> String {
    ask("fs/read_text_file", READ)
}

/// The raw ids of all answers that the agent got to requests of its own.
async fn answered(gateway: &Gateway, count: usize) -> Vec<String> {
    let received = gateway.path("data/homes/default/fake/received");
    eventually(
        "the agent has its answers",
        Duration::from_secs(10),
        async || {
            let text = std::fs::read_to_string(&received).expect("the agent's own record");
            let answers = text.lines().filter(|line| !line.contains(r#""method":"#));
            let ids =
                answers.filter_map(|line| line.split_once(r#""id":"#)?.1.split_once(r#","re"#));
            let mut ids: Vec<String> = ids.map(|(id, _)| id.to_owned()).collect();
            let errors = text.lines().filter(|line| line.contains(r#""error":"#));
            let errors =
                errors.filter_map(|line| line.split_once(r#""id":"#)?.1.split_once(r#","er"#));
            ids.extend(errors.map(|(id, _)| id.to_owned()));
            (ids.len() == count).then_some(ids)
        },
    )
    .await
}

#[tokio::test]
async fn the_answer_has_the_id_as_it_was_spelled() {
    for id in IDS {
        let setup = Setup::fake_with(&["--log", "received"], CLIENT);
        let (gateway, session, created) = asking(setup, &format!("{} id={id}", read())).await;
        assert!(
            created.get("id").is_some_and(Value::is_string),
            "clients see ids of ours alone"
        );
        answer_accepted(
            &gateway,
            &session,
            "requests/r1",
            r#"{"result":{"content":"x"}}"#,
        )
        .await;
        assert_eq!(
            agent_text(&end(&gateway, &session).await),
            "fs/read_text_file: {\"content\":\"x\"}\n"
        );
        assert_eq!(answered(&gateway, 1).await, [id]);
    }
}

#[tokio::test]
async fn request_with_any_id_type_can_be_withdrawn() {
    for id in IDS {
        let setup = Setup::fake_with(&["--log", "received"], CLIENT);
        let (gateway, session, _) =
            asking(setup, &format!("{} id={id} cancel-after=200", read())).await;
        let events = end(&gateway, &session).await;
        assert_eq!(
            agent_text(&events),
            "fs/read_text_file: error -32800\n",
            "{id}"
        );
        assert_eq!(one(&events, "request.resolved")["resolution"], "withdrawn");
        assert_eq!(answered(&gateway, 1).await, [id]);
    }
}

#[tokio::test]
async fn requests_with_the_same_id_are_answered_each() {
    let gateway = Setup::fake_with(&["--log", "received"], CLIENT).start();
    let session = gateway.session("fake").await;
    asked(
        &gateway,
        &session,
        &format!("{} id=0 n=3 report=no ms=1500 cancel-after=300", read()),
    )
    .await;
    let events = end(&gateway, &session).await;
    // Each cancel means the newest that is open: three of them, all three.
    assert_eq!(all(&events, "request.created").len(), 3);
    let cancelled: Vec<&Value> = all(&events, "request.resolved")
        .iter()
        .map(|event| &event["requestId"])
        .collect();
    assert_eq!(cancelled, [&json!("r3"), &json!("r2"), &json!("r1")]);
    assert_eq!(answered(&gateway, 3).await, ["0", "0", "0"]);
}

#[tokio::test]
async fn an_id_may_be_used_again_once_it_was_answered() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    let session = gateway.session("fake").await;
    for number in 1..=3 {
        asked(&gateway, &session, &format!("{} id=0", read())).await;
        let body = format!(r#"{{"result":{{"content":"{number}"}}}}"#);
        answer_accepted(&gateway, &session, &format!("requests/r{number}"), &body).await;
        let prompt = format!("p{number}");
        gateway
            .log_until(&session, |event| {
                event["type"] == "prompt.completed" && event["promptId"] == prompt.as_str()
            })
            .await;
    }
    let text = agent_text(&gateway.lawful(&session).await);
    let lines = ["1", "2", "3"].map(|n| format!("fs/read_text_file: {{\"content\":\"{n}\"}}\n"));
    assert_eq!(text, lines.concat());
}

#[tokio::test]
async fn cancel_of_a_closed_request_does_nothing() {
    let setup = Setup::fake_with(&[], CLIENT);
    let (gateway, session, _) = asking(setup, &read()).await;
    // It is one of the agent's own ids that is meant, never one of ours.
    gateway.turn(&gateway.session("fake").await, "hello").await;
    answer_accepted(
        &gateway,
        &session,
        "requests/r1",
        r#"{"result":{"content":""}}"#,
    )
    .await;
    end(&gateway, &session).await;
    let turn = gateway
        .turn(
            &session,
            "ask method=session/request_permission params=[] cancel-after=1",
        )
        .await;
    assert_eq!(turn["text"], "session/request_permission: error -32602\n");
    gateway.lawful(&session).await;
}
