//! The gateway under test: its process, its folder, its address and a client with the admin key.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Method, RequestBuilder, StatusCode};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::control_groups;
use super::sse::Events;
use super::wait::LONGEST;
use crate::support::places::{fake_agent, gateway_program};

/// The admin key of every gateway under test.
pub(crate) const KEY: &str = "acpg_test_key_that_is_long_enough_for_an_admin";
/// A variable of gateways and of commands beside them. With the default of a second, each new key would take that long.
pub(crate) const KEY_RELOAD_INTERVAL: (&str, &str) =
    ("ACP_GATEWAY__TESTING__KEY_RELOAD_INTERVAL", "200ms");
/// A variable of gateways and commands without `--config`. Else they read a file of the machine on which the tests run.
pub(crate) const NO_CONFIG_FILE: (&str, &str) = ("ACP_GATEWAY_CONFIG", "/dev/null");
/// The variable of [`binary`].
const OTHER_BINARY: &str = "ACP_GATEWAY_TEST_BINARY";
const START: Duration = Duration::from_secs(30);

/// The configuration of a test.
#[derive(Debug, Default)]
pub(crate) struct Setup {
    config: String,
    head: String,
    run_by: Vec<String>,
    parent: Option<PathBuf>,
    program: Option<PathBuf>,
}

impl Setup {
    /// The scripted agent under the name `fake`, with these arguments.
    pub(crate) fn fake(args: &[&str]) -> Self {
        Self::default().agent("fake", fake_agent(), args, "")
    }

    /// One more `[agents.<name>]`; `more` are further lines of its table.
    pub(crate) fn agent(self, name: &str, command: &str, args: &[&str], more: &str) -> Self {
        let args = serde_json::to_string(args).expect("strings are JSON, and TOML");
        let pool = if more.contains("pool") {
            ""
        } else {
            "pool = { max_size = 8, min_idle = 0 }\n"
        };
        let scripted = Path::new(fake_agent());
        let isolation = if more.contains("isolation") {
            String::new()
        } else if std::fs::canonicalize(command).is_ok_and(|program| program == scripted) {
            // It shares files and process ids with its test. Other tests isolate it.
            "isolation = \"off\"\n".to_owned()
        } else {
            isolation_of_real_agents()
        };
        self.table(&format!(
            "[agents.{name}]\ncommand = {command:?}\nargs = {args}\n{pool}{isolation}{more}\n"
        ))
    }

    /// Lines with dotted keys, before all tables: `timeouts.drain_timeout = "1s"`.
    pub(crate) fn settings(mut self, lines: &str) -> Self {
        writeln!(self.head, "{lines}").expect("a string can be written to");
        self
    }

    pub(crate) fn table(mut self, lines: &str) -> Self {
        writeln!(self.config, "{lines}").expect("a string can be written to");
        self
    }

    /// The words of a program that becomes the gateway.
    pub(crate) fn run_by(mut self, words: &[&str]) -> Self {
        self.run_by = words.iter().map(ToString::to_string).collect();
        self
    }

    /// Another build of the gateway.
    pub(crate) fn program(self, program: PathBuf) -> Self {
        Self {
            program: Some(program),
            ..self
        }
    }

    /// The parent of the gateway's folder, instead of the folder for temporary files.
    pub(crate) fn below(self, parent: &Path) -> Self {
        Self {
            parent: Some(parent.to_owned()),
            ..self
        }
    }

    pub(crate) fn start(self) -> Gateway {
        self.start_with(|_| Vec::new())
    }

    /// With more in its environment, for which its folder is there already.
    pub(crate) fn start_with(
        self,
        environment: impl FnOnce(&Path) -> Vec<(&'static str, OsString)>,
    ) -> Gateway {
        let folder = self
            .parent
            .map_or_else(tempfile::tempdir, tempfile::tempdir_in);
        let folder = folder.expect("a temporary folder");
        std::fs::write(
            folder.path().join("config.toml"),
            format!("{}\n{}", self.head, self.config),
        )
        .expect("the folder is ours");
        std::fs::write(folder.path().join("admin-key"), KEY).expect("the folder is ours");
        let mut gateway = Gateway {
            environment: environment(folder.path()),
            folder,
            child: None,
            url: String::new(),
            listen: "127.0.0.1:0".to_owned(),
            run_by: self.run_by,
            program: self.program.unwrap_or_else(binary),
            key: KEY.to_owned(),
            http: client(),
        };
        gateway.start();
        gateway
    }
}

/// The level for agents that are no test programs, from a variable: one run of their tests for each level.
#[expect(
    clippy::disallowed_methods,
    reason = "a run of the tests selects the level"
)]
fn isolation_of_real_agents() -> String {
    let level = std::env::var("ACP_GATEWAY_TEST_ISOLATION");
    level
        .map(|level| format!("isolation = {level:?}\n"))
        .unwrap_or_default()
}

/// The program under test: that of this build, or for measurements the one that `ACP_GATEWAY_TEST_BINARY` names.
#[expect(
    clippy::disallowed_methods,
    reason = "a run of the tests selects the build"
)]
pub(crate) fn binary() -> PathBuf {
    std::env::var_os(OTHER_BINARY).map_or_else(|| gateway_program().into(), PathBuf::from)
}

/// Whether [`binary`] is that of another build.
#[expect(
    clippy::disallowed_methods,
    reason = "a run of the tests selects the build"
)]
pub(crate) fn is_other_binary() -> bool {
    std::env::var_os(OTHER_BINARY).is_some()
}

pub(crate) struct Gateway {
    folder: TempDir,
    environment: Vec<(&'static str, OsString)>,
    child: Option<Child>,
    pub(crate) url: String,
    listen: String,
    run_by: Vec<String>,
    /// The program of the next start.
    pub(crate) program: PathBuf,
    /// The key of the requests.
    pub(crate) key: String,
    pub(crate) http: reqwest::Client,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the test plays the person at the terminal"
)]
pub(crate) fn command(program: &str) -> Command {
    Command::new(program)
}

fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .read_timeout(LONGEST)
        .build()
        .expect("a client")
}

impl Gateway {
    /// The command that starts a gateway on this folder.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test may look where the programs are"
    )]
    pub(crate) fn serve(&self, listen: &str) -> Command {
        let folder = self.folder.path();
        let program = self.program.to_str().expect("UTF-8");
        let mut words = self.run_by.iter().map(String::as_str).chain([program]);
        let mut command = command(words.next().expect("the program is one"));
        command.args(words);
        command
            .args(["serve", "--listen", listen, "--data"])
            .arg(folder.join("data"));
        // A test may remove the file.
        let config = folder.join("config.toml");
        if config.exists() {
            command.arg("--config").arg(config);
        }
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", folder)
            .env(NO_CONFIG_FILE.0, NO_CONFIG_FILE.1)
            .env("ACP_GATEWAY_ADMIN_KEY_FILE", folder.join("admin-key"))
            // Tests may run as root.
            .env("ACP_GATEWAY__ISOLATION__ALLOW_ROOT_AGENTS", "true");
        // A release build rejects the section `testing`.
        if self.program == Path::new(gateway_program()) {
            command.env(KEY_RELOAD_INTERVAL.0, KEY_RELOAD_INTERVAL.1);
        }
        command
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    /// Starts it, on the port that it had if it ran before.
    pub(crate) fn start(&mut self) {
        if let Err(code) = self.try_start() {
            panic!("it does not start, but ends with {code:?}: {}", self.log());
        }
    }

    /// Gives the exit code when it ends by itself instead.
    pub(crate) fn try_start(&mut self) -> Result<(), Option<i32>> {
        self.begin();
        let began = Instant::now();
        loop {
            let text = std::fs::read_to_string(self.path("stdout")).expect("the file is ours");
            if let Some((line, _)) = text.split_once('\n') {
                line.trim_end_matches('/').clone_into(&mut self.url);
                self.listen = self.url.trim_start_matches("http://").to_owned();
                // Without the connections of an earlier life.
                self.http = client();
                return Ok(());
            }
            let child = self.child.as_mut().expect("it was started");
            if let Some(ended) = child.try_wait().expect("the child can be asked") {
                self.child = None;
                return Err(ended.code());
            }
            assert!(began.elapsed() < START, "it does not start: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts it, and does not wait until it can be spoken to.
    pub(crate) fn begin(&mut self) {
        let errors = File::options()
            .create(true)
            .append(true)
            .open(self.path("stderr"));
        let child = self
            .serve(&self.listen.clone())
            .stdout(File::create(self.path("stdout")).expect("the folder is ours"))
            .stderr(errors.expect("the folder is ours"))
            .spawn()
            .expect("the binary was built");
        self.child = Some(child);
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The stderr of the gateway so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("stderr")).unwrap_or_default()
    }

    pub(crate) fn runs(&self) -> bool {
        self.child.is_some()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(self.child.as_ref().expect("it runs"));
        rustix::process::kill_process(pid, signal).expect("it runs");
    }

    /// SIGKILL, and its end.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it runs");
        child.wait().expect("it is our child");
    }

    /// Sends TERM and waits for the end within the drain timeout. Returns the exit code.
    pub(crate) fn stop(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.ended(START)
    }

    /// Waits for the gateway to exit. Returns the exit code.
    pub(crate) fn ended(&mut self, limit: Duration) -> Option<i32> {
        let mut child = self.child.take().expect("it runs");
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("it is our child") {
                return status.code();
            }
            if began.elapsed() > limit {
                child.kill().expect("it is our child");
                panic!("it did not stop: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.url))
            .bearer_auth(&self.key)
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = self
            .request(Method::GET, path)
            .send()
            .await
            .expect("an answer");
        assert_eq!(response.status(), StatusCode::OK, "GET {path}");
        response.json().await.expect("JSON")
    }

    /// Sends JSON. Returns the status and the JSON of the response, or null.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let response = self
            .request(method, path)
            .json(body)
            .send()
            .await
            .expect("an answer");
        let status = response.status();
        let text = response.text().await.expect("a body");
        (
            status,
            if text.is_empty() {
                Value::Null
            } else {
                serde_json::from_str(&text).expect("JSON")
            },
        )
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.send(Method::POST, path, body).await
    }

    /// Creates a session with this agent. Returns its id.
    pub(crate) async fn session(&self, agent: &str) -> String {
        let (status, session) = self.post("/v1/sessions", &json!({ "agent": agent })).await;
        assert_eq!(status, StatusCode::CREATED, "{session}\n{}", self.log());
        session["sessionId"].as_str().expect("an id").to_owned()
    }

    /// Starts a turn. Returns the prompt.
    pub(crate) async fn prompt(&self, session: &str, text: &str) -> Value {
        let (status, prompt) = self
            .post(
                &format!("/v1/sessions/{session}/prompts"),
                &json!({ "prompt": text }),
            )
            .await;
        assert_eq!(status, StatusCode::ACCEPTED, "{prompt}");
        prompt
    }

    /// Runs a turn. Returns the prompt at its end.
    pub(crate) async fn turn(&self, session: &str, text: &str) -> Value {
        let request = self.request(Method::POST, &format!("/v1/sessions/{session}/prompts"));
        let request = request
            .header("Prefer", "wait=60")
            .json(&json!({ "prompt": text }));
        let response = request.send().await.expect("an answer");
        let status = response.status();
        let prompt: Value = response.json().await.expect("JSON");
        assert_eq!(status, StatusCode::OK, "{prompt}\n{}", self.log());
        prompt
    }

    /// Opens a stream.
    pub(crate) async fn events(&self, path: &str) -> Events {
        self.events_after(path, None).await
    }

    pub(crate) async fn events_after(&self, path: &str, last_event_id: Option<&str>) -> Events {
        let mut request = self
            .request(Method::GET, path)
            .header("Accept", "text/event-stream");
        if let Some(id) = last_event_id {
            request = request.header("Last-Event-ID", id);
        }
        Events::new(request.send().await.expect("an answer"))
    }

    /// The whole log of a session, as JSON events.
    pub(crate) async fn all_events(&self, session: &str) -> Vec<Value> {
        let mut all = Vec::new();
        let mut after = String::new();
        loop {
            let page = self
                .get(&format!("/v1/sessions/{session}/events?limit=1000{after}"))
                .await;
            all.extend(page["events"].as_array().expect("events").iter().cloned());
            if page["more"] != true {
                return all;
            }
            after = format!("&after={}", page["lastEventId"].as_str().expect("a cursor"));
        }
    }

    /// The seq of a session's last event.
    pub(crate) async fn last_seq(&self, session: &str) -> u64 {
        let session = self.get(&format!("/v1/sessions/{session}")).await;
        let last = session["lastEventId"].as_str().expect("an id");
        last.rsplit_once('-')
            .and_then(|(_, seq)| seq.parse().ok())
            .expect("<epoch>-<seq>")
    }

    /// The pids of all processes below the agents' supervisors of this gateway, by working directory.
    pub(crate) fn agents_alive(&self) -> Vec<u32> {
        let data = self.path("data");
        // Its working directory can lie in another mount namespace, where it has another path.
        let home = format!("HOME={}/", data.display());
        let stands_in = |pid: u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let has_home = environment
                .split(|byte| *byte == 0)
                .any(|variable| variable.starts_with(home.as_bytes()));
            // A supervisor has no environment.
            let folder = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            has_home || folder.starts_with(data.join("homes"))
        };
        let all = std::fs::read_dir(Path::new("/proc")).expect("/proc");
        all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| super::is_alive(*pid) && stands_in(*pid))
            .collect()
    }
}

impl Gateway {
    /// Removes the groups that a killed gateway left. Only a start would remove them.
    fn remove_control_groups(&self) {
        let record = std::fs::read(self.path("data/private/control-groups")).unwrap_or_default();
        let record: Value = serde_json::from_slice(&record).unwrap_or_default();
        if let Some(group) = record["folder"].as_str().map(Path::new) {
            control_groups::end(group);
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
        self.remove_control_groups();
    }
}
