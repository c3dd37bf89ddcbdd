//! The policy of files and terminals: the agent's entry, and a session that restricts it further.

use serde_json::{Value, json};

use super::{CLIENT, answer_accepted, ask, asked, final_text};
use crate::support::{Gateway, Setup, eventually};

const READ: &str = r#"{"sessionId":$SESSION,"path":"/w/a"}"#;
const OUTPUT: &str = r#"{"sessionId":$SESSION,"terminalId":"t"}"#;

async fn session_with(gateway: &Gateway, policy: Value) -> String {
    let created = gateway
        .posted(
            "/v1/sessions",
            &[],
            &json!({ "agent": "fake", "policy": policy }),
        )
        .await;
    assert_eq!(
        (created.status.as_u16(), &created.body["policy"]),
        (201, &policy)
    );
    created.body["sessionId"]
        .as_str()
        .expect("an id")
        .to_owned()
}

/// The client capabilities of each `initialize` so far.
async fn offered(gateway: &Gateway, count: usize) -> Vec<Value> {
    let received = gateway.path("data/homes/default/fake/received");
    eventually(
        "the agent has its record",
        std::time::Duration::from_secs(10),
        async || {
            let text = std::fs::read_to_string(&received).ok()?;
            let calls = text
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let calls = calls.filter(|call| call["method"] == "initialize");
            let offers: Vec<Value> = calls
                .map(|call| call["params"]["clientCapabilities"].clone())
                .collect();
            (offers.len() == count).then_some(offers)
        },
    )
    .await
}

#[tokio::test]
async fn disabled_capability_is_neither_offered_nor_served() {
    let gateway = Setup::fake_with(&["--log", "received"], "").start();
    let session = gateway.session("fake").await;
    for (method, params) in [("fs/read_text_file", READ), ("terminal/output", OUTPUT)] {
        let turn = gateway.turn(&session, &ask(method, params)).await;
        assert_eq!(turn["text"], format!("{method}: error -32601\n"));
    }
    let offers = offered(&gateway, 1).await;
    assert_eq!(
        offers[0]["fs"],
        json!({ "readTextFile": false, "writeTextFile": false })
    );
    assert_eq!(offers[0]["terminal"], false);
    assert_eq!(
        offers[0]["elicitation"],
        json!({ "form": {}, "url": {} }),
        "people are always there"
    );
}

#[tokio::test]
async fn a_session_narrows_the_agents_policy_for_itself() {
    let gateway = Setup::fake_with(&["--log", "received"], CLIENT).start();
    let session = session_with(&gateway, json!({ "files": "off" })).await;
    let turn = gateway
        .turn(&session, &ask("fs/read_text_file", READ))
        .await;
    assert_eq!(turn["text"], "fs/read_text_file: error -32601\n");
    let other = gateway.session("fake").await;
    asked(&gateway, &other, &ask("fs/read_text_file", READ)).await;
    answer_accepted(
        &gateway,
        &other,
        "requests/r1",
        r#"{"result":{"content":""}}"#,
    )
    .await;
    assert_eq!(
        final_text(&gateway, &other).await,
        "fs/read_text_file: {\"content\":\"\"}\n"
    );
    let offers = offered(&gateway, 2).await;
    let files: Vec<&Value> = offers
        .iter()
        .map(|offer| &offer["fs"]["readTextFile"])
        .collect();
    assert_eq!(
        files,
        [false, true],
        "each has a process that was offered its own"
    );
    assert!(offers.iter().all(|offer| offer["terminal"] == true));
}

#[tokio::test]
async fn request_for_another_or_no_session_is_rejected() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    let session = gateway.session("fake").await;
    for method in [
        "fs/read_text_file",
        "terminal/create",
        "session/request_permission",
        "elicitation/create",
    ] {
        for params in [
            r#"{"sessionId":"other","path":"/w/a","options":[]}"#,
            r#"{"path":"/w/a"}"#,
            "[1]",
            "null",
        ] {
            let turn = gateway.turn(&session, &ask(method, params)).await;
            assert_eq!(
                turn["text"],
                format!("{method}: error -32602\n"),
                "{params}"
            );
        }
    }
    let twice = r#"{"sessionId":$SESSION,"sessionId":"other","path":"/w/a"}"#;
    let turn = gateway
        .turn(&session, &ask("fs/read_text_file", twice))
        .await;
    assert_eq!(turn["text"], "fs/read_text_file: error -32602\n");
    assert_eq!(
        gateway
            .get(&format!("/v1/sessions/{session}/requests"))
            .await["requests"],
        json!([])
    );
}

#[tokio::test]
async fn request_of_a_subagent_names_the_subagent() {
    let gateway = Setup::fake_with(&[], CLIENT).start();
    let announced = r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"$SESSION","update":{"sessionUpdate":"subagent_update","sessionId":"c1"}}}"#;
    for (method, rest, result) in [
        ("fs/read_text_file", r#""path":"/w/a""#, r#"{"content":""}"#),
        ("terminal/kill", r#""terminalId":"t""#, "null"),
        ("_vendor/thing", r#""n":1"#, "1"),
        (
            "elicitation/create",
            r#""mode":"form","message":"m","requestedSchema":{}"#,
            r#"{"action":"accept"}"#,
        ),
        (
            "session/request_permission",
            r#""options":[],"toolCall":{}"#,
            r#"{"outcome":{"outcome":"cancelled"}}"#,
        ),
    ] {
        let session = gateway.session("fake").await;
        let request = |child: &str, id: u32| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"sessionId":"{child}",{rest}}}}}"#
            )
        };
        let text = format!(
            "raw {}\n{announced}\n{}",
            request("c1", 90),
            request("c1", 91)
        );
        let created = asked(&gateway, &session, &text).await;
        assert_eq!(
            (&created["subagent"], &created["params"]["sessionId"]),
            (&json!("c1"), &json!(session)),
            "{method}"
        );
        assert_eq!(
            created["requestId"], "r1",
            "before the announcement, its id is unknown"
        );
        let requests = gateway
            .get(&format!("/v1/sessions/{session}/requests"))
            .await["requests"]
            .clone();
        assert_eq!(
            (requests.as_array().map(Vec::len), &requests[0]["subagent"]),
            (Some(1), &json!("c1"))
        );
        answer_accepted(
            &gateway,
            &session,
            "requests/r1",
            &format!(r#"{{"result":{result}}}"#),
        )
        .await;
        gateway
            .log_until(&session, |event| event["type"] == "prompt.completed")
            .await;
        gateway.lawful(&session).await;
    }
}
