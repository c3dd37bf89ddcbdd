//! A restart keeps the changes of queued prompts: their content and their order.

use reqwest::Method;
use serde_json::{Value, json};

use super::queued::{ended, hanging, journals, judge, of, queue, reconfigure, setup};
use crate::prompts::changes::change;
use crate::support::Gateway;
use crate::support::log::all;
use crate::support::wait::{LONGEST, eventually};

/// Queues three prompts, changes them, ends the gateway twice, and sees them run with their last content in their last order.
async fn changed_run_after(end: impl AsyncFn(&mut Gateway)) {
    let journals = journals();
    let mut gateway = setup(&journals, "", "timeouts.drain_timeout = \"300ms\"").start();
    let session = hanging(&gateway).await;
    for text in ["stream n=1 size=8; hang", "echo b", "echo c", "echo d"] {
        assert_eq!(
            queue(&gateway, &session, text, None).await.status.as_u16(),
            202
        );
    }
    let cwd = gateway.get_session(&session).await["cwd"]
        .as_str()
        .expect("a path")
        .to_owned();
    let file = std::path::Path::new(&cwd).join("note.txt");
    std::fs::write(&file, "a note that was attached").expect("the folder is there");
    for (prompt, body) in [
        ("p4", json!({ "prompt": "echo once" })),
        (
            "p4",
            json!({ "prompt": "echo twice", "attachments": [{ "path": "note.txt" }], "before": "p3" }),
        ),
        ("p3", json!({ "before": null })),
    ] {
        assert_eq!(change(&gateway, &session, prompt, &body).await.status, 200);
    }
    std::fs::remove_file(&file).expect("it was there");
    end(&mut gateway).await;
    gateway.start();
    // The first one runs, and a change after the restart is kept by the next one.
    gateway
        .log_until(&session, |event| {
            event["type"] == "session.update" && event["promptId"] == "p2"
        })
        .await;
    assert_eq!(
        gateway.get_session(&session).await["queued"],
        json!(["p4", "p5", "p3"])
    );
    let answer = change(
        &gateway,
        &session,
        "p5",
        &json!({ "prompt": "echo last", "before": null }),
    )
    .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    end(&mut gateway).await;
    gateway.start();
    for (prompt, text) in [("p4", "twice"), ("p3", "b"), ("p5", "last")] {
        assert_eq!(ended(&gateway, &session, prompt).await["text"], text);
    }
    let events = gateway.lawful(&session).await;
    let started: Vec<&Value> = all(&events, "prompt.started")
        .iter()
        .map(|e| &e["promptId"])
        .collect();
    assert_eq!(
        started,
        ["p1", "p2", "p4", "p3", "p5"],
        "each of them once, in the order of the queue"
    );
    let edits = of(&events, "prompt.changed", "p4");
    assert_eq!(
        edits[1]["prompt"][1]["resource"]["text"], "a note that was attached",
        "{edits:?}"
    );
    judge(&gateway, &[&session], &journals).await;
}

#[tokio::test]
async fn changes_survive_a_kill() {
    changed_run_after(async |gateway| gateway.kill()).await;
}

#[tokio::test]
async fn changes_survive_a_drain() {
    changed_run_after(async |gateway| assert_eq!(gateway.stop(), Some(0), "{}", gateway.log()))
        .await;
}

#[tokio::test]
async fn a_waiting_prompt_that_a_drain_returned_can_be_changed() {
    let journals = journals();
    let pool = "pool = { max_size = 1, min_idle = 0 }";
    let mut gateway = setup(&journals, pool, "timeouts.drain_timeout = \"300ms\"").start();
    let sessions = [gateway.session("fake").await, gateway.session("fake").await];
    let holder = hanging(&gateway).await;
    for session in &sessions {
        for text in ["stream n=1 size=8; hang", "echo second", "echo third"] {
            assert_eq!(
                queue(&gateway, session, text, None).await.status.as_u16(),
                202
            );
        }
    }
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    // One of the two sessions runs its prompt, and that of the other one waits in the queue.
    reconfigure(
        &gateway,
        &[(
            "limits.per_key.max_live_sessions = 200",
            "limits.per_key.max_live_sessions = 1",
        )],
    );
    gateway.start();
    let (runs, behind) = eventually("one of them runs", LONGEST, || async {
        for (runs, behind) in [(&sessions[0], &sessions[1]), (&sessions[1], &sessions[0])] {
            let events = gateway.all_events(runs).await;
            if events.iter().any(|event| event["type"] == "session.update") {
                return Some((runs, behind));
            }
        }
        None
    })
    .await;
    assert_eq!(
        gateway.get_session(behind).await["queued"],
        json!(["p1", "p2", "p3"])
    );
    for (prompt, body) in [
        ("p3", json!({ "before": "p1" })),
        ("p1", json!({ "prompt": "echo changed" })),
    ] {
        assert_eq!(change(&gateway, behind, prompt, &body).await.status, 200);
    }
    assert_eq!(
        gateway.get_session(behind).await["queued"],
        json!(["p3", "p1", "p2"])
    );
    gateway
        .call(Method::POST, &format!("/v1/sessions/{runs}/close"))
        .await;
    for (prompt, text) in [("p3", "third"), ("p1", "changed"), ("p2", "second")] {
        assert_eq!(ended(&gateway, behind, prompt).await["text"], text);
    }
    judge(&gateway, &[runs, behind, &holder], &journals).await;
}
