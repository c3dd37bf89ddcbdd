//! Updates and other notifications of agents.

use agent_client_protocol_schema::{v1, v2};
use serde_json::Value;

use super::examples::{NOTIFICATIONS, REQUESTS, UPDATES, V2_UPDATES};
use super::spelling::odd;
use super::{log, says};
use crate::coverage::schema::{methods, variants};
use crate::support::{Gateway, Setup};

fn kinds(examples: &[&str]) -> Vec<String> {
    let parsed = examples
        .iter()
        .map(|example| serde_json::from_str::<Value>(example).expect("JSON"));
    parsed
        .map(|update| update["sessionUpdate"].as_str().expect("a kind").to_owned())
        .collect()
}

#[test]
fn every_kind_of_update_has_an_example_in_the_schema() {
    let v1_kinds = kinds(UPDATES);
    let v2_kinds = kinds(V2_UPDATES);
    for kind in variants::<v1::SessionUpdate>("sessionUpdate") {
        assert!(
            v1_kinds.contains(&kind),
            "v1 has {kind}, and there is no example of it"
        );
    }
    for kind in variants::<v2::SessionUpdate>("sessionUpdate") {
        assert!(
            v1_kinds.contains(&kind) || v2_kinds.contains(&kind),
            "v2 has {kind}, and there is no example"
        );
    }
    for example in UPDATES {
        serde_json::from_str::<v1::SessionUpdate>(example)
            .unwrap_or_else(|error| panic!("{error}: {example}"));
    }
    for example in V2_UPDATES {
        let update = serde_json::from_str::<v2::SessionUpdate>(example);
        assert!(
            !matches!(update, Err(_) | Ok(v2::SessionUpdate::Other(_))),
            "{example}"
        );
    }
}

#[test]
fn every_method_of_agents_has_an_example() {
    // `session/update` has its kinds, `elicitation/complete` an event of its own; both are below.
    let examples: Vec<&str> = REQUESTS
        .iter()
        .map(|row| row.0)
        .chain(NOTIFICATIONS.iter().map(|row| row.0))
        .collect();
    for method in methods(&v1::CLIENT_METHOD_NAMES)
        .iter()
        .chain(&methods(&v2::CLIENT_METHOD_NAMES))
    {
        let own = ["session/update", "elicitation/complete"].contains(&method.as_str());
        assert!(
            own || examples.contains(&method.as_str()),
            "{method} has no example"
        );
    }
}

async fn fake() -> (Gateway, String) {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    (gateway, session)
}

fn notification(method: &str, params: &str) -> String {
    format!(r#"{{"params":{params},"_envelope": 1.10,"method":"{method}","jsonrpc":"2.0"}}"#)
}

#[tokio::test]
async fn every_kind_of_update_passes_byte_for_byte() {
    let (gateway, session) = fake().await;
    let updates: Vec<String> = UPDATES
        .iter()
        .chain(V2_UPDATES)
        .map(|example| odd(example))
        .collect();
    let meta = odd(r#"{"traceparent":"x"}"#);
    let lines: Vec<String> = updates
        .iter()
        .map(|update| {
            let params = format!(
                r#"{{ "_meta" :{meta},"update": {update} ,"sessionId":"$SESSION","_p":[1e400],"_p":2}}"#
            );
            notification("session/update", &params)
        })
        .collect();
    assert_eq!(
        says(&gateway, &session, &lines).await.get("status"),
        "\"completed\""
    );
    let events: Vec<_> = log(&gateway, &session)
        .await
        .into_iter()
        .filter(|event| event.of("session.update"))
        .collect();
    let passed: Vec<&str> = events.iter().map(|event| event.get("update")).collect();
    assert_eq!(passed, updates);
    for event in &events {
        assert_eq!(
            (event.get("_meta"), event.get("more")),
            (&*meta, r#"{"_p":[1e400],"_p":2}"#)
        );
        assert_eq!(event.get("sessionId"), format!("\"{session}\""));
    }
}

#[tokio::test]
async fn duplicate_member_passes_where_it_is_not_used_for_routing() {
    let (gateway, session) = fake().await;
    let update = r#"{"n":1,"sessionUpdate":"notice","title":"a","title":"b","n":2}"#;
    let params = format!(r#"{{"sessionId":"$SESSION","update":{update}}}"#);
    says(
        &gateway,
        &session,
        &[notification("session/update", &params)],
    )
    .await;
    let events = log(&gateway, &session).await;
    let event = events
        .iter()
        .find(|event| event.of("session.update"))
        .expect("it passed");
    assert_eq!(event.get("update"), update);
}

#[tokio::test]
async fn other_notifications_pass_byte_for_byte_with_our_session_id() {
    let (gateway, session) = fake().await;
    let lines: Vec<String> = NOTIFICATIONS
        .iter()
        .map(|(method, params)| notification(method, &odd(params)))
        .collect();
    assert_eq!(
        says(&gateway, &session, &lines).await.get("status"),
        "\"completed\""
    );
    let events: Vec<_> = log(&gateway, &session)
        .await
        .into_iter()
        .filter(|event| event.of("extension"))
        .collect();
    assert_eq!(events.len(), NOTIFICATIONS.len());
    for ((method, params), event) in NOTIFICATIONS.iter().zip(&events) {
        assert_eq!(event.get("method"), format!("\"{method}\""));
        assert_eq!(
            event.get("params"),
            odd(params).replace("$SESSION", &session)
        );
    }
}
