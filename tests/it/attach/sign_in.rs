//! Terminal sign-ins of an editor: the rewritten method runs in a pseudo terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};

use super::editor::{Editor, initialize};
use crate::support::gateway::{KEY, command};
use crate::support::places::{fake_agent, gateway_program};
use crate::support::prefix_proxy::{Host, PrefixProxy};
use crate::support::wait::LONGEST;
use crate::support::{Gateway, Setup};

/// A program in a pseudo terminal.
struct Terminal {
    child: Child,
    ours: File,
    theirs: OwnedFd,
    shown: String,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a pseudo terminal");
        grantpt(&ours).expect("it is ours");
        unlockpt(&ours).expect("it is ours");
        let theirs = ioctl_tiocgptpeer(&ours, flags).expect("its other end");
        let end = || Stdio::from(theirs.try_clone().expect("a copy"));
        command.stdin(end()).stdout(end()).stderr(end());
        let mut terminal = Self {
            child: command.spawn().expect("the binary was built"),
            ours: ours.into(),
            theirs,
            shown: String::new(),
        };
        terminal.resize(100, 30, false);
        terminal
    }

    fn resize(&mut self, cols: u16, rows: u16, notify: bool) {
        let size = Winsize {
            ws_col: cols,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.ours, size).expect("it is ours");
        if notify {
            self.signal(Signal::WINCH);
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }

    fn types(&mut self, text: &str) {
        self.ours.write_all(text.as_bytes()).expect("it is ours");
    }

    /// Reads until the program has printed this.
    fn until(&mut self, text: &str) {
        let began = Instant::now();
        while !self.shown.contains(text) {
            assert!(began.elapsed() < LONGEST, "no {text:?} in {:?}", self.shown);
            self.read();
        }
    }

    /// Reads the output that arrives within a moment. The end of a child can interrupt the wait.
    fn read(&mut self) {
        let limit = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 50_000_000,
        };
        let mut ready = [rustix::event::PollFd::new(
            &self.ours,
            rustix::event::PollFlags::IN,
        )];
        if rustix::event::poll(&mut ready, Some(&limit)).unwrap_or(0) > 0 {
            let mut bytes = [0; 4096];
            let count = self.ours.read(&mut bytes).expect("it is ours");
            self.shown
                .push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.theirs)
            .expect("it is ours")
            .local_modes
            .contains(LocalModes::ICANON)
    }

    fn ended(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            self.read();
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                self.read();
                return status.code();
            }
            assert!(
                began.elapsed() < LONGEST,
                "it does not end: {:?}",
                self.shown
            );
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A gateway with an agent that needs a sign-in.
fn gateway() -> (Gateway, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("signed-in");
    let args = [
        "--auth-required",
        "--auth-file",
        file.to_str().expect("UTF-8"),
    ];
    let program = fake_agent();
    (
        Setup::default()
            .agent("fake", program, &args, "terminal_auth = true\n")
            .start(),
        folder,
    )
}

/// The terminal method that an editor with this capability sees.
async fn method(editor: &mut Editor, capabilities: Value) -> Option<Value> {
    let mut request = initialize();
    request["params"]["clientCapabilities"] = capabilities;
    editor.send(&request).await;
    let methods = editor.response(0).await["result"]["authMethods"].clone();
    let mut methods = methods.as_array().expect("a list").iter();
    methods.find(|method| method["type"] == "terminal").cloned()
}

/// The command that an editor runs for a method.
fn sign_in(gateway: &Gateway, method: &Value) -> Command {
    let run = &method["_meta"]["terminal-auth"];
    let mut sign_in = command(run["command"].as_str().expect("a program"));
    let args = run["args"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|arg| arg.as_str().expect("a text"));
    sign_in.env_clear().env("HOME", gateway.path("")).args(args);
    sign_in
}

#[tokio::test]
async fn terminal_method_runs_the_sign_in_of_the_gateway() {
    let (gateway, _folder) = gateway();
    let data = gateway.path("data");
    let local = || {
        let mut attach = super::attach_command("attach", &data);
        attach.arg("--data").arg(&data);
        attach
    };
    let mut plain = Editor::of(local());
    assert_eq!(
        method(&mut plain, json!({})).await,
        None,
        "an editor without terminals"
    );
    let mut editor = Editor::of(local());
    let method = method(&mut editor, json!({ "auth": { "terminal": true } }))
        .await
        .expect("a method");
    let id = method["id"].as_str().expect("a text");
    assert_eq!(method["args"], json!(["sign-in", "--method", id]));
    assert!(
        method["env"].is_null(),
        "variables are for the agent's command: {method}"
    );
    editor.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "session/new", "params": { "cwd": "", "mcpServers": [] } })).await;
    assert_eq!(editor.response(1).await["error"]["code"], -32000);

    // A wrong word: the exit code is that of the agent's command.
    let mut terminal = Terminal::start(sign_in(&gateway, &method));
    terminal.until("the word: ");
    assert!(terminal.is_raw());
    terminal.types("wrong\n");
    assert_eq!(terminal.ended(), Some(1));
    assert!(!terminal.is_raw());

    // A signal restores the terminal.
    let mut terminal = Terminal::start(sign_in(&gateway, &method));
    terminal.until("the word: ");
    terminal.signal(Signal::TERM);
    assert_eq!(terminal.ended(), Some(1));
    assert!(
        !terminal.is_raw() && terminal.shown.contains("cancelled"),
        "{}",
        terminal.shown
    );

    let mut terminal = Terminal::start(sign_in(&gateway, &method));
    terminal.until("the word: ");
    terminal.types("size\n");
    terminal.until("100x30");
    terminal.resize(120, 40, true);
    // The gateway receives the size some time after the change.
    let began = Instant::now();
    while !terminal.shown.contains("120x40") {
        assert!(began.elapsed() < LONGEST, "{}", terminal.shown);
        terminal.types("size\n");
        terminal.read();
    }
    terminal.types("sesame\n");
    assert_eq!(terminal.ended(), Some(0), "{}", terminal.shown);
    assert!(
        !terminal.is_raw() && terminal.shown.contains("welcome"),
        "{}",
        terminal.shown
    );
    assert!(!terminal.shown.contains("acpg_"), "{}", terminal.shown);
    editor.send(&json!({ "jsonrpc": "2.0", "id": 2, "method": "session/new", "params": { "cwd": "", "mcpServers": [] } })).await;
    assert!(editor.response(2).await["result"]["sessionId"].is_string());
    assert_eq!(editor.end().await.0, Some(0));
}

/// The proxy runs while the test waits for the terminal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_in_works_below_the_path_of_a_proxy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("signed-in");
    let args = [
        "--auth-required",
        "--auth-file",
        file.to_str().expect("UTF-8"),
    ];
    let proxy = PrefixProxy::bind().await;
    let gateway = Setup::default()
        .agent("fake", fake_agent(), &args, "terminal_auth = true\n")
        .settings(&format!("server.public_url = \"{}\"", proxy.url()))
        .start();
    let served = proxy.serve(&gateway.url, Host::Kept);
    for url in [&served.url, &gateway.url] {
        let mut attach = command(gateway_program());
        attach
            .env_clear()
            .env("HOME", gateway.path(""))
            .env("ACP_GATEWAY_KEY", KEY);
        attach.args(["attach", "--url", url, "sign-in", "--method", "shell"]);
        let mut terminal = Terminal::start(attach);
        terminal.until("the word: ");
        terminal.types("sesame\n");
        assert_eq!(terminal.ended(), Some(0), "{url}: {}", terminal.shown);
    }
}

#[tokio::test]
async fn sign_in_at_a_remote_gateway_needs_the_scope_admin() {
    let (gateway, _folder) = gateway();
    let mut attach = command(gateway_program());
    attach
        .env_clear()
        .env("HOME", gateway.path(""))
        .env("ACP_GATEWAY_KEY", KEY);
    attach.args(["attach", "--url", &gateway.url]);
    let mut editor = Editor::of(attach);
    let method = method(&mut editor, json!({ "_meta": { "terminal-auth": true } }))
        .await
        .expect("a method");
    let with_key = |key: &str| {
        let mut sign_in = sign_in(&gateway, &method);
        sign_in.env("ACP_GATEWAY_KEY", key);
        Terminal::start(sign_in)
    };
    let mut key = super::attach_command("key", &gateway.path("data"));
    let key = key
        .args(["create", "someone"])
        .output()
        .expect("the binary was built")
        .stdout;
    let key = String::from_utf8(key).expect("text");
    super::until_known(&gateway, key.trim()).await;
    let mut terminal = with_key(key.trim());
    assert_eq!(terminal.ended(), Some(1));
    assert!(
        terminal.shown.contains("scope `admin`"),
        "{}",
        terminal.shown
    );
    let mut terminal = with_key(KEY);
    terminal.until("the word: ");
    terminal.types("sesame\n");
    assert_eq!(terminal.ended(), Some(0), "{}", terminal.shown);
    // Without a terminal, nothing starts.
    let mut piped = sign_in(&gateway, &method);
    let failed = piped
        .env("ACP_GATEWAY_KEY", KEY)
        .stdin(Stdio::null())
        .output()
        .expect("the binary was built");
    let log = String::from_utf8(failed.stderr).expect("text");
    assert_eq!(failed.status.code(), Some(1));
    assert!(log.contains("needs a terminal"), "{log}");
}
