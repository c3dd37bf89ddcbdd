//! Terminals as people see them.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{gateway, play, prompt, shell};
use crate::support::Gateway;

async fn of(gateway: &Gateway, session: &str, terminal: &str) -> Value {
    gateway
        .get(&format!("/v1/sessions/{session}/terminals/{terminal}"))
        .await
}

#[tokio::test]
async fn they_are_listed_and_shown_also_after_a_restart() {
    let mut gateway = gateway();
    let session = gateway.session("fake").await;
    let steps = json!([
        shell("echo one; exit 1"),
        "wait",
        "release",
        shell("echo two é"),
        "wait"
    ]);
    play(&gateway, &session, &steps).await;
    let path = format!("/v1/sessions/{session}/terminals");
    let look = async |gateway: &Gateway| {
        let list = gateway.get(&path).await;
        let ids: Vec<&Value> = list["terminals"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|t| &t["terminalId"])
            .collect();
        assert_eq!(
            ids,
            [&json!("t2"), &json!("t1")],
            "the newest first: {list}"
        );
        assert_eq!(list["nextCursor"], Value::Null);
        assert!(
            list["terminals"][0].get("output").is_none(),
            "a list has no output"
        );
        let page = gateway.get(&format!("{path}?limit=1")).await;
        assert_eq!(
            (&page["terminals"][0]["terminalId"], &page["nextCursor"]),
            (&json!("t2"), &json!("t2"))
        );
        let page = gateway.get(&format!("{path}?limit=1&cursor=t2")).await;
        assert_eq!(
            (&page["terminals"][0]["terminalId"], &page["nextCursor"]),
            (&json!("t1"), &Value::Null)
        );

        let one = of(gateway, &session, "t1").await;
        assert_eq!(one["exitStatus"], json!({ "exitCode": 1, "signal": null }));
        assert_eq!(
            (&one["command"], &one["promptId"]),
            (&json!("sh"), &json!("p1"))
        );
        assert_eq!(one["args"], json!(["-c", "echo one; exit 1"]));
        assert_eq!(one["output"], "one\n");
        let two = of(gateway, &session, "t2").await;
        assert_eq!(
            (&two["output"], &two["offset"], &two["truncated"]),
            (&json!("two é\n"), &json!(0), &json!(false))
        );
        (one, two)
    };
    let before = look(&gateway).await;
    assert_eq!(gateway.stop(), Some(0));
    gateway.start();
    assert_eq!(look(&gateway).await, before);
}

#[tokio::test]
async fn a_running_one_is_exact_at_its_cursor() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let script = "for i in $(seq 1 150); do echo line $i; sleep 0.02; done";
    gateway
        .prompt(&session, &prompt(&json!([shell(script), "wait"])))
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "terminal.output")
        .await;
    let shown = of(&gateway, &session, "t1").await;
    assert_eq!(shown["exitStatus"], Value::Null);
    let after = shown["lastEventId"].as_str().expect("a cursor");
    gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let rest = gateway
        .get(&format!(
            "/v1/sessions/{session}/events?after={after}&types=terminal."
        ))
        .await;
    let mut text = shown["output"].as_str().expect("text").to_owned();
    for event in rest["events"].as_array().expect("events") {
        if event["type"] == "terminal.output" {
            assert_eq!(event["offset"], text.len(), "no gap and no double: {event}");
            text += event["data"].as_str().expect("text");
        }
    }
    let whole: Vec<String> = (1..=150)
        .map(|number: u32| format!("line {number}\n"))
        .collect();
    let whole = whole.concat();
    assert_eq!(text, whole);
    assert_eq!(of(&gateway, &session, "t1").await["output"], whole);
}

#[tokio::test]
async fn the_window_has_the_last_bytes() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    play(&gateway, &session, &json!([shell("seq 1 200000"), "wait"])).await;
    let shown = of(&gateway, &session, "t1").await;
    let output = shown["output"].as_str().expect("text");
    let whole = 1_288_895;
    assert!(output.ends_with("\n200000\n") && output.len() == 1 << 20);
    assert_eq!(
        (&shown["offset"], &shown["truncated"]),
        (&json!(whole - (1 << 20)), &json!(true))
    );
}

#[tokio::test]
async fn client_kills_a_running_command() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    gateway
        .prompt(
            &session,
            &prompt(&json!([shell("echo up; exec sleep 60"), "wait", "output"])),
        )
        .await;
    gateway
        .log_until(&session, |event| event["type"] == "terminal.output")
        .await;
    let path = format!("/v1/sessions/{session}/terminals/t1/kill");
    assert_eq!(
        gateway.call(Method::POST, &path).await.status,
        StatusCode::NO_CONTENT
    );
    let turn = gateway
        .log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let agent_text = crate::support::log::agent_text(&turn);
    assert!(
        agent_text.contains(r#"wait {"exitCode":null,"signal":"SIGKILL"}"#),
        "{agent_text}"
    );
    assert_eq!(
        gateway.call(Method::POST, &path).await.status,
        StatusCode::NO_CONTENT,
        "it has ended"
    );
}

#[tokio::test]
async fn missing_file_is_not_found() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let terminals = format!("/v1/sessions/{session}/terminals");
    assert_eq!(
        gateway.get(&terminals).await,
        json!({ "terminals": [], "nextCursor": null })
    );
    for name in ["t1", "t0", "x", "1"] {
        gateway
            .call(Method::GET, &format!("{terminals}/{name}"))
            .await
            .problem(404, "not_found");
        gateway
            .call(Method::POST, &format!("{terminals}/{name}/kill"))
            .await
            .problem(404, "not_found");
    }
    for query in ["limit=0", "limit=201", "cursor=p1", "more=1"] {
        gateway
            .call(Method::GET, &format!("{terminals}?{query}"))
            .await
            .problem(422, "invalid");
    }
}
