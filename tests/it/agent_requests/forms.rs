//! Forms: the validation of an answer, and the response that the agent receives.

use serde_json::{Value, json};

use super::{answer, answer_accepted, ask, asked, asking, end, final_text, pointers};
use crate::support::log::{agent_text, one};
use crate::support::{Gateway, Setup};

const SCHEMA: &str = concat!(
    r#"{"type":"object","required":["name","size"],"properties":{"#,
    r#""name":{"type":"string","minLength":2,"maxLength":8,"pattern":"^[a-z]+$","title":"\u00e9","x":1.10},"#,
    r#""mail":{"type":"string","format":"email"},"#,
    r#""day":{"type":"string","format":"date"},"#,
    r#""size":{"type":"integer","minimum":1,"maximum":9},"#,
    r#""part":{"type":"number"},"#,
    r#""sure":{"type":"boolean","default":true},"#,
    r#""colour":{"type":"string","enum":["red","green"]},"#,
    r#""level":{"type":"string","oneOf":[{"const":"lo","title":"Low"},{"const":"hi","title":"High"}]},"#,
    r#""tags":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string","enum":["a","b","c"]}}}}"#
);

fn form() -> String {
    let params = format!(
        r#"{{"sessionId":$SESSION,"mode":"form","message":"Fill","requestedSchema":{SCHEMA},"x":1.10}}"#
    );
    ask("elicitation/create", &params)
}

#[tokio::test]
async fn a_form_is_shown_raw_and_a_fitting_answer_reaches_the_agent_byte_for_byte() {
    let gateway = Setup::fake(&[]).start();
    let content = r#"{"size":3.0,"name":"abc","part":1.10,"sure":false,"colour":"red","level":"hi","tags":["c","a"],"mail":"a@b.example","day":"2026-02-28"}"#;
    for (path, body, result) in [
        (
            "elicitations/r1",
            format!(r#"{{"content":{content},"action":"accept"}}"#),
            format!(r#"{{"action":"accept","content":{content}}}"#),
        ),
        (
            "requests/r1",
            format!(
                r#"{{"result":{{"x":[1.10],"content":{content},"action":"accept","_meta":null}}}}"#
            ),
            format!(r#"{{"x":[1.10],"content":{content},"action":"accept","_meta":null}}"#),
        ),
    ] {
        let session = gateway.session("fake").await;
        let created = asked(&gateway, &session, &form()).await;
        assert_eq!(created["method"], "elicitation/create");
        assert_eq!(
            (&created["params"]["sessionId"], &created["params"]["x"]),
            (&json!(session), &json!(1.1))
        );
        assert!(created["deadline"].as_str() > created["time"].as_str());
        assert_eq!(gateway.get_session(&session).await["state"], "waiting");
        answer_accepted(&gateway, &session, path, &body).await;
        let events = end(&gateway, &session).await;
        assert_eq!(
            agent_text(&events),
            format!("elicitation/create: {result}\n")
        );
        assert_eq!(one(&events, "request.resolved")["resolution"], "answered");
        let second = answer(&gateway, &session, path, &body).await;
        assert_eq!(
            second.problem(409, "request_resolved")["resolution"],
            "answered"
        );
    }
}

#[tokio::test]
async fn invalid_form_answer_is_reported_by_field() {
    let (gateway, session, _) = asking(Setup::fake(&[]), &form()).await;
    let before = gateway.all_events(&session).await;
    for (content, wrong) in [
        (
            json!({ "name": "abc", "size": 3, "other": 1 }),
            &["/content/other"][..],
        ),
        (json!({}), &["/content/name", "/content/size"]),
        (
            json!({ "name": "A", "size": 3 }),
            &["/content/name", "/content/name"],
        ),
        (
            json!({ "name": "abcdefghi", "size": 3 }),
            &["/content/name"],
        ),
        (json!({ "name": "abc", "size": 0 }), &["/content/size"]),
        (json!({ "name": "abc", "size": 10 }), &["/content/size"]),
        (json!({ "name": "abc", "size": 1.5 }), &["/content/size"]),
        (json!({ "name": "abc", "size": "3" }), &["/content/size"]),
        (json!({ "name": null, "size": 3 }), &["/content/name"]),
        (
            json!({ "name": "abc", "size": 3, "mail": "abc" }),
            &["/content/mail"],
        ),
        (
            json!({ "name": "abc", "size": 3, "day": "2026-02-30" }),
            &["/content/day"],
        ),
        (
            json!({ "name": "abc", "size": 3, "sure": "yes" }),
            &["/content/sure"],
        ),
        (
            json!({ "name": "abc", "size": 3, "colour": "blue" }),
            &["/content/colour"],
        ),
        (
            json!({ "name": "abc", "size": 3, "level": "High" }),
            &["/content/level"],
        ),
        (
            json!({ "name": "abc", "size": 3, "tags": [] }),
            &["/content/tags"],
        ),
        (
            json!({ "name": "abc", "size": 3, "tags": ["a", "d"] }),
            &["/content/tags/1"],
        ),
        (
            json!({ "name": "abc", "size": 3, "tags": ["a", "b", "c"] }),
            &["/content/tags"],
        ),
        (json!([]), &["/content"]),
    ] {
        for (path, at, body) in [
            (
                "elicitations/r1",
                "",
                json!({ "action": "accept", "content": content }),
            ),
            (
                "requests/r1",
                "/result",
                json!({ "result": { "action": "accept", "content": content } }),
            ),
        ] {
            let mut places = pointers(answer(&gateway, &session, path, &body.to_string()).await);
            places.sort();
            let expected: Vec<String> =
                wrong.iter().map(|suffix| format!("{at}{suffix}")).collect();
            assert_eq!(places, expected, "{path} {content}");
        }
    }
    for (path, body, pointer) in [
        ("elicitations/r1", r#"{"action":"accept"}"#, "/content/name"),
        (
            "elicitations/r1",
            r#"{"action":"decline","content":{}}"#,
            "/content",
        ),
        ("elicitations/r1", r#"{"action":"later"}"#, "/action"),
        (
            "elicitations/r1",
            r#"{"action":"cancel","more":1}"#,
            "/more",
        ),
        ("elicitations/r1", r"{}", "/action"),
        (
            "requests/r1",
            r#"{"result":{"action":"cancel","content":{}}}"#,
            "/result/content",
        ),
        (
            "requests/r1",
            r#"{"result":{"action":"later"}}"#,
            "/result/action",
        ),
        ("requests/r1", r#"{"result":null}"#, "/result"),
        ("permissions/r1", r#"{"optionId":"name"}"#, ""),
        ("permissions/r1", r#"{"cancelled":true}"#, ""),
    ] {
        assert_eq!(
            pointers(answer(&gateway, &session, path, body).await)[0],
            pointer,
            "{path} {body}"
        );
    }
    let misdirected = answer(
        &gateway,
        &session,
        "permissions/r1",
        r#"{"cancelled":true}"#,
    )
    .await;
    let detail = misdirected.problem(422, "invalid")["detail"].clone();
    assert!(
        detail
            .as_str()
            .is_some_and(|detail| detail.contains("elicitations/r1")),
        "{detail}"
    );
    let secret =
        json!({ "action": "accept", "content": { "name": "HUSH", "size": 3 } }).to_string();
    let problem = answer(&gateway, &session, "elicitations/r1", &secret)
        .await
        .problem(422, "invalid");
    assert!(!problem.to_string().contains("HUSH"), "{problem}");
    assert_eq!(gateway.all_events(&session).await, before);
    answer_accepted(
        &gateway,
        &session,
        "elicitations/r1",
        r#"{"action":"decline"}"#,
    )
    .await;
    assert_eq!(
        final_text(&gateway, &session).await,
        "elicitation/create: {\"action\":\"decline\"}\n"
    );
}

#[tokio::test]
async fn a_permission_is_not_answered_like_a_form() {
    let (gateway, session, _) = asking(Setup::fake(&[]), "permission").await;
    let refused = answer(
        &gateway,
        &session,
        "elicitations/r1",
        r#"{"action":"decline"}"#,
    )
    .await;
    let problem = refused.problem(422, "invalid");
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("permissions/r1")),
        "{problem}"
    );
    answer_accepted(
        &gateway,
        &session,
        "permissions/r1",
        r#"{"optionId":"reject"}"#,
    )
    .await;
    assert_eq!(final_text(&gateway, &session).await, "permission: reject");
}

async fn refused(gateway: &Gateway, session: &str, params: &str) {
    let turn = gateway
        .turn(session, &ask("elicitation/create", params))
        .await;
    assert_eq!(
        turn["text"], "elicitation/create: error -32602\n",
        "{params}"
    );
}

#[tokio::test]
async fn unsupported_form_is_rejected_without_a_request_to_clients() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let with = |schema: &str| {
        format!(
            r#"{{"sessionId":$SESSION,"mode":"form","message":"m","requestedSchema":{schema}}}"#
        )
    };
    let property = |property: &str| {
        with(&format!(
            r#"{{"type":"object","properties":{{"f":{property}}}}}"#
        ))
    };
    for params in [
        r#"{"sessionId":$SESSION,"mode":"form","message":"m"}"#.to_owned(),
        r#"{"sessionId":$SESSION,"mode":"form","requestedSchema":{}}"#.to_owned(),
        r#"{"sessionId":$SESSION,"message":"m","requestedSchema":{}}"#.to_owned(),
        r#"{"sessionId":$SESSION,"mode":"_mine","message":"m"}"#.to_owned(),
        with("[]"),
        with(r#"{"required":["a"]}"#),
        property("{}"),
        property(r#"{"type":"string","pattern":"("}"#),
        property(r#"{"type":"string","pattern":"((a{999}){999}){999}"}"#),
        property(r#"{"type":"string","pattern":"(?=((a{999}){999}){999})"}"#),
        property(r#"{"type":"string","minLength":"3"}"#),
        with(&format!(r#"{{"title":"{}"}}"#, "x".repeat(300_000))),
    ] {
        refused(&gateway, &session, &params).await;
    }
    let events = gateway.lawful(&session).await;
    assert!(
        events
            .iter()
            .all(|event| event["type"] != "request.created"),
        "no client received a request"
    );
    assert_eq!(
        gateway.get_session(&session).await["requests"],
        Value::Array(Vec::new())
    );
}

#[tokio::test]
async fn pattern_with_exponential_cost_is_rejected() {
    let schema = r#"{"properties":{"f":{"type":"string","pattern":"^(?=a)((a|a)*)*b$"}}}"#;
    let params = format!(
        r#"{{"sessionId":$SESSION,"mode":"form","message":"m","requestedSchema":{schema}}}"#
    );
    let (gateway, session, _) = asking(Setup::fake(&[]), &ask("elicitation/create", &params)).await;
    let began = std::time::Instant::now();
    let body = json!({ "action": "accept", "content": { "f": "a".repeat(5000) } }).to_string();
    assert_eq!(
        pointers(answer(&gateway, &session, "elicitations/r1", &body).await),
        ["/content/f"]
    );
    assert!(
        began.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    answer_accepted(
        &gateway,
        &session,
        "elicitations/r1",
        r#"{"action":"cancel"}"#,
    )
    .await;
}
