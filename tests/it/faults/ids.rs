//! JSON-RPC ids that are 0, negative, strings, null, of another type, duplicate, or of another session.

use serde_json::json;

use super::Case;
use crate::support::log::{agent_text, all, noise};

/// `ask` for a permission.
pub(super) const PERMISSION: &str = concat!(
    "method=session/request_permission params={\"sessionId\":$SESSION,\"toolCall\":{\"toolCallId\":\"c\"},",
    "\"options\":[{\"optionId\":\"allow\",\"name\":\"Allow\",\"kind\":\"allow_once\"},",
    "{\"optionId\":\"reject\",\"name\":\"Reject\",\"kind\":\"reject_once\"}]}"
);

const IDS: [&str; 13] = [
    "0",
    "-1",
    "-9223372036854775808",
    "18446744073709551616",
    "1.50",
    "1e2",
    "null",
    "\"\"",
    "\"0\"",
    "\"null\"",
    "\"\\u00e9\\ud83d\"",
    "true",
    "[1]",
];

/// The response to the agent's request that selects this option.
fn chosen(id: &str, option: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"outcome":{{"outcome":"selected","optionId":"{option}"}}}}}}"#
    )
}

#[tokio::test]
async fn a_question_under_any_id_is_answered_under_exactly_that_id() {
    let (case, session) = Case::fake(&[]).await;
    for (number, id) in (1..).zip(IDS) {
        let mut stream = case
            .events(&format!("/v1/sessions/{session}/events?after=tail"))
            .await;
        stream.until("ready").await;
        case.prompt(&session, &format!("ask {PERMISSION} id={id}"))
            .await;
        stream.until("request.created").await;
        let path = format!("/v1/sessions/{session}/permissions/r{number}");
        assert_eq!(
            case.posted(&path, &[], &json!({ "optionId": "reject" }))
                .await
                .status,
            204,
            "{id}"
        );
        let events = stream.until("prompt.completed").await;
        let texts = events
            .iter()
            .filter_map(|event| event.data["update"]["content"]["text"].as_str());
        assert!(
            texts
                .collect::<String>()
                .contains("\"optionId\":\"reject\""),
            "{id}: the agent knows its own"
        );
        assert_eq!(case.received(&chosen(id, "reject")), 1, "{id}");
    }
    case.holds().await;
}

#[tokio::test]
async fn a_request_that_is_not_served_is_refused_under_exactly_its_id() {
    let (case, session) = Case::fake(&[]).await;
    for id in IDS {
        let turn = case
            .turn(&session, &format!("ask method=terminal/create id={id}"))
            .await;
        assert_eq!(turn["text"], "terminal/create: error -32601\n", "{id}");
        assert_eq!(
            case.received(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":"#)),
            1,
            "{id}"
        );
    }
    assert!(all(&case.holds().await, "request.created").is_empty());
}

#[tokio::test]
async fn two_questions_under_one_id_are_answered_each() {
    let (case, session) = Case::fake(&[]).await;
    for id in ["0", "null", "\"same\""] {
        let before = all(&case.all_events(&session).await, "request.created").len();
        case.prompt(
            &session,
            &format!("ask {PERMISSION} id={id} n=2 report=no ms=60000"),
        )
        .await;
        let last = format!("r{}", before + 2);
        case.log_until(&session, |event| event["requestId"] == *last)
            .await;
        for (number, option) in [(before + 2, "reject"), (before + 1, "allow")] {
            let path = format!("/v1/sessions/{session}/permissions/r{number}");
            assert_eq!(
                case.posted(&path, &[], &json!({ "optionId": option }))
                    .await
                    .status,
                204
            );
        }
        for option in ["allow", "reject"] {
            case.until_received(&chosen(id, option), 1).await;
        }
        case.post(&format!("/v1/sessions/{session}/cancel"), &json!({}))
            .await;
        let turn = format!("p{}", before / 2 + 1);
        case.log_until(&session, |event| {
            event["type"] == "prompt.completed" && event["promptId"] == *turn
        })
        .await;
    }
    case.holds().await;
}

/// The agent numbers its requests as we number ours: the two do not meet.
#[tokio::test]
async fn agent_request_with_the_id_of_an_open_call_does_not_complete_the_call() {
    let (case, session) = Case::fake(&[]).await;
    let (_, params) = PERMISSION.split_once(" params=").expect("it has params");
    let line = format!(
        r#"raw {{"jsonrpc":"2.0","id":$PROMPT,"method":"session/request_permission","params":{}}}"#,
        params.replace("$SESSION", "\"$SESSION\"")
    );
    case.prompt(&session, &line).await;
    case.log_until(&session, |event| event["type"] == "request.created")
        .await;
    assert_eq!(
        case.get_session(&session).await["state"],
        "waiting",
        "the turn goes on"
    );
    let path = format!("/v1/sessions/{session}/permissions/r1");
    assert_eq!(
        case.posted(&path, &[], &json!({ "optionId": "allow" }))
            .await
            .status,
        204
    );
    case.log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(case.received(&chosen("3", "allow")), 1);
    case.holds().await;
}

/// Our ids are 1 for `initialize`, 2 for `session/new`, 3 for the first prompt, and so on.
#[tokio::test]
async fn an_answer_under_an_id_that_is_not_open_ends_no_turn() {
    let ids = [
        "0",
        "-3",
        "\"3\"",
        "3.0",
        "3e0",
        "03",
        "null",
        "true",
        "[3]",
        "{\"id\":3}",
        "1",
        "2",
        "4",
        "5",
    ];
    let (case, session) = Case::fake(&[]).await;
    let answer =
        |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"stopReason":"refusal"}}}}"#);
    let mut lines: Vec<String> = ids.iter().map(|id| answer(id)).collect();
    lines.push(answer("3").replace(r#""id":3,"#, ""));
    lines.push(
        r#"{"jsonrpc":"2.0","id":"$PROMPT","error":{"code":-32603,"message":"not this one"}}"#
            .to_owned(),
    );
    let turn = case
        .turn(&session, &format!("raw {}", lines.join("\n")))
        .await;
    assert_eq!(
        (&turn["status"], &turn["stopReason"]),
        (&json!("completed"), &json!("end_turn")),
        "{turn}"
    );
    // The responses 4 and 5 arrived before their requests.
    for text in ["second", "third"] {
        let turn = case.turn(&session, &format!("echo {text}")).await;
        assert_eq!(
            (&turn["stopReason"], &turn["text"]),
            (&json!("end_turn"), &json!(text)),
            "{turn}"
        );
    }
    let log = case.holds().await;
    assert_eq!(noise(&log), lines.len() as u64);
    assert_eq!(agent_text(&log), "secondthird");
}
