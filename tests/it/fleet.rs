//! Members of the fleet: `acp-gateway connect` in front of a real gateway, through cuts of the network and kills of the gateway.

mod abuse;
pub(crate) mod cca;
mod load;
mod management;
mod roots;
mod served;
mod states;
mod tls;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::attach::set_public_url;
use crate::support::gateway::{KEY, binary};
use crate::support::log::{all, one};
use crate::support::places::{claude_cli, fake_agent};
use crate::support::proxy::Proxy;
use crate::support::random::rounds;
use crate::support::{Gateway, Random, Setup, eventually, figure};

const PATIENCE: Duration = Duration::from_mins(1);
/// Members that run at the same time, each with its own gateway behind a proxy.
const MEMBERS: usize = 4;
/// The cuts of each member in a round.
const CUTS: usize = 8;
/// The kills of the gateway in a round.
const KILLS: usize = 5;

/// A running `acp-gateway connect`. Its end stops the processes of the agent.
pub(crate) struct Member {
    child: Child,
    log: tempfile::TempPath,
    /// Its temporary files, which remain after a kill.
    _files: tempfile::TempDir,
}

impl Member {
    /// Connects the scripted agent under this name.
    pub(crate) fn start(address: &str, name: &str, key: &str, more: &[&str]) -> Self {
        Self::start_at(&format!("ws://{address}/v1/fleet/connect"), name, key, more)
    }

    fn start_at(url: &str, name: &str, key: &str, more: &[&str]) -> Self {
        Self::run(url, (name, key), more, &[fake_agent(), "--resume"])
    }

    /// Connects this command.
    #[expect(
        clippy::disallowed_methods,
        reason = "the test plays the person at the terminal"
    )]
    pub(crate) fn run(
        url: &str,
        (name, key): (&str, &str),
        more: &[&str],
        command: &[&str],
    ) -> Self {
        let (file, log) = tempfile::NamedTempFile::new()
            .expect("a temporary file")
            .into_parts();
        let files = tempfile::tempdir().expect("a temporary folder");
        let child = Command::new(binary())
            .env("TMPDIR", files.path())
            .args(["connect", "--url", url, "--name", name])
            .args(more)
            .arg("--")
            .args(command)
            .env("ACP_GATEWAY_KEY", key)
            .env("ACP_GATEWAY_LOG", "debug")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("the binary was built");
        Self {
            child,
            log,
            _files: files,
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the file is ours")
    }

    /// The number of connections that the gateway has accepted.
    fn connections(&self) -> usize {
        self.log()
            .matches("the gateway accepted the member")
            .count()
    }

    /// Asks the program to end, and returns its exit code.
    fn stop(&mut self) -> Option<i32> {
        let pid =
            rustix::process::Pid::from_raw(self.child.id().cast_signed()).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .expect("the process is ours");
        self.child.wait().expect("the process is ours").code()
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

pub(crate) fn address(gateway: &Gateway) -> String {
    gateway.address().to_string()
}

/// Waits until the agent is in the catalogue and creates a session.
pub(crate) async fn session(gateway: &Gateway, member: &Member, name: &str) -> String {
    let path = format!("/v1/agents/{name}");
    eventually("the member is an agent", PATIENCE, || async {
        let response = gateway.request(Method::GET, &path).send().await.ok()?;
        (response.status() == 200).then_some(())
    })
    .await;
    let (status, body) = gateway
        .post("/v1/sessions", &json!({ "agent": name }))
        .await;
    assert_eq!(status, 201, "{body}\n{}\n{}", member.log(), gateway.log());
    body["sessionId"].as_str().expect("an id").to_owned()
}

/// Waits for the end of a turn.
async fn ended(gateway: &Gateway, session: &str, prompt: &Value) -> Value {
    let prompt = prompt["promptId"].as_str().expect("an id");
    let path = format!("/v1/sessions/{session}/prompts/{prompt}");
    let request = gateway
        .request(Method::GET, &path)
        .header("Prefer", "wait=60");
    request
        .send()
        .await
        .expect("an answer")
        .json()
        .await
        .expect("JSON")
}

/// The texts of the agent in one turn, and the number of its starts and ends.
async fn assert_stream(gateway: &Gateway, session: &str, prompt: &Value, count: usize) {
    let events = gateway.all_events(session).await;
    let turn: Vec<Value> = events
        .into_iter()
        .filter(|event| event["promptId"] == prompt["promptId"])
        .collect();
    one(&turn, "prompt.started");
    let end = one(&turn, "prompt.completed");
    assert_eq!(end["stopReason"], "end_turn");
    let chunks = turn
        .iter()
        .filter(|event| event["update"]["sessionUpdate"] == "agent_message_chunk");
    let numbers: Vec<usize> = chunks
        .filter_map(|event| {
            event["update"]["content"]["text"]
                .as_str()?
                .get(..8)?
                .parse()
                .ok()
        })
        .collect();
    let expected: Vec<usize> = (0..count).collect();
    assert_eq!(numbers, expected, "each update once and in order");
    assert!(all(&turn, "agent.invalid_output").is_empty());
}

#[tokio::test]
async fn member_is_an_agent_and_runs_a_turn() {
    let gateway = Setup::fake(&[]).start();
    let mut member = Member::start(&address(&gateway), "laptop", KEY, &[]);
    let session = session(&gateway, &member, "laptop").await;
    let prompt = gateway.prompt(&session, "stream n=50").await;
    assert_eq!(
        ended(&gateway, &session, &prompt).await["status"],
        "completed"
    );
    assert_stream(&gateway, &session, &prompt, 50).await;
    let agent = gateway.get("/v1/agents/laptop").await;
    assert_eq!(agent["kind"], "fleet");
    assert_eq!(gateway.get("/v1/agents/fake").await["kind"], "local");
    assert_eq!(member.stop(), Some(0), "{}", member.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn member_translates_agents_in_other_protocols() {
    for dialect in ["stream-json", "early-acp"] {
        let gateway = Setup::fake(&[]).start();
        let url = format!("ws://{}/v1/fleet/connect", address(&gateway));
        let translator = binary().display().to_string();
        let cli = claude_cli();
        let command = match dialect {
            "stream-json" => vec!["python3", &cli],
            _ => vec![
                &*translator,
                "translate",
                "--from=acp",
                "--to=early-acp",
                "--",
                fake_agent(),
            ],
        };
        let member = Member::run(&url, ("other", KEY), &["--dialect", dialect], &command);
        // A process of these agents serves one session.
        let one = session(&gateway, &member, "other").await;
        let two = session(&gateway, &member, "other").await;
        let turns = (
            gateway.turn(&one, "echo first"),
            gateway.turn(&two, "echo second"),
        );
        let (first, second) = tokio::join!(turns.0, turns.1);
        assert_eq!(
            (&first["text"], &second["text"]),
            (&json!("first"), &json!("second")),
            "{}",
            member.log()
        );
        assert_eq!(gateway.turn(&one, "echo third").await["text"], "third");
        assert_eq!(gateway.get("/v1/agents/other").await["dialect"], dialect);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_update_arrives_once_through_cuts_of_the_network() {
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let members = (0..MEMBERS).map(|_| cut_often(random.apart()));
    let figures = futures_util::future::join_all(members).await;
    figure(&figures.join("; "));
}

/// Streams turns of a member and cuts its connections. Returns its figures.
async fn cut_often(mut random: Random) -> String {
    let mut gateway = Setup::fake(&[]).start();
    let proxy = Proxy::start(gateway.address()).await;
    set_public_url(&mut gateway, &format!("http://{}", proxy.address));
    let member = Member::start(&proxy.address.to_string(), "laptop", KEY, &[]);
    let session = session(&gateway, &member, "laptop").await;
    let wanted = rounds(CUTS);
    let mut cuts = 0;
    let mut turns = 0;
    while cuts < wanted {
        let prompt = gateway.prompt(&session, "stream n=1500 rate=500").await;
        turns += 1;
        loop {
            // Only the time of the cut is random. No condition depends on this sleep.
            tokio::time::sleep(Duration::from_millis(30 + random.below(150))).await;
            let path = format!(
                "/v1/sessions/{session}/prompts/{}",
                prompt["promptId"].as_str().expect("an id")
            );
            if gateway.get(&path).await["endedAt"].is_string() {
                break;
            }
            // Each cut hits an open connection.
            if cuts < wanted && member.connections() > cuts {
                proxy.cut();
                cuts += 1;
            }
        }
        assert_stream(&gateway, &session, &prompt, 1500).await;
    }
    format!(
        "{turns} turns, {cuts} cuts, {} connections",
        member.connections()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_survive_kills_of_the_gateway() {
    let mut gateway = Setup::fake(&[]).start();
    let member = Member::start(&address(&gateway), "laptop", KEY, &[]);
    let session = session(&gateway, &member, "laptop").await;
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let kills = rounds(KILLS);
    for kill in 0..kills {
        let prompt = gateway.prompt(&session, "stream n=400 rate=800").await;
        // Only the time of the kill is random. No condition depends on this sleep.
        tokio::time::sleep(Duration::from_millis(random.below(500))).await;
        gateway.kill();
        gateway.start();
        let end = ended(&gateway, &session, &prompt).await;
        assert_eq!(
            end["status"],
            "completed",
            "kill {kill}: {end}\n{}\n{}",
            gateway.log(),
            member.log()
        );
        assert_stream(&gateway, &session, &prompt, 400).await;
    }
    let events = gateway.all_events(&session).await;
    assert_eq!(
        all(&events, "session.attached").len(),
        1,
        "the process outlived {kills} kills"
    );
    assert_eq!(all(&events, "prompt.completed").len(), kills);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_of_the_agent_stays_open_through_a_kill_of_the_gateway() {
    let mut gateway = Setup::fake(&[]).start();
    let member = Member::start(&address(&gateway), "laptop", KEY, &[]);
    let session = session(&gateway, &member, "laptop").await;
    let prompt = gateway
        .prompt(&session, "permission; stream n=300 rate=300")
        .await;
    let open = eventually("a permission is asked for", PATIENCE, || async {
        let requests = gateway
            .get(&format!("/v1/sessions/{session}/requests"))
            .await;
        requests["requests"][0]["requestId"]
            .as_str()
            .map(str::to_owned)
    })
    .await;
    gateway.kill();
    gateway.start();
    let path = format!("/v1/sessions/{session}/permissions/{open}");
    let (status, body) = gateway.post(&path, &json!({ "optionId": "allow" })).await;
    assert_eq!(status, 204, "{body}");
    // The answer is durable, and may not have reached the agent.
    gateway.kill();
    gateway.start();
    let end = ended(&gateway, &session, &prompt).await;
    assert_eq!(end["status"], "completed", "{end}\n{}", gateway.log());
    assert_stream(&gateway, &session, &prompt, 300).await;
    let events = gateway.all_events(&session).await;
    one(&events, "request.created");
    assert_eq!(one(&events, "request.resolved")["resolution"], "answered");
    drop(member);
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_stays_away_fails_its_turn_and_its_session_returns_with_it() {
    let gateway = Setup::fake(&[])
        .settings("testing.member_return_timeout = \"500ms\"")
        .start();
    let member = Member::start(&address(&gateway), "laptop", KEY, &[]);
    let session = session(&gateway, &member, "laptop").await;
    let prompt = gateway.prompt(&session, "hang").await;
    eventually("the prompt is sent", PATIENCE, || async {
        let events = gateway.all_events(&session).await;
        (!all(&events, "prompt.started").is_empty()).then_some(())
    })
    .await;
    drop(member);
    let end = ended(&gateway, &session, &prompt).await;
    assert_eq!(
        (&end["status"], &end["error"]["code"]),
        (&json!("failed"), &json!("member_unavailable"))
    );
    let member = Member::start(&address(&gateway), "laptop", KEY, &[]);
    eventually("the session works again", PATIENCE, || async {
        let prompt = gateway.prompt(&session, "echo back").await;
        (ended(&gateway, &session, &prompt).await["status"] == "completed").then_some(())
    })
    .await;
    drop(member);
}

#[tokio::test]
async fn name_of_another_agent_or_member_is_rejected() {
    let gateway = Setup::fake(&[]).start();
    let configured = Member::start(&address(&gateway), "fake", KEY, &["--max-attempts", "1"]);
    let first = Member::start(&address(&gateway), "laptop", KEY, &[]);
    session(&gateway, &first, "laptop").await;
    let second = Member::start(&address(&gateway), "laptop", KEY, &["--max-attempts", "1"]);
    let wrong_key = Member::start(
        &address(&gateway),
        "other",
        "acpg_wrong_key_that_is_long_enough",
        &[],
    );
    for (mut member, expected) in [
        (configured, "an agent of the configuration has this name"),
        (second, "another member with this name is connected"),
        (wrong_key, "401"),
    ] {
        assert_eq!(
            member.child.wait().expect("the process is ours").code(),
            Some(1),
            "{}",
            member.log()
        );
        assert!(member.log().contains(expected), "{}", member.log());
    }
}
