//! Members of the fleet.

use serde_json::json;

use super::{Log, announce, reached, reasons, send};
use crate::fleet::cca::connected;
use crate::fleet::{Member, address, session};
use crate::support::Setup;
use crate::support::gateway::KEY;
use crate::support::places::fake_agent;
use crate::support::wait::{LONGEST, eventually};

#[tokio::test(flavor = "multi_thread")]
async fn process_of_a_member_gets_the_notification() {
    let log = Log::new();
    let gateway = Setup::fake(&[]).start();
    let url = format!("ws://{}/v1/fleet/connect", address(&gateway));
    let command = [fake_agent(), "--resume", "--log", log.path()];
    let member = Member::run(&url, ("laptop", KEY), &[], &command);
    let created = session(&gateway, &member, "laptop").await;
    let report = announce(&gateway, &json!({ "members": ["laptop"] })).await;
    let process = gateway.get("/v1/agents/laptop/status").await["processes"][0].clone();
    assert_eq!(process["state"], "idle");
    let expected = json!({
        "kind": "member", "name": "laptop", "agentId": process["agentId"], "sessionId": created, "delivery": "received",
    });
    assert_eq!(report["reached"], json!([expected]), "{report}");
    gateway
        .turn(&created, "echo the line before was read")
        .await;
    assert_eq!(log.broadcasts()[0]["broadcastId"], report["id"]);

    drop(member);
    eventually("the member is not connected", LONGEST, || async {
        let fleet = gateway.get("/v1/fleet").await;
        (fleet["members"][0]["state"] != "connected").then_some(())
    })
    .await;
    let report = announce(
        &gateway,
        &json!({ "members": ["laptop"], "agents": ["laptop"] }),
    )
    .await;
    assert_eq!(
        reasons(&report),
        ["disconnected", "disconnected"],
        "{report}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn member_without_acp_gets_one_message_for_all_its_processes() {
    let gateway = Setup::fake(&[]).start();
    let mut worker = connected(&gateway).await;
    // Without a process.
    let report = announce(&gateway, &json!({ "members": ["worker"] })).await;
    assert_eq!(
        report["reached"],
        json!([{ "kind": "member", "name": "worker", "delivery": "sent" }]),
        "{report}"
    );
    let message = worker.next("broadcast").await;
    assert_eq!(
        (&message["broadcast_type"], &message["content"]),
        (&json!("announcement"), &json!("hello"))
    );
    assert_eq!(
        (&message["from"], &message["broadcast_id"]),
        (&json!("owner"), &report["id"])
    );
    assert!(
        message["at"].is_string() && message["id"].is_null(),
        "{message}"
    );

    let one = gateway.session("worker").await;
    let two = gateway.session("worker").await;
    let to = json!({ "sessions": [one, two], "agents": ["worker"] });
    let report = announce(&gateway, &to).await;
    assert_eq!(
        (reached(&report).len(), reasons(&report).len()),
        (3, 0),
        "{report}"
    );
    let all = announce(&gateway, &json!("all")).await;
    assert_eq!(reached(&all).len(), 1, "{all}");
    for expected in [&report, &all] {
        assert_eq!(
            worker.next("broadcast").await["broadcast_id"],
            expected["id"]
        );
    }

    let body =
        json!({ "type": "custom", "content": "x", "to": { "sessions": [one] }, "as": "prompt" });
    send(&gateway, &body).await;
    let task = worker.next("task_assign").await;
    assert_eq!(task["description"], "[broadcast custom from owner]\n\nx");
    worker.finish(&task, json!({ "output": "done" })).await;

    drop(worker);
    eventually("the member is not connected", LONGEST, || async {
        let fleet = gateway.get("/v1/fleet").await;
        (fleet["members"][0]["state"] != "connected").then_some(())
    })
    .await;
    let report = announce(&gateway, &json!({ "members": ["worker"] })).await;
    assert!(
        reasons(&report)
            .iter()
            .all(|reason| *reason == "disconnected"),
        "{report}"
    );
    assert_eq!(reached(&report).len(), 0);
}
