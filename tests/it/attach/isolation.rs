//! An isolated agent in the folder of an editor: it works there, and it gets no key from the control socket.

use std::path::PathBuf;

use rustix::process::geteuid;
use serde_json::json;

use super::editor::Editor;
use crate::isolation::ground::{Machine, Opened, User, order, outside_tmp, setup, start};

/// Connects to the control socket, with the token if the program can read it. Prints the reply.
const HELLO: &str = r#"
import json, socket, sys
try:
    token = open(sys.argv[1] + "/control.token").read()
except OSError:
    token = ""
for token in (token, "x" * 43):
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(10)
        try:
            control.connect(sys.argv[1] + "/control.sock")
        except OSError as error:
            print("no connection:", error)
            continue
        hello = {"hello": {"token": token, "access": {"editor": None}}}
        try:
            control.sendall((json.dumps(hello) + "\n").encode())
        except BrokenPipeError:
            # The gateway rejects a process of an agent before it reads a request.
            pass
        print("reply:", control.recv(4096).decode().strip())
"#;

#[tokio::test]
async fn agent_works_in_the_folder_of_the_editor_and_gets_no_key() {
    let user = if geteuid().is_root() {
        User::Root
    } else {
        User::Unprivileged
    };
    for machine in [Machine::Namespaces, Machine::LandlockOnly] {
        let gateway = start(setup(user, machine, "private", ""), user);
        let project = tempfile::tempdir_in(outside_tmp()).expect("a folder");
        let project = project.path().canonicalize().expect("it exists");
        let mut editor = Editor::of({
            let mut attach = super::attach_command("attach", &gateway.path("data"));
            attach.args(["--agent", "hostile"]);
            attach
        });
        let id = editor.new_session(project.to_str().expect("UTF-8")).await;
        let session = gateway.get(&format!("/v1/sessions/{id}")).await;
        let mechanism = session["isolation"]["mechanism"]
            .as_str()
            .expect("a text")
            .to_owned();
        let session = Opened {
            id,
            cwd: PathBuf::from(&project),
            json: session,
        };
        let private = gateway
            .path("data")
            .canonicalize()
            .expect("it exists")
            .join("private");
        let run = json!({ "act": "run", "command": ["python3", "-c", HELLO, private] });
        // The agent writes the result to the folder of the editor.
        let ran = order(&gateway, &session, &run, "ran.json").await;
        let output = ran[1].as_str().expect("a text");
        assert_eq!(
            (&ran[0], output.lines().count()),
            (&json!(0), 2),
            "{machine:?} {ran}"
        );
        assert!(
            !output.contains("welcome") && !output.contains("acpg_"),
            "{machine:?} {output}"
        );
        if machine == Machine::Namespaces {
            assert_eq!(
                (&*mechanism, output.matches("no connection").count()),
                ("namespaces", 2),
                "{output}"
            );
        }
        // The same program with the rights of the editor gets a key.
        let mut python = crate::support::gateway::command("python3");
        let own = python
            .args(["-c", HELLO])
            .arg(&private)
            .output()
            .expect("python is installed");
        let output = String::from_utf8(own.stdout).expect("text");
        assert!(
            output
                .lines()
                .next()
                .is_some_and(|line| line.contains("acpg_")),
            "{output}"
        );
        assert!(
            !output
                .lines()
                .nth(1)
                .expect("a second line")
                .contains("welcome"),
            "{output}"
        );
        assert_eq!(editor.end().await.0, Some(0));
    }
}

/// Continues as an orphan in a session of its own.
const ORPHAN: &str = r"
import os, time
done, mark = os.pipe()
first = os.fork()
if first:
    os.close(mark)
    os.waitpid(first, 0)
    os.read(done, 1)
    os._exit(0)
os.setsid()
first = os.getpid()
if os.fork():
    os._exit(0)
os.close(done)
while os.getppid() == first:
    time.sleep(0.01)
";

/// An agent can know the token, for example through an editor that serves files.
#[tokio::test]
async fn agent_with_the_token_gets_no_key() {
    let user = if geteuid().is_root() {
        User::Root
    } else {
        User::Unprivileged
    };
    let gateway = start(setup(user, Machine::Any, "off", ""), user);
    let mut editor = Editor::of({
        let mut attach = super::attach_command("attach", &gateway.path("data"));
        attach.args(["--agent", "hostile"]);
        attach
    });
    let id = editor.new_session("").await;
    let session = gateway.get_session(&id).await;
    let cwd = PathBuf::from(session["cwd"].as_str().expect("a folder"));
    let session = Opened {
        id,
        cwd,
        json: session,
    };
    let private = gateway
        .path("data")
        .canonicalize()
        .expect("it exists")
        .join("private");
    for program in [HELLO.to_owned(), format!("{ORPHAN}{HELLO}")] {
        let run = json!({ "act": "run", "command": ["python3", "-c", program, private] });
        let ran = order(&gateway, &session, &run, "ran.json").await;
        let output = ran[1].as_str().expect("a text");
        assert_eq!(
            output.matches("processes of agents must not use").count(),
            2,
            "{ran}"
        );
        assert!(
            !output.contains("welcome") && !output.contains("acpg_"),
            "{output}"
        );
        std::fs::remove_file(session.cwd.join("ran.json")).expect("the agent wrote it");
    }
    assert_eq!(editor.end().await.0, Some(0));
    assert_eq!(
        gateway
            .log()
            .matches("rejected a process of an agent")
            .count(),
        1,
        "{}",
        gateway.log()
    );
}
