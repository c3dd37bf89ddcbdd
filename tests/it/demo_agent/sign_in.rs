//! Sign-in to a demo agent that requires it.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use super::client::{Demo, code, everything};
use crate::support::places::gateway_program;

const REQUIRED: [(&str, &str); 1] = [("ACP_DEMO_SIGN_IN", "required")];

fn new(demo: &mut Demo) -> Value {
    demo.call("session/new", &json!({ "cwd": "/w", "mcpServers": [] }))
}

#[test]
fn agent_works_only_after_its_sign_in() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::spawn(home.path(), &REQUIRED);
    let info = demo.initialize(&json!({}));
    assert_eq!(
        info["result"]["agentCapabilities"]["auth"]["logout"],
        json!({})
    );
    let methods = info["result"]["authMethods"].as_array().unwrap();
    assert_eq!((methods.len(), &methods[0]["id"]), (1, &json!("demo")));
    let params = json!({ "sessionId": "01938c5e-7a3b-7c4d-8e5f-0123456789ab", "cwd": "/w", "mcpServers": [] });
    for method in [
        "session/new",
        "session/load",
        "session/resume",
        "session/fork",
    ] {
        assert_eq!(code(&demo.call(method, &params)), -32000, "{method}");
    }
    assert_eq!(
        code(&demo.call("authenticate", &json!({ "methodId": "demo-terminal" }))),
        -32602
    );
    assert_eq!(
        demo.call("authenticate", &json!({ "methodId": "demo" }))["result"],
        json!({})
    );
    let session = demo.session("/w");
    assert_eq!(demo.turn(&session, "/help"), "end_turn");

    let mut other = Demo::spawn(home.path(), &REQUIRED);
    other.initialize(&everything());
    assert!(
        new(&mut other).get("error").is_none(),
        "it is the same sign-in"
    );
    assert_eq!(other.call("logout", &json!({}))["result"], json!({}));
    let refused = demo.prompt(&session, "/help");
    assert_eq!(code(&demo.response(refused)), -32000, "and the same logout");
}

#[test]
fn sign_in_is_offered_only_if_it_is_required() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::spawn(home.path(), &[]);
    let info = demo.initialize(&everything());
    let methods = &info["result"]["authMethods"];
    assert!(methods.is_null() || methods == &json!([]), "{methods}");
    assert!(
        info["result"]["agentCapabilities"]["auth"]
            .get("logout")
            .is_none()
    );
    assert_eq!(
        code(&demo.call("authenticate", &json!({ "methodId": "demo" }))),
        -32602
    );
    assert_eq!(code(&demo.call("logout", &json!({}))), -32601);
}

/// The agent's command with the method's arguments and environment, with a terminal or without.
#[expect(
    clippy::disallowed_methods,
    reason = "the test is the client and runs the method itself"
)]
fn run(method: &Value, home: &Path) -> Command {
    let mut command = Command::new(gateway_program());
    command.arg("demo-agent").env_clear().env("HOME", home);
    for argument in method["args"].as_array().unwrap() {
        command.arg(argument.as_str().unwrap());
    }
    for (name, value) in method["env"].as_object().unwrap() {
        command.env(name, value.as_str().unwrap());
    }
    command
}

fn exit_code(mut child: Child) -> Option<i32> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if Instant::now() > end {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn terminal_sign_in_prompts_for_a_word() {
    let home = tempfile::tempdir().unwrap();
    let mut demo = Demo::spawn(home.path(), &REQUIRED);
    let info = demo.initialize(&everything());
    let method = info["result"]["authMethods"][1].clone();
    assert_eq!(
        (&method["type"], &method["id"]),
        (&json!("terminal"), &json!("demo-terminal"))
    );

    let piped = run(&method, home.path())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    assert_eq!(exit_code(piped), Some(1), "a pipe is no terminal");
    assert_eq!(code(&new(&mut demo)), -32000);

    for (word, expected) in [("wrong\nwrong\nwrong\n", 1), ("wrong\nsesame\n", 0)] {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = std::fs::File::options()
            .read(true)
            .write(true)
            .open(name.to_str().unwrap())
            .unwrap();
        let child = run(&method, home.path())
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs)
            .spawn()
            .unwrap();
        let mut ours = std::fs::File::from(ours);
        let mut shown = [0; 64];
        let length = ours.read(&mut shown).unwrap();
        assert!(String::from_utf8_lossy(&shown[..length]).contains("\"sesame\""));
        ours.write_all(word.as_bytes()).unwrap();
        assert_eq!(exit_code(child), Some(expected));
    }
    assert!(new(&mut demo).get("error").is_none());
}
