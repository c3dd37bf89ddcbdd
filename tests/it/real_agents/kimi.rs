//! Kimi Code before a mock of its model: an agent that reads and writes files and runs commands through its client.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::model::Model;
use super::real::KIMI;
use super::scenarios;
use crate::support::{Events, Gateway, Setup};

struct Kimi {
    gateway: Gateway,
    _model: Model,
    session: String,
    cwd: PathBuf,
}

impl Kimi {
    /// A session whose files and terminals `served` serves.
    async fn start(served: &str) -> Self {
        let model = Model::start().await;
        let more = format!("files = \"{served}\"\nterminals = \"{served}\"");
        let gateway = KIMI.configure(Setup::default(), &model, &more, &[]).start();
        let session = gateway.session("kimi").await;
        let cwd = gateway.get(&format!("/v1/sessions/{session}")).await["cwd"].clone();
        let cwd = PathBuf::from(cwd.as_str().expect("a folder"));
        Self {
            gateway,
            _model: model,
            session,
            cwd,
        }
    }

    fn call(name: &str, input: &Value) -> String {
        format!("call {name} {input}")
    }

    /// Runs a turn in which the model calls this tool. Returns the tool's result as the model received it.
    async fn tool_result(&self, name: &str, input: &Value) -> String {
        let (prompt, methods) = self
            .served(name, input, |method, _| {
                panic!("unexpected request {method}")
            })
            .await;
        assert!(methods.is_empty());
        prompt["text"].as_str().expect("text").to_owned()
    }

    fn path(&self, name: &str) -> String {
        self.cwd.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Runs a turn in which a client allows everything and serves the agent's requests. Returns the turn and the
    /// requested methods.
    async fn served(
        &self,
        name: &str,
        input: &Value,
        answer: impl Fn(&str, &Value) -> Value,
    ) -> (Value, Vec<String>) {
        let path = format!("/v1/sessions/{}", self.session);
        let mut stream: Events = self
            .gateway
            .events(&format!("{path}/events?after=tail"))
            .await;
        let prompt = self
            .gateway
            .prompt(&self.session, &Self::call(name, input))
            .await;
        let mut methods = Vec::new();
        loop {
            let event = stream.next().await.expect("the stream goes on").data;
            if event["type"] == "prompt.completed" {
                let id = prompt["promptId"].as_str().expect("an id");
                return (
                    self.gateway.get(&format!("{path}/prompts/{id}")).await,
                    methods,
                );
            }
            if event["type"] != "request.created" {
                continue;
            }
            let method = event["method"].as_str().expect("a method");
            let id = &event["requestId"];
            let id = id.as_str().expect("an id");
            let (url, answer) = if method == "session/request_permission" {
                let options = event["params"]["options"].as_array().expect("options");
                let once = options
                    .iter()
                    .find(|option| option["kind"] == "allow_once")
                    .expect("it is offered");
                (
                    format!("{path}/permissions/{id}"),
                    json!({ "optionId": once["optionId"] }),
                )
            } else {
                methods.push(method.to_owned());
                (
                    format!("{path}/requests/{id}"),
                    answer(method, &event["params"]),
                )
            };
            let (status, problem) = self.gateway.post(&url, &answer).await;
            assert_eq!(status, 204, "{method}: {problem}");
        }
    }
}

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}

#[tokio::test]
async fn kimi_reads_writes_and_runs_through_the_gateway() {
    let kimi = Kimi::start("gateway").await;
    let read = kimi.path("read.txt");
    let written = kimi.path("written.txt");
    std::fs::write(&read, "what stands there\n").expect("the folder is there");
    let tool_result = kimi.tool_result("Read", &json!({ "path": read })).await;
    assert!(
        tool_result.contains("what stands there"),
        "{tool_result}\n{:#?}",
        kimi.gateway.all_events(&kimi.session).await
    );
    kimi.tool_result("Write", &json!({ "path": written, "content": "new words" }))
        .await;
    assert_eq!(
        std::fs::read_to_string(&written).expect("it was written"),
        "new words"
    );
    let tool_result = kimi
        .tool_result(
            "Bash",
            &json!({ "command": "echo $((20 + 22)) > made.txt; cat made.txt" }),
        )
        .await;
    assert!(tool_result.contains("42"), "{tool_result}");
    assert!(
        exists(&kimi.path("made.txt")),
        "it ran in the session's folder"
    );
    let events = kimi.gateway.lawful(&kimi.session).await;
    let kinds: Vec<_> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect();
    for kind in ["terminal.created", "terminal.output", "terminal.exited"] {
        assert!(kinds.contains(&kind), "{kind} is missing: {kinds:?}");
    }
}

#[tokio::test]
async fn kimi_reads_writes_and_runs_through_a_client() {
    let kimi = Kimi::start("client").await;
    let read = kimi.path("read.txt");
    let written = kimi.path("written.txt");
    // It looks whether a file is there before it asks its client for the content.
    std::fs::write(&read, "what stands on the disk").expect("the folder is there");
    let missing = json!({ "error": { "code": -32002, "message": "Resource not found" } });
    let (prompt, methods) = kimi
        .served("Read", &json!({ "path": read }), |_, params| {
            let is_read = params["path"]
                .as_str()
                .is_some_and(|path| path.ends_with("/read.txt"));
            if is_read {
                json!({ "result": { "content": "out of a browser" } })
            } else {
                missing.clone()
            }
        })
        .await;
    assert!(
        methods.contains(&"fs/read_text_file".to_owned()),
        "{methods:?}"
    );
    assert!(
        prompt["text"]
            .as_str()
            .is_some_and(|text| text.contains("out of a browser")),
        "{prompt}"
    );

    let (prompt, methods) = kimi
        .served(
            "Write",
            &json!({ "path": written, "content": "new" }),
            |method, params| match method {
                "fs/write_text_file" => {
                    assert_eq!(params["content"], "new");
                    json!({ "result": {} })
                }
                _ => missing.clone(),
            },
        )
        .await;
    assert!(
        methods.contains(&"fs/write_text_file".to_owned()),
        "{methods:?} {prompt}"
    );
    assert!(
        !exists(&written),
        "the client has it, wherever it keeps its files"
    );

    let (prompt, methods) = kimi
        .served("Bash", &json!({ "command": "make" }), |method, params| match method {
            "terminal/create" => {
                assert!(params.to_string().contains("make"), "{params}");
                json!({ "result": { "terminalId": "mine" } })
            }
            "terminal/output" => {
                json!({ "result": { "output": "all made\n", "truncated": false, "exitStatus": { "exitCode": 0 } } })
            }
            "terminal/wait_for_exit" => json!({ "result": { "exitCode": 0 } }),
            "terminal/kill" | "terminal/release" => json!({ "result": {} }),
            _ => missing.clone(),
        })
        .await;
    assert!(
        methods.contains(&"terminal/create".to_owned()),
        "{methods:?}"
    );
    assert!(
        prompt["text"]
            .as_str()
            .is_some_and(|text| text.contains("all made")),
        "{prompt}"
    );
}

#[tokio::test]
async fn kimi_starts_two_sessions_at_once_in_a_new_home() {
    scenarios::two_sessions_at_once_in_a_new_home(&KIMI).await;
}

#[tokio::test]
async fn kimi_loads_after_the_idle_timeout() {
    scenarios::idle_timeout(&KIMI).await;
}

#[tokio::test]
async fn kimi_keeps_four_conversations_on_two_processes() {
    scenarios::more_conversations_than_processes(&KIMI, 4, 2).await;
}

#[tokio::test]
async fn kimi_works_at_the_isolation_level_workspace() {
    scenarios::workspace_isolation(&KIMI).await;
}

#[tokio::test]
async fn kimi_works_for_an_unprivileged_gateway_with_each_mechanism() {
    scenarios::unprivileged_gateway(&KIMI).await;
}
