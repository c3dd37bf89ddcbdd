//! The demo agent as a client sees it: the real binary over stdio.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The longest wait for a line that must come.
const SOON: Duration = Duration::from_secs(20);

/// A demo agent's process. It keeps its sessions below `home`, and ends with this.
struct Demo {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<Value>,
    /// Updates and requests of the agent, in order, as they came while something else was waited for.
    seen: Vec<Value>,
    last_id: u64,
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Demo {
    #[expect(clippy::disallowed_methods, reason = "the test is the agent's client and starts it itself")]
    fn start(home: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_acp-gateway"))
            .arg("demo-agent")
            .env_clear()
            .env("HOME", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = sync_channel(10_000);
        std::thread::Builder::new()
            .spawn(move || {
                for line in stdout.lines().map_while(Result::ok) {
                    let message = serde_json::from_str(&line).expect("each line is one JSON message");
                    if sender.send(message).is_err() {
                        break;
                    }
                }
            })
            .unwrap();
        let stdin = child.stdin.take();
        let mut demo = Self { child, stdin, lines, seen: Vec::new(), last_id: 0 };
        let capabilities = json!({ "session": { "configOptions": { "boolean": {} } } });
        let info =
            demo.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": capabilities }));
        assert_eq!(info["result"]["protocolVersion"], 1);
        assert_eq!(info["result"]["agentCapabilities"]["loadSession"], true);
        demo
    }

    fn line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.write_all(b"\n")).unwrap();
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.line(&message.to_string());
        id
    }

    fn notify(&mut self, method: &str, params: &Value) {
        self.line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string());
    }

    fn next(&self) -> Value {
        match self.lines.recv_timeout(SOON) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => panic!("no line came in {SOON:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the agent ended"),
        }
    }

    /// The next message for which `wanted` holds; those before it are kept in `seen`.
    fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.next();
            if wanted(&message) {
                return message;
            }
            self.seen.push(message);
        }
    }

    fn response(&mut self, id: u64) -> Value {
        self.until(|message| message["id"] == id && message.get("method").is_none())
    }

    fn question(&mut self) -> Value {
        self.until(|message| message["method"] == "session/request_permission")
    }

    fn answer(&mut self, question: &Value, outcome: &Value) {
        let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "outcome": outcome } });
        self.line(&answer.to_string());
    }

    fn choose(&mut self, question: &Value, option: &str) {
        self.answer(question, &json!({ "outcome": "selected", "optionId": option }));
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.response(id)
    }

    /// A new session without pauses.
    fn session(&mut self, cwd: &str) -> String {
        let made = self.call("session/new", &json!({ "cwd": cwd, "mcpServers": [] }));
        let session = made["result"]["sessionId"].as_str().unwrap().to_owned();
        let value = json!({ "sessionId": session, "configId": "pace", "value": "instant" });
        let options = self.call("session/set_config_option", &value);
        assert_eq!(options["result"]["configOptions"][0]["currentValue"], "instant");
        session
    }

    fn prompt(&mut self, session: &str, text: &str) -> u64 {
        self.seen.clear();
        self.send(
            "session/prompt",
            &json!({ "sessionId": session, "prompt": [{ "type": "text", "text": text }] }),
        )
    }

    /// A turn without questions; its stop reason.
    fn turn(&mut self, session: &str, text: &str) -> String {
        let id = self.prompt(session, text);
        let response = self.response(id);
        response["result"]["stopReason"].as_str().unwrap_or_else(|| panic!("{response}")).to_owned()
    }

    fn updates(&self, kind: &str) -> Vec<&Value> {
        self.seen
            .iter()
            .map(|message| &message["params"]["update"])
            .filter(|update| update["sessionUpdate"] == kind)
            .collect()
    }

    /// What the agent said since the last prompt.
    fn said(&self) -> String {
        self.updates("agent_message_chunk")
            .iter()
            .filter_map(|chunk| chunk["content"]["text"].as_str())
            .collect()
    }

    fn wait_for_exit(&mut self, limit: Duration) -> Option<i32> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the agent did not end in {limit:?}");
    }
}

fn code(response: &Value) -> i64 {
    response["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {response}"))
}

#[test]
fn a_first_turn_shows_thoughts_plan_tools_and_markdown_and_says_that_it_is_a_demo() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let commands = demo.updates("available_commands_update");
    assert!(
        commands[0]["availableCommands"].as_array().unwrap().iter().any(|command| command["name"] == "help")
    );

    assert_eq!(demo.turn(&session, "Hello <b>you</b>"), "end_turn");
    let said = demo.said();
    assert!(said.contains("demo agent") && said.contains("no model") && said.contains("[agents."), "{said}");
    assert!(said.contains("Hello \\<b\\>you\\</b\\>"), "the user's words are quoted as text: {said}");
    let thoughts = demo.updates("agent_thought_chunk");
    let chunks = demo.updates("agent_message_chunk");
    assert!(thoughts.len() > 3 && chunks.len() > 20, "both are streamed");
    assert!(chunks.iter().all(|chunk| chunk["messageId"] == chunks[0]["messageId"]), "it is one message");
    assert_ne!(chunks[0]["messageId"], thoughts[0]["messageId"]);
    let kinds: Vec<&Value> = demo.updates("tool_call").into_iter().map(|call| &call["kind"]).collect();
    assert_eq!(kinds, ["search", "read", "execute"]);
    let plans = demo.updates("plan");
    let states = |plan: &Value, state: &str| {
        plan["entries"].as_array().unwrap().iter().filter(|entry| entry["status"] == state).count()
    };
    assert_eq!((states(plans[0], "in_progress"), states(plans[0], "pending")), (1, 3));
    assert_eq!(states(plans.last().unwrap(), "completed"), 4);
    assert!(demo.updates("usage_update")[0]["used"].as_u64().unwrap() > 0);
    assert_eq!(demo.updates("session_info_update")[0]["title"], "Hello <b>you</b>");
}

#[test]
fn a_permission_is_asked_with_all_kinds_and_the_answer_counts() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let edit = |demo: &mut Demo, option: &str| {
        let id = demo.prompt(&session, "/diff");
        let question = demo.question();
        demo.choose(&question, option);
        let response = demo.response(id);
        (question, response["result"]["stopReason"].clone())
    };
    let status = |demo: &Demo| demo.updates("tool_call_update").last().unwrap()["status"].clone();

    let (question, reason) = edit(&mut demo, "reject_once");
    assert_eq!((status(&demo), reason), (json!("failed"), json!("end_turn")));
    let kinds: Vec<&Value> =
        question["params"]["options"].as_array().unwrap().iter().map(|option| &option["kind"]).collect();
    assert_eq!(kinds, ["allow_once", "allow_always", "reject_once", "reject_always"]);
    assert_eq!(question["params"]["toolCall"]["content"][0]["type"], "diff");
    assert_eq!(question["params"]["toolCall"]["content"][0]["path"], "/w/src/greeting.rs");

    edit(&mut demo, "allow_once");
    assert_eq!(status(&demo), "completed");
    edit(&mut demo, "allow_always");
    assert_eq!(demo.turn(&session, "/diff"), "end_turn", "an always is remembered: nothing was asked");
    assert_eq!(status(&demo), "completed");

    let other = demo.session("/w");
    for (mode, expected) in [("auto", "completed"), ("plan", "failed")] {
        demo.seen.clear();
        demo.call("session/set_mode", &json!({ "sessionId": other, "modeId": mode }));
        assert_eq!(demo.updates("current_mode_update")[0]["currentModeId"], mode);
        assert_eq!(demo.turn(&other, "/diff"), "end_turn");
        assert_eq!(status(&demo), expected);
    }
}

#[test]
fn a_cancel_ends_a_turn_at_once_also_with_an_open_question() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");

    let id = demo.prompt(&session, "/slow 600");
    demo.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    let begin = Instant::now();
    demo.notify("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(demo.response(id)["result"]["stopReason"], "cancelled");
    assert!(begin.elapsed() < Duration::from_secs(1));

    let id = demo.prompt(&session, "/permission");
    let question = demo.question();
    demo.notify("session/cancel", &json!({ "sessionId": session }));
    assert_eq!(demo.response(id)["result"]["stopReason"], "cancelled");
    assert_eq!(
        demo.updates("tool_call_update").last().unwrap()["status"],
        "failed",
        "the open call is closed"
    );
    demo.answer(&question, &json!({ "outcome": "cancelled" }));
    assert_eq!(demo.turn(&session, "/help"), "end_turn", "a late answer does no harm");

    let id = demo.prompt(&session, "/permission");
    let question = demo.question();
    demo.answer(&question, &json!({ "outcome": "cancelled" }));
    assert_eq!(demo.response(id)["result"]["stopReason"], "cancelled");

    let id = demo.prompt(&session, "/slow 600");
    demo.notify("$/cancel_request", &json!({ "requestId": id }));
    assert_eq!(demo.response(id)["result"]["stopReason"], "cancelled");
}

#[test]
fn sessions_outlive_the_process() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.call("session/set_mode", &json!({ "sessionId": session, "modeId": "auto" }));
    assert_eq!(demo.turn(&session, "/diff"), "end_turn");
    let said = demo.said();
    drop(demo);

    let mut demo = Demo::start(home.path());
    let params = json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] });
    let early = demo.prompt(&session, "/help");
    assert_eq!(code(&demo.response(early)), -32002, "not before it is loaded");
    demo.seen.clear();
    let loaded = demo.call("session/load", &params);
    assert_eq!(loaded["result"]["modes"]["currentModeId"], "auto");
    assert_eq!(loaded["result"]["configOptions"][0]["currentValue"], "instant");
    assert_eq!(demo.updates("user_message_chunk")[0]["content"]["text"], "/diff");
    assert_eq!(demo.updates("tool_call")[0]["status"], "completed");
    assert_eq!(demo.said(), said);
    let first = demo.updates("agent_message_chunk")[0]["messageId"].clone();
    assert_eq!(demo.turn(&session, "/diff"), "end_turn");
    assert_ne!(demo.updates("agent_message_chunk")[0]["messageId"], first, "ids go on");
    drop(demo);

    let mut demo = Demo::start(home.path());
    demo.seen.clear();
    let resumed = demo.call("session/resume", &params);
    assert_eq!(resumed["result"]["modes"]["currentModeId"], "auto");
    assert!(demo.seen.is_empty(), "a resume replays nothing: {:?}", demo.seen);
    assert_eq!(demo.turn(&session, "/help"), "end_turn");
}

#[test]
fn sessions_are_listed_by_page_closed_and_deleted() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let sessions: Vec<String> = (0..52).map(|_| demo.session("/many")).collect();
    let other = demo.session("/other");
    let ids = |page: &Value| -> Vec<String> {
        let sessions = page["result"]["sessions"].as_array().unwrap_or_else(|| panic!("{page}"));
        sessions.iter().map(|session| session["sessionId"].as_str().unwrap().to_owned()).collect()
    };

    let first = demo.call("session/list", &json!({ "cwd": "/many" }));
    let cursor = first["result"]["nextCursor"].as_str().unwrap().to_owned();
    let second = demo.call("session/list", &json!({ "cwd": "/many", "cursor": cursor }));
    assert!(second["result"].get("nextCursor").is_none_or(Value::is_null));
    let mut listed = [ids(&first), ids(&second)].concat();
    let mut expected = sessions.clone();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected, "each session of the folder once");
    let id = demo.send("session/list", &Value::Null);
    assert_eq!(ids(&demo.response(id)).len(), 50);
    assert_eq!(code(&demo.call("session/list", &json!({ "cursor": "nonsense" }))), -32602);

    let running = demo.prompt(&other, "/slow 600");
    let close = demo.send("session/close", &json!({ "sessionId": other }));
    assert_eq!(demo.response(running)["result"]["stopReason"], "cancelled", "a close cancels first");
    assert_eq!(demo.response(close)["result"], json!({}));
    assert_eq!(code(&demo.call("session/prompt", &json!({ "sessionId": other, "prompt": [] }))), -32002);
    assert_eq!(ids(&demo.call("session/list", &json!({ "cwd": "/other" }))), [other.as_str()]);

    for _ in 0..2 {
        assert_eq!(demo.call("session/delete", &json!({ "sessionId": other }))["result"], json!({}));
    }
    assert!(ids(&demo.call("session/list", &json!({ "cwd": "/other" }))).is_empty());
    let load = json!({ "sessionId": other, "cwd": "/other", "mcpServers": [] });
    let gone = demo.call("session/load", &load);
    assert_eq!((code(&gone), &gone["error"]["data"]["sessionId"]), (-32002, &json!(other)));
}

#[test]
fn what_is_wrong_gets_its_error_and_the_next_request_its_answer() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");

    assert_eq!(code(&demo.call("session/teleport", &json!({}))), -32601);
    for (line, expected) in [("{\"jsonrpc\":", -32700), ("[]", -32600), ("{\"jsonrpc\":\"1.0\"}", -32600)] {
        demo.line(line);
        let refused = demo.until(|message| message.get("error").is_some());
        assert_eq!((code(&refused), &refused["id"]), (expected, &Value::Null), "{line}");
    }
    demo.line(&format!(
        r#"{{"params":{{"sessionId":"{session}","prompt":[{{"type":"text","text":"\ud83d"}}]}},"method":"session/prompt","jsonrpc":"2.0","id":"surrogate"}}"#
    ));
    let refused = demo.until(|message| message["id"] == "surrogate");
    assert_eq!(code(&refused), -32602);
    for (method, params) in [
        ("session/new", json!({ "cwd": "relative", "mcpServers": [] })),
        ("session/new", json!({})),
        ("session/set_mode", json!({ "sessionId": session, "modeId": "yolo" })),
        ("session/set_config_option", json!({ "sessionId": session, "configId": "pace", "value": "warp" })),
        ("session/set_config_option", json!({ "sessionId": session, "configId": "thoughts", "value": "on" })),
        ("session/prompt", json!({ "sessionId": session, "prompt": "text" })),
    ] {
        assert_eq!(code(&demo.call(method, &params)), -32602, "{method} {params}");
    }
    for method in ["session/load", "session/resume"] {
        for id in ["01938c5e-7a3b-7c4d-8e5f-0123456789ab", "../../etc/passwd", ""] {
            let unknown = demo.call(method, &json!({ "sessionId": id, "cwd": "/w", "mcpServers": [] }));
            assert_eq!((code(&unknown), &unknown["error"]["data"]["sessionId"]), (-32002, &json!(id)));
        }
    }
    demo.notify("session/unheard", &json!({}));
    assert_eq!(demo.turn(&session, "/fail refusal"), "refusal");
    let failed = demo.prompt(&session, "/fail");
    assert_eq!(code(&demo.response(failed)), -32603);
}

#[test]
fn turns_of_two_sessions_run_side_by_side_and_one_session_has_one() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let (slow, quick) = (demo.session("/w"), demo.session("/w"));
    let waiting = demo.prompt(&slow, "/slow 600");
    assert_eq!(demo.turn(&quick, "hello"), "end_turn");
    let second = demo.prompt(&slow, "/help");
    assert_eq!(code(&demo.response(second)), -32600);
    demo.notify("session/cancel", &json!({ "sessionId": slow }));
    assert_eq!(demo.response(waiting)["result"]["stopReason"], "cancelled");
    assert_eq!(demo.turn(&slow, "/help"), "end_turn");
}

#[test]
fn an_on_off_option_is_only_for_clients_that_know_them() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    let value = json!({ "sessionId": session, "configId": "thoughts", "type": "boolean", "value": false });
    let options = demo.call("session/set_config_option", &value)["result"]["configOptions"].clone();
    assert_eq!((&options[2]["type"], &options[2]["currentValue"]), (&json!("boolean"), &json!(false)));
    assert_eq!(demo.turn(&session, "hello"), "end_turn");
    assert!(demo.updates("agent_thought_chunk").is_empty());
    assert_eq!(demo.turn(&session, "/pace brisk"), "end_turn");
    assert_eq!(demo.updates("config_option_update")[0]["configOptions"][0]["currentValue"], "brisk");

    demo.call("initialize", &json!({ "protocolVersion": 1 }));
    let made = demo.call("session/new", &json!({ "cwd": "/w", "mcpServers": [] }));
    assert_eq!(made["result"]["configOptions"].as_array().unwrap().len(), 2);
}

#[test]
fn attachments_are_acknowledged() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.seen.clear();
    let prompt = json!([
        { "type": "text", "text": "what is this?" },
        { "type": "image", "mimeType": "image/png", "data": "aGVsbG8=" },
        { "type": "resource_link", "uri": "file:///w/a.txt", "name": "a.txt" },
    ]);
    let response = demo.call("session/prompt", &json!({ "sessionId": session, "prompt": prompt }));
    assert_eq!(response["result"]["stopReason"], "end_turn");
    let said = demo.said();
    assert!(said.contains("an image (“image/png”, 5 bytes)") && said.contains("a link to “a.txt”"), "{said}");
}

#[test]
fn the_end_of_stdin_ends_the_process_also_in_a_turn() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.prompt(&session, "/slow 600");
    demo.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    demo.stdin = None;
    assert_eq!(demo.wait_for_exit(Duration::from_secs(3)), Some(0));
    drop(demo);

    let mut demo = Demo::start(home.path());
    demo.seen.clear();
    demo.call("session/load", &json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] }));
    let (said, whole) = (demo.said(), "This takes 600 seconds. Cancel it whenever you like.\n\n");
    assert!(said.starts_with("This"), "what was said before the end is kept: {said}");
    assert!(whole.starts_with(&said) || said.starts_with(whole), "{said}");
}

#[test]
fn a_crash_that_was_asked_for_leaves_a_session_that_can_be_resumed() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(home.path());
    let session = demo.session("/w");
    demo.prompt(&session, "/crash");
    demo.until(|message| message["params"]["update"]["sessionUpdate"] == "agent_message_chunk");
    assert_eq!(demo.wait_for_exit(Duration::from_secs(3)), Some(42));
    drop(demo);

    let mut demo = Demo::start(home.path());
    let params = json!({ "sessionId": session, "cwd": "/w", "mcpServers": [] });
    assert!(demo.call("session/resume", &params).get("error").is_none());
    assert_eq!(demo.turn(&session, "/help"), "end_turn");
}
