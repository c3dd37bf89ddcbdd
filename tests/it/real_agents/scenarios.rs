//! What every real agent that keeps its sessions has to do behind the gateway.

use std::time::Duration;

use serde_json::{Value, json};

use super::real::{Real, Running};
use crate::support::procfs::at_home;
use crate::support::{Event, Events, eventually, figure};

/// The event that ends the turn.
async fn end(stream: &mut Events) -> Value {
    let ends = |event: &Event| event.of("prompt.completed") || event.of("prompt.failed");
    stream.up_to("the end of the turn", ends).await.pop().expect("up_to gives it").data
}

/// Begins a turn without an end, and waits for the first text of the agent.
async fn speaks(running: &Running, session: &str, stream: &mut Events) {
    running.gateway.prompt(session, "slowly").await;
    stream.up_to("a text", |event| event.data["update"]["sessionUpdate"] == "agent_message_chunk").await;
}

/// Commands of the agent's tools that run, found by a word of their command line.
fn tools(running: &Running, word: &str) -> Vec<u32> {
    let home = running.gateway.path("data/homes/default").join(running.real.name);
    let all = at_home(&home).into_iter();
    all.filter(|(_, _, command)| command.contains(word)).map(|(pid, _, _)| pid).collect()
}

pub(super) async fn permissions(real: &'static Real) {
    let running = real.start("").await;
    let session = running.session().await;
    let folder = running.cwd(&session).await;

    let mut asked = running.asked(&session, "touch made.txt").await;
    assert!(!folder.join("made.txt").exists(), "the agent waits for the answer");
    running.answer(&asked, "allow_once").await;
    let turn = end(&mut asked.stream).await;
    assert_eq!(turn["stopReason"], "end_turn", "{turn}");
    assert!(folder.join("made.txt").exists());
    let prompt = running.gateway.get(&format!("/v1/sessions/{session}/prompts/p1")).await;
    assert!(prompt["text"].as_str().expect("text").starts_with("The tool says:"), "{prompt}");

    let mut asked = running.asked(&session, "touch refused.txt").await;
    running.answer(&asked, "reject_once").await;
    let turn = end(&mut asked.stream).await;
    assert_eq!(turn["type"], "prompt.completed", "{turn}");
    figure(&format!("{}: a rejected call ends the turn with {}", real.name, turn["stopReason"]));
    assert!(!folder.join("refused.txt").exists(), "the rejected command did not run");
    let next = running.gateway.turn(&session, "next").await;
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
    let next = running.gateway.turn(&session, "next").await;
    assert_eq!(next["stopReason"], "end_turn", "{next}");

    // Another session must not get the process together with the command.
    let path = format!("/v1/sessions/{session}");
    let (status, answer) = running.gateway.send(reqwest::Method::DELETE, &path, &Value::Null).await;
    assert!(status.is_success(), "{status} {answer}");
    eventually("the command has ended with its session", Duration::from_secs(30), || async {
        tools(&running, "sleep 4321").is_empty().then_some(())
    })
    .await;
}

pub(super) async fn idle_timeout(real: &'static Real) {
    let running = real.start("pool = { max = 4, warm = 0, idle = \"1s\" }").await;
    let session = running.session().await;
    running.says(&session, "banana", "banana comes after ").await;
    running.detached(&session).await;
    running.gateway.none_alive().await;
    running.says(&session, "cherry", "cherry comes after banana").await;
    running.assert_kept(&[session]).await;
}

pub(super) async fn kill_of_the_agent(real: &'static Real) {
    let running = real.start("").await;
    let session = running.session().await;
    let mut stream = running.gateway.events(&format!("/v1/sessions/{session}/events")).await;
    running.says(&session, "banana", "banana comes after ").await;
    stream.until("prompt.completed").await;
    running.kill_agents().await;
    running.detached(&session).await;
    running.says(&session, "cherry", "cherry comes after banana").await;
    stream.until("prompt.completed").await;

    speaks(&running, &session, &mut stream).await;
    running.kill_agents().await;
    let turn = end(&mut stream).await;
    assert_eq!(
        (&turn["type"], &turn["problem"]["code"]),
        (&json!("prompt.failed"), &json!("agent_exited")),
        "{turn}"
    );
    let next = running.gateway.turn(&session, "date").await;
    let text = next["text"].as_str().expect("text");
    assert!(text.starts_with("date comes after banana, cherry"), "{next}");
    running.assert_kept(&[session]).await;
}

pub(super) async fn kill_of_the_gateway(real: &'static Real) {
    let mut running = real.start("").await;
    let session = running.session().await;
    running.says(&session, "banana", "banana comes after ").await;
    running.gateway.kill();
    running.gateway.start();
    running.says(&session, "cherry", "cherry comes after banana").await;

    let mut stream = running.gateway.events(&format!("/v1/sessions/{session}/events?after=tail")).await;
    speaks(&running, &session, &mut stream).await;
    running.gateway.kill();
    running.gateway.start();
    let next = running.gateway.turn(&session, "date").await;
    let text = next["text"].as_str().expect("text");
    assert!(text.starts_with("date comes after banana, cherry"), "{next}");
    running.assert_kept(&[session]).await;
}

/// With the default configuration an idle process starts at the same time.
pub(super) async fn two_sessions_at_once_in_a_new_home(real: &'static Real) {
    let running = real.start("pool = { max = 8, warm = 1 }").await;
    let words = ["banana", "cherry"].map(str::to_owned);
    let sessions = running.conversations(&words, 2).await;
    running.assert_kept(&sessions).await;
}
