//! The adapter of Claude Code to ACP, with Claude Code itself, before a mock of its model.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::model::Model;
use super::real::{CLAUDE, Running, written};
use super::scenarios;
use crate::isolation::ground::{self, Machine, User, outside_tmp, run_by};
use crate::support::{Events, Gateway, Setup, eventually};

struct Claude {
    gateway: Gateway,
    _model: Model,
}

impl Claude {
    async fn start() -> Self {
        let model = Model::start().await;
        Self {
            gateway: Self::gateway(&model, &[], Setup::default()),
            _model: model,
        }
    }

    /// A gateway with Claude before this model; `variables` are added to its environment.
    fn gateway(model: &Model, variables: &[(&str, String)], setup: Setup) -> Gateway {
        // The variables name folders of the operator. With isolation, an agent of root can only read them.
        let level = if variables.is_empty() {
            ""
        } else {
            "isolation = \"off\"\n"
        };
        CLAUDE.configure(setup, model, level, variables).start()
    }

    /// A session with a turn that waits for the permission to make a file; its stream, the question, and the file.
    async fn asked(&self) -> (String, Events, Value, PathBuf) {
        let session = self.gateway.session("claude").await;
        let path = format!("/v1/sessions/{session}");
        let cwd = self.gateway.get(&path).await["cwd"]
            .as_str()
            .expect("a folder")
            .to_owned();
        let mut stream = self.gateway.events(&format!("{path}/events")).await;
        let call = r#"call Bash {"command":"touch made.txt","description":"Make a file"}"#;
        self.gateway.prompt(&session, call).await;
        let request = stream
            .until("request.created")
            .await
            .pop()
            .expect("until gives it")
            .data;
        assert_eq!(request["method"], "session/request_permission");
        (
            session,
            stream,
            request,
            PathBuf::from(cwd).join("made.txt"),
        )
    }

    async fn answer(&self, session: &str, request: &Value, kind: &str) {
        let options = request["params"]["options"].as_array().expect("options");
        let option = options
            .iter()
            .find(|option| option["kind"] == kind)
            .expect("it is offered");
        let id = request["requestId"].as_str().expect("an id");
        let path = format!("/v1/sessions/{session}/permissions/{id}");
        let (status, answer) = self
            .gateway
            .post(&path, &json!({ "optionId": option["optionId"] }))
            .await;
        assert_eq!(status, 204, "{answer}");
    }

    /// Kills the processes of this gateway's agents, as the system does when memory is short.
    async fn kill_agents(&self) {
        for pid in self.gateway.agents_alive() {
            let pid = Pid::from_raw(pid.cast_signed()).expect("a pid");
            // One of them may have gone with the one before.
            rustix::process::kill_process(pid, Signal::KILL).unwrap_or_default();
        }
        self.gateway.none_alive().await;
    }
}

#[tokio::test]
async fn claude_is_allowed_to_use_a_tool() {
    let claude = Claude::start().await;
    let (session, mut stream, request, made) = claude.asked().await;
    assert!(!made.exists(), "it waits for the answer");
    claude.answer(&session, &request, "allow_once").await;
    let end = stream
        .until("prompt.completed")
        .await
        .pop()
        .expect("until gives it")
        .data;
    assert_eq!(end["stopReason"], "end_turn", "{end}");
    assert!(made.exists());
    let prompt = claude
        .gateway
        .get(&format!("/v1/sessions/{session}/prompts/p1"))
        .await;
    assert!(
        prompt["text"]
            .as_str()
            .expect("text")
            .starts_with("The tool says:"),
        "{prompt}"
    );
}

#[tokio::test]
async fn claude_is_refused_a_tool() {
    let claude = Claude::start().await;
    let (session, mut stream, request, made) = claude.asked().await;
    claude.answer(&session, &request, "reject_once").await;
    let end = stream
        .until("prompt.completed")
        .await
        .pop()
        .expect("until gives it")
        .data;
    assert_eq!(end["promptId"], "p1");
    assert!(!made.exists(), "the rejected command did not run");
    let again = claude.gateway.turn(&session, "and then").await;
    assert_eq!(again["status"], "completed", "{again}");
}

#[tokio::test]
async fn claude_is_cancelled_during_a_request_and_during_output() {
    let claude = Claude::start().await;
    let (session, mut stream, request, made) = claude.asked().await;
    let path = format!("/v1/sessions/{session}");
    assert_eq!(
        claude
            .gateway
            .post(&format!("{path}/cancel"), &json!({}))
            .await
            .0,
        202
    );
    let events = stream.until("prompt.completed").await;
    let resolved = events
        .iter()
        .find(|event| event.of("request.resolved"))
        .expect("it is resolved");
    assert_eq!(
        (&resolved.data["requestId"], &resolved.data["resolution"]),
        (&request["requestId"], &json!("cancelled"))
    );
    assert_eq!(
        events.last().expect("its end").data["stopReason"],
        "cancelled"
    );
    assert!(!made.exists());

    claude.gateway.prompt(&session, "slowly").await;
    stream.until("session.update").await;
    assert_eq!(
        claude
            .gateway
            .post(&format!("{path}/cancel"), &json!({}))
            .await
            .0,
        202
    );
    let end = stream
        .until("prompt.completed")
        .await
        .pop()
        .expect("until gives it")
        .data;
    let prompt = claude.gateway.get(&format!("{path}/prompts/p2")).await;
    assert_eq!(
        (&end["promptId"], &end["stopReason"]),
        (&json!("p2"), &json!("cancelled")),
        "{prompt}"
    );
    let next = claude.gateway.turn(&session, "a third").await;
    assert_eq!(next["stopReason"], "end_turn", "{next}");
}

#[tokio::test]
async fn claude_remembers_in_a_second_process_after_the_first_was_killed() {
    let claude = Claude::start().await;
    let session = claude.gateway.session("claude").await;
    claude.gateway.turn(&session, "banana").await;
    // Claude Code writes its record some time after the response. Another process cannot read unwritten entries.
    let projects = claude
        .gateway
        .path("data/homes/default/claude/.claude/projects");
    eventually(
        "it has stored the messages",
        Duration::from_secs(20),
        || async {
            written(&projects)
                .contains("banana comes after")
                .then_some(())
        },
    )
    .await;
    claude.kill_agents().await;
    let path = format!("/v1/sessions/{session}");
    eventually("it is detached", Duration::from_secs(10), || async {
        (claude.gateway.get(&path).await["attached"] == false).then_some(())
    })
    .await;
    let before = claude.gateway.all_events(&session).await;
    let second = claude.gateway.turn(&session, "cherry").await;
    assert_eq!(second["text"], "cherry comes after banana", "{second}");
    let events = claude.gateway.lawful(&session).await;
    let attached: Vec<_> = events
        .iter()
        .filter(|event| event["type"] == "session.attached")
        .collect();
    assert_eq!(attached.len(), 2);
    assert_eq!(attached[1]["context"], "kept");
    // The history does not repeat earlier events.
    let count = |events: &[Value]| {
        events
            .iter()
            .filter(|event| event["update"].to_string().contains("banana"))
            .count()
    };
    assert_eq!(count(&before), 1, "{before:#?}");
    assert_eq!(
        count(&events[before.len()..]),
        1,
        "only in the answer: {:#?}",
        &events[before.len()..]
    );
}

#[tokio::test]
async fn second_gateway_loads_a_claude_session_after_a_kill_of_the_first_process() {
    let model = Model::start().await;
    let kept = tempfile::tempdir().expect("a temporary folder");
    let config = [(
        "CLAUDE_CONFIG_DIR",
        kept.path().to_str().expect("UTF-8").to_owned(),
    )];
    let mut first = Claude::gateway(&model, &config, Setup::default());
    let session = first.session("claude").await;
    let cwd = first.get_session(&session).await["cwd"]
        .as_str()
        .expect("a folder")
        .to_owned();
    first.turn(&session, "banana").await;
    eventually(
        "it has stored the messages",
        Duration::from_secs(20),
        || async {
            written(kept.path())
                .contains("banana comes after")
                .then_some(())
        },
    )
    .await;
    first.kill();

    let roots = format!("[workspaces]\nallow = [{cwd:?}]\n");
    let second = Claude::gateway(&model, &config, Setup::default().table(&roots));
    let listed = second.get("/v1/agents/claude/sessions").await;
    let theirs = &listed["sessions"][0];
    assert_eq!(
        (&theirs["cwd"], &theirs["sessionId"]),
        (&json!(cwd), &Value::Null),
        "{listed}"
    );
    let body = json!({ "agent": "claude", "agentSessionId": theirs["agentSessionId"], "cwd": cwd });
    let (status, adopted) = second.post("/v1/sessions", &body).await;
    assert_eq!(status, 201, "{adopted}\n{}", second.log());
    let adopted = adopted["sessionId"].as_str().expect("an id");
    let history = second.lawful(adopted).await;
    let replayed: Vec<_> = history
        .iter()
        .filter(|event| event["replayed"] == true)
        .collect();
    assert!(
        replayed
            .iter()
            .any(|event| event["update"].to_string().contains("banana comes after"))
    );
    assert_eq!(
        second.turn(adopted, "cherry").await["text"],
        "cherry comes after banana"
    );
}

#[tokio::test]
async fn claude_starts_two_sessions_at_once_in_a_new_home() {
    scenarios::two_sessions_at_once_in_a_new_home(&CLAUDE).await;
}

#[tokio::test]
async fn claude_loads_after_the_idle_timeout() {
    scenarios::idle_timeout(&CLAUDE).await;
}

#[tokio::test]
async fn claude_keeps_four_conversations_on_two_processes() {
    scenarios::more_conversations_than_processes(&CLAUDE, 4, 2).await;
}

#[tokio::test]
async fn claude_works_at_the_isolation_level_workspace() {
    scenarios::workspace_isolation(&CLAUDE).await;
}

#[tokio::test]
async fn claude_works_for_an_unprivileged_gateway_with_each_mechanism() {
    scenarios::unprivileged_gateway(&CLAUDE).await;
}

/// The sandbox permits changes in the folder of the session only, and a command in it needs no permission.
#[tokio::test]
async fn claude_uses_its_own_sandbox_in_the_namespaces_of_an_ordinary_user() {
    if !User::Unprivileged.can_run() {
        return;
    }
    let words = run_by(User::Unprivileged, Machine::Namespaces);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let sandbox = json!({ "sandbox": {
        "enabled": true,
        "failIfUnavailable": true,
        "autoAllowBashIfSandboxed": true,
        "allowUnsandboxedCommands": false,
    } });
    for level in ["private", "workspace"] {
        let setup = Setup::default().run_by(&words).below(outside_tmp());
        let model = Model::start().await;
        let setup = CLAUDE.configure(setup, &model, &format!("isolation = {level:?}\n"), &[]);
        let gateway = ground::start_after(setup, User::Unprivileged, |folder| {
            let settings = folder.join("data/homes/default/claude/.claude");
            std::fs::create_dir_all(&settings).expect("the folder is ours");
            std::fs::write(settings.join("settings.json"), sandbox.to_string())
                .expect("the folder is ours");
        });
        let running = Running::new(&CLAUDE, gateway, model);
        let session = running.session().await;
        let command = "echo runs >inside.txt; cat inside.txt; touch \"$HOME/outside.txt\"";
        let turn = running.turn(&session, &CLAUDE.shell(command)).await;
        let text = turn["text"].as_str().expect("a text");
        assert!(
            text.contains("runs") && text.contains("Read-only file system"),
            "{level}: {turn}"
        );
        assert!(
            running.cwd(&session).await.join("inside.txt").exists(),
            "{level}"
        );
    }
}
