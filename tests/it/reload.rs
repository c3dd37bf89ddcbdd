//! SIGHUP: agents, MCP servers and the operator's key change while the gateway runs.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use rustix::pty::OpenptFlags;
use serde_json::{Value, json};

use super::support::gateway::{KEY, command};
use super::support::log::{all, kinds};
use super::support::{Follower, Gateway, History, Setup, eventually, is_alive};
use crate::support::places::fake_agent;

mod entries;
mod modes;

const PATIENCE: Duration = Duration::from_secs(20);
const RELOADED: &str = "the configuration was reloaded";
const NOT_RELOADED: &str = "the configuration was not reloaded";

/// A gateway that no terminal can hang up on, wherever the test was started.
fn start(setup: Setup) -> Gateway {
    setup.run_by(&["setsid"]).start()
}

/// Replaces the configuration file, requests a reload, and waits for its result in the log.
async fn reload(gateway: &Gateway, config: &str, says: &str) {
    let count = || gateway.log().matches(says).count();
    let before = count();
    std::fs::write(gateway.path("config.toml"), config).expect("the folder is ours");
    gateway.signal(Signal::HUP);
    eventually(says, PATIENCE, || async {
        (count() > before).then_some(())
    })
    .await;
}

fn agent(name: &str, args: &str) -> String {
    let fake = fake_agent();
    format!(
        "[agents.{name}]\ncommand = {fake:?}\nargs = [{args}]\nisolation = \"off\"\npool = {{ max_size = 4, min_idle = 0 }}\n"
    )
}

async fn pid(gateway: &Gateway, session: &str) -> u32 {
    let turn = gateway.turn(session, "pid").await;
    let pid = turn["text"]
        .as_str()
        .expect("a text")
        .strip_prefix("pid=")
        .expect("its pid");
    pid.trim().parse().expect("a pid")
}

async fn names(gateway: &Gateway) -> Vec<String> {
    let list = gateway.get("/v1/agents").await;
    let agents = list["agents"].as_array().expect("a list").iter();
    agents
        .map(|agent| agent["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[tokio::test]
async fn agents_are_added_changed_and_removed_without_a_restart() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = format!("\"--state\", {:?}", folder.path().join("state"));
    let first = [
        agent("kept", ""),
        agent("edited", &state),
        agent("dropped", ""),
    ]
    .concat();
    let gateway = start(Setup::default().table(&first));
    let mut sessions = Vec::new();
    for agent in ["kept", "edited", "edited", "dropped"] {
        sessions.push(gateway.session(agent).await);
    }
    let [kept, idle, busy, dropped] = &sessions[..] else {
        panic!("{sessions:?}")
    };
    let follower = Follower::all(&gateway, &sessions);
    let kept_pid = pid(&gateway, kept).await;
    let idle_pid = pid(&gateway, idle).await;
    let busy_pid = pid(&gateway, busy).await;
    gateway.turn(dropped, "echo what was said").await;
    let running = gateway.prompt(busy, "slow chunks=25 ms=100").await;

    let second = [
        agent("kept", ""),
        agent("edited", &format!("{state}, \"--resume\"")),
        agent("added", ""),
    ]
    .concat();
    reload(&gateway, &second, RELOADED).await;

    assert_eq!(names(&gateway).await, ["added", "edited", "kept"]);
    // Unchanged parts continue to run.
    assert_eq!(pid(&gateway, kept).await, kept_pid);
    // An idle process of a changed entry ends; the session's next prompt gets one of the new entry.
    eventually("the idle process has gone", PATIENCE, || async {
        (!is_alive(idle_pid)).then_some(())
    })
    .await;
    assert_ne!(pid(&gateway, idle).await, idle_pid);
    let log = gateway.lawful(idle).await;
    assert_eq!(all(&log, "session.detached")[0]["reason"], "reclaimed");
    assert_eq!(
        all(&log, "session.attached")[1]["by"],
        "resume",
        "which only the new entry can"
    );
    // A running turn continues with its process. The process stops after the turn.
    let path = format!(
        "/v1/sessions/{busy}/prompts/{}",
        running["promptId"].as_str().expect("an id")
    );
    let ended = gateway
        .request(Method::GET, &path)
        .header("Prefer", "wait=30")
        .send()
        .await;
    let ended: Value = ended.expect("an answer").json().await.expect("JSON");
    assert_eq!(ended["stopReason"], "end_turn", "{ended}");
    eventually("the busy process has gone", PATIENCE, || async {
        (!is_alive(busy_pid)).then_some(())
    })
    .await;
    let log = gateway.lawful(busy).await;
    let last = kinds(&log).into_iter().rev().take(2).collect::<Vec<_>>();
    assert_eq!(last, ["session.detached", "prompt.completed"]);
    // Of a removed agent everything can be read, and nothing asked.
    let transcript = gateway
        .get(&format!("/v1/sessions/{dropped}/transcript"))
        .await;
    assert!(
        transcript.to_string().contains("what was said"),
        "{transcript}"
    );
    let prompts = format!("/v1/sessions/{dropped}/prompts");
    let refused = gateway
        .posted(&prompts, &[], &json!({ "prompt": "echo more" }))
        .await;
    let problem = refused.problem(502, "agent_start_failed");
    assert!(
        problem["detail"]
            .as_str()
            .expect("a text")
            .contains("no longer in the gateway's configuration")
    );
    let (status, body) = gateway
        .post("/v1/sessions", &json!({ "agent": "dropped" }))
        .await;
    assert_eq!(
        (status, &body["code"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("invalid"))
    );
    // A new one works, and a removed one that is there again.
    let added = gateway.session("added").await;
    assert_eq!(gateway.turn(&added, "echo new").await["text"], "new");
    reload(&gateway, &[second, agent("dropped", "")].concat(), RELOADED).await;
    assert_eq!(gateway.turn(dropped, "echo again").await["text"], "again");
    History::of(&gateway, vec![follower]).await.assert_holds();
}

#[tokio::test]
async fn invalid_reload_changes_nothing_and_names_keys_that_need_a_restart() {
    let first = agent("kept", "");
    let gateway = start(Setup::default().table(&first));
    let session = gateway.session("kept").await;
    let process = pid(&gateway, &session).await;
    for (broken, says) in [
        ("[agents.kept]\ncomand = \"x\"\n", "comand"),
        ("[agents.", "config.toml"),
        (
            "[agents.kept]\ncommand = \"x\"\nenv = { KEY = { from_file = \"/nonexistent/key\" } }\n",
            "/nonexistent/key",
        ),
    ] {
        reload(&gateway, broken, NOT_RELOADED).await;
        let log = gateway.log();
        let line = log
            .lines()
            .rfind(|line| line.contains(NOT_RELOADED))
            .expect("it is there");
        assert!(line.contains(says), "{says}: {line}");
        assert_eq!(names(&gateway).await, ["kept"]);
    }
    assert_eq!(
        pid(&gateway, &session).await,
        process,
        "the process goes on"
    );

    let other = format!(
        "server.public_url = \"https://elsewhere.example\"\ntimeouts.drain_timeout = \"7s\"\n{first}"
    );
    reload(&gateway, &other, RELOADED).await;
    assert!(
        gateway
            .log()
            .contains("\"keys\":\"server.public_url, timeouts.drain_timeout\""),
        "{}",
        gateway.log()
    );
    assert_eq!(
        pid(&gateway, &session).await,
        process,
        "its entry has not changed"
    );
}

/// The listener and its names stay, so agents must not get what they would get on a gateway of one person.
#[tokio::test]
async fn reload_that_leaves_the_gateway_to_one_person_needs_a_restart() {
    let public = "server.public_url = \"https://gateway.example\"";
    let gateway = start(Setup::fake(&[]).settings(public));
    let config = std::fs::read_to_string(gateway.path("config.toml")).expect("a file");
    let personal = config.replace(public, "");
    assert_ne!(personal, config);
    reload(&gateway, &personal, "restart it to apply them").await;
}

#[tokio::test]
async fn the_operators_key_changes_and_streams_of_the_previous_end() {
    const OTHER: &str = "another_key_that_is_long_enough_for_an_admin";
    let first = agent("fake", "");
    let gateway = start(Setup::default().table(&first));
    let session = gateway.session("fake").await;
    let events = format!("/v1/sessions/{session}/events");
    let mut stream = gateway.events(&events).await;
    stream.until("ready").await;
    let ticket = gateway
        .post("/v1/tickets", &json!({ "paths": [events] }))
        .await
        .1;
    std::fs::write(gateway.path("admin-key"), OTHER).expect("the folder is ours");
    reload(&gateway, &first, RELOADED).await;

    let last = stream
        .rest()
        .await
        .pop()
        .expect("the stream ends with a reason");
    assert_eq!(last.data["problem"]["code"], "unauthorized", "{last:?}");
    let status = async |key: &str| {
        let request = gateway
            .http
            .get(format!("{}/v1/sessions", gateway.url))
            .bearer_auth(key);
        request.send().await.expect("an answer").status()
    };
    assert_eq!(
        (status(KEY).await, status(OTHER).await),
        (StatusCode::UNAUTHORIZED, StatusCode::OK)
    );
    let ticketed = format!(
        "{}{events}?ticket={}",
        gateway.url,
        ticket["ticket"].as_str().expect("a ticket")
    );
    assert_eq!(
        gateway
            .http
            .get(ticketed)
            .send()
            .await
            .expect("an answer")
            .status(),
        401
    );

    // An invalid key is an error. The current key stays valid.
    std::fs::write(gateway.path("admin-key"), "short").expect("the folder is ours");
    reload(&gateway, &first, NOT_RELOADED).await;
    assert_eq!(status(OTHER).await, StatusCode::OK);
}

/// A gateway with a new controlling terminal, and the other end of that terminal.
fn in_a_terminal(gateway: &Gateway, through: &[&str]) -> (Child, impl AsFd) {
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        .expect("a terminal");
    rustix::pty::grantpt(&ours).expect("it is ours");
    rustix::pty::unlockpt(&ours).expect("it is ours");
    let name = rustix::pty::ptsname(&ours, Vec::new())
        .expect("it has a name")
        .into_string()
        .expect("UTF-8");
    let nobodys = rustix::fs::OFlags::NOCTTY.bits().cast_signed();
    let theirs = File::options()
        .read(true)
        .write(true)
        .custom_flags(nobodys)
        .open(name)
        .expect("it is there");
    let served = gateway.serve("127.0.0.1:0");
    let mut words: Command = command("setsid");
    words
        .arg("--ctty")
        .args(through)
        .arg(served.get_program())
        .args(served.get_args())
        .env_clear();
    for (name, value) in served.get_envs() {
        words.env(name, value.expect("it is set"));
    }
    words
        .stdin(theirs)
        .stdout(Stdio::piped())
        .stderr(File::create(gateway.path("stderr")).expect("ours"));
    (words.spawn().expect("setsid is there"), ours)
}

fn listening(child: &mut Child) {
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped"))
        .read_line(&mut line)
        .expect("text");
    assert!(line.starts_with("http://"), "{line:?}");
}

#[tokio::test]
async fn a_terminal_that_closes_stops_its_gateway_and_not_one_of_nohup() {
    let mut gateway = Setup::fake(&[]).start();
    assert_eq!(gateway.stop(), Some(0));
    // The tests may run below `nohup` themselves.
    let (mut child, terminal) = in_a_terminal(&gateway, &["env", "--default-signal=HUP"]);
    listening(&mut child);
    drop(terminal);
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "it runs on: {}", gateway.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!(status.code(), Some(0), "{}", gateway.log());

    let (mut child, terminal) = in_a_terminal(&gateway, &["nohup"]);
    listening(&mut child);
    drop(terminal);
    eventually(RELOADED, PATIENCE, || async {
        gateway.log().contains(RELOADED).then_some(())
    })
    .await;
    assert!(
        child.try_wait().expect("it is our child").is_none(),
        "it runs on"
    );
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
}
