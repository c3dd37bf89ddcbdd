//! Files and terminals that a member serves to its agent.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Member, PATIENCE, address, ended, session};
use crate::support::gateway::KEY;
use crate::support::log::{agent_text, all};
use crate::support::{Gateway, Setup, eventually};

/// A folder with the root of a member, and a file outside of it.
struct Ground {
    _dir: tempfile::TempDir,
    base: PathBuf,
    root: PathBuf,
}

impl Ground {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let base = dir.path().canonicalize().expect("it exists");
        let root = base.join("root");
        std::fs::create_dir_all(root.join("sub")).expect("the folder is ours");
        std::fs::write(base.join("secret"), "secret").expect("the folder is ours");
        std::os::unix::fs::symlink(base.join("secret"), root.join("link"))
            .expect("the folder is ours");
        Self {
            _dir: dir,
            base,
            root,
        }
    }

    fn member(&self, gateway: &Gateway, more: &[&str]) -> Member {
        let args = [&["--root", self.root.to_str().expect("UTF-8")], more].concat();
        Member::start(&address(gateway), "laptop", KEY, &args)
    }
}

/// The text of a turn.
async fn said(gateway: &Gateway, session: &str, prompt: &str) -> String {
    let turn = gateway.turn(session, prompt).await;
    assert_eq!(turn["status"], "completed", "{turn}");
    turn["text"].as_str().expect("a text").to_owned()
}

fn terminal(steps: &Value) -> String {
    format!("terminal {steps}")
}

#[tokio::test(flavor = "multi_thread")]
async fn member_serves_files_below_its_roots() {
    let ground = Ground::new();
    let gateway = Setup::fake(&[]).start();
    let member = ground.member(&gateway, &["--files"]);
    let session = session(&gateway, &member, "laptop").await;
    let path = |name: &str| ground.root.join(name).display().to_string();
    let prompt = format!("write path={0} text=hello; read path={0}", path("sub/new"));
    assert_eq!(said(&gateway, &session, &prompt).await, "[written][hello]");
    let written = std::fs::read_to_string(ground.root.join("sub/new")).expect("it was written");
    assert_eq!(written, "hello");
    for (outside, code) in [
        (ground.base.join("secret"), -32602),
        (ground.root.join("link"), -32602),
        (Path::new("/etc/hostname").to_owned(), -32602),
        (ground.root.join("missing"), -32002),
    ] {
        let read = said(
            &gateway,
            &session,
            &format!("read path={}", outside.display()),
        )
        .await;
        assert_eq!(read, format!("[error {code}]"), "{}", outside.display());
    }
    let write = format!("write path={} text=x", ground.base.join("secret").display());
    assert_eq!(said(&gateway, &session, &write).await, "[error -32602]");
    // Terminals are not served without their option.
    let refused = said(
        &gateway,
        &session,
        &terminal(&json!([{ "create": { "command": "id" } }])),
    )
    .await;
    assert_eq!(refused.trim(), "create error -32601");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_without_the_options_serves_nothing() {
    let ground = Ground::new();
    let gateway = Setup::fake(&[]).start();
    let member = ground.member(&gateway, &[]);
    let session = session(&gateway, &member, "laptop").await;
    let read = format!("read path={}", ground.root.join("sub").display());
    assert_eq!(said(&gateway, &session, &read).await, "[error -32601]");
    let refused = said(
        &gateway,
        &session,
        &terminal(&json!([{ "create": { "command": "id" } }])),
    )
    .await;
    assert_eq!(refused.trim(), "create error -32601");
}

#[tokio::test(flavor = "multi_thread")]
async fn member_runs_commands_in_the_folder_of_the_session() {
    let ground = Ground::new();
    let gateway = Setup::fake(&[]).start();
    let member = ground.member(&gateway, &["--terminals"]);
    session(&gateway, &member, "laptop").await;
    let folder = ground.root.join("sub");
    let (status, body) = gateway
        .post("/v1/sessions", &json!({ "agent": "laptop", "cwd": folder }))
        .await;
    assert_eq!(status, 201, "{body}");
    let session = body["sessionId"].as_str().expect("an id");
    let steps = json!([
        { "create": { "command": "sh", "args": ["-c", "pwd; echo $NAME; exit 3"], "env": [{ "name": "NAME", "value": "v" }] } },
        "wait",
        "output",
        "release",
        "output",
    ]);
    let text = said(&gateway, session, &terminal(&steps)).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], r#"create {"terminalId":"t1"}"#, "{text}");
    assert_eq!(lines[1], r#"wait {"exitCode":3,"signal":null}"#, "{text}");
    assert!(
        lines[2].contains(&format!("{}\\nv\\n", folder.display())),
        "{text}"
    );
    assert!(
        lines[3].starts_with("release {") && lines[4] == "output error -32002",
        "{text}"
    );

    let outside = json!([{ "create": { "command": "id", "cwd": ground.base } }]);
    assert_eq!(
        said(&gateway, session, &terminal(&outside)).await.trim(),
        "create error -32602"
    );
    let killed = json!([{ "create": { "command": "sleep", "args": ["60"] } }, "begin-wait", "kill", "waited"]);
    let text = said(&gateway, session, &terminal(&killed)).await;
    assert!(text.contains("SIGKILL"), "{text}");
    // The member serves the commands, so the log of the gateway has no events of them.
    let events = gateway.all_events(session).await;
    assert!(
        all(&events, "terminal.created").is_empty() && all(&events, "request.created").is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn command_of_the_agent_outlives_a_kill_of_the_gateway() {
    let ground = Ground::new();
    let mut gateway = Setup::fake(&[]).start();
    let member = ground.member(&gateway, &["--terminals"]);
    let session = session(&gateway, &member, "laptop").await;
    let script = "touch began; while [ ! -e go ]; do sleep 0.05; done; echo finished";
    let steps =
        json!([{ "create": { "command": "sh", "args": ["-c", script] } }, "wait", "output"]);
    let prompt = gateway.prompt(&session, &terminal(&steps)).await;
    eventually("the command runs", PATIENCE, || async {
        ground.root.join("began").exists().then_some(())
    })
    .await;
    gateway.kill();
    std::fs::write(ground.root.join("go"), "").expect("the folder is ours");
    gateway.start();
    let end = ended(&gateway, &session, &prompt).await;
    assert_eq!(
        end["status"],
        "completed",
        "{end}\n{}\n{}",
        gateway.log(),
        member.log()
    );
    let text = agent_text(&gateway.all_events(&session).await);
    assert_eq!(text.matches("finished").count(), 1, "{text}");
}
