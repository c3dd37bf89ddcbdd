//! Notifications to processes.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::{Log, PATH, announce, reached, reasons, send};
use crate::key_life::by;
use crate::route_walk::operations::UNKNOWN;
use crate::route_walk::principals::foreign_key;
use crate::support::places::claude_cli;
use crate::support::wait::{LONGEST, eventually};
use crate::support::{Answer, Setup};

#[tokio::test]
async fn every_process_gets_the_notification_once() {
    let log = Log::new();
    let gateway = Setup::fake(&["--log", log.path()]).start();
    let one = gateway.session("fake").await;
    let two = gateway.session("fake").await;
    gateway.prompt(&two, "hang").await;
    let body = json!({ "type": "context_update", "content": "a \"new\"\nbranch", "to": "all" });
    let report = send(&gateway, &body).await;
    assert_eq!(
        (&report["type"], &report["notReached"]),
        (&json!("context_update"), &json!([]))
    );
    assert_eq!(reached(&report).len(), 2, "{report}");
    let status = gateway.get("/v1/agents/fake/status").await;
    let processes = status["processes"].as_array().expect("a list");
    assert_eq!(processes.len(), 2, "{status}");
    // The turn shows which process has which session: either one may have started first.
    for process in processes {
        let runs = process["currentTask"]["sessionId"] == two.as_str();
        let session = if runs { &two } else { &one };
        let expected = json!({
            "kind": "agent", "name": "fake", "agentId": process["agentId"], "sessionId": session, "delivery": "written",
        });
        assert!(reached(&report).contains(&expected), "{report} {expected}");
    }
    let received = eventually("both processes have read the line", LONGEST, || async {
        Some(log.broadcasts()).filter(|received| received.len() == 2)
    })
    .await;
    for params in received {
        assert_eq!(
            (&params["type"], &params["content"]),
            (&body["type"], &body["content"])
        );
        assert_eq!(
            (&params["from"], &params["broadcastId"]),
            (&json!("owner"), &report["id"])
        );
        assert!(params["at"].is_string(), "{params}");
        assert_eq!(
            params["_meta"]["acp-gateway"]["broadcast"]["id"],
            report["id"]
        );
    }
    // The turn of the session continues, and the sessions have no events of the broadcast.
    gateway
        .post(&format!("/v1/sessions/{two}/cancel"), &json!({}))
        .await;
    gateway.turn(&one, "echo after").await;
    gateway.lawful(&one).await;
}

#[tokio::test]
async fn process_that_several_targets_select_gets_one_line() {
    let log = Log::new();
    let gateway = Setup::fake(&["--log", log.path()]).start();
    let session = gateway.session("fake").await;
    // An agent of the configuration is no member.
    let to = json!({ "agents": ["fake", "fake"], "sessions": [session], "members": ["fake"] });
    let report = announce(&gateway, &to).await;
    assert_eq!(reasons(&report), ["unknown"], "{report}");
    let kinds: Vec<&Value> = reached(&report).iter().map(|item| &item["kind"]).collect();
    assert_eq!(kinds, ["agent", "session"], "{report}");
    gateway
        .turn(&session, "echo the line before was read")
        .await;
    assert_eq!(log.broadcasts().len(), 1);
}

#[tokio::test]
async fn targets_without_a_process_are_named_with_their_reasons() {
    let gateway = Setup::fake(&[]).start();
    let to = json!({ "agents": ["nobody", "fake"], "sessions": [UNKNOWN], "members": ["nobody"] });
    let report = announce(&gateway, &to).await;
    assert_eq!(reached(&report).len(), 0);
    assert_eq!(
        reasons(&report),
        ["no_process", "unknown", "unknown", "unknown"],
        "{report}"
    );
    assert_eq!(
        announce(&gateway, &json!("all")).await["notReached"],
        json!([])
    );
    // A process that has ended is no target any more.
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "crash").await;
    eventually("the process has ended", LONGEST, || async {
        let status = gateway.get("/v1/agents/fake/status").await;
        (status["processes"] == json!([])).then_some(())
    })
    .await;
    let report = announce(
        &gateway,
        &json!({ "agents": ["fake"], "sessions": [session] }),
    )
    .await;
    assert_eq!(
        (reached(&report).len(), reasons(&report)),
        (0, vec!["no_process", "no_process"]),
        "{report}"
    );
}

#[tokio::test]
async fn other_tenants_get_nothing() {
    let log = Log::new();
    let gateway = Setup::fake(&["--log", log.path()]).start();
    let session = gateway.session("fake").await;
    let foreign = foreign_key(&gateway).await;
    for (to, expected) in [
        (json!("all"), vec![]),
        (
            json!({ "agents": ["fake"], "sessions": [session] }),
            vec!["no_process", "unknown"],
        ),
    ] {
        for form in ["notification", "prompt"] {
            let body = json!({ "type": "custom", "content": "x", "to": to, "as": form });
            let request = by(&gateway, &foreign, Method::POST, PATH).json(&body);
            let answer = Answer::of(request).await;
            assert_eq!(
                (answer.status.as_u16(), reached(&answer.body).len()),
                (200, 0),
                "{}",
                answer.body
            );
            let reasons = reasons(&answer.body);
            let expected: Vec<&str> = match form {
                "prompt" if !expected.is_empty() => vec!["no_session", "unknown"],
                _ => expected.clone(),
            };
            assert_eq!(reasons, expected, "{}", answer.body);
        }
    }
    gateway
        .turn(&session, "echo the lines before were read")
        .await;
    assert_eq!(log.broadcasts().len(), 0);
    assert_eq!(
        gateway
            .get(&format!("/v1/sessions/{session}/prompts"))
            .await["prompts"][1],
        Value::Null
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn process_that_does_not_read_is_not_reached_in_time() {
    let log = Log::new();
    let gateway = Setup::fake(&["--log", log.path()]).start();
    let deaf = gateway.session("fake").await;
    let other = gateway.session("fake").await;
    gateway.turn(&deaf, "deaf").await;
    // The process reads the beginning of one more line, and its pipe has room for a part of the other one.
    let content = "x".repeat(64 << 10);
    let body = json!({ "type": "custom", "content": content, "to": { "sessions": [deaf, other] } });
    let began = Instant::now();
    let (first, second) = tokio::join!(send(&gateway, &body), send(&gateway, &body));
    assert!(
        began.elapsed() < Duration::from_secs(15),
        "{:?}",
        began.elapsed()
    );
    for report in [&first, &second] {
        let is_reached = |session: &str| {
            reached(report)
                .iter()
                .any(|item| item["sessionId"] == *session)
        };
        assert!(is_reached(&other), "{report}");
    }
    let late = [&first, &second]
        .into_iter()
        .find(|report| !reasons(report).is_empty())
        .expect("one is late");
    let item = &late["notReached"][0];
    assert_eq!(
        (&item["sessionId"], &item["reason"]),
        (&json!(deaf), &json!("timeout")),
        "{item}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn protocol_without_notifications_is_unsupported() {
    let more = "dialect = \"stream-json\"\nisolation = \"off\"";
    let gateway = Setup::fake(&[])
        .agent("other", "python3", &[&claude_cli()], more)
        .start();
    let session = gateway.session("other").await;
    let report = announce(&gateway, &json!({ "sessions": [session] })).await;
    assert_eq!(reasons(&report), ["unsupported"], "{report}");
    let body = json!({ "type": "custom", "content": "x", "to": { "sessions": [session] }, "as": "prompt" });
    let report = send(&gateway, &body).await;
    assert_eq!(reached(&report)[0]["delivery"], "queued", "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_agent_ignores_a_notification() {
    let gateway = Setup::default()
        .table("[agents.demo]\nbuiltin = \"demo\"")
        .start();
    let session = gateway.session("demo").await;
    let report = announce(&gateway, &json!({ "agents": ["demo"] })).await;
    assert!(
        reached(&report)
            .iter()
            .any(|item| item["sessionId"] == *session),
        "{report}"
    );
    assert_eq!(gateway.turn(&session, "hello").await["status"], "completed");
}
