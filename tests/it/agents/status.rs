//! The processes of an agent: `GET /v1/agents/{agent}/status`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::key_life::{by, key};
use crate::route_walk::principals::foreign_key;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Gateway, Setup};

const STATUS: &str = "/v1/agents/fake/status";

async fn processes(gateway: &Gateway) -> Vec<Value> {
    gateway.get(STATUS).await["processes"]
        .as_array()
        .expect("a list")
        .clone()
}

/// Waits until the states of the processes are these, the oldest first.
async fn in_states(gateway: &Gateway, states: &[&str]) -> Vec<Value> {
    eventually(&format!("the states {states:?}"), LONGEST, || async {
        let found = processes(gateway).await;
        let is_equal = found.len() == states.len()
            && found
                .iter()
                .zip(states)
                .all(|(process, state)| process["state"] == *state);
        is_equal.then_some(found)
    })
    .await
}

#[tokio::test]
async fn process_keeps_its_id_from_its_start_to_its_end() {
    let gateway = Setup::fake(&["--slow-start", "5000", "--close"]).start();
    assert_eq!(
        gateway.get(STATUS).await,
        json!({ "processes": [], "nextCursor": null })
    );
    let (created, starting) =
        tokio::join!(gateway.session("fake"), in_states(&gateway, &["starting"]));
    let id = &starting[0]["agentId"];
    assert!(
        id.is_string() && starting[0]["currentTask"].is_null(),
        "{starting:?}"
    );

    let idle = in_states(&gateway, &["idle"]).await;
    assert_eq!(
        (&idle[0]["agentId"], &idle[0]["currentTask"]),
        (id, &Value::Null)
    );
    let prompt = gateway.prompt(&created, "hang").await;
    let busy = in_states(&gateway, &["busy"]).await;
    assert_eq!(&busy[0]["agentId"], id);
    let task = &busy[0]["currentTask"];
    assert_eq!(
        (&task["sessionId"], &task["promptId"]),
        (&json!(created), &prompt["promptId"])
    );
    assert!(
        task["startedAt"].as_str() >= prompt["createdAt"].as_str(),
        "{task} {prompt}"
    );

    gateway
        .post(&format!("/v1/sessions/{created}/cancel"), &json!({}))
        .await;
    let idle = in_states(&gateway, &["idle"]).await;
    assert_eq!(
        (&idle[0]["agentId"], &idle[0]["currentTask"]),
        (id, &Value::Null)
    );
    // The next session uses the same process.
    gateway
        .post(&format!("/v1/sessions/{created}/close"), &json!({}))
        .await;
    in_states(&gateway, &["idle"]).await;
    gateway.session("fake").await;
    assert_eq!(&in_states(&gateway, &["idle"]).await[0]["agentId"], id);
    eventually("the process is a second old", LONGEST, || async {
        (processes(&gateway).await[0]["uptimeSeconds"].as_u64()? >= 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn ended_process_is_replaced_by_another_one() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let first = in_states(&gateway, &["idle"]).await;
    gateway.prompt(&session, "crash").await;
    in_states(&gateway, &[]).await;
    gateway.turn(&session, "echo again").await;
    let second = in_states(&gateway, &["idle"]).await;
    assert_ne!(first[0]["agentId"], second[0]["agentId"]);
}

#[tokio::test]
async fn other_tenants_and_unknown_agents_have_no_processes() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "hang").await;
    in_states(&gateway, &["busy"]).await;
    let foreign = foreign_key(&gateway).await;
    let answer = Answer::of(by(&gateway, &foreign, Method::GET, STATUS)).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["processes"]),
        (200, &json!([])),
        "{}",
        answer.body
    );
    let reader = key(&gateway, "reader", "read").await;
    assert_eq!(
        Answer::of(by(&gateway, &reader, Method::GET, STATUS))
            .await
            .status,
        200
    );
    let writer = key(&gateway, "writer", "prompt").await;
    Answer::of(by(&gateway, &writer, Method::GET, STATUS))
        .await
        .problem(403, "forbidden");
    gateway
        .call(Method::GET, "/v1/agents/nobody/status")
        .await
        .problem(404, "not_found");
    gateway
        .call(Method::GET, &format!("{STATUS}?x=1"))
        .await
        .problem(422, "invalid");
}
