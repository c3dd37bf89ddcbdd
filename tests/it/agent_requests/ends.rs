//! Requests that no client answers: deadline, cancel, the end of the turn, of the process, of the gateway.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{CLIENT, answer, answer_accepted, ask, asked, asking, end, final_text};
use crate::support::log::{agent_text, all, one};
use crate::support::{Setup, eventually};

const READ: (&str, &str) = (
    "fs/read_text_file",
    r#"{"sessionId":$SESSION,"path":"/w/a"}"#,
);
const WAIT: (&str, &str) = (
    "terminal/wait_for_exit",
    r#"{"sessionId":$SESSION,"terminalId":"t"}"#,
);
const THING: (&str, &str) = ("_vendor/thing", r#"{"sessionId":$SESSION}"#);
const FORM: (&str, &str) = (
    "elicitation/create",
    r#"{"sessionId":$SESSION,"mode":"form","message":"m","requestedSchema":{"properties":{}}}"#,
);

/// The response that the agent receives for each request if no client can answer.
const WITHDRAWN: [((&str, &str), &str); 4] = [
    (READ, "-32800"),
    (WAIT, "-32800"),
    (THING, "-32800"),
    (FORM, r#"{"action":"cancel"}"#),
];

fn command((method, params): (&str, &str)) -> String {
    ask(method, params)
}

#[tokio::test]
async fn file_request_without_an_answer_is_an_error() {
    let setup = Setup::fake_with(&[], CLIENT).settings("testing.client_answer_timeout = \"300ms\"");
    let (gateway, session, created) = asking(setup, &command(READ)).await;
    let events = end(&gateway, &session).await;
    assert_eq!(agent_text(&events), "fs/read_text_file: error -32603\n");
    let resolved = one(&events, "request.resolved");
    assert_eq!(
        (&resolved["resolution"], &resolved["by"]),
        (&json!("expired"), &Value::Null)
    );
    assert_eq!(resolved["error"]["code"], -32603);
    assert!(
        created["deadline"].as_str() <= resolved["time"].as_str(),
        "not before its deadline"
    );
    let late = answer(
        &gateway,
        &session,
        "requests/r1",
        r#"{"result":{"content":""}}"#,
    )
    .await;
    assert_eq!(
        late.problem(409, "request_resolved")["resolution"],
        "expired"
    );
}

#[tokio::test]
async fn a_command_is_waited_for_as_long_as_a_client_follows() {
    let setup = Setup::fake_with(&[], &format!("{CLIENT}\nturn_idle_timeout = \"6s\""));
    let gateway = setup
        .settings("testing.client_answer_timeout = \"300ms\"")
        .start();
    let session = gateway.session("fake").await;
    let other = gateway.session("fake").await;
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    gateway.prompt(&session, &command(WAIT)).await;
    let created = loop {
        let event = stream.next().await.expect("the stream goes on");
        if event.of("request.created") {
            break event.data;
        }
    };
    assert_eq!(created["deadline"], Value::Null);
    gateway.turn(&other, "slow chunks=70 ms=100").await;
    assert_eq!(
        gateway.get_session(&session).await["state"],
        "waiting",
        "nor is it taken for silence"
    );
    answer_accepted(
        &gateway,
        &session,
        "requests/r1",
        r#"{"result":{"exitCode":0}}"#,
    )
    .await;
    while !stream
        .next()
        .await
        .expect("the stream goes on")
        .of("prompt.completed")
    {}
    assert_eq!(
        final_text(&gateway, &session).await,
        "terminal/wait_for_exit: {\"exitCode\":0}\n"
    );

    let turn = gateway.turn(&other, &command(WAIT)).await;
    assert_eq!(
        turn["text"], "terminal/wait_for_exit: error -32603\n",
        "no client follows this session"
    );
}

#[tokio::test]
async fn a_cancel_of_the_turn_answers_every_kind() {
    for (kind, response) in WITHDRAWN {
        let setup = Setup::fake_with(&["--log", "received"], CLIENT);
        let (gateway, session, created) = asking(setup, &command(kind)).await;
        let cancel = gateway
            .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
            .await;
        assert_eq!(cancel.status, 202);
        let events = end(&gateway, &session).await;
        assert_eq!(one(&events, "prompt.completed")["stopReason"], "cancelled");
        let resolved = one(&events, "request.resolved");
        assert_eq!(
            (&resolved["resolution"], &resolved["method"]),
            (&json!("cancelled"), &created["method"])
        );
        let received = gateway.path("data/homes/default/fake/received");
        eventually(
            "the agent received the response",
            Duration::from_secs(10),
            async || {
                let text = std::fs::read_to_string(&received).expect("the agent's own record");
                text.lines()
                    .last()
                    .is_some_and(|line| line.contains(response))
                    .then_some(())
            },
        )
        .await;
        let late = answer(
            &gateway,
            &session,
            "requests/r1",
            r#"{"error":{"code":1,"message":""}}"#,
        )
        .await;
        assert_eq!(
            late.problem(409, "request_resolved")["resolution"],
            "cancelled"
        );
    }
}

#[tokio::test]
async fn after_a_cancel_no_request_is_offered_and_commands_can_be_killed() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    let kill = ("terminal/kill", WAIT.1);
    for (kind, response) in [
        (FORM, "elicitation/create: {\"action\":\"cancel\"}\n"),
        (kill, "terminal/kill: {}\n"),
    ] {
        let session = gateway.session("fake").await;
        gateway
            .prompt(
                &session,
                &format!("thought; {} after=cancel", command(kind)),
            )
            .await;
        gateway
            .log_until(&session, |event| event["type"] == "session.update")
            .await;
        let path = format!("/v1/sessions/{session}/cancel");
        assert_eq!(gateway.call(Method::POST, &path).await.status, 202);
        if kind == kill {
            gateway
                .log_until(&session, |event| event["type"] == "request.created")
                .await;
            answer_accepted(&gateway, &session, "requests/r1", r#"{"result":{}}"#).await;
        }
        let events = end(&gateway, &session).await;
        assert_eq!(agent_text(&events), response);
        let resolution = if kind == kill {
            "answered"
        } else {
            "cancelled"
        };
        assert_eq!(one(&events, "request.resolved")["resolution"], resolution);
        assert_eq!(one(&events, "prompt.completed")["stopReason"], "cancelled");
    }
}

#[tokio::test]
async fn end_of_a_turn_withdraws_permission_requests_and_keeps_file_and_terminal_requests() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    for (kind, stays) in [(FORM, false), (READ, true), (WAIT, true)] {
        let session = gateway.session("fake").await;
        asked(
            &gateway,
            &session,
            &format!("{} report=no ms=500", command(kind)),
        )
        .await;
        let events = end(&gateway, &session).await;
        let requests = gateway
            .get(&format!("/v1/sessions/{session}/requests"))
            .await["requests"]
            .clone();
        assert_eq!(
            requests.as_array().map(Vec::len),
            Some(usize::from(stays)),
            "{kind:?}"
        );
        if stays {
            assert!(all(&events, "request.resolved").is_empty());
            assert_eq!(
                gateway.turn(&session, "hello").await["text"],
                "hello",
                "it delays no other request"
            );
            let result = if kind == READ {
                r#"{"content":""}"#
            } else {
                "{}"
            };
            answer_accepted(
                &gateway,
                &session,
                "requests/r1",
                &format!(r#"{{"result":{result}}}"#),
            )
            .await;
            let resolved = gateway.all_events(&session).await.pop().expect("an event");
            assert_eq!(
                (&resolved["type"], &resolved["promptId"]),
                (&json!("request.resolved"), &json!("p1"))
            );
        } else {
            assert_eq!(one(&events, "request.resolved")["resolution"], "withdrawn");
        }
    }
}

#[tokio::test]
async fn request_cancelled_by_the_agent_rejects_a_late_answer() {
    for (kind, response) in WITHDRAWN {
        let setup = Setup::fake_with(&["--log", "received"], CLIENT);
        let response = if response.starts_with('-') {
            format!("error {response}")
        } else {
            response.to_owned()
        };
        let (gateway, session, created) =
            asking(setup, &format!("{} cancel-after=300", command(kind))).await;
        let events = end(&gateway, &session).await;
        assert_eq!(agent_text(&events), format!("{}: {response}\n", kind.0));
        let resolved = one(&events, "request.resolved");
        assert_eq!(
            (&resolved["resolution"], &resolved["method"]),
            (&json!("withdrawn"), &created["method"])
        );
        assert_eq!(gateway.get_session(&session).await["requests"], json!([]));
        let late = answer(
            &gateway,
            &session,
            "requests/r1",
            r#"{"error":{"code":1,"message":""}}"#,
        )
        .await;
        assert_eq!(
            late.problem(409, "request_resolved")["resolution"],
            "withdrawn"
        );
    }
}

#[tokio::test]
async fn a_crash_of_the_agent_withdraws_every_kind() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    let session = gateway.session("fake").await;
    let asks: Vec<String> = WITHDRAWN
        .iter()
        .map(|(kind, _)| format!("{} report=no", command(*kind)))
        .collect();
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    gateway
        .prompt(
            &session,
            &format!("{}; slow chunks=1 ms=1500; crash", asks.join("; ")),
        )
        .await;
    let mut created = 0;
    while created < WITHDRAWN.len() {
        created += usize::from(
            stream
                .next()
                .await
                .expect("the stream goes on")
                .of("request.created"),
        );
    }
    let events = gateway
        .log_until(&session, |event| event["type"] == "prompt.failed")
        .await;
    let resolved = all(&events, "request.resolved");
    assert_eq!(resolved.len(), WITHDRAWN.len());
    for event in resolved {
        assert_eq!(event["resolution"], "withdrawn");
    }
    assert_eq!(gateway.get_session(&session).await["requests"], json!([]));
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn after_a_kill_of_the_gateway_every_kind_has_expired_with_its_own_answer() {
    for (kind, response) in WITHDRAWN {
        let (mut gateway, session, created) =
            asking(Setup::fake_with(&[], CLIENT), &command(kind)).await;
        gateway.kill();
        gateway.start();
        let events = gateway.lawful(&session).await;
        assert!(
            events.contains(&created),
            "earlier events are still in the log"
        );
        let resolved = one(&events, "request.resolved");
        assert_eq!(
            (&resolved["resolution"], &resolved["requestId"]),
            (&json!("expired"), &json!("r1"))
        );
        match response.parse::<i64>() {
            Ok(code) => assert_eq!(resolved["error"]["code"], code),
            Err(_) => assert_eq!(resolved["result"].to_string(), response),
        }
        let shown = gateway.get_session(&session).await;
        assert_eq!(
            (&shown["state"], &shown["requests"]),
            (&json!("idle"), &json!([]))
        );
        let late = answer(&gateway, &session, "requests/r1", r#"{"result":null}"#).await;
        assert_eq!(
            late.problem(409, "request_resolved")["resolution"],
            "expired"
        );
    }
}

#[tokio::test]
async fn requests_above_the_limit_are_rejected_for_every_kind() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    let session = gateway.session("fake").await;
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    gateway
        .prompt(&session, &format!("{} n=65", command(READ)))
        .await;
    let mut created = 0;
    while created < 64 {
        created += usize::from(
            stream
                .next()
                .await
                .expect("the stream goes on")
                .of("request.created"),
        );
    }
    for number in 1..=64 {
        let body = r#"{"result":{"content":""}}"#;
        answer_accepted(&gateway, &session, &format!("requests/r{number}"), body).await;
    }
    let text = final_text(&gateway, &session).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        (lines.len(), lines[64]),
        (65, "fs/read_text_file: error -32603")
    );
    assert!(
        lines[..64]
            .iter()
            .all(|line| *line == r#"fs/read_text_file: {"content":""}"#)
    );
}

#[tokio::test]
async fn request_served_by_the_gateway_can_be_withdrawn() {
    let gateway = Setup::fake_with(&[], "terminals = \"gateway\"")
        .settings("testing.max_pending_requests = 2")
        .start();
    let session = gateway.session("fake").await;
    let create = r#"{"sessionId":$SESSION,"command":"sleep","args":["60"]}"#;
    let one_terminal = r#"{"sessionId":$SESSION,"terminalId":"t1"}"#;
    let wait = format!(
        "{} cancel-after=100",
        ask("terminal/wait_for_exit", one_terminal)
    );
    // More waits than the limit of concurrent requests: a withdrawn request releases its place.
    let text = format!(
        "{}; {wait}; {wait}; {wait}; {}",
        ask("terminal/create", create),
        ask("terminal/release", one_terminal)
    );
    let turn = gateway.turn(&session, &text).await;
    let text = turn["text"].as_str().expect("a text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(
        lines[0].starts_with("terminal/create: {") && lines[4].starts_with("terminal/release: "),
        "{text}"
    );
    assert!(
        lines[1..4]
            .iter()
            .all(|line| *line == "terminal/wait_for_exit: error -32800"),
        "{text}"
    );
    let events = gateway.lawful(&session).await;
    assert!(
        all(&events, "request.created").is_empty(),
        "no client was asked"
    );
}
