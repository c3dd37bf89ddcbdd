//! Scenarios that every real agent with persistent sessions must pass behind the gateway.

use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::model::Model;
use super::real::{Real, Running, ends};
use crate::isolation::ground::{self, Machine, User, outside_tmp, run_by};
use crate::support::places::scratch;
use crate::support::procfs::at_home;
use crate::support::{Events, Setup, eventually, figure};

/// The event that ends the turn.
async fn end(stream: &mut Events) -> Value {
    stream
        .up_to("the end of the turn", ends)
        .await
        .pop()
        .expect("up_to gives it")
        .data
}

/// Begins a turn without an end, and waits for the first text of the agent.
async fn speaks(running: &Running, session: &str, stream: &mut Events) {
    running.gateway.prompt(session, "slowly").await;
    stream
        .up_to("a text", |event| {
            event.data["update"]["sessionUpdate"] == "agent_message_chunk"
        })
        .await;
}

/// Commands of the agent's tools that run, found by a word of their command line.
fn tools(running: &Running, word: &str) -> Vec<u32> {
    let home = running
        .gateway
        .path("data/homes/default")
        .join(running.real.name);
    let all = at_home(&home).into_iter();
    all.filter(|(_, _, command)| command.contains(word))
        .map(|(pid, _, _)| pid)
        .collect()
}

pub(super) async fn permissions(real: &'static Real) {
    let running = real.start("").await;
    let session = running.session().await;
    let folder = running.cwd(&session).await;

    let mut asked = running.asked(&session, "touch made.txt").await;
    assert!(
        !folder.join("made.txt").exists(),
        "the agent waits for the answer"
    );
    running.answer(&asked, "allow_once").await;
    let turn = end(&mut asked.stream).await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    assert!(folder.join("made.txt").exists());
    let prompt = running
        .gateway
        .get(&format!("/v1/sessions/{session}/prompts/p1"))
        .await;
    assert!(
        prompt["text"]
            .as_str()
            .expect("text")
            .starts_with("The tool says:"),
        "{prompt}"
    );

    let mut asked = running.asked(&session, "touch refused.txt").await;
    running.answer(&asked, "reject_once").await;
    let turn = end(&mut asked.stream).await;
    assert_eq!(turn["type"], "prompt.completed", "{turn}");
    figure(&format!(
        "{}: a rejected call ends the turn with {}",
        real.name, turn["stopReason"]
    ));
    assert!(
        !folder.join("refused.txt").exists(),
        "the rejected command did not run"
    );
    let next = running.turn(&session, "next").await;
    assert_eq!(next["stopReason"], "end_turn", "{next}");
    running.assert_kept(&[session]).await;
}

pub(super) async fn cancel_while_a_tool_runs(real: &'static Real) {
    let running = real.start("").await;
    let session = running.session().await;
    let mut asked = running.asked(&session, "sleep 4321").await;
    running.answer(&asked, "allow_once").await;
    eventually("the command runs", Duration::from_secs(30), || async {
        (!tools(&running, "sleep 4321").is_empty()).then_some(())
    })
    .await;
    running.cancel(&session).await;
    let turn = end(&mut asked.stream).await;
    assert_eq!(
        (&turn["type"], &turn["stopReason"]),
        (&json!("prompt.completed"), &json!("cancelled")),
        "{turn}"
    );
    figure(&format!(
        "{}: {} processes of the command are left",
        real.name,
        tools(&running, "sleep 4321").len()
    ));
    let next = running.turn(&session, "next").await;
    assert_eq!(next["stopReason"], "end_turn", "{next}");

    // Another session must not get the process together with the command.
    let path = format!("/v1/sessions/{session}");
    let (status, answer) = running
        .gateway
        .send(reqwest::Method::DELETE, &path, &Value::Null)
        .await;
    assert!(status.is_success(), "{status} {answer}");
    eventually(
        "the command has ended with its session",
        Duration::from_secs(30),
        || async { tools(&running, "sleep 4321").is_empty().then_some(()) },
    )
    .await;
}

/// Conversations share fewer processes. Each is visited twice, and each answer proves which history the agent had.
pub(super) async fn more_conversations_than_processes(
    real: &'static Real,
    conversations: usize,
    processes: usize,
) {
    let running = real
        .start(&format!(
            "pool = {{ max_size = {processes}, min_idle = 0 }}"
        ))
        .await;
    let words: Vec<String> = (0..conversations)
        .map(|number| format!("fruit{number}"))
        .collect();
    // One of them waits for a process.
    let at_once = processes + 1;
    // First starts at once in a new HOME are another scenario.
    let mut sessions = running.conversations(&words[..1], 1).await;
    sessions.extend(running.conversations(&words[1..], at_once).await);
    let visits = sessions.iter().zip(&words).map(|(session, word)| {
        let running = &running;
        let answer = format!("again comes after {word}");
        async move { running.says(session, "again", &answer).await }
    });
    futures_util::stream::iter(visits)
        .buffered(at_once)
        .collect::<()>()
        .await;
    running.assert_kept(&sessions).await;
}

pub(super) async fn idle_timeout(real: &'static Real) {
    let running = real
        .start("pool = { max_size = 4, min_idle = 0, idle_timeout = \"1s\" }")
        .await;
    let session = running.session().await;
    running
        .says(&session, "banana", "banana comes after ")
        .await;
    running.detached(&session).await;
    running.gateway.none_alive().await;
    running
        .says(&session, "cherry", "cherry comes after banana")
        .await;
    running.assert_kept(&[session]).await;
}

pub(super) async fn kill_of_the_agent(real: &'static Real) {
    let running = real.start("").await;
    let session = running.session().await;
    let mut stream = running
        .gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    running
        .says(&session, "banana", "banana comes after ")
        .await;
    stream.until("prompt.completed").await;
    running.kill_agents().await;
    running.detached(&session).await;
    running
        .says(&session, "cherry", "cherry comes after banana")
        .await;
    stream.until("prompt.completed").await;

    speaks(&running, &session, &mut stream).await;
    running.kill_agents().await;
    let turn = end(&mut stream).await;
    assert_eq!(
        (&turn["type"], &turn["problem"]["code"]),
        (&json!("prompt.failed"), &json!("agent_exited")),
        "{turn}"
    );
    let next = running.turn(&session, "date").await;
    let text = next["text"].as_str().expect("text");
    assert!(
        text.starts_with("date comes after banana, cherry"),
        "{next}"
    );
    running.assert_kept(&[session]).await;
}

pub(super) async fn kill_of_the_gateway(real: &'static Real) {
    let mut running = real.start("").await;
    let session = running.session().await;
    running
        .says(&session, "banana", "banana comes after ")
        .await;
    running.gateway.kill();
    running.gateway.start();
    running
        .says(&session, "cherry", "cherry comes after banana")
        .await;

    let mut stream = running
        .gateway
        .events(&format!("/v1/sessions/{session}/events?after=tail"))
        .await;
    speaks(&running, &session, &mut stream).await;
    running.gateway.kill();
    running.gateway.start();
    let next = running.turn(&session, "date").await;
    let text = next["text"].as_str().expect("text");
    assert!(
        text.starts_with("date comes after banana, cherry"),
        "{next}"
    );
    running.assert_kept(&[session]).await;
}

/// With the default configuration an idle process starts at the same time.
pub(super) async fn two_sessions_at_once_in_a_new_home(real: &'static Real) {
    let running = real.start("pool = { max_size = 8, min_idle = 1 }").await;
    let words = ["banana", "cherry"].map(str::to_owned);
    let sessions = running.conversations(&words, 2).await;
    running.assert_kept(&sessions).await;
}

pub(super) async fn fork(real: &'static Real) {
    let running = real.start("").await;
    let session = running.session().await;
    running
        .says(&session, "banana", "banana comes after ")
        .await;
    let (status, forked) = running
        .gateway
        .post(&format!("/v1/sessions/{session}/fork"), &json!({}))
        .await;
    assert_eq!(status, 201, "{forked}\n{}", running.gateway.log());
    let forked = forked["sessionId"].as_str().expect("an id").to_owned();
    running
        .says(&forked, "cherry", "cherry comes after banana")
        .await;
    running
        .says(&session, "date", "date comes after banana")
        .await;
    running
        .says(&forked, "elder", "elder comes after banana, cherry")
        .await;
    running.assert_kept(&[session, forked]).await;
}

/// Another gateway adopts the session that the agent keeps in the folder which `home` names.
pub(super) async fn adopt(real: &'static Real, home: &'static str) {
    let model = Model::start().await;
    let kept = tempfile::tempdir().expect("a temporary folder");
    // The operator's own folder of the agent: with isolation, an agent of root can only read it.
    let level = "isolation = \"off\"\n";
    let home = [(home, kept.path().to_str().expect("UTF-8").to_owned())];
    let first = real
        .configure(Setup::default(), &model, level, &home)
        .start();
    let mut first = Running::new(real, first, model);
    let session = first.session().await;
    let began = minute();
    let cwd = first.cwd(&session).await;
    first.says(&session, "banana", "banana comes after ").await;
    first
        .says(&session, "cherry", "cherry comes after banana")
        .await;
    first.gateway.kill();
    first.gateway.none_alive().await;

    let theirs = eventually(
        "the agent has written its session",
        Duration::from_secs(20),
        || async { session_of(kept.path(), "cherry comes after") },
    )
    .await;
    // The second gateway cannot know when the session began.
    eventually(
        "the agent may load the session",
        Duration::from_secs(70),
        || async { (real.loads_at_once || minute() > began).then_some(()) },
    )
    .await;
    let setup = Setup::default().table(&format!("[workspaces]\nallow = ['{}']\n", cwd.display()));
    let model = Model::start().await;
    let second = real.configure(setup, &model, level, &home).start();
    let second = Running::new(real, second, model);
    let body = json!({ "agent": real.name, "agentSessionId": theirs, "cwd": cwd });
    let (status, adopted) = second.gateway.post("/v1/sessions", &body).await;
    assert_eq!(status, 201, "{adopted}\n{}", second.gateway.log());
    let adopted = adopted["sessionId"].as_str().expect("an id").to_owned();
    second
        .says(&adopted, "date", "date comes after banana, cherry")
        .await;
    let history = second.gateway.lawful(&adopted).await;
    let chunks: Vec<_> = history
        .iter()
        .filter(|event| event["update"].to_string().contains("banana comes after"))
        .collect();
    assert_eq!(chunks.len(), 1, "{chunks:#?}");
    assert_eq!(chunks[0]["replayed"], true, "{chunks:#?}");
    second.assert_kept(&[adopted]).await;
}

/// At the level `workspace`: a tool with its permission, a restore in another process, and a fork. All other scenarios
/// run at the default level.
pub(super) async fn workspace_isolation(real: &'static Real) {
    let pool = "pool = { max_size = 4, min_idle = 0, idle_timeout = \"1s\" }";
    let running = real
        .start(&format!("isolation = \"workspace\"\n{pool}"))
        .await;
    let session = running.session().await;
    let shown = running.gateway.get_session(&session).await;
    assert_eq!(shown["isolation"]["level"], "workspace", "{shown}");
    let inside = running.cwd(&session).await.join("made.txt");
    let outside = scratch().join(format!("outside-{session}.txt"));
    let mut asked = running
        .asked(
            &session,
            &format!("touch made.txt; touch {}", outside.display()),
        )
        .await;
    running.answer(&asked, "allow_once").await;
    let turn = end(&mut asked.stream).await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    assert!(
        inside.exists() && !outside.exists(),
        "the agent writes only to its folders"
    );

    let talk = running.session().await;
    running.says(&talk, "banana", "banana comes after ").await;
    running.detached(&talk).await;
    running
        .says(&talk, "cherry", "cherry comes after banana")
        .await;
    if real.forks {
        let path = format!("/v1/sessions/{talk}/fork");
        let (status, forked) = running.gateway.post(&path, &json!({})).await;
        assert_eq!(status, 201, "{forked}\n{}", running.gateway.log());
        let forked = forked["sessionId"].as_str().expect("an id").to_owned();
        running
            .says(&forked, "date", "date comes after banana, cherry")
            .await;
    }
    running.assert_kept(&[session, talk]).await;
}

/// The gateway has an ordinary user, with namespaces and with Landlock only: a turn, and a tool with its permission.
pub(super) async fn unprivileged_gateway(real: &'static Real) {
    if !User::Unprivileged.can_run() {
        return;
    }
    for (machine, level) in [
        (Machine::Namespaces, "private"),
        (Machine::Namespaces, "workspace"),
        (Machine::LandlockOnly, "private"),
        (Machine::LandlockOnly, "workspace"),
    ] {
        let words = run_by(User::Unprivileged, machine);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let setup = Setup::default().run_by(&words).below(outside_tmp());
        let model = Model::start().await;
        let without_terminals = real
            .without_terminals
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let variables: Vec<_> = without_terminals
            .filter(|_| machine == Machine::LandlockOnly)
            .collect();
        let setup = real.configure(
            setup,
            &model,
            &format!("isolation = {level:?}\n"),
            &variables,
        );
        let running = Running::new(real, ground::start(setup, User::Unprivileged), model);
        let session = running.session().await;
        let isolation = running.gateway.get_session(&session).await["isolation"].clone();
        assert_eq!(isolation["level"], level, "{isolation}");
        assert_eq!(
            isolation["mechanism"] == "namespaces",
            machine == Machine::Namespaces,
            "{isolation}"
        );
        running
            .says(&session, "banana", "banana comes after ")
            .await;
        let mut asked = running.asked(&session, "touch made.txt").await;
        running.answer(&asked, "allow_once").await;
        let turn = end(&mut asked.stream).await;
        assert_eq!(turn["stopReason"], "end_turn", "{turn}");
        let prompt = running
            .gateway
            .get(&format!("/v1/sessions/{session}/prompts/p2"))
            .await;
        assert!(
            running.cwd(&session).await.join("made.txt").exists(),
            "{machine:?} {level}: {prompt}"
        );
        running.assert_kept(&[session]).await;
    }
}

/// The minute of the wall clock.
#[expect(
    clippy::disallowed_methods,
    reason = "the agent names its files after the wall clock"
)]
fn minute() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("the clock is after 1970").as_secs() / 60
}

/// The agent's id of the session whose file contains this text: the UUID at the end of the file name, or the id in
/// the file.
fn session_of(folder: &Path, text: &str) -> Option<String> {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if let Some(found) = session_of(&path, text) {
                return Some(found);
            }
            continue;
        }
        let content = std::fs::read_to_string(&path).unwrap_or_default();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
            && content.contains(text)
        {
            let first: Value = serde_json::from_str(content.lines().next()?).ok()?;
            let id = [&first["sessionId"], &first["payload"]["id"]]
                .into_iter()
                .find_map(Value::as_str);
            return id.map(str::to_owned);
        }
    }
    None
}

/// The API of the model refuses one request for a reason that passes.
pub(super) async fn transient_failure_of_the_model(real: &'static Real) {
    const REASON: &str = "This model is currently experiencing high demand.";
    let running = real.start("").await;
    let session = running.session().await;
    running
        .says(&session, "banana", "banana comes after ")
        .await;
    let mut stream = running
        .gateway
        .events(&format!("/v1/sessions/{session}/events?after=tail"))
        .await;
    running
        .gateway
        .prompt(&session, &format!("fail 503 {REASON}"))
        .await;
    let turn = end(&mut stream).await;
    assert_eq!(turn["type"], "prompt.failed", "{turn}");
    let problem = &turn["problem"];
    assert!(
        problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("high demand")),
        "{problem}"
    );
    assert_eq!(problem["retryable"], true, "{problem}");
    let next = running.turn(&session, "cherry").await;
    assert!(
        next["text"]
            .as_str()
            .is_some_and(|text| text.starts_with("cherry comes after banana")),
        "{next}"
    );
}
