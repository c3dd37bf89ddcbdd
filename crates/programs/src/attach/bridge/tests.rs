//! Sequences of inputs, and the messages and effects that follow.

mod agent_paths;
mod answers;
mod once;
mod setup;

use serde_json::{Value, json};

use super::*;
use crate::attach::path_map::Mapping;
use wire::jsonrpc;

const EPOCH: &str = "k3";

struct Test {
    bridge: Bridge,
    /// The lines to the editor that no assertion has read.
    lines: Vec<Value>,
    /// The other effects, as text.
    effects: Vec<String>,
}

impl Test {
    fn new(settings: Settings) -> Self {
        Self {
            bridge: Bridge::new(settings, "client".to_owned()),
            lines: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// A bridge with an open connection.
    fn connected() -> Self {
        Self::connected_with(Settings::default())
    }

    fn connected_with(settings: Settings) -> Self {
        let mut test = Self::new(settings);
        test.editor(
            &json!({ "id": 0, "method": "initialize", "params": { "protocolVersion": 1 } }),
        );
        assert_eq!(test.effects(), ["connect"]);
        test.connect();
        assert_eq!(test.lines()[0]["id"], 0);
        assert_eq!(test.effects(), ["open connection"]);
        test
    }

    fn connect(&mut self) {
        let result =
            json!({ "protocolVersion": 1, "_meta": { "acp-gateway": { "epoch": EPOCH } } });
        self.bridge.connected(Ok(wire::acp::to_raw(&result)));
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(effect) = self.bridge.next_effect() {
            match effect {
                Effect::Write(line) => {
                    assert!(line.ends_with(b"\n"));
                    self.lines.push(serde_json::from_slice(&line).unwrap());
                }
                Effect::Connect => self.effects.push("connect".to_owned()),
                Effect::OpenStream { session, last } => {
                    let session = session.as_deref().unwrap_or("connection");
                    let last = last
                        .map(|last| format!(" after {last}"))
                        .unwrap_or_default();
                    self.effects.push(format!("open {session}{last}"));
                }
                Effect::CloseStream(session) => self.effects.push(format!("close {session}")),
                Effect::Pause => self.effects.push("pause".to_owned()),
            }
        }
    }

    fn lines(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.lines)
    }

    fn effects(&mut self) -> Vec<String> {
        std::mem::take(&mut self.effects)
    }

    fn editor(&mut self, message: &Value) {
        let message = jsonrpc::parse(message.to_string().as_bytes(), 128).unwrap();
        self.bridge.message(message);
        self.collect();
    }

    fn gateway(&mut self, session: Option<&str>, id: &str, message: &Value) {
        self.bridge
            .received(session, Some(id.to_owned()), &message.to_string().into());
        self.collect();
    }

    fn result(&mut self, session: Option<&str>, position: &str, id: &Value, result: &Value) {
        self.gateway(
            session,
            position,
            &json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        );
    }

    /// The next message, without its result.
    fn next(&mut self) -> Option<Value> {
        self.bridge
            .next_post()
            .map(|post| serde_json::from_slice(&post.body).unwrap())
    }

    /// All messages that can be sent, which the gateway accepts.
    fn sent(&mut self) -> Vec<Value> {
        let mut sent = Vec::new();
        while let Some(message) = self.next() {
            self.bridge.posted(Ok(()));
            sent.push(message);
        }
        self.collect();
        sent
    }

    /// A session that the editor has created.
    fn with_session() -> Self {
        let mut test = Self::connected();
        test.editor(
            &json!({ "id": 1, "method": "session/new", "params": { "cwd": "/w", "mcpServers": [] } }),
        );
        let sent = test.sent();
        assert_eq!(
            (&sent[0]["id"], &sent[0]["method"]),
            (&json!("b-1"), &json!("session/new"))
        );
        test.result(None, "c.1", &json!("b-1"), &json!({ "sessionId": "s" }));
        assert_eq!(
            test.lines(),
            [json!({ "jsonrpc": "2.0", "id": 1, "result": { "sessionId": "s" } })]
        );
        assert_eq!(test.effects(), ["open s after k3-0.0/-.0"]);
        test.bridge.opened("s");
        test
    }

    fn prompt(&mut self, id: u64) {
        let params = json!({ "sessionId": "s", "prompt": [] });
        self.editor(&json!({ "id": id, "method": "session/prompt", "params": params }));
    }
}

fn ids(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message["id"].as_str().unwrap_or("none"))
        .collect()
}

fn update(text: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": "session/update", "params": { "sessionId": "s", "text": text } })
}

#[test]
fn requests_before_initialize_are_answered() {
    let mut test = Test::new(Settings::default());
    test.editor(&json!({ "id": "a", "method": "session/list" }));
    test.editor(&json!({ "method": "session/cancel" }));
    test.editor(&json!({ "id": {}, "method": "initialize" }));
    test.editor(&json!({ "id": 2, "method": "initialize", "params": [] }));
    let found: Vec<_> = test
        .lines()
        .iter()
        .map(|line| (line["id"].clone(), line["error"]["code"].clone()))
        .collect();
    let expected = [
        (json!("a"), -32600),
        (Value::Null, -32600),
        (json!(2), -32602),
    ];
    assert_eq!(found, expected.map(|(id, code)| (id, json!(code))));
    assert_eq!((test.effects().len(), test.next()), (0, None));
}

#[test]
fn a_rejected_initialize_can_be_repeated() {
    let mut test = Test::new(Settings::default());
    let initialize =
        |id: u64| json!({ "id": id, "method": "initialize", "params": { "protocolVersion": 1 } });
    test.editor(&initialize(0));
    test.editor(&json!({ "id": 5, "method": "session/list", "params": {} }));
    test.bridge
        .connected(Err(RpcError::new(-32602, "which agent?")));
    test.collect();
    let lines = test.lines();
    assert_eq!(
        (&lines[0]["id"], &lines[0]["error"]["code"]),
        (&json!(0), &json!(-32602))
    );
    assert_eq!(
        (&lines[1]["id"], &lines[1]["error"]["code"]),
        (&json!(5), &json!(-32600))
    );
    test.editor(&initialize(1));
    test.connect();
    assert_eq!(test.lines()[0]["id"], 1);
    test.editor(&initialize(2));
    assert_eq!(test.lines()[0]["error"]["code"], -32600);
}

#[test]
fn a_turn_ends_once_and_its_ids_are_mapped() {
    let mut test = Test::with_session();
    test.prompt(7);
    assert_eq!(ids(&test.sent()), ["b-2"]);
    test.editor(&json!({ "method": "$/cancel_request", "params": { "requestId": 7 } }));
    assert_eq!(test.sent()[0]["params"], json!({ "requestId": "b-2" }));
    test.gateway(Some("s"), "k3-4.1/c.0", &update("a"));
    let done = json!({ "stopReason": "end_turn" });
    test.result(Some("s"), "k3-5.1/c.0", &json!("b-2"), &done);
    test.result(Some("s"), "k3-5.1/c.0", &json!("b-2"), &done);
    test.result(Some("s"), "k3-6.1/c.0", &json!("b-99"), &done);
    let lines = test.lines();
    assert_eq!(
        lines,
        [
            update("a"),
            json!({ "jsonrpc": "2.0", "id": 7, "result": done })
        ]
    );
    test.editor(&json!({ "method": "$/cancel_request", "params": { "requestId": 7 } }));
    assert_eq!(test.next(), None);
}

#[test]
fn a_reconnect_restores_the_session_before_other_messages() {
    let mut test = Test::with_session();
    test.prompt(7);
    test.sent();
    test.gateway(Some("s"), "k3-4.1/c.0", &update("a"));
    test.editor(&json!({ "id": 8, "method": "session/list", "params": {} }));
    assert_eq!(test.next().unwrap()["id"], "b-3");
    test.bridge.lost();
    test.prompt(9);
    test.collect();
    assert_eq!(test.effects(), ["connect"]);
    assert_eq!(test.next(), None);
    test.connect();
    assert_eq!(test.effects(), ["open connection"]);
    // The restore is first. The prompts wait for it, other calls do not.
    let sent = test.sent();
    assert_eq!(ids(&sent), ["b-5", "b-3"]);
    assert_eq!(
        (&sent[0]["method"], &sent[0]["params"]["sessionId"]),
        (&json!("session/resume"), &json!("s"))
    );
    test.result(None, "d.1", &json!("b-5"), &json!({}));
    assert_eq!(test.effects(), ["open s after k3-4.1/c.0"]);
    assert_eq!(ids(&test.sent()), ["b-2", "b-4"]);
    test.result(
        Some("s"),
        "k3-5.1/d.0",
        &json!("b-2"),
        &json!({ "stopReason": "end_turn" }),
    );
    let lines = test.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[1]["id"], 7);
}

#[test]
fn a_second_cut_during_the_restore_begins_it_again() {
    let mut test = Test::with_session();
    test.prompt(7);
    test.sent();
    for restore in ["b-3", "b-4", "b-5"] {
        test.bridge.lost();
        test.connect();
        assert_eq!(ids(&test.sent()), [restore]);
    }
    test.result(None, "d.1", &json!("b-3"), &json!({}));
    assert_eq!(
        test.next(),
        None,
        "a response to an earlier restore has no effect"
    );
    test.result(None, "d.2", &json!("b-5"), &json!({}));
    assert_eq!(ids(&test.sent()), ["b-2"]);
}

#[test]
fn calls_fail_if_their_session_cannot_be_restored() {
    let mut test = Test::with_session();
    test.prompt(7);
    test.sent();
    test.bridge.lost();
    test.connect();
    test.sent();
    let gone = json!({ "code": -32002, "message": "gone" });
    test.gateway(None, "d.1", &json!({ "id": "b-3", "error": gone }));
    let lines = test.lines();
    assert_eq!(
        (&lines[0]["id"], &lines[0]["error"]["code"]),
        (&json!(7), &json!(-32002))
    );
    assert_eq!(test.effects(), ["connect", "open connection", "close s"]);
}

#[test]
fn requests_of_the_agent_arrive_once_and_answers_are_sent_again() {
    let mut test = Test::with_session();
    let request = json!({ "jsonrpc": "2.0", "id": "s:1", "method": "session/request_permission", "params": {} });
    let resolved =
        json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": "s:1" } });
    test.gateway(Some("s"), "k3-4.1/c.0", &request);
    test.gateway(Some("s"), "k3-4.1/c.0", &request);
    assert_eq!(test.lines(), std::slice::from_ref(&request));
    let answer = json!({ "jsonrpc": "2.0", "id": "s:1", "result": { "outcome": {} } });
    test.editor(&answer);
    test.editor(&answer);
    assert_eq!(test.next(), Some(answer.clone()));
    test.bridge.posted(Err(PostError::Lost));
    test.collect();
    test.connect();
    assert_eq!(ids(&test.sent()), ["b-2"]);
    test.gateway(Some("s"), "k3-4.1/c.0", &request);
    test.gateway(Some("s"), "k3-5.1/c.0", &resolved);
    assert_eq!(test.lines(), [] as [Value; 0], "the editor has answered it");
    test.result(None, "d.1", &json!("b-2"), &json!({}));
    assert_eq!(test.sent(), [answer]);
}

#[test]
fn a_cancelled_request_of_the_agent_is_cancelled_once() {
    let mut test = Test::with_session();
    let request = json!({ "jsonrpc": "2.0", "id": "s:1", "method": "session/request_permission", "params": {} });
    let resolved =
        json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": "s:1" } });
    for message in [&resolved, &request, &resolved, &resolved] {
        test.gateway(Some("s"), "k3-4.1/c.0", message);
    }
    assert_eq!(test.lines(), [request, resolved]);
    test.editor(&json!({ "id": "s:1", "result": {} }));
    assert_eq!(test.next(), None, "a late answer is dropped");
}

#[test]
fn transient_errors_and_busy_gateways_are_retried() {
    let mut test = Test::with_session();
    test.prompt(7);
    assert_eq!(test.next().unwrap()["id"], "b-2");
    test.bridge.posted(Err(PostError::Busy));
    test.collect();
    assert_eq!(test.effects(), ["pause"]);
    assert_eq!(ids(&test.sent()), ["b-2"]);
    for code in ["draining", "idempotency_in_flight"] {
        let error = json!({ "code": -32603, "message": "later", "data": { "code": code } });
        test.gateway(
            Some("s"),
            "k3-4.1/c.1",
            &json!({ "id": "b-2", "error": error }),
        );
        assert_eq!(test.effects(), ["pause"]);
        assert_eq!(ids(&test.sent()), ["b-2"], "{code}");
    }
    // The error can arrive before the result of its message.
    let error = json!({ "code": -32603, "message": "later", "data": { "code": "draining" } });
    test.prompt(8);
    assert_eq!(test.next().unwrap()["id"], "b-3");
    test.gateway(
        Some("s"),
        "k3-4.1/c.2",
        &json!({ "id": "b-3", "error": error }),
    );
    test.bridge.posted(Ok(()));
    assert_eq!(ids(&test.sent()), ["b-3"]);
    assert_eq!(test.lines(), [] as [Value; 0]);
    let error = json!({ "code": -32603, "message": "no", "data": { "code": "pool_full" } });
    test.gateway(
        Some("s"),
        "k3-4.1/c.1",
        &json!({ "id": "b-2", "error": error }),
    );
    assert_eq!(
        test.lines(),
        [json!({ "jsonrpc": "2.0", "id": 7, "error": error })]
    );
}

#[test]
fn a_rejected_message_fails_its_call() {
    let mut test = Test::with_session();
    test.prompt(7);
    test.next().unwrap();
    test.bridge
        .posted(Err(PostError::Rejected("413: too large".to_owned())));
    test.collect();
    let lines = test.lines();
    assert_eq!(
        (&lines[0]["id"], &lines[0]["error"]["code"]),
        (&json!(7), &json!(-32600))
    );
    assert_eq!(lines[0]["error"]["message"], "413: too large");
}

#[test]
fn a_load_waits_for_the_stream_on_which_its_history_arrives() {
    let mut test = Test::connected();
    let load = |id: u64| {
        let params = json!({ "sessionId": "s", "cwd": "/w", "mcpServers": [] });
        json!({ "id": id, "method": "session/load", "params": params })
    };
    test.editor(&load(1));
    assert_eq!(test.effects(), ["open s"]);
    assert_eq!(test.next(), None);
    test.bridge.opened("s");
    assert_eq!(ids(&test.sent()), ["b-1"]);
    test.gateway(Some("s"), "k3-4.1/c.0", &update("history"));
    // A cut within the history: the same load continues it.
    test.bridge.lost();
    test.connect();
    assert_eq!(
        test.effects(),
        ["connect", "open connection", "open s after k3-4.1/c.0"]
    );
    test.bridge.opened("s");
    assert_eq!(ids(&test.sent()), ["b-1"]);
    test.result(
        Some("s"),
        "k3-9.0/d.1",
        &json!("b-1"),
        &json!({ "modes": {} }),
    );
    assert_eq!(
        test.lines().last().unwrap()["result"],
        json!({ "modes": {} })
    );
    // A further load of the same session begins again after a cut.
    test.editor(&load(2));
    test.prompt(3);
    assert_eq!(ids(&test.sent()), ["b-2"], "the prompt waits for the load");
    test.bridge.lost();
    test.connect();
    assert_eq!(test.effects(), ["connect", "open connection", "open s"]);
    // A failed load does not end a session that the editor followed before.
    test.bridge.opened("s");
    test.sent();
    test.gateway(
        Some("s"),
        "k3-9.0/e.1",
        &json!({ "id": "b-2", "error": { "code": -1, "message": "" } }),
    );
    assert_eq!(ids(&test.sent()), ["b-3"]);
}

#[test]
fn a_failed_load_ends_its_stream() {
    let mut test = Test::connected();
    test.editor(&json!({ "id": 1, "method": "session/load", "params": { "sessionId": "x" } }));
    test.bridge.opened("x");
    test.sent();
    test.gateway(
        Some("x"),
        "c.1",
        &json!({ "id": "b-1", "error": { "code": -32002, "message": "" } }),
    );
    assert_eq!(test.effects(), ["open x", "close x"]);
    assert_eq!(test.lines()[0]["error"]["code"], -32002);
}

#[test]
fn a_new_session_loads_the_session_of_the_command_line() {
    let mut test = Test::connected_with(Settings {
        session: Some("s".into()),
        ..Settings::default()
    });
    test.editor(
        &json!({ "id": 1, "method": "session/new", "params": { "cwd": "/w", "mcpServers": [] } }),
    );
    let sent = test.sent();
    assert_eq!(
        (&sent[0]["method"], &sent[0]["params"]["sessionId"]),
        (&json!("session/load"), &json!("s"))
    );
    let result =
        json!({ "modes": { "a": 1 }, "_meta": { "acp-gateway": { "lastEventId": "k3-9" } } });
    test.result(None, "c.1", &json!("b-1"), &result);
    let lines = test.lines();
    assert_eq!(
        (
            &lines[0]["result"]["sessionId"],
            &lines[0]["result"]["modes"]["a"]
        ),
        (&json!("s"), &json!(1))
    );
    assert_eq!(test.effects(), ["open s"]);
    // Within the history, a reconnect loads. After it, or with a prompt, a reconnect resumes.
    for (position, method) in [
        ("k3-5.1/c.0", "session/load"),
        ("k3-10.1/c.0", "session/resume"),
    ] {
        test.gateway(Some("s"), position, &update("a"));
        test.bridge.lost();
        test.connect();
        let sent = test.sent();
        assert_eq!(sent[0]["method"], method);
        test.result(None, "d.1", &sent[0]["id"], &json!({}));
        assert_eq!(
            test.effects().pop().unwrap(),
            format!("open s after {position}")
        );
    }
}

#[test]
fn a_closed_session_is_not_restored() {
    let mut test = Test::with_session();
    test.prompt(7);
    test.editor(&json!({ "id": 8, "method": "session/close", "params": { "sessionId": "s" } }));
    test.sent();
    test.result(None, "c.2", &json!("b-3"), &json!({}));
    assert_eq!(test.lines().len(), 1);
    test.bridge.lost();
    test.connect();
    assert_eq!(test.sent(), [] as [Value; 0]);
    let cancelled = json!({ "jsonrpc": "2.0", "id": 7, "result": { "stopReason": "cancelled" } });
    assert_eq!(test.lines(), [cancelled]);

    let mut test = Test::with_session();
    test.prompt(7);
    test.editor(&json!({ "id": 8, "method": "session/close", "params": { "sessionId": "s" } }));
    test.sent();
    test.result(None, "c.2", &json!("b-3"), &json!({}));
    assert_eq!(
        test.effects(),
        [] as [&str; 0],
        "the end of the turn is on the stream"
    );
    test.result(
        Some("s"),
        "k3-8.1/c.2",
        &json!("b-2"),
        &json!({ "stopReason": "cancelled" }),
    );
    assert_eq!(test.effects(), ["close s"]);
}

#[test]
fn folders_are_mapped_and_other_folders_are_rejected() {
    let mapping: Mapping = "/home/me=/srv/me".parse().unwrap();
    let mut test = Test::connected_with(Settings {
        paths: vec![mapping].into(),
        ..Settings::default()
    });
    let params =
        json!({ "cwd": "/home/me/a", "additionalDirectories": ["/home/me"], "mcpServers": [] });
    test.editor(&json!({ "id": 1, "method": "session/new", "params": params }));
    let sent = test.sent();
    assert_eq!(sent[0]["params"]["cwd"], "/srv/me/a");
    assert_eq!(
        sent[0]["params"]["additionalDirectories"],
        json!(["/srv/me"])
    );
    for (id, params) in [
        (2, json!({ "cwd": "/etc", "mcpServers": [] })),
        (
            3,
            json!({ "cwd": "/home/me", "additionalDirectories": ["/etc"] }),
        ),
        (4, json!({ "cwd": 7 })),
    ] {
        test.editor(&json!({ "id": id, "method": "session/new", "params": params }));
        let lines = test.lines();
        assert_eq!(
            (&lines[0]["id"], &lines[0]["error"]["code"]),
            (&json!(id), &json!(-32602))
        );
        assert_eq!(
            id == 4,
            !lines[0]["error"]["message"]
                .as_str()
                .unwrap()
                .contains("--map /etc=")
        );
    }
    assert_eq!(test.next(), None);
}

#[test]
fn a_rejected_key_fails_all_calls() {
    let mut test = Test::with_session();
    test.prompt(7);
    test.sent();
    test.bridge.denied("the gateway rejects this client: 401");
    test.collect();
    let lines = test.lines();
    assert_eq!(
        (&lines[0]["id"], &lines[0]["error"]["code"]),
        (&json!(7), &json!(-32000))
    );
    assert!(!test.bridge.has_unsent());
}

#[test]
fn waiting_messages_are_bounded() {
    let mut test = Test::with_session();
    test.bridge.lost();
    for id in 0..2000 {
        test.prompt(id);
    }
    let lines = test.lines();
    assert!(
        lines.len() > 1000 && lines.iter().all(|line| line["error"]["code"] == -32603),
        "{}",
        lines.len()
    );
}

#[test]
fn a_large_message_that_ends_connections_fails() {
    let mut test = Test::with_session();
    let params = json!({ "padding": "x".repeat(1 << 20) });
    test.editor(&json!({ "id": 7, "method": "session/set_mode", "params": params }));
    test.editor(&json!({ "id": 8, "method": "session/list" }));
    for attempt in 1..=3 {
        let sent = std::iter::from_fn(|| {
            let message = test.next()?;
            let is_large = message["id"] == "b-2";
            test.bridge.posted(if is_large {
                Err(PostError::Lost)
            } else {
                Ok(())
            });
            Some(is_large)
        });
        assert!(sent.last().unwrap_or_default(), "attempt {attempt}");
        test.collect();
        test.connect();
    }
    let lines = test.lines();
    assert_eq!(
        (&lines[0]["id"], &lines[0]["error"]["code"]),
        (&json!(7), &json!(-32600))
    );
    assert_eq!(ids(&test.sent()).last(), Some(&"b-3"));
}
