//! Files and terminals that a client serves: the events, the accepted answers, and the response that the agent
//! receives.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{CLIENT, answer, answer_accepted, ask, asked, asking, end, final_text, pointers};
use crate::support::log::{agent_text, one};
use crate::support::{Answer, Gateway, Setup, eventually};

/// A method, params, a result, and results that are none.
type Kind = (
    &'static str,
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Each method with params, a result with unknown members, and invalid results with JSON pointers to the error.
const KINDS: &[Kind] = &[
    (
        "fs/read_text_file",
        r#"{"sessionId":$SESSION,"path":"/w/a.txt","line":2,"limit":1,"_meta":{"n":1.10}}"#,
        r#"{"content":"\u00e9\u0000 b","x":{"n":1.10,"l":[ ]},"_meta":null}"#,
        &[
            ("null", "/result"),
            ("[]", "/result"),
            ("{}", "/result/content"),
            (r#"{"content":null}"#, "/result/content"),
            (r#"{"content":1}"#, "/result/content"),
            (r#"{"content":"a","content":"b"}"#, "/result"),
        ],
    ),
    (
        "fs/write_text_file",
        r#"{"sessionId":$SESSION,"path":"/w/a.txt","content":"\ud83d\ude00"}"#,
        "null",
        &[("1", "/result"), ("\"done\"", "/result"), ("[]", "/result")],
    ),
    (
        "terminal/create",
        r#"{"sessionId":$SESSION,"command":"make","args":["-j",2]}"#,
        r#"{"terminalId":"one of mine","x":1.10}"#,
        &[
            ("{}", "/result/terminalId"),
            (r#"{"terminalId":7}"#, "/result/terminalId"),
            ("null", "/result"),
        ],
    ),
    (
        "terminal/output",
        r#"{"sessionId":$SESSION,"terminalId":"one"}"#,
        r#"{"output":"","truncated":false,"exitStatus":{"exitCode":null,"signal":"KILL","x":0}}"#,
        &[
            ("{}", "/result/output /result/truncated"),
            (r#"{"output":"a","truncated":"no"}"#, "/result/truncated"),
            (
                r#"{"output":"a","truncated":true,"exitStatus":1}"#,
                "/result/exitStatus",
            ),
            (
                r#"{"output":"a","truncated":true,"exitStatus":{"exitCode":-1}}"#,
                "/result/exitStatus/exitCode",
            ),
        ],
    ),
    (
        "terminal/wait_for_exit",
        r#"{"sessionId":$SESSION,"terminalId":"one"}"#,
        r#"{"exitCode":137,"x":[1.10]}"#,
        &[
            ("null", "/result"),
            (r#"{"exitCode":"0"}"#, "/result/exitCode"),
            (r#"{"signal":9}"#, "/result/signal"),
        ],
    ),
    (
        "terminal/kill",
        r#"{"sessionId":$SESSION,"terminalId":"one"}"#,
        r#"{"_meta":{"n":1.10}}"#,
        &[("true", "/result")],
    ),
    (
        "terminal/release",
        r#"{"sessionId":$SESSION,"terminalId":"one"}"#,
        "{}",
        &[("\"\"", "/result")],
    ),
];

#[tokio::test]
async fn each_request_kind_is_shown_raw_and_its_answer_passes_unchanged() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    for (method, params, result, _) in KINDS {
        let session = gateway.session("fake").await;
        let created = asked(&gateway, &session, &ask(method, params)).await;
        assert_eq!(
            (&created["method"], &created["promptId"]),
            (&json!(method), &json!("p1"))
        );
        let with_ours = params.replace("$SESSION", &format!("\"{session}\""));
        let shown = raw_event(&gateway, &session, "request.created").await;
        assert!(
            shown.contains(&format!(r#""params":{with_ours}"#)),
            "{shown}"
        );
        let requests = gateway
            .get(&format!("/v1/sessions/{session}/requests"))
            .await["requests"]
            .clone();
        assert_eq!(requests.as_array().map(Vec::len), Some(1));
        assert_eq!(
            (&requests[0]["method"], &requests[0]["requestId"]),
            (&json!(method), &json!("r1"))
        );
        let snapshot = gateway.get_session(&session).await;
        assert_eq!(
            (&snapshot["state"], &snapshot["requests"]),
            (&json!("waiting"), &requests)
        );

        answer_accepted(
            &gateway,
            &session,
            "requests/r1",
            &format!(r#"{{"result": {result} }}"#),
        )
        .await;
        let log = end(&gateway, &session).await;
        assert_eq!(agent_text(&log), format!("{method}: {result}\n"));
        let resolved = one(&log, "request.resolved");
        assert_eq!(
            (&resolved["resolution"], &resolved["method"]),
            (&json!("answered"), &json!(method))
        );
        assert_eq!(resolved["by"], gateway.get("/v1").await["principal"]["id"]);
        let shown = raw_event(&gateway, &session, "request.resolved").await;
        assert!(shown.contains(&format!(r#""result":{result}"#)), "{shown}");
        let second = answer(&gateway, &session, "requests/r1", r#"{"result":{}}"#).await;
        assert_eq!(
            second.problem(409, "request_resolved")["resolution"],
            "answered"
        );
        assert_eq!(gateway.get_session(&session).await["state"], "idle");
    }
}

/// The only event of this type, as in the log.
async fn raw_event(gateway: &Gateway, session: &str, kind: &str) -> String {
    let path = format!("/v1/sessions/{session}/events?follow=false&types={kind}");
    let request = gateway
        .request(Method::GET, &path)
        .header("Accept", "application/x-ndjson");
    let text = request
        .send()
        .await
        .expect("an answer")
        .text()
        .await
        .expect("a body");
    let of_kind = format!(r#""type":"{kind}""#);
    text.lines()
        .find(|line| line.contains(&of_kind))
        .expect("the event")
        .to_owned()
}

#[tokio::test]
async fn invalid_answer_is_rejected_with_a_pointer_and_the_request_stays_open() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    for (method, params, result, wrong) in KINDS {
        let session = gateway.session("fake").await;
        asked(&gateway, &session, &ask(method, params)).await;
        let before = gateway.all_events(&session).await;
        for (wrong, places) in *wrong {
            let refused = answer(
                &gateway,
                &session,
                "requests/r1",
                &format!(r#"{{"result":{wrong}}}"#),
            )
            .await;
            assert_eq!(pointers(refused).join(" "), *places, "{method}: {wrong}");
        }
        for (path, body) in [
            ("permissions/r1", r#"{"optionId":"allow"}"#),
            ("permissions/r1", r#"{"cancelled":true}"#),
            ("elicitations/r1", r#"{"action":"cancel"}"#),
        ] {
            let refused = answer(&gateway, &session, path, body)
                .await
                .problem(422, "invalid");
            let detail = refused["detail"].as_str().expect("a detail");
            assert!(
                detail.contains(method) && detail.contains("requests/r1"),
                "{detail}"
            );
        }
        assert_eq!(gateway.all_events(&session).await, before);
        answer_accepted(
            &gateway,
            &session,
            "requests/r1",
            &format!(r#"{{"result":{result}}}"#),
        )
        .await;
        assert_eq!(
            final_text(&gateway, &session).await,
            format!("{method}: {result}\n")
        );
    }
}

#[tokio::test]
async fn a_client_may_answer_any_kind_with_an_error() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    for (method, params, ..) in KINDS {
        let session = gateway.session("fake").await;
        asked(&gateway, &session, &ask(method, params)).await;
        let error = r#"{"code":-32002,"message":"no such file","data":{"n":1.10}}"#;
        for wrong in [r#"{"code":"1","message":""}"#, r#"{"code":1}"#, "1"] {
            let refused = answer(
                &gateway,
                &session,
                "requests/r1",
                &format!(r#"{{"error":{wrong}}}"#),
            )
            .await;
            assert_eq!(pointers(refused), ["/error"]);
        }
        answer_accepted(
            &gateway,
            &session,
            "requests/r1",
            &format!(r#"{{"error":{error}}}"#),
        )
        .await;
        let log = end(&gateway, &session).await;
        assert_eq!(agent_text(&log), format!("{method}: error -32002\n"));
        let resolved = one(&log, "request.resolved");
        assert_eq!(
            (&resolved["error"]["data"]["n"], &resolved["result"]),
            (&json!(1.10), &Value::Null)
        );
    }
}

#[tokio::test]
async fn a_file_may_be_larger_than_other_bodies() {
    let setup = Setup::fake_with(&[], CLIENT).settings("server.max_body_bytes = \"64KiB\"");
    let text = ask(KINDS[0].0, KINDS[0].1);
    let (gateway, session, _) = asking(setup, &text).await;
    let content = "x".repeat(1 << 20);
    answer_accepted(
        &gateway,
        &session,
        "requests/r1",
        &format!(r#"{{"result":{{"content":"{content}"}}}}"#),
    )
    .await;
    assert_eq!(
        final_text(&gateway, &session).await,
        format!("fs/read_text_file: {{\"content\":\"{content}\"}}\n")
    );
}

#[tokio::test]
async fn half_characters_and_numbers_beyond_ours_pass_in_both_directions() {
    let gateway = Setup::fake_with(&["--log", "received"], CLIENT).start();
    let session = gateway.session("fake").await;
    let params = r#"{"sessionId":$SESSION,"path":"/w/\ud800","n":1e999}"#;
    gateway
        .prompt(
            &session,
            &format!("{} report=no ms=60000", ask("fs/read_text_file", params)),
        )
        .await;
    let path = format!("/v1/sessions/{session}/requests");
    let shown = eventually(
        "the request is shown",
        Duration::from_secs(10),
        async || {
            let text = gateway
                .request(Method::GET, &path)
                .send()
                .await
                .expect("an answer")
                .text()
                .await;
            text.ok().filter(|text| text.contains("\"r1\""))
        },
    )
    .await;
    assert!(
        shown.contains(r#""path":"/w/\ud800","n":1e999}"#),
        "{shown}"
    );
    let result = r#"{"content":"\ud800","n":-1e999}"#;
    answer_accepted(
        &gateway,
        &session,
        "requests/r1",
        &format!(r#"{{"result":{result}}}"#),
    )
    .await;
    let received = gateway.path("data/homes/default/fake/received");
    eventually(
        "the agent has its answer",
        Duration::from_secs(10),
        async || {
            let text = std::fs::read_to_string(&received).expect("the agent's own record");
            text.contains(&format!(r#""result":{result}}}"#))
                .then_some(())
        },
    )
    .await;
}

#[tokio::test]
async fn a_repeated_answer_with_its_key_is_the_first_response() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    let session = gateway.session("fake").await;
    let (method, params, result, _) = KINDS[0];
    asked(&gateway, &session, &ask(method, params)).await;
    let path = format!("/v1/sessions/{session}/requests/r1");
    let send = async |key: &str| {
        let request = gateway
            .request(Method::POST, &path)
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .body(format!(r#"{{"result":{result}}}"#));
        Answer::of(request).await
    };
    let first = send("once").await;
    assert_eq!(first.status, StatusCode::NO_CONTENT, "{first:?}");
    assert_eq!(first.header("idempotency-replayed"), None);
    let again = send("once").await;
    assert_eq!(again.status, StatusCode::NO_CONTENT, "{again:?}");
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    send("other").await.problem(409, "request_resolved");
    end(&gateway, &session).await;
}
