//! Agents with the protocol of the Claude Code CLI (`dialect = "stream-json"`), as `tests/agents/claude_cli.py` has it.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::log::{all, noise};
use crate::support::places::claude_cli;
use crate::support::{Answer, Gateway, Setup};

/// A gateway with the command, and the log of its starts.
struct Cli {
    gateway: Gateway,
    log: tempfile::TempDir,
}

impl Cli {
    fn start(flags: &[&str], entry: &str) -> Self {
        let log = tempfile::tempdir().expect("a temporary folder");
        let file = log.path().join("starts");
        let cli = claude_cli();
        let mut args = vec![&*cli, "--log", file.to_str().expect("UTF-8")];
        args.extend(flags);
        // The interpreter can be in a home that isolation hides.
        let isolation = if entry.contains("isolation") {
            ""
        } else {
            "isolation = \"off\""
        };
        let more = format!("dialect = \"stream-json\"\n{isolation}\n{entry}");
        let gateway = Setup::default()
            .agent("cli", "python3", &args, &more)
            // The translation stops the command in less time.
            .settings("testing.stop_stdin_timeout = \"60s\"")
            .start();
        Self { gateway, log }
    }

    /// The starts of the command, without the ids of new sessions.
    fn starts(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.log.path().join("starts")).unwrap_or_default();
        let start = |line: &str| match line.split_once(" --session-id") {
            Some(_) => "new".to_owned(),
            None => line.replace("start --resume ", "resume "),
        };
        log.lines().map(start).collect()
    }

    async fn session(&self) -> String {
        self.gateway.session("cli").await
    }

    async fn text(&self, session: &str, prompt: &str) -> Value {
        self.gateway.turn(session, prompt).await["text"].clone()
    }
}

#[tokio::test]
async fn session_has_a_process_in_its_folder_and_the_version_of_the_command() {
    let cli = Cli::start(&[], "");
    let one = cli.session().await;
    let two = cli.session().await;
    for session in [&one, &two] {
        let cwd = cli.gateway.get_session(session).await["cwd"].clone();
        assert_eq!(cli.text(session, "pwd").await, cwd);
        assert_eq!(cli.text(session, "echo x").await, "x");
    }
    let agent = cli.gateway.get("/v1/agents/cli").await;
    assert_eq!(agent["version"], "9.8.7", "{agent}");
    assert_eq!(agent["pool"]["processes"], 2, "{agent}");
    let starts = cli.starts();
    assert_eq!(
        starts.iter().filter(|start| *start == "new").count(),
        2,
        "{starts:?}"
    );
}

/// The command has the name of Claude Code, so its row in the table of known agents applies without a key of the entry.
#[tokio::test]
async fn row_of_a_known_command_applies_to_the_command_itself() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let command = folder.path().join("claude");
    let script = format!("#!/bin/sh\nexec python3 {:?} \"$@\"\n", claude_cli());
    std::fs::write(&command, script).expect("the folder is ours");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&command, executable).expect("the file is ours");
    let entry = "isolation = \"off\"\nenv = { ANTHROPIC_API_KEY = \"sk-for-the-command\" }";
    let gateway = Setup::default()
        .agent("known", command.to_str().expect("UTF-8"), &[], entry)
        .start();
    let session = gateway.session("known").await;
    let agent = gateway.get("/v1/agents/known").await;
    assert_eq!(
        (&agent["dialect"], &agent["version"]),
        (&json!("stream-json"), &json!("9.8.7")),
        "{agent}"
    );
    let turn = gateway.turn(&session, "env ANTHROPIC_API_KEY").await;
    assert_eq!(turn["text"], "sk-for-the-command", "{turn}");
    let mode = json!({ "modeId": "bypassPermissions" });
    let path = format!("/v1/sessions/{session}/mode");
    let answer = Answer::of(gateway.request(Method::PUT, &path).json(&mode)).await;
    let problem = answer.problem(403, "forbidden");
    let detail = problem["detail"].as_str().expect("a detail");
    assert!(detail.contains("`modes.deny`"), "{detail}");
}

#[tokio::test]
async fn command_without_a_version_starts() {
    let cli = Cli::start(&["--silent-version"], "");
    let session = cli.session().await;
    assert_eq!(cli.text(&session, "echo x").await, "x");
    assert_eq!(
        cli.gateway.get("/v1/agents/cli").await["version"],
        "unknown"
    );
}

#[tokio::test]
async fn session_is_restored_and_a_missing_one_begins_again() {
    let cli = Cli::start(&[], "");
    let session = cli.session().await;
    cli.text(&session, "echo x").await;
    let sessions = cli.gateway.path("data/homes/default/cli/sessions");
    let mut entries = std::fs::read_dir(&sessions).expect("the command has a session");
    let entry = entries.next().expect("one").expect("a file");
    let id = entry.file_name().into_string().expect("an id");
    kill_command(&cli, &session).await;
    assert_eq!(cli.text(&session, "echo y").await, "y");
    let attached = last_attached(&cli, &session).await;
    assert_eq!(attached["by"], "resume", "{attached}");

    std::fs::remove_file(sessions.join(&id)).expect("the command has it");
    kill_command(&cli, &session).await;
    assert_eq!(cli.text(&session, "echo z").await, "z");
    let attached = last_attached(&cli, &session).await;
    assert_eq!(
        (&attached["context"], &attached["reason"]),
        (&json!("lost"), &json!("not_found")),
        "{attached}"
    );
    let resumed = format!("resume {id}");
    let starts: Vec<String> = cli.starts();
    let starts: Vec<&str> = starts
        .iter()
        .map(String::as_str)
        .filter(|start| *start != "version")
        .collect();
    assert_eq!(starts, ["new", &resumed, &resumed, "new"]);
}

/// Ends the command of a session, and waits until the gateway has noticed.
async fn kill_command(cli: &Cli, session: &str) {
    let turn = cli.gateway.turn(session, "exit 3").await;
    let error = &turn["error"];
    assert_eq!(
        (&error["code"], &error["exitCode"]),
        (&json!("agent_exited"), &json!(3)),
        "{turn}"
    );
    let tail = error["stderrTail"].as_str().expect("a text");
    assert_eq!(tail.trim(), "the command ends here");
}

async fn last_attached(cli: &Cli, session: &str) -> Value {
    let events = cli.gateway.lawful(session).await;
    let mut attached = events
        .into_iter()
        .rev()
        .filter(|event| event["type"] == "session.attached");
    attached.next().expect("it was attached")
}

#[tokio::test]
async fn signal_of_the_command_is_that_of_the_agent() {
    let cli = Cli::start(&[], "");
    let session = cli.session().await;
    let error = cli.gateway.turn(&session, "kill").await["error"].clone();
    assert_eq!(
        (&error["code"], &error["signal"]),
        (&json!("agent_exited"), &json!("SIGKILL")),
        "{error}"
    );
}

#[tokio::test]
async fn failed_start_of_the_command_is_that_of_the_agent_and_delays_the_next_one() {
    let cli = Cli::start(&["--fail", "9"], "");
    let began = Instant::now();
    for _ in 0..3 {
        let body = json!({ "agent": "cli" });
        let answer = cli.gateway.posted("/v1/sessions", &[], &body).await;
        let problem = answer.problem(502, "agent_exited");
        assert_eq!(problem["exitCode"], 9, "{problem}");
        let tail = problem["stderrTail"].as_str().expect("a text");
        assert!(tail.contains("cannot start today"), "{problem}");
    }
    // The back-off doubles: one second, and two.
    assert!(began.elapsed() > Duration::from_secs(3));
}

#[tokio::test]
async fn command_that_ends_in_each_turn_is_a_crash_loop() {
    let cli = Cli::start(&[], "");
    let session = cli.session().await;
    for _ in 0..5 {
        kill_command(&cli, &session).await;
    }
    let path = format!("/v1/sessions/{session}/prompts");
    let prompt = json!({ "prompt": "exit 3" });
    let answer = cli.gateway.posted(&path, &[], &prompt).await;
    answer.problem(503, "crash_loop");
}

#[tokio::test]
async fn processes_count_in_the_pool_and_are_not_shared() {
    let cli = Cli::start(&[], "pool = { max_size = 1 }");
    let one = cli.session().await;
    cli.text(&one, "echo x").await;
    let two = cli.session().await;
    assert_eq!(cli.text(&two, "echo y").await, "y");
    let agent = cli.gateway.get("/v1/agents/cli").await;
    assert_eq!(agent["pool"]["processes"], 1, "{agent}");
}

#[tokio::test]
async fn lines_without_a_meaning_are_counted() {
    let cli = Cli::start(&[], "");
    let session = cli.session().await;
    assert_eq!(cli.text(&session, "noise Log in first").await, "noise");
    let events = cli.gateway.lawful(&session).await;
    assert_eq!(noise(&events), 2, "{events:?}");
    let shown = all(&events, "agent.invalid_output");
    assert_eq!(shown[0]["excerpt"], "Log in first", "{shown:?}");
}

#[tokio::test]
async fn line_above_the_limit_of_the_entry_ends_the_agent() {
    let cli = Cli::start(&[], "max_line_bytes = \"64KiB\"");
    let session = cli.session().await;
    let error = cli.gateway.turn(&session, "long 65537").await["error"].clone();
    assert_eq!(error["code"], "agent_exited", "{error}");
    let tail = error["stderrTail"].as_str().expect("a text");
    assert!(tail.contains("longer than 65536 bytes"), "{error}");
}

#[tokio::test]
async fn command_that_ignores_its_stop_is_killed_before_the_gateway_sends_term() {
    let cli = Cli::start(&[], "");
    let session = cli.session().await;
    assert_eq!(cli.text(&session, "stubborn").await, "stubborn");
    let began = Instant::now();
    let path = format!("/v1/sessions/{session}");
    let deleted = cli.gateway.call(reqwest::Method::DELETE, &path).await;
    assert_eq!(deleted.status.as_u16(), 204, "{deleted:?}");
    cli.gateway.none_alive().await;
    let took = began.elapsed();
    assert!(
        took > Duration::from_secs(3) && took < Duration::from_secs(20),
        "{took:?}"
    );
}

#[tokio::test]
async fn command_of_the_level_strict_runs_between_the_translation_and_the_agent() {
    // It runs only the program of the entry, and not the translation.
    let script = r#"case $0 in */python3*) FOLDER={cwd} exec "$0" "$@";; *) exit 9;; esac"#;
    let words = json!(["sh", "-c", script]);
    let entry = format!("isolation = \"strict\"\nisolation_command = {words}");
    let cli = Cli::start(&[], &entry);
    let session = cli.session().await;
    let cwd = cli.gateway.get_session(&session).await["cwd"].clone();
    assert_eq!(cli.text(&session, "env FOLDER").await, cwd);
    let agent = cli.gateway.get("/v1/agents/cli").await;
    assert_eq!(agent["isolation"]["mechanism"], "command", "{agent}");
}

#[tokio::test]
async fn drain_ends_the_command_with_term() {
    let mut cli = Cli::start(&[], "");
    let session = cli.session().await;
    let ended = cli.log.path().join("ended");
    let prompt = format!("graceful {}", ended.display());
    assert_eq!(cli.text(&session, &prompt).await, "graceful");
    let began = Instant::now();
    assert_eq!(cli.gateway.stop(), Some(0), "{}", cli.gateway.log());
    assert!(began.elapsed() < Duration::from_secs(20));
    assert!(ended.exists(), "the command got TERM before KILL");
    cli.gateway.none_alive().await;
}

#[tokio::test]
async fn large_prompts_and_contents_pass_the_limit_of_a_line() {
    let cli = Cli::start(&[], "max_line_bytes = \"64KiB\"");
    let session = cli.session().await;
    let prompt = format!("length {}", "x".repeat(100_000));
    assert_eq!(cli.text(&session, &prompt).await, "100000");
    // The diff and the input of the tool contain the file.
    let turn = cli.gateway.turn(&session, "write 40000").await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
}
