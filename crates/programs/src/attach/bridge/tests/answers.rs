//! Answers of the editor that the gateway does not accept.

use super::*;

/// A request of the agent that the editor has received.
fn with_request() -> Test {
    let mut test = Test::with_session();
    let request =
        json!({ "jsonrpc": "2.0", "id": "s:r1", "method": "fs/read_text_file", "params": {} });
    test.gateway(Some("s"), "k3-4.1/c.0", &request);
    assert_eq!(test.lines().len(), 1);
    test
}

fn answer(bytes: usize) -> Value {
    json!({ "id": "s:r1", "result": { "content": "x".repeat(bytes) } })
}

fn assert_failed(sent: &[Value], reason: &str) {
    assert_eq!(
        (sent.len(), &sent[0]["id"]),
        (1, &json!("s:r1")),
        "{sent:?}"
    );
    assert_eq!(sent[0]["error"]["code"], -32603);
    assert!(
        sent[0]["error"]["message"]
            .as_str()
            .unwrap()
            .contains(reason),
        "{sent:?}"
    );
}

#[test]
fn rejected_answer_is_replaced_by_an_error_once() {
    let mut test = with_request();
    test.editor(&answer(8));
    assert_eq!(test.next().unwrap()["result"]["content"], "xxxxxxxx");
    for expected in [true, false] {
        test.bridge
            .posted(Err(PostError::Rejected("413: too large".to_owned())));
        test.collect();
        match test.next() {
            Some(sent) => {
                assert!(expected);
                assert_failed(&[sent], "413: too large");
            }
            None => assert!(!expected),
        }
    }
    assert!(!test.bridge.has_unsent());
}

#[test]
fn large_answer_that_ends_connections_is_replaced_by_an_error() {
    let mut test = with_request();
    test.editor(&answer(1 << 20));
    for attempt in 1..=3 {
        while let Some(sent) = test.next() {
            let is_answer = sent["id"] == "s:r1";
            let id = sent["id"].clone();
            test.bridge.posted(if is_answer {
                Err(PostError::Lost)
            } else {
                Ok(())
            });
            if is_answer {
                assert!(sent["error"].is_null(), "attempt {attempt}");
                break;
            }
            test.result(None, "d.1", &id, &json!({}));
        }
        test.collect();
        test.connect();
    }
    let restore = test.next().unwrap();
    test.bridge.posted(Ok(()));
    test.result(None, "d.9", &restore["id"], &json!({}));
    assert_failed(&test.sent(), "does not accept a message of");
}

#[test]
fn answer_without_room_is_replaced_by_an_error() {
    let mut test = with_request();
    for id in 0..2000 {
        test.prompt(id);
    }
    test.editor(&answer(8));
    let sent: Vec<_> = test
        .sent()
        .into_iter()
        .filter(|sent| sent["id"] == "s:r1")
        .collect();
    assert_failed(&sent, "too many messages");
}
