//! Requests of the demo agent in v2 of ACP, behind the gateway.

use reqwest::Method;
use serde_json::{Value, json};

use super::behind::{answer, asked, end, updates};
use super::v2::of_v2;
use crate::support::log::{agent_text, one};

#[tokio::test]
async fn permission_for_a_command_or_tool_call_sets_the_state_to_requires_action() {
    let (gateway, session) = of_v2("").await;
    let (set, _) = gateway
        .send(
            Method::PUT,
            &format!("/v1/sessions/{session}/mode"),
            &json!({ "modeId": "ask" }),
        )
        .await;
    assert_eq!(set, 200);
    for (text, option, subject, expected) in [
        (
            "/terminal",
            "reject_once",
            json!("command"),
            "You said no, so the command did not run.",
        ),
        (
            "/diff",
            "allow_always",
            json!("tool_call"),
            "copes with an empty name now",
        ),
    ] {
        let question = asked(&gateway, &session, text).await;
        assert_eq!(
            (&question["params"]["subject"]["type"], &question["method"]),
            (&subject, &json!("session/request_permission"))
        );
        assert_eq!(gateway.get_session(&session).await["state"], "waiting");
        let chosen =
            json!({ "result": { "outcome": { "outcome": "selected", "optionId": option } } });
        assert_eq!(
            answer(&gateway, &session, "requests", &question, &chosen)
                .await
                .status,
            204
        );
        let events = end(&gateway, &session, &question).await;
        assert!(
            agent_text(&events).contains(expected),
            "{}",
            agent_text(&events)
        );
        let states: Vec<&Value> = updates(&events, "state_update")
            .iter()
            .map(|e| &e["update"]["state"])
            .collect();
        assert_eq!(states, ["running", "requires_action", "running", "idle"]);
    }
    let question = asked(&gateway, &session, "/terminal").await;
    let subject = &question["params"]["subject"];
    assert_eq!(
        (&subject["command"], &subject["cwd"]),
        (
            &json!("cargo build"),
            &gateway.get_session(&session).await["cwd"]
        )
    );
    gateway
        .call(Method::POST, &format!("/v1/sessions/{session}/cancel"))
        .await;
    let events = end(&gateway, &session, &question).await;
    assert_eq!(one(&events, "request.resolved")["resolution"], "cancelled");
    assert_eq!(
        updates(&events, "tool_call_update").last().unwrap()["update"]["status"],
        "cancelled"
    );
    let question = asked(&gateway, &session, "/withdraw 1").await;
    let events = end(&gateway, &session, &question).await;
    assert_eq!(one(&events, "request.resolved")["resolution"], "withdrawn");
    gateway.lawful(&session).await;
}

#[tokio::test]
async fn v2_supports_form_and_url_elicitations() {
    let (gateway, session) = of_v2("").await;
    let question = asked(&gateway, &session, "/form").await;
    let content = |guests| json!({ "name": "Ada", "colour": "red", "guests": guests });
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
    assert!(text.contains("- “guests”: 3\n"), "{text}");

    let question = asked(&gateway, &session, "/link").await;
    let accept = json!({ "action": "accept" });
    assert_eq!(
        answer(&gateway, &session, "elicitations", &question, &accept)
            .await
            .status,
        204
    );
    let events = end(&gateway, &session, &question).await;
    let completed = one(&events, "elicitation.completed");
    assert_eq!(
        completed["elicitationId"],
        question["params"]["elicitationId"]
    );
    let question = asked(&gateway, &session, "/ext").await;
    let given = json!({ "result": { "answer": 42 } });
    assert_eq!(
        answer(&gateway, &session, "requests", &question, &given)
            .await
            .status,
        204
    );
    assert!(agent_text(&end(&gateway, &session, &question).await).contains("\"answer\": 42"));
}
