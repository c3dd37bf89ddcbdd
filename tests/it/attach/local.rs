//! `attach` without a URL: it starts a gateway that several editors and a browser share, and that ends when nobody uses it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::editor::{Editor, initialize};
use crate::support::gateway::{KEY, command};
use crate::support::places::{fake_agent, gateway_program};
use crate::support::wait::LONGEST;
use crate::support::{eventually, is_alive};

/// The home and the data folder of a person.
struct Person {
    folder: TempDir,
}

impl Person {
    /// `config` is the configuration file.
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("config.toml"), config).expect("the folder is ours");
        std::fs::create_dir(folder.path().join("home")).expect("the folder is ours");
        Self { folder }
    }

    /// A person with the fake agent.
    fn with_fake_agent() -> Self {
        Self::with_fake_agent_of("")
    }

    /// `entry` are further lines of the agent's entry.
    fn with_fake_agent_of(entry: &str) -> Self {
        let agent = fake_agent();
        let args = "args = [\"--resume\", \"--state\", \"STATE\"]";
        let person = Self::new("");
        let state = person.path("state");
        let config = format!(
            "[agents.fake]\ncommand = {agent:?}\n{args}\nisolation = \"off\"\npool = {{ max_size = 4, min_idle = 0 }}\n{entry}\n"
        );
        let config = config.replace("STATE", state.to_str().expect("UTF-8"));
        std::fs::write(person.path("config.toml"), config).expect("the folder is ours");
        person
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder
            .path()
            .canonicalize()
            .expect("it exists")
            .join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    /// A folder outside of the workspace roots.
    fn project(&self, name: &str) -> String {
        let folder = self.path("home").join(name);
        std::fs::create_dir_all(&folder).expect("the folder is ours");
        folder.to_str().expect("UTF-8").to_owned()
    }

    /// A subcommand of the person.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = command(gateway_program());
        command
            .env_clear()
            .env("HOME", self.path("home"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            // Tests may run as root.
            .env("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "true")
            .env("ACP_GATEWAY_LISTEN", "127.0.0.1:0")
            .args(words)
            .arg("--data")
            .arg(self.data())
            .arg("--config")
            .arg(self.path("config.toml"))
            .stdin(Stdio::null());
        command
    }

    fn editor(&self) -> Editor {
        Editor::of(self.command(&["attach"]))
    }

    fn output(&self, words: &[&str]) -> String {
        let output = self.command(words).output().expect("the binary was built");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The pids of the gateways that use the data folder.
    fn gateways(&self) -> Vec<u32> {
        let data = self.data().to_str().expect("UTF-8").to_owned();
        let all = std::fs::read_dir("/proc").expect("/proc");
        let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let serves = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = line.split(|byte| *byte == 0).collect();
            words.get(1) == Some(&&b"serve"[..]) && words.contains(&data.as_bytes())
        };
        pids.filter(|pid| serves(pid) && is_alive(*pid)).collect()
    }

    /// The only gateway, after another one that started at the same time has ended.
    async fn gateway(&self) -> u32 {
        let only = || async {
            if let [only] = self.gateways()[..] {
                Some(only)
            } else {
                None
            }
        };
        eventually("there is one gateway", LONGEST, only).await
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.data().join("private/gateway.log")).unwrap_or_default()
    }

    /// The page's URL and a key.
    fn link(&self) -> (String, String) {
        let link = self.output(&["link"]);
        let (url, key) = link.trim().split_once("/#key=").expect("a link");
        (url.to_owned(), key.to_owned())
    }

    async fn until_no_gateway(&self) {
        eventually("the gateway ends", LONGEST, || async {
            self.gateways().is_empty().then_some(())
        })
        .await;
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        let began = Instant::now();
        while let [first, ..] = self.gateways()[..] {
            let pid = Pid::from_raw(first.cast_signed()).expect("a pid");
            let signal = if began.elapsed() < Duration::from_secs(20) {
                Signal::TERM
            } else {
                Signal::KILL
            };
            // The process may have ended meanwhile.
            kill_process(pid, signal).ok();
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path)
        .expect("it exists")
        .permissions()
        .mode()
        & 0o777
}

async fn create_session(url: &str, key: &str, body: &Value) -> (u16, Value) {
    let request = reqwest::Client::new()
        .post(format!("{url}/v1/sessions"))
        .bearer_auth(key)
        .json(body);
    let response = request.send().await.expect("an answer");
    (
        response.status().as_u16(),
        response.json().await.expect("JSON"),
    )
}

async fn get(url: &str, key: &str, path: &str) -> Value {
    let request = reqwest::Client::new()
        .get(format!("{url}{path}"))
        .bearer_auth(key);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200, "{path}");
    response.json().await.expect("JSON")
}

#[tokio::test]
async fn two_editors_start_one_gateway_that_serves_the_page_too() {
    let person = Person::with_fake_agent();
    let mut one = person.editor();
    let mut two = person.editor();
    let project = person.project("project");
    let (first, second) = tokio::join!(one.new_session(&project), two.new_session(""));
    let gateway = person.gateway().await;
    let private = person.data().join("private");
    assert_eq!(mode(&private), 0o700);
    for name in ["control.sock", "control.token", "gateway.log"] {
        assert_eq!(mode(&private.join(name)), 0o600, "{name}");
    }
    // The gateway is in no session of a terminal or of the editor.
    let stat = std::fs::read_to_string(format!("/proc/{gateway}/stat")).expect("it runs");
    let session = stat
        .rsplit_once(") ")
        .expect("a name")
        .1
        .split(' ')
        .nth(3)
        .expect("a session");
    assert_eq!(session, gateway.to_string());

    let (url, key) = person.link();
    let page = reqwest::get(format!("{url}/")).await.expect("an answer");
    assert_eq!(page.status(), 200);
    assert!(page.text().await.expect("a body").contains("<html"));
    for (session, editor) in [(&first, &mut one), (&second, &mut two)] {
        assert_eq!(
            get(&url, &key, &format!("/v1/sessions/{session}")).await["state"],
            "idle"
        );
        editor.prompt(2, session, "echo hello").await;
        assert_eq!(editor.response(2).await["result"]["stopReason"], "end_turn");
    }
    let keys = || person.output(&["key", "list"]).matches(" attach ").count();
    assert_eq!(keys(), 2);
    for editor in [one, two] {
        let (code, log) = editor.end().await;
        assert_eq!(code, Some(0), "{log}");
        assert!(!log.contains("acpg_"), "{log}");
    }
    eventually("the keys end", LONGEST, || async {
        (keys() == 0).then_some(())
    })
    .await;
    let log = person.log();
    assert!(
        !log.contains("acpg_") && log.contains("accepts connections"),
        "{log}"
    );
    kill_process(
        Pid::from_raw(gateway.cast_signed()).expect("a pid"),
        Signal::TERM,
    )
    .expect("it runs");
    person.until_no_gateway().await;
    assert!(!private.join("control.sock").exists() && !private.join("control.token").exists());
}

/// A killed editor ends its key. A killed gateway that an editor has started is started again, with the same key.
#[tokio::test]
async fn editor_continues_after_a_kill_of_the_gateway_that_it_has_started() {
    let person = Person::with_fake_agent();
    let mut editor = person.editor();
    let session = editor.new_session(&person.project("project")).await;
    editor.prompt(2, &session, "echo one").await;
    editor.response(2).await;
    let previous = person.gateway().await;
    kill_process(
        Pid::from_raw(previous.cast_signed()).expect("a pid"),
        Signal::KILL,
    )
    .expect("it runs");
    editor.prompt(3, &session, "echo two").await;
    assert_eq!(editor.response(3).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), ["one", "two"]);
    assert_ne!(person.gateway().await, previous);
    let keys = || person.output(&["key", "list"]).matches(" attach ").count();
    assert_eq!(keys(), 1);
    editor.kill().await;
    eventually("the key ends", LONGEST, || async {
        (keys() == 0).then_some(())
    })
    .await;
}

/// Waits for the exit code.
async fn ended(child: &mut Child) -> Option<i32> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            return status.code();
        }
        assert!(started.elapsed() < LONGEST, "it does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn gateway_ends_when_it_has_no_editor_client_or_turn() {
    let person = Person::with_fake_agent();
    let idle = Duration::from_secs(4);
    let mut serve = person.command(&["serve", "--exit-when-idle", "4s"]);
    let mut child = serve
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut editor = person.editor();
    let session = editor.new_session("").await;
    tokio::time::sleep(idle + Duration::from_secs(1)).await;
    assert_eq!(
        child.try_wait().expect("it is our child"),
        None,
        "an editor uses it"
    );
    let (url, key) = person.link();
    // A turn and a queued prompt of a client that disconnects.
    editor.prompt(2, &session, "slow chunks=100 ms=100").await;
    editor.until_texts(1).await;
    editor.prompt(3, &session, "echo queued").await;
    let queued = || async {
        let found = get(&url, &key, &format!("/v1/sessions/{session}")).await;
        (found["queued"]
            .as_array()
            .is_some_and(|queued| queued.len() == 1))
        .then_some(())
    };
    eventually("the prompt waits", LONGEST, queued).await;
    assert_eq!(editor.end().await.0, Some(0));
    let began = Instant::now();
    assert_eq!(ended(&mut child).await, Some(0));
    assert!(
        began.elapsed() > idle * 2,
        "the turn uses the gateway: {:?}",
        began.elapsed()
    );
    assert!(person.gateways().is_empty());
    // The next editor starts a gateway, in which the turn is complete.
    let mut editor = person.editor();
    editor.initialize().await;
    let (url, key) = person.link();
    let page = get(&url, &key, &format!("/v1/sessions/{session}/prompts")).await;
    let first = page["prompts"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|prompt| prompt["promptId"] == "p1");
    assert_eq!(
        first.unwrap_or_else(|| panic!("{page}"))["stopReason"],
        "end_turn",
        "{page}"
    );
}

#[test]
fn attach_reports_why_the_gateway_cannot_start() {
    let person = Person::new("nonsense = 1\n[agents.fake]\ncommand = \"/nonexistent/agent\"\n");
    let failed = person
        .command(&["attach"])
        .output()
        .expect("the binary was built");
    let log = String::from_utf8(failed.stderr).expect("text");
    assert_eq!(
        (failed.status.code(), failed.stdout.len()),
        (Some(1), 0),
        "{log}"
    );
    assert!(log.contains("nonsense"), "{log}");
    // The log of the gateway has the reason if only the gateway finds it.
    let person =
        Person::new("[agents.fake]\ncommand = \"/bin/cat\"\n[mcp.\"wrong name\"]\nurl = \"x\"\n");
    let failed = person
        .command(&["attach"])
        .output()
        .expect("the binary was built");
    let log = String::from_utf8(failed.stderr).expect("text");
    assert_eq!(
        (failed.status.code(), failed.stdout.len()),
        (Some(1), 0),
        "{log}"
    );
    assert!(
        log.contains("could not start") && log.contains("gateway.log"),
        "{log}"
    );
    assert!(log.contains("wrong name"), "{log}");
    assert!(person.gateways().is_empty());
}

#[tokio::test]
async fn folder_of_a_local_editor_is_open_to_its_key_only() {
    let person = Person::with_fake_agent();
    let project = person.project("project");
    let other = person.project("other");
    std::fs::write(format!("{project}/file.txt"), "content").expect("the folder is ours");
    let mut editor = person.editor();
    let session = editor.new_session(&project).await;
    let (url, key) = person.link();
    let found = get(&url, &key, &format!("/v1/sessions/{session}")).await;
    assert_eq!(found["cwd"], json!(project));
    editor.prompt(2, &session, "echo hello").await;
    assert_eq!(editor.response(2).await["result"]["stopReason"], "end_turn");
    // Clients with `files` read the files of the session, as of every session.
    let request = reqwest::Client::new().get(format!("{url}/v1/sessions/{session}/files/file.txt"));
    let file = request.bearer_auth(&key).send().await.expect("an answer");
    assert_eq!(
        (file.status().as_u16(), file.text().await.expect("a body")),
        (200, "content".to_owned())
    );
    // Other keys cannot open the folder.
    let (status, problem) =
        create_session(&url, &key, &json!({ "agent": "fake", "cwd": project })).await;
    assert_eq!(
        (status, &problem["code"]),
        (403, &json!("forbidden")),
        "{problem}"
    );
    let mut two = Editor::of({
        let mut command = person.command(&["attach", "--url", &url]);
        command.env("ACP_GATEWAY_KEY", &key);
        command
    });
    two.send(&initialize()).await;
    let new = |id: u64, cwd: &str| {
        let params = json!({ "cwd": cwd, "mcpServers": [] });
        json!({ "jsonrpc": "2.0", "id": id, "method": "session/new", "params": params })
    };
    two.send(&new(1, &project)).await;
    assert_eq!(two.response(1).await["error"]["code"], -32602);
    assert_eq!(two.end().await.0, Some(0));
    // Folders that would open the gateway or the whole machine are rejected.
    let home = person.path("home").to_str().expect("UTF-8").to_owned();
    let private = person
        .data()
        .join("private")
        .to_str()
        .expect("UTF-8")
        .to_owned();
    for (id, (folder, said)) in (10..).zip([
        ("/", "below it"),
        (&*home, "home folder"),
        (&*private, "data folder"),
        ("/etc", "system"),
    ]) {
        editor.send(&new(id, folder)).await;
        let error = editor.response(id).await["error"].clone();
        assert_eq!(error["code"], -32602, "{folder} {error}");
        assert!(
            error["message"].as_str().expect("a text").contains(said),
            "{folder} {error}"
        );
    }
    // The session keeps its folder through a restart, without the editor.
    assert_eq!(editor.end().await.0, Some(0));
    let gateway = person.gateway().await;
    kill_process(
        Pid::from_raw(gateway.cast_signed()).expect("a pid"),
        Signal::KILL,
    )
    .expect("it runs");
    person.until_no_gateway().await;
    let mut editor = person.editor();
    editor.initialize().await;
    let (url, key) = person.link();
    let prompt = reqwest::Client::new().post(format!("{url}/v1/sessions/{session}/prompts"));
    let prompt = prompt
        .bearer_auth(&key)
        .header("Prefer", "wait=60")
        .json(&json!({ "prompt": "echo again" }));
    let prompt: Value = prompt
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON");
    assert_eq!(
        prompt["stopReason"],
        "end_turn",
        "{prompt}\n{}",
        person.log()
    );
    let (status, _) = create_session(&url, &key, &json!({ "agent": "fake", "cwd": other })).await;
    assert_eq!(status, 403);
    let audit = person.output(&["audit", "export"]);
    let grants: Vec<Value> = audit
        .lines()
        .filter(|line| line.contains("\"folder.granted\""))
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(grants.len(), 1, "{audit}");
    assert_eq!(
        (&grants[0]["folder"], &grants[0]["key"]["name"]),
        (&json!(project), &json!("attach"))
    );
    assert!(!audit.contains(KEY));
}

/// An editor on this machine could read files that isolation hides from its agent.
#[tokio::test]
async fn agent_gets_files_of_a_local_editor_only_in_the_folders_of_its_session() {
    let person = Person::with_fake_agent_of("files = \"client\"");
    let project = person.project("project");
    let private = person.data().join("private");
    std::os::unix::fs::symlink(&private, format!("{project}/link")).expect("the folder is ours");
    let mut editor = person.editor();
    let session = editor.new_session(&project).await;
    let outside = person.path("home").join("file");
    for (id, path) in (10..).zip([
        private.join("control.token"),
        outside,
        PathBuf::from(format!("{project}/link/control.token")),
        PathBuf::from(format!("{project}/../file")),
        PathBuf::from("/etc/hostname"),
    ]) {
        let path = path.to_str().expect("UTF-8");
        editor
            .prompt(
                id,
                &session,
                &format!("read path={path}; write path={path} text=x"),
            )
            .await;
        assert_eq!(
            editor.response(id).await["result"]["stopReason"],
            "end_turn"
        );
        let texts = editor.texts();
        assert_eq!(
            texts[texts.len() - 2..],
            ["[error -32602]", "[error -32602]"],
            "{path}"
        );
    }
    assert!(!editor.seen().iter().any(|line| {
        line["method"]
            .as_str()
            .is_some_and(|name| name.starts_with("fs/"))
    }));
    // A file that the editor has not saved need not exist.
    for (id, method, answer, expected) in [
        (20, "read", json!({ "content": "unsaved" }), "[unsaved]"),
        (21, "write", Value::Null, "[written]"),
    ] {
        editor
            .prompt(
                id,
                &session,
                &format!("{method} path={project}/sub/new text=x"),
            )
            .await;
        let name = format!("fs/{method}_text_file");
        let request = editor.until(|line| line["method"] == *name).await;
        assert_eq!(request["params"]["path"], format!("{project}/sub/new"));
        editor
            .send(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": answer }))
            .await;
        assert_eq!(
            editor.response(id).await["result"]["stopReason"],
            "end_turn"
        );
        assert_eq!(editor.texts().last().expect("a text"), expected);
    }
    let audit = person.output(&["audit", "export"]);
    assert!(audit.contains("outside"), "{audit}");
}

/// The key of a running editor was revoked, for example by hand or because a restored connection ended late.
#[tokio::test]
async fn editor_gets_another_key_if_its_key_was_revoked() {
    let person = Person::with_fake_agent();
    let mut editor = person.editor();
    let session = editor.new_session(&person.project("project")).await;
    editor.prompt(2, &session, "echo one").await;
    editor.response(2).await;
    let list = || person.output(&["key", "list"]);
    let id_of = |list: &str| {
        let line = list
            .lines()
            .find(|line| line.contains(" attach "))
            .expect("a key")
            .to_owned();
        line.split_whitespace().next().expect("an id").to_owned()
    };
    let previous = id_of(&list());
    person.output(&["key", "revoke", &previous]);
    let renewed = || async {
        let list = list();
        (list.contains(" attach ") && id_of(&list) != previous).then_some(())
    };
    editor.prompt(3, &session, "echo two").await;
    assert_eq!(editor.response(3).await["result"]["stopReason"], "end_turn");
    eventually("the editor has another key", LONGEST, renewed).await;
    editor.prompt(4, &session, "echo three").await;
    assert_eq!(editor.response(4).await["result"]["stopReason"], "end_turn");
    assert_eq!(editor.texts(), ["one", "two", "three"]);
    let (code, log) = editor.end().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(!log.contains("acpg_"), "{log}");
}

/// Connections without the token neither exclude editors nor keep a gateway running.
#[tokio::test]
async fn connections_without_a_token_do_not_count() {
    let person = Person::with_fake_agent();
    let mut serve = person.command(&["serve", "--exit-when-idle", "6s"]);
    let mut child = serve
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let socket = person.data().join("private/control.sock");
    let connect = || async { std::os::unix::net::UnixStream::connect(&socket).ok() };
    let mut silent = vec![eventually("the gateway listens", LONGEST, connect).await];
    for _ in 0..300 {
        silent.push(std::os::unix::net::UnixStream::connect(&socket).expect("it listens"));
    }
    let mut editor = person.editor();
    editor.initialize().await;
    assert_eq!(editor.end().await.0, Some(0));
    // A new silent connection again and again.
    let flood = async {
        loop {
            silent.clear();
            silent.extend(std::os::unix::net::UnixStream::connect(&socket));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        code = ended(&mut child) => assert_eq!(code, Some(0)),
        () = flood => {}
    }
}

/// The socket requires the token, which isolation hides, also from programs that can connect.
#[tokio::test]
async fn connection_without_the_token_gets_no_key() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let person = Person::with_fake_agent();
    let mut editor = person.editor();
    editor.initialize().await;
    let socket = person.data().join("private/control.sock");
    for request in [
        json!({ "hello": { "token": "", "access": { "editor": null } } }).to_string(),
        json!({ "hello": { "token": "x".repeat(43), "access": "signIn" } }).to_string(),
        json!({ "allow": "/" }).to_string(),
        "x".repeat(100_000),
    ] {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("it listens");
        stream.set_read_timeout(Some(LONGEST)).expect("a socket");
        // The gateway may close the connection before it has read everything.
        drop(writeln!(stream, "{request}"));
        let mut reply = String::new();
        drop(BufReader::new(stream).read_line(&mut reply));
        assert!(
            reply.is_empty() || reply.contains("token is wrong"),
            "{reply}"
        );
    }
}
