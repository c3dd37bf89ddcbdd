//! Changes of queued prompts: their content and their place.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::queue::{busy, cancel, ended, queue};
use crate::key_life::key;
use crate::route_walk::principals::foreign_key;
use crate::support::log::{all, one};
use crate::support::{Answer, Gateway, Setup};

pub(crate) async fn change(gateway: &Gateway, session: &str, prompt: &str, body: &Value) -> Answer {
    let path = format!("/v1/sessions/{session}/prompts/{prompt}");
    Answer::of(gateway.request(Method::PATCH, &path).json(body)).await
}

/// A session with a turn that runs until a cancel, and `echo p2`, `echo p3`, ... behind it.
async fn with_queue(prompts: u32) -> (Gateway, String) {
    let (gateway, session) = busy(Setup::fake(&["--log", "received"])).await;
    for number in 2..2 + prompts {
        let answer = queue(&gateway, &session, &format!("echo p{number}")).await;
        assert_eq!(answer.status.as_u16(), 202, "{answer:?}");
    }
    (gateway, session)
}

/// The agent's own record of the messages that it received.
fn received(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("data/homes/default/fake/received"))
        .expect("the agent's own record")
}

/// Ends the running turn, and returns the prompts of the session in the order of their starts.
async fn started_after(gateway: &Gateway, session: &str, last: &str) -> Vec<String> {
    cancel(gateway, session, "/prompts/p1").await;
    ended(gateway, session, last).await;
    let events = gateway.lawful(session).await;
    let started = all(&events, "prompt.started");
    started
        .iter()
        .map(|event| event["promptId"].as_str().expect("an id").to_owned())
        .collect()
}

/// The queue as a reader of the log folds it.
fn folded(events: &[Value]) -> Vec<&str> {
    let mut queue: Vec<&str> = Vec::new();
    for event in events {
        let Some(prompt) = event["promptId"].as_str() else {
            continue;
        };
        match event["type"].as_str() {
            Some("prompt.queued") => queue.push(prompt),
            Some("prompt.changed") if event.get("before").is_some() => {
                queue.retain(|queued| *queued != prompt);
                let at = queue.iter().position(|queued| event["before"] == **queued);
                queue.insert(at.unwrap_or(queue.len()), prompt);
            }
            Some("prompt.started" | "prompt.completed" | "prompt.failed") => {
                queue.retain(|queued| *queued != prompt);
            }
            _ => {}
        }
    }
    queue
}

#[tokio::test]
async fn edited_prompt_is_sent_instead_of_the_previous_one() {
    let (gateway, session) = with_queue(1).await;
    let editor = key(&gateway, "editor", "read,prompt").await;
    let before = gateway.last_seq(&session).await;
    let path = format!("{}/v1/sessions/{session}/prompts/p2", gateway.url);
    for _ in 0..2 {
        let body = json!({ "prompt": [{ "type": "text", "text": "echo new" }] });
        let request = gateway.http.patch(&path).bearer_auth(&editor).json(&body);
        let answer = Answer::of(request).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.body["status"]),
            (200, &json!("queued")),
            "{answer:?}"
        );
        assert_eq!(
            answer.body,
            gateway
                .get(&format!("/v1/sessions/{session}/prompts/p2"))
                .await
        );
    }
    let events = gateway.all_events(&session).await;
    let changed = one(&events, "prompt.changed");
    assert_eq!(
        (&changed["promptId"], &changed["by"]),
        (&json!("p2"), &json!("owner"))
    );
    assert_eq!(
        changed["prompt"],
        json!([{ "type": "text", "text": "echo new" }])
    );
    assert_eq!(
        (changed["seq"].as_u64(), changed.get("before")),
        (Some(before + 1), None),
        "{changed}"
    );

    assert_eq!(
        change(
            &gateway,
            &session,
            "p2",
            &json!({ "prompt": "echo newest" })
        )
        .await
        .status,
        200
    );
    let turns = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await["turns"]
        .clone();
    assert_eq!(turns[0]["prompt"][0]["text"], "echo newest", "{turns}");
    assert_ne!(turns[0]["by"], "editor", "the sender stays");
    assert_eq!(started_after(&gateway, &session, "p2").await, ["p1", "p2"]);
    assert_eq!(ended(&gateway, &session, "p2").await["text"], "newest");
    let received = received(&gateway);
    assert!(
        received.contains("echo newest") && !received.contains("echo p2"),
        "{received}"
    );
    let turns = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await["turns"]
        .clone();
    assert_eq!(turns[0]["prompt"][0]["text"], "echo newest", "{turns}");
}

#[tokio::test]
async fn only_queued_prompts_can_be_changed() {
    let (gateway, session) = with_queue(2).await;
    cancel(&gateway, &session, "/prompts/p3").await;
    let before = gateway.all_events(&session).await;
    for body in [
        json!({ "prompt": "echo never" }),
        json!({ "before": null }),
        json!({}),
    ] {
        for (prompt, status, code) in [
            ("p1", 409, "prompt_not_queued"),
            ("p3", 409, "prompt_not_queued"),
            ("p9", 404, "not_found"),
        ] {
            let answer = change(&gateway, &session, prompt, &body).await;
            let problem = answer.problem(status, code);
            if status == 409 {
                assert_eq!(
                    (&problem["promptId"], &problem["retryable"]),
                    (&json!(prompt), &json!(false))
                );
            }
        }
    }
    // A change with a wrong part changes nothing.
    for (other, shown) in [("p1", "p1"), ("p3", "p3"), ("p9", "p9")] {
        let body = json!({ "prompt": "echo never", "before": other });
        let answer = change(&gateway, &session, "p2", &body).await;
        assert_eq!(answer.problem(409, "prompt_not_queued")["promptId"], shown);
    }
    assert_eq!(gateway.all_events(&session).await, before, "no event");
    started_after(&gateway, &session, "p2").await;
    assert_eq!(ended(&gateway, &session, "p2").await["text"], "p2");
    let closed =
        Answer::of(gateway.request(Method::POST, &format!("/v1/sessions/{session}/close"))).await;
    assert_eq!(closed.status, 200);
    change(&gateway, &session, "p2", &json!({ "before": null }))
        .await
        .problem(409, "prompt_not_queued");
}

#[tokio::test]
async fn agent_gets_moved_prompts_in_their_new_order() {
    let (gateway, session) = with_queue(5).await;
    let mut events = 0;
    for (prompt, before, order) in [
        ("p6", json!("p2"), ["p6", "p2", "p3", "p4", "p5"]),
        ("p6", json!("p2"), ["p6", "p2", "p3", "p4", "p5"]),
        ("p3", json!(null), ["p6", "p2", "p4", "p5", "p3"]),
        ("p3", json!(null), ["p6", "p2", "p4", "p5", "p3"]),
        ("p5", json!("p4"), ["p6", "p2", "p5", "p4", "p3"]),
        ("p6", json!("p4"), ["p2", "p5", "p6", "p4", "p3"]),
        ("p5", json!("p5"), ["p2", "p5", "p6", "p4", "p3"]),
        ("p2", json!("p3"), ["p5", "p6", "p4", "p2", "p3"]),
    ] {
        let was = gateway.get_session(&session).await["queued"].clone();
        let answer = change(&gateway, &session, prompt, &json!({ "before": before })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(
            gateway.get_session(&session).await["queued"],
            json!(order),
            "{prompt} before {before}"
        );
        events += usize::from(was != json!(order));
        let log = gateway.all_events(&session).await;
        assert_eq!(
            all(&log, "prompt.changed").len(),
            events,
            "a request without effect writes no event"
        );
        assert_eq!(folded(&log), order);
    }
    let both = json!({ "prompt": "echo last", "before": null });
    assert_eq!(change(&gateway, &session, "p5", &both).await.status, 200);
    let turns = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await["turns"]
        .clone();
    let shown = |turns: &Value| -> Vec<String> {
        let turns = turns.as_array().expect("turns");
        turns
            .iter()
            .map(|turn| turn["promptId"].as_str().expect("an id").to_owned())
            .collect()
    };
    assert_eq!(shown(&turns), ["p5", "p3", "p2", "p4", "p6", "p1"]);
    assert_eq!(
        started_after(&gateway, &session, "p5").await,
        ["p1", "p6", "p4", "p2", "p3", "p5"]
    );
    assert_eq!(ended(&gateway, &session, "p5").await["text"], "last");
    let received = received(&gateway);
    let places: Vec<_> = ["p6", "p4", "p2", "p3", "last"]
        .iter()
        .map(|text| received.find(&format!("echo {text}")))
        .collect();
    assert!(
        places.is_sorted() && places[0].is_some() && !received.contains("echo p5"),
        "{places:?} {received}"
    );
    let turns = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await["turns"]
        .clone();
    assert_eq!(
        shown(&turns),
        ["p5", "p3", "p2", "p4", "p6", "p1"],
        "the order of the turns stays"
    );
}

#[tokio::test]
async fn new_content_follows_the_rules_of_a_prompt() {
    let (gateway, session) = busy(Setup::fake(&[])).await;
    queue(&gateway, &session, "echo p2").await;
    let cwd = gateway.get_session(&session).await["cwd"]
        .as_str()
        .expect("a path")
        .to_owned();
    for (name, content) in [
        ("note.txt", "a note".to_owned()),
        ("large.txt", "x".repeat(11 << 20)),
    ] {
        std::fs::write(std::path::Path::new(&cwd).join(name), content)
            .expect("the folder is there");
    }
    let before = gateway.all_events(&session).await;
    let image = json!([{ "type": "image", "data": "AAAA", "mimeType": "image/png" }]);
    for (body, status, code, pointer) in [
        (
            json!({ "prompt": image }),
            422,
            "content_unsupported",
            "/prompt/0/type",
        ),
        (json!({ "prompt": [] }), 422, "invalid", "/prompt"),
        (json!({ "prompt": "" }), 422, "invalid", "/prompt"),
        (json!({ "prompt": null }), 422, "invalid", "/prompt"),
        (
            json!({ "prompt": "a", "attachments": [{ "path": "no.txt" }] }),
            422,
            "invalid",
            "/attachments/0/path",
        ),
        (
            json!({ "attachments": [{ "path": "no.txt" }] }),
            422,
            "invalid",
            "/attachments",
        ),
        (json!({ "before": 2 }), 422, "invalid", "/before"),
        (json!({ "queue": true }), 422, "invalid", ""),
        (
            json!({ "prompt": "a", "attachments": [{ "path": "large.txt", "as": "resource" }] }),
            413,
            "too_large",
            "",
        ),
    ] {
        let answer = change(&gateway, &session, "p2", &body).await;
        let problem = answer.problem(status, code);
        if !pointer.is_empty() {
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        }
    }
    let none = change(&gateway, &session, "p2", &json!({})).await;
    assert_eq!(
        (none.status.as_u16(), &none.body["promptId"]),
        (200, &json!("p2"))
    );
    assert_eq!(gateway.all_events(&session).await, before);

    let body = json!({ "prompt": "echo seen", "attachments": [{ "path": "note.txt" }] });
    assert_eq!(change(&gateway, &session, "p2", &body).await.status, 200);
    let events = gateway.all_events(&session).await;
    assert_eq!(
        one(&events, "prompt.changed")["prompt"][1]["resource"]["text"],
        "a note"
    );
}

#[tokio::test]
async fn change_needs_the_rights_of_a_prompt() {
    let (gateway, session) = with_queue(2).await;
    let reader = key(&gateway, "reader", "read,approve,files").await;
    let foreign = foreign_key(&gateway).await;
    let before = gateway.all_events(&session).await;
    for body in [json!({ "prompt": "echo never" }), json!({ "before": "p2" })] {
        let path = format!("{}/v1/sessions/{session}/prompts/p3", gateway.url);
        let by = |key: &str| Answer::of(gateway.http.patch(&path).bearer_auth(key).json(&body));
        by(&reader).await.problem(403, "forbidden");
        by(&foreign).await.problem(404, "not_found");
    }
    assert_eq!(gateway.all_events(&session).await, before);
}

/// A queued prompt is edited again and again while the turn before it ends. The agent gets the content of the last accepted
/// edit.
#[tokio::test]
async fn accepted_edit_and_the_previous_content_exclude_each_other() {
    let gateway = Setup::fake(&[])
        .settings(
            "limits.per_key.max_requests_per_minute = 100000\nlimits.per_key.max_prompts_per_minute = 10000",
        )
        .start();
    let mut late = 0;
    for round in 0..12 {
        let edited = tokio::sync::Notify::new();
        let session = gateway.session("fake").await;
        gateway.prompt(&session, "stream n=1 size=8; hang").await;
        gateway
            .log_until(&session, |event| event["type"] == "session.update")
            .await;
        queue(&gateway, &session, "echo first").await;
        let edits = async {
            let mut accepted = "first".to_owned();
            for edit in 0.. {
                let text = format!("r{round}e{edit}");
                let answer = change(
                    &gateway,
                    &session,
                    "p2",
                    &json!({ "prompt": format!("echo {text}") }),
                )
                .await;
                if answer.status == 409 {
                    answer.problem(409, "prompt_not_queued");
                    break;
                }
                assert_eq!(answer.status, 200, "{answer:?}");
                accepted = text;
                edited.notify_one();
            }
            accepted
        };
        let stop = async {
            // On a slow machine, the first edit may take longer than any of the pauses.
            if round >= 6 {
                edited.notified().await;
            }
            tokio::time::sleep(Duration::from_millis(7 * round)).await;
            cancel(&gateway, &session, "/prompts/p1").await
        };
        let (accepted, _) = tokio::join!(edits, stop);
        late += usize::from(accepted != "first");
        assert_eq!(
            ended(&gateway, &session, "p2").await["text"],
            accepted.as_str()
        );
        let events = gateway.lawful(&session).await;
        let last = all(&events, "prompt.changed")
            .last()
            .map(|event| event["prompt"][0]["text"].clone());
        assert!(last.is_none_or(|text| text == json!(format!("echo {accepted}"))));
    }
    assert!(
        late > 3,
        "edits were accepted before the start in {late} rounds"
    );
}
