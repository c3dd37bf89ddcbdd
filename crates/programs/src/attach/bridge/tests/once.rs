//! Cuts, and the messages that the gateway must not handle twice.

use super::*;

fn fork() -> Value {
    json!({ "id": 5, "method": "session/fork", "params": { "sessionId": "s", "cwd": "/w", "mcpServers": [] } })
}

#[test]
fn extension_that_was_sent_before_a_cut_fails_and_does_not_run_again() {
    for is_posted in [true, false] {
        let mut test = Test::with_session();
        test.editor(&json!({ "id": 7, "method": "_vendor/run", "params": { "sessionId": "s" } }));
        test.editor(&json!({ "id": 8, "method": "_vendor/run", "params": { "sessionId": "s" } }));
        assert_eq!(test.next().unwrap()["id"], "b-2");
        // The response can be lost after the gateway has accepted the message, or with the connection.
        if is_posted {
            test.bridge.posted(Ok(()));
            test.bridge.lost();
        } else {
            test.bridge.posted(Err(PostError::Lost));
        }
        test.connect();
        let lines = test.lines();
        assert_eq!(
            (&lines[0]["id"], &lines[0]["error"]["code"]),
            (&json!(7), &json!(-32603)),
            "{lines:?}"
        );
        assert!(
            lines[0]["error"]["message"]
                .as_str()
                .unwrap()
                .contains("outcome of this request is unknown")
        );
        assert_eq!(ids(&test.sent()), ["b-4"]);
        test.result(None, "d.1", &json!("b-4"), &json!({}));
        assert_eq!(
            ids(&test.sent()),
            ["b-3"],
            "the second request was not sent before the cut"
        );
    }
}

#[test]
fn extension_that_the_gateway_cannot_have_handled_is_sent_again() {
    for error in [PostError::Gone, PostError::Busy] {
        let mut test = Test::connected();
        test.editor(&json!({ "id": 7, "method": "_vendor/run", "params": {} }));
        assert_eq!(test.next().unwrap()["id"], "b-1");
        let is_gone = error == PostError::Gone;
        test.bridge.posted(Err(error));
        test.collect();
        if is_gone {
            test.connect();
        }
        assert_eq!(ids(&test.sent()), ["b-1"]);
        assert_eq!(test.lines(), [] as [Value; 0]);
    }
}

#[test]
fn forks_and_new_sessions_are_sent_again_with_their_ids() {
    let mut test = Test::with_session();
    test.editor(
        &json!({ "id": 4, "method": "session/new", "params": { "cwd": "/w", "mcpServers": [] } }),
    );
    test.editor(&fork());
    assert_eq!(ids(&test.sent()), ["b-2", "b-3"]);
    test.bridge.lost();
    test.connect();
    assert_eq!(
        ids(&test.sent()),
        ["b-4", "b-2"],
        "the fork waits for its session"
    );
    test.result(None, "d.1", &json!("b-4"), &json!({}));
    let sent = test.sent();
    assert_eq!(
        (ids(&sent), &sent[0]["method"]),
        (vec!["b-3"], &json!("session/fork"))
    );
    test.result(None, "d.2", &json!("b-3"), &json!({ "sessionId": "t" }));
    assert_eq!(test.lines().last().unwrap()["result"]["sessionId"], "t");
}

#[test]
fn notification_in_flight_at_a_cut_is_not_sent_again() {
    let mut test = Test::connected();
    test.editor(&json!({ "method": "_vendor/first", "params": {} }));
    test.editor(&json!({ "method": "_vendor/second", "params": {} }));
    assert_eq!(test.next().unwrap()["method"], "_vendor/first");
    test.bridge.posted(Err(PostError::Lost));
    test.collect();
    test.connect();
    let sent = test.sent();
    assert_eq!(
        sent.iter()
            .map(|message| &message["method"])
            .collect::<Vec<_>>(),
        ["_vendor/second"]
    );
}

#[test]
fn cancel_in_flight_at_a_cut_cancels_only_the_prompts_before_it() {
    let mut test = Test::with_session();
    test.prompt(7);
    assert_eq!(ids(&test.sent()), ["b-2"]);
    test.editor(&json!({ "method": "session/cancel", "params": { "sessionId": "s" } }));
    test.prompt(8);
    assert_eq!(test.next().unwrap()["method"], "session/cancel");
    test.bridge.posted(Err(PostError::Lost));
    test.collect();
    test.connect();
    test.sent();
    test.result(None, "d.1", &json!("b-4"), &json!({}));
    let sent = test.sent();
    assert_eq!(ids(&sent), ["b-2", "none", "b-3"], "{sent:?}");
    assert_eq!(
        (&sent[1]["method"], &sent[1]["params"]),
        (&json!("$/cancel_request"), &json!({ "requestId": "b-2" }))
    );
}

#[test]
fn attached_session_is_attached_again_with_its_role() {
    let mut test = Test::connected();
    let params = json!({ "sessionId": "s", "role": "observer", "historyPolicy": "pending_only" });
    test.editor(&json!({ "id": 1, "method": "session/attach", "params": params }));
    assert_eq!(test.effects(), ["open s"]);
    assert_eq!(
        test.next(),
        None,
        "the response follows on the stream of the session"
    );
    test.bridge.opened("s");
    assert_eq!(ids(&test.sent()), ["b-1"]);
    test.result(
        Some("s"),
        "k3-4.0/c.1",
        &json!("b-1"),
        &json!({ "role": "observer" }),
    );
    assert_eq!(test.lines()[0]["result"]["role"], "observer");
    test.bridge.lost();
    test.connect();
    let sent = test.sent();
    assert_eq!(sent[0]["method"], "session/attach");
    let expected = json!({ "sessionId": "s", "role": "observer", "historyPolicy": "none" });
    assert_eq!(sent[0]["params"], expected);
    test.effects();
    test.result(None, "d.1", &sent[0]["id"], &json!({}));
    assert_eq!(test.effects(), ["open s after k3-4.0/c.1"]);
    // Without a history of its own, a detached session is not restored.
    test.editor(&json!({ "id": 2, "method": "session/detach", "params": { "sessionId": "s" } }));
    let sent = test.sent();
    test.result(
        None,
        "d.2",
        &sent[0]["id"],
        &json!({ "sessionId": "s", "status": "detached" }),
    );
    assert_eq!(test.effects(), ["close s"]);
    assert_eq!(test.lines()[0]["result"]["status"], "detached");
    test.bridge.lost();
    test.connect();
    assert_eq!(test.sent(), [] as [Value; 0]);
}

#[test]
fn detach_ends_the_prompts_of_the_session() {
    let mut test = Test::with_session();
    test.prompt(7);
    test.editor(&json!({ "id": 8, "method": "session/detach", "params": { "sessionId": "s" } }));
    assert_eq!(ids(&test.sent()), ["b-2", "b-3"]);
    test.result(
        None,
        "c.2",
        &json!("b-3"),
        &json!({ "sessionId": "s", "status": "detached" }),
    );
    let lines = test.lines();
    assert_eq!(
        (&lines[0]["id"], &lines[0]["result"]["status"]),
        (&json!(8), &json!("detached"))
    );
    assert_eq!(
        (&lines[1]["id"], &lines[1]["error"]["code"]),
        (&json!(7), &json!(-32603))
    );
}
