//! Commands that the gateway runs for an agent.

mod ends;
mod output;
mod rest;

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::places::fake_agent;
use crate::support::{Gateway, Setup};

const SERVED: &str = "terminals = \"gateway\"";

fn gateway() -> Gateway {
    Setup::fake_with(&["--close"], SERVED).start()
}

/// A step that runs a script in a shell.
fn shell(script: &str) -> Value {
    json!({ "create": { "command": "sh", "args": ["-c", script] } })
}

fn prompt(steps: &Value) -> String {
    format!("terminal {steps}")
}

/// Runs the steps in one turn. Returns the result of each step.
async fn play(gateway: &Gateway, session: &str, steps: &Value) -> Vec<(String, Value)> {
    let turn = gateway.turn(session, &prompt(steps)).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    let text = turn["text"].as_str().expect("a text");
    let parsed = text.lines().map(|line| {
        let (word, came) = line.split_once(' ').expect("a word and what came");
        let came = match came.strip_prefix("error ") {
            Some(code) => json!({ "error": code.parse::<i64>().expect("a code") }),
            None => serde_json::from_str(came).expect("JSON"),
        };
        (word.to_owned(), came)
    });
    parsed.collect()
}

/// Returns only the result of the last step.
async fn last(gateway: &Gateway, session: &str, steps: &Value) -> Value {
    play(gateway, session, steps).await.pop().expect("a step").1
}

/// The joined output of all `terminal.output` events of a terminal. Checks that it has no gap.
fn logged_output(events: &[Value], terminal: &str) -> String {
    let mut text = String::new();
    for event in events
        .iter()
        .filter(|e| e["type"] == "terminal.output" && e["terminalId"] == terminal)
    {
        assert_eq!(event["offset"], text.len(), "{event}");
        text += event["data"].as_str().expect("text");
    }
    text
}

#[tokio::test]
async fn a_command_runs_shows_and_ends() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let steps = json!([
        shell("echo out; echo err >&2; exit 3"),
        "wait",
        "output",
        "release",
        "output"
    ]);
    let came = play(&gateway, &session, &steps).await;
    assert_eq!(
        came,
        [
            ("create".to_owned(), json!({ "terminalId": "t1" })),
            ("wait".to_owned(), json!({ "exitCode": 3, "signal": null })),
            (
                "output".to_owned(),
                json!({ "output": "out\nerr\n", "truncated": false, "exitStatus": { "exitCode": 3, "signal": null } })
            ),
            ("release".to_owned(), json!({})),
            ("output".to_owned(), json!({ "error": -32002 })),
        ]
    );
    let events = gateway.lawful(&session).await;
    let of = |kind: &str| {
        events
            .iter()
            .find(|event| event["type"] == kind)
            .expect("it was logged")
    };
    let created = of("terminal.created");
    let cwd = gateway.get_session(&session).await["cwd"].clone();
    for (member, value) in [
        ("terminalId", json!("t1")),
        ("promptId", json!("p1")),
        ("command", json!("sh")),
        ("args", json!(["-c", "echo out; echo err >&2; exit 3"])),
        ("cwd", cwd),
    ] {
        assert_eq!(created[member], value, "{created}");
    }
    assert_eq!(logged_output(&events, "t1"), "out\nerr\n");
    let exited = of("terminal.exited");
    assert_eq!(
        (&exited["exitCode"], &exited["signal"]),
        (&json!(3), &Value::Null)
    );
    assert_eq!(exited["promptId"], "p1");
    let next = play(&gateway, &session, &json!([shell("exit"), "wait"])).await;
    assert_eq!(
        next[0].1,
        json!({ "terminalId": "t2" }),
        "ids count within the session"
    );
}

#[tokio::test]
async fn terminal_has_the_sessions_folder_and_the_agents_environment() {
    let env = "env = { AGENT_WORD = \"agent\", TOKEN = { from_file = \"token\" } }";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "hunter2-hunter2").expect("the folder is ours");
    let env = env.replace("\"token\"", &format!("{token:?}"));
    let gateway = Setup::fake_with(&[], &format!("{SERVED}\n{env}")).start();
    let session = gateway.session("fake").await;
    let cwd = gateway.get_session(&session).await["cwd"]
        .as_str()
        .expect("a path")
        .to_owned();
    std::fs::create_dir(format!("{cwd}/below")).expect("the folder is ours");
    let script = "pwd; echo $AGENT_WORD $ADDED $TOKEN; basename $HOME; wc -c";
    let steps = json!([
        { "create": {
            "command": "sh", "args": ["-c", script], "cwd": format!("{cwd}/below"),
            "env": [{ "name": "ADDED", "value": "two words" }],
        } },
        "wait",
        "output",
    ]);
    let shown = last(&gateway, &session, &steps).await;
    assert_eq!(
        shown["output"],
        format!("{cwd}/below\nagent two words [secret]\nfake\n0\n"),
        "a secret of the configuration does not show: {shown}"
    );
    let log = gateway.lawful(&session).await;
    assert!(
        !json!(log).to_string().contains("hunter2"),
        "nor in the log"
    );
}

/// Some agents send a whole line for a shell as the command, without arguments.
#[tokio::test]
async fn shell_line_without_args_runs_by_sh_unless_a_program_has_its_name() {
    use std::os::unix::fs::PermissionsExt as _;
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let output = async |create: Value| {
        let steps = json!([{ "create": create }, "wait", "output"]);
        last(&gateway, &session, &steps).await["output"].clone()
    };
    for (line, printed) in [
        ("printf one && printf two", "onetwo"),
        ("/bin/echo \"a  b\" | tr a-z A-Z", "A  B\n"),
    ] {
        assert_eq!(output(json!({ "command": line })).await, printed, "{line}");
    }
    let cwd = gateway.get_session(&session).await["cwd"]
        .as_str()
        .expect("a path")
        .to_owned();
    let program = format!("{cwd}/printf one");
    std::fs::write(&program, "#!/bin/sh\nprintf program").expect("the folder is ours");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .expect("the file is ours");
    assert_eq!(
        output(json!({ "command": "./printf one" })).await,
        "program",
        "no shell splits the name"
    );
    let steps = json!([{ "create": { "command": "printf one", "args": ["x"] } }]);
    let rejected = last(&gateway, &session, &steps).await;
    assert!(
        rejected["error"].is_number(),
        "a command with args is no line: {rejected}"
    );
}

#[tokio::test]
async fn invalid_command_is_rejected() {
    let gateway = gateway();
    let session = gateway.session("fake").await;
    let cwd = gateway.get_session(&session).await["cwd"]
        .as_str()
        .expect("a path")
        .to_owned();
    std::os::unix::fs::symlink("/etc", format!("{cwd}/link")).expect("the folder is ours");
    std::fs::create_dir(format!("{cwd}-sibling")).expect("the root is ours");
    let sh = |more: Value| {
        let mut create = json!({ "command": "sh", "args": ["-c", "echo ran"] });
        create
            .as_object_mut()
            .expect("an object")
            .extend(more.as_object().expect("an object").clone());
        json!([{ "create": create }])
    };
    for (what, steps) in [
        (
            "a missing program",
            json!([{ "create": { "command": "no-such-program" } }]),
        ),
        ("no command", json!([{ "create": {} }])),
        ("an empty command", json!([{ "create": { "command": "" } }])),
        (
            "a NUL",
            json!([{ "create": { "command": "sh", "args": ["a\u{0}b"] } }]),
        ),
        (
            "a variable without a name",
            sh(json!({ "env": [{ "name": "", "value": "x" }] })),
        ),
        (
            "a long command",
            json!([{ "create": { "command": "sh", "args": ["x".repeat(300 << 10)] } }]),
        ),
        ("a relative folder", sh(json!({ "cwd": "." }))),
        ("a folder outside", sh(json!({ "cwd": "/" }))),
        ("dot-dot", sh(json!({ "cwd": format!("{cwd}/..") }))),
        (
            "a sibling with the same prefix",
            sh(json!({ "cwd": format!("{cwd}-sibling") })),
        ),
        (
            "a link that leads out",
            sh(json!({ "cwd": format!("{cwd}/link") })),
        ),
        (
            "a missing folder",
            sh(json!({ "cwd": format!("{cwd}/missing") })),
        ),
        ("another session", sh(json!({ "sessionId": "another" }))),
    ] {
        let came = last(&gateway, &session, &steps).await;
        assert_eq!(came, json!({ "error": -32602 }), "{what}");
    }
    for step in ["output", "wait", "kill", "release"] {
        for unknown in ["t1", "t0", "1", ""] {
            let came = last(
                &gateway,
                &session,
                &json!([{ step: { "terminalId": unknown } }]),
            )
            .await;
            assert_eq!(came, json!({ "error": -32002 }), "{step} {unknown:?}");
        }
    }
    let events = gateway.lawful(&session).await;
    assert!(events.iter().all(|event| {
        !event["type"]
            .as_str()
            .expect("a type")
            .starts_with("terminal.")
    }));
}

#[tokio::test]
async fn policy_off_starts_no_terminal() {
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let path = log.path().to_str().expect("plain");
    let gateway = Setup::fake(&["--log", path])
        .agent("served", fake_agent(), &["--log", path], SERVED)
        .start();
    let off = gateway.session("fake").await;
    let came = last(&gateway, &off, &json!([shell("echo ran")])).await;
    assert_eq!(came, json!({ "error": -32601 }));

    let body = json!({ "agent": "served", "policy": { "terminals": "off" } });
    let (status, narrowed) = gateway.post("/v1/sessions", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{narrowed}");
    let narrowed = narrowed["sessionId"].as_str().expect("an id");
    let came = last(&gateway, narrowed, &json!([shell("echo ran")])).await;
    assert_eq!(came, json!({ "error": -32601 }), "a session may narrow it");
    let offered = |text: &str| {
        std::fs::read_to_string(log.path())
            .expect("the log")
            .contains(text)
    };
    assert!(offered("\"terminal\":false") && !offered("\"terminal\":true"));

    let served = gateway.session("served").await;
    let came = last(&gateway, &served, &json!([shell("exit 5"), "wait"])).await;
    assert_eq!(came["exitCode"], 5);
    assert!(offered("\"terminal\":true"));
}

#[tokio::test]
async fn a_session_has_so_many_terminals_and_no_more() {
    let gateway = Setup::fake_with(&[], SERVED)
        .settings("limits.per_session.max_terminals = 2")
        .start();
    let session = gateway.session("fake").await;
    let steps = json!([
        shell("sleep 60"),
        shell("exit"),
        shell("exit"),
        "release",
        shell("exit"),
        "wait"
    ]);
    let came = play(&gateway, &session, &steps).await;
    let ids: Vec<&Value> = came.iter().map(|(_, came)| came).collect();
    assert_eq!(
        ids[..2],
        [
            &json!({ "terminalId": "t1" }),
            &json!({ "terminalId": "t2" })
        ]
    );
    assert_eq!(ids[2], &json!({ "error": -32603 }), "two are open");
    assert_eq!(ids[4], &json!({ "terminalId": "t3" }), "one was released");
}
