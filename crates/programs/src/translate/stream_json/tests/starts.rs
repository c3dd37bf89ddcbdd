//! Starts of the CLI: for `initialize`, and for another session than the expected one.

use serde_json::{Value, json};

use crate::translate::protocol::{AgentProtocol as _, Launch, Output};
use crate::translate::stream_json::StreamJson;
use wire::acp::to_raw;
use wire::jsonrpc::{CallId, Message, PendingTables};

const FIRST: &str = "11111111-1111-4111-8111-111111111111";
const SECOND: &str = "22222222-2222-4222-8222-222222222222";

/// A translation, and the client and the CLI that a test plays.
struct Starts {
    agent: StreamJson,
    tables: PendingTables,
    /// The id of the CLI's last control request.
    control: Value,
}

impl Starts {
    fn new(resume: Option<&str>) -> Self {
        Self {
            agent: StreamJson::new("/project".into(), resume.map(str::to_owned)),
            tables: PendingTables::default(),
            control: Value::Null,
        }
    }

    /// The effects, each as one line of text.
    fn shown(&mut self) -> Vec<String> {
        let mut shown = Vec::new();
        for output in self.agent.outputs() {
            shown.push(match output {
                Output::Launch(Launch { cwd, arguments }) => {
                    let [.., option, id] = &arguments[..] else {
                        panic!("{arguments:?}");
                    };
                    let id = if option == "--session-id" { "NEW" } else { id };
                    format!("launch {} {option} {id}", cwd.unwrap().display())
                }
                Output::ToAgent(line) => {
                    let line: Value = serde_json::from_slice(&line).unwrap();
                    self.control = line["request_id"].clone();
                    format!("send {}", line["request"]["subtype"].as_str().unwrap())
                }
                Output::ToClient(Message::Response { id, outcome }) => match outcome {
                    Ok(_) => format!("result {id}"),
                    Err(error) => format!("error {id} {}", error.message),
                },
                Output::ToClient(message) => panic!("{message:?}"),
            });
        }
        shown
    }

    fn call(&mut self, method: &str, params: &Value) -> Vec<String> {
        let id: CallId = self.tables.register_call();
        self.agent.message(Message::Request {
            id: to_raw(&id.number()),
            method: method.into(),
            params: to_raw(params),
        });
        self.shown()
    }

    fn session(&mut self, method: &str, cwd: &str, id: &str) -> Vec<String> {
        self.call(method, &json!({ "cwd": cwd, "sessionId": id }))
    }

    /// The command runs.
    fn launched(&mut self) -> Vec<String> {
        self.agent.launched();
        self.shown()
    }

    fn line(&mut self, line: &Value) -> Vec<String> {
        self.agent.line(line.to_string().as_bytes()).unwrap();
        self.shown()
    }

    /// The CLI answers its last control request.
    fn answers(&mut self) -> Vec<String> {
        let response = json!({ "subtype": "success", "request_id": self.control, "response": {} });
        self.line(&json!({ "type": "control_response", "response": response }))
    }

    /// The CLI does not find the session of `--resume`.
    fn misses(&mut self) -> Vec<String> {
        self.line(
            &json!({ "type": "result", "subtype": "error_during_execution", "is_error": true,
            "errors": ["No conversation found"] }),
        )
    }

    fn ended(&mut self) -> (bool, Vec<String>) {
        let goes_on = self.agent.ended("it ended");
        (goes_on, self.shown())
    }
}

#[test]
fn cli_starts_with_initialize_and_serves_a_session_in_its_folder() {
    let mut starts = Starts::new(None);
    assert!(starts.agent.open().is_empty());
    assert_eq!(
        starts.call("initialize", &json!({})),
        ["launch /project --session-id NEW"]
    );
    assert_eq!(starts.launched(), ["send initialize"]);
    // A request that arrives before the answer waits.
    assert!(starts.session("session/new", "/project", "").is_empty());
    assert_eq!(starts.answers(), ["result 1", "result 2"]);
    let second = starts.session("session/new", "/other", "");
    assert!(
        second[0].starts_with("error 3 Invalid request: this process serves the session"),
        "{second:?}"
    );
    let second = starts.session("session/new", "/project", "");
    assert!(
        second[0].starts_with("error 4 Invalid request: this process serves the session"),
        "{second:?}"
    );
    assert_eq!(
        starts.call("initialize", &json!({})),
        ["error 5 Invalid request: the connection is initialized"]
    );
    assert_eq!(starts.ended(), (false, Vec::new()));
}

#[test]
fn end_before_the_answer_to_initialize_ends_the_translation() {
    let mut starts = Starts::new(None);
    starts.call("initialize", &json!({}));
    starts.launched();
    assert_eq!(starts.ended(), (false, Vec::new()));
}

#[test]
fn session_in_another_folder_or_with_an_id_starts_the_cli_again() {
    let mut starts = Starts::new(None);
    starts.call("initialize", &json!({}));
    starts.launched();
    starts.answers();
    assert_eq!(
        starts.session("session/new", "/other", ""),
        ["launch /other --session-id NEW"]
    );
    assert_eq!(starts.launched(), ["send initialize"]);
    assert_eq!(
        starts.ended(),
        (true, vec!["error 2 Internal error: it ended".to_owned()])
    );
    let launch = format!("launch /project --resume {FIRST}");
    assert_eq!(
        starts.session("session/resume", "/project", FIRST),
        [launch]
    );
    starts.launched();
    assert_eq!(starts.misses(), ["error 3 No conversation found"]);
    assert_eq!(starts.ended(), (true, Vec::new()));
    let launch = format!("launch /project --resume {SECOND}");
    assert_eq!(
        starts.session("session/resume", "/project", SECOND),
        [launch]
    );
    starts.launched();
    assert_eq!(starts.answers(), ["result 4"]);
    assert_eq!(
        starts.call("session/prompt", &json!({ "prompt": 7 })),
        ["error 5 Invalid params: `params` has no valid member `prompt`"]
    );
}

#[test]
fn expected_session_needs_one_start() {
    let mut starts = Starts::new(Some(FIRST));
    assert_eq!(
        starts.call("initialize", &json!({})),
        [format!("launch /project --resume {FIRST}")]
    );
    starts.launched();
    assert_eq!(starts.answers(), ["result 1"]);
    assert_eq!(
        starts.call("session/set_mode", &json!({ "modeId": "plan" })),
        ["error 2 Invalid request: create a session first"]
    );
    assert_eq!(
        starts.session("session/resume", "/project", &FIRST.to_uppercase()),
        ["result 3"]
    );
    assert_eq!(
        starts.session("session/resume", "/project", FIRST),
        ["result 4"]
    );
}

#[test]
fn missing_expected_session_is_reported_and_a_new_one_begins() {
    let mut starts = Starts::new(Some(FIRST));
    starts.call("initialize", &json!({}));
    starts.launched();
    assert_eq!(starts.misses(), ["launch /project --session-id NEW"]);
    assert_eq!(starts.launched(), ["send initialize"]);
    assert_eq!(starts.answers(), ["result 1"]);
    assert_eq!(
        starts.session("session/resume", "/project", FIRST),
        ["error 2 No conversation found"]
    );
    assert_eq!(starts.session("session/new", "/project", ""), ["result 3"]);
}

#[test]
fn only_a_uuid_is_an_argument() {
    let mut starts = Starts::new(Some("--version"));
    assert_eq!(
        starts.call("initialize", &json!({})),
        ["launch /project --session-id NEW"]
    );
    starts.launched();
    starts.answers();
    for id in ["--version", "old"] {
        let answer = starts.session("session/resume", "/project", id);
        assert!(answer[0].ends_with(&format!("Session not found: {id}")));
    }
    assert_eq!(
        starts.session("session/new", "relative", ""),
        ["error 4 Invalid params: cwd must be an absolute path"]
    );
}

#[test]
fn requests_without_a_process_and_too_many_requests_are_rejected() {
    let mut starts = Starts::new(None);
    assert_eq!(
        starts.call("session/prompt", &json!({})),
        ["error 1 Invalid request: create a session first"]
    );
    starts.call("initialize", &json!({}));
    starts.launched();
    for _ in 0..64 {
        assert!(starts.call("session/prompt", &json!({})).is_empty());
    }
    assert_eq!(
        starts.call("session/prompt", &json!({})),
        ["error 67 Internal error: too many requests wait for the agent"]
    );
}

#[test]
fn version_is_a_word_that_begins_with_a_digit() {
    let version = super::super::version;
    assert_eq!(version("2.1.197 (Claude Code)\n").unwrap(), "2.1.197");
    for other in ["", "unknown option", &"1".repeat(65), "1;2"] {
        assert_eq!(version(other), None, "{other}");
    }
}
