//! Frames and messages of a member, as inputs and outputs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{CcaMember, Output};
use base::types::AgentDialect;
use wire::fleet::{Command, GatewayFrame, MemberFrame, MemberInfo};

const CHANNEL: Uuid = Uuid::from_u128(7);

struct Test {
    member: CcaMember,
    number: u64,
}

impl Test {
    /// A member with one process that has a session.
    fn new() -> (Self, String) {
        let mut test = Self {
            member: CcaMember::new("worker".parse().unwrap()),
            number: 0,
        };
        test.command(Command::Open, "");
        let resume = GatewayFrame::Resume {
            channel: CHANNEL,
            offset: 0,
        };
        test.member.frame(resume, b"").unwrap();
        let created =
            test.line(&json!({ "id": 1, "method": "session/new", "params": { "cwd": "/srv" } }));
        let session = lines(&created)[0]["result"]["sessionId"]
            .as_str()
            .unwrap()
            .to_owned();
        (test, session)
    }

    fn command(&mut self, command: Command, line: &str) -> Output {
        self.number += 1;
        let frame = GatewayFrame::Command {
            channel: CHANNEL,
            number: self.number,
            command,
        };
        self.member.frame(frame, line.as_bytes()).unwrap()
    }

    fn line(&mut self, message: &Value) -> Output {
        let mut message = message.clone();
        message["jsonrpc"] = json!("2.0");
        self.command(Command::Line { once: None }, &format!("{message}\n"))
    }

    fn prompt(&mut self, session: &str, id: u64) -> Value {
        let prompt = json!([{ "type": "text", "text": "a" }, { "type": "resource_link", "uri": "file:///b" }]);
        let params = json!({ "sessionId": session, "prompt": prompt });
        let output = self.line(&json!({ "id": id, "method": "session/prompt", "params": params }));
        serde_json::from_str(&output.messages[0]).unwrap()
    }

    fn message(&mut self, message: &Value) -> Output {
        self.member.message(&message.to_string()).unwrap()
    }
}

fn lines(output: &Output) -> Vec<Value> {
    let bytes = output
        .for_fleet
        .iter()
        .filter(|(frame, _)| matches!(frame, MemberFrame::Output { .. }));
    let text = bytes
        .map(|(_, bytes)| String::from_utf8(bytes.to_vec()).unwrap())
        .collect::<String>();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn prompt_becomes_a_task_and_its_result_a_response() {
    let (mut test, session) = Test::new();
    let task = test.prompt(&session, 2);
    assert_eq!(
        (&task["type"], &task["description"], &task["cwd"]),
        (
            &json!("task_assign"),
            &json!("a\nfile:///b"),
            &json!("/srv")
        )
    );
    let used = json!({ "input": 1, "output": 2 });
    let output = test.message(
        &json!({ "type": "task_result", "task_id": task["task_id"], "success": true, "output": "x", "tokens_used": used }),
    );
    let lines = lines(&output);
    assert_eq!(lines[0]["params"]["update"]["content"]["text"], "x");
    assert_eq!(
        lines[1]["result"],
        json!({ "stopReason": "end_turn", "usage": { "inputTokens": 1, "outputTokens": 2, "totalTokens": 3 } })
    );
}

#[test]
fn unknown_sessions_and_methods_of_acp_are_errors() {
    let (mut test, _) = Test::new();
    for (method, code) in [
        ("session/prompt", -32602),
        ("session/load", -32601),
        ("heartbeat", -32601),
    ] {
        let output =
            test.line(&json!({ "id": 2, "method": method, "params": { "sessionId": "x" } }));
        assert_eq!(lines(&output)[0]["error"]["code"], code, "{method}");
        assert!(output.messages.is_empty(), "{method}");
    }
}

#[test]
fn reconnect_asks_for_the_tasks_and_loses_those_that_are_absent() {
    let (mut test, session) = Test::new();
    let info = MemberInfo {
        capacity: 1,
        version: String::new(),
        dialect: AgentDialect::Acp,
        roots: Vec::new(),
        metadata: BTreeMap::default(),
    };
    assert!(test.member.connect(info.clone()).1.is_empty());
    let kept = test.prompt(&session, 2);
    let lost = test.prompt(&session, 3);
    let (hello, messages) = test.member.connect(info);
    assert_eq!(
        (hello.channels[0].channel, hello.channels[0].received),
        (CHANNEL, test.number)
    );
    let request: Value = serde_json::from_str(&messages[0]).unwrap();
    assert_eq!(request["type"], "get_status");
    let result = json!({ "tasks": [kept["task_id"]] });
    let output =
        test.message(&json!({ "type": "response", "reply_to": request["id"], "result": result }));
    assert!(
        output.for_fleet.is_empty(),
        "no output before the gateway asks for it"
    );
    let resume = GatewayFrame::Resume {
        channel: CHANNEL,
        offset: 0,
    };
    let output = test.member.frame(resume, b"").unwrap();
    let errors: Vec<_> = lines(&output)
        .into_iter()
        .filter(|line| line["error"].is_object())
        .collect();
    assert_eq!((errors.len(), &errors[0]["id"]), (1, &json!(3)), "{lost}");
}

#[test]
fn close_and_forget_cancel_the_tasks() {
    let (mut test, session) = Test::new();
    let first = test.prompt(&session, 2);
    let output = test.command(Command::Close, "");
    let cancel: Value = serde_json::from_str(&output.messages[0]).unwrap();
    assert_eq!(
        (&cancel["type"], &cancel["task_id"]),
        (&json!("task_cancel"), &first["task_id"])
    );
    assert!(
        output
            .for_fleet
            .iter()
            .any(|(frame, _)| matches!(frame, MemberFrame::Ended { .. }))
    );
}
