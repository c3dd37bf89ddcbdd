//! Malformed lines, and the size of the retained state.

use super::{Fixture, Output};

#[test]
fn malformed_lines_are_typed_errors() {
    let mut fixture = Fixture::early();
    for (line, error) in [
        (
            "no json",
            "neither a request, a notification nor a response",
        ),
        ("[]", "neither a request, a notification nor a response"),
        (
            r#"{"method":"agent/update","params":[]}"#,
            "`agent/update` has no valid member `type`",
        ),
        (
            r#"{"method":"agent/update","params":{"sessionId":"s"}}"#,
            "`agent/update` has no valid member `updateType`",
        ),
        (
            r#"{"method":"agent/update","params":{"updateType":"response"}}"#,
            "`agent/update` has no valid member `content`",
        ),
        (
            r#"{"method":"session/update","params":{"update":{}}}"#,
            "`update` has no valid member `type`",
        ),
        (
            r#"{"method":"session/update","params":{"update":{"type":"message_delta"}}}"#,
            "`update` has no valid member `content`",
        ),
        (
            r#"{"method":"session/update","params":{"update":{"type":"tool_call_update"}}}"#,
            "`update` has no valid member `toolCallId`",
        ),
    ] {
        assert_eq!(fixture.try_receive(line).unwrap_err(), error, "{line}");
    }
    let deep = format!(
        "{{\"method\":\"m\",\"params\":{}{}}}",
        "[".repeat(40),
        "]".repeat(40)
    );
    assert_eq!(
        fixture.try_receive(&deep).unwrap_err(),
        "nested deeper than 32"
    );
}

#[test]
fn malformed_permission_request_is_answered_with_an_error() {
    let mut fixture = Fixture::early();
    let line = r#"{"id":7,"method":"session/request_permission","params":{"title":"T"}}"#;
    fixture.translator.line(line.as_bytes(), 32).unwrap_err();
    let out = std::mem::take(&mut fixture.translator.out);
    let [Output::ToAgent(answer)] = &out[..] else {
        panic!("{out:?}")
    };
    let answer = super::line_of(answer);
    assert!(
        answer.starts_with(r#"{"id":7,"error":{"code":-32602,"message":"Invalid params: "#),
        "{answer}"
    );
}

#[test]
fn answers_without_a_member_fail_their_call() {
    let mut fixture = Fixture::new();
    fixture.call("initialize", r#"{"clientCapabilities":{}}"#);
    let failed = fixture.receive(r#"{"id":1,"result":{"serverInfo":{}}}"#);
    assert_eq!(
        failed,
        ["error 1 -32603 Internal error: `initialize` has no valid member `protocolVersion`"]
    );

    let mut fixture = Fixture::new();
    fixture.call("initialize", r#"{"clientCapabilities":{}}"#);
    fixture.receive(r#"{"id":1,"result":{"protocolVersion":"1.0"}}"#);
    for id in [2, 3] {
        fixture.call("session/new", r#"{"cwd":"/w"}"#);
        let session = if id == 2 {
            "7".to_owned()
        } else {
            format!("\"{}\"", "x".repeat(5000))
        };
        let failed = fixture.receive(&format!(
            r#"{{"id":{id},"result":{{"sessionId":{session}}}}}"#
        ));
        let detail = "Internal error: `agent/createSession` has no valid member `sessionId`";
        assert_eq!(failed, [format!("error {id} -32603 {detail}")]);
    }

    let mut fixture = Fixture::early();
    fixture.prompt("hi");
    let failed = fixture.receive(r#"{"id":3,"result":{}}"#);
    assert_eq!(
        failed,
        ["error 3 -32603 Internal error: `agent/prompt` has no valid member `content`"]
    );
}

#[test]
fn other_messages_pass() {
    let mut fixture = Fixture::early();
    let vendor = fixture.receive(r#"{"method":"_vendor/note","params":{"a":1.10}}"#);
    assert_eq!(vendor, [r#"_vendor/note {"a":1.10}"#]);
    let unknown =
        r#"{"method":"agent/update","params":{"sessionId":"s","updateType":"cost","data":1.10}}"#;
    let expected = r#"agent/update {"sessionId":"s","updateType":"cost","data":1.10}"#;
    assert_eq!(fixture.receive(unknown), [expected]);
    assert!(
        fixture
            .receive(r#"{"id":null,"error":{"code":-32601,"message":"unknown"}}"#)
            .is_empty()
    );
    let parse_error = fixture.receive(r#"{"error":{"code":-32700,"message":"parse error"}}"#);
    assert_eq!(parse_error, ["error null -32700 parse error"]);
}

#[test]
fn large_prompt_is_not_retained_for_another_attempt() {
    let mut fixture = Fixture::modern();
    fixture.prompt(&"x".repeat(2 << 20));
    let kept = fixture
        .translator
        .turn
        .as_ref()
        .and_then(|turn| turn.attempt.params.as_ref());
    assert!(kept.is_none());
    let failed = fixture.receive(r#"{"id":3,"error":{"code":-32602,"message":"no"}}"#);
    assert_eq!(failed, ["error 3 -32602 no"]);
}
