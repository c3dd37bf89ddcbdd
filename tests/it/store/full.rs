//! A disk that is full for a while: nothing new is taken, what was seen can be read, what waited is kept.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::disk::ENOSPC;
use super::{LIMITS, on_disk};
use crate::support::history::PromptAnswer;
use crate::support::log::said;
use crate::support::{Answer, Follower, Gateway, History, Setup, eventually};

const TURN: &str = "slow chunks=150 ms=10";

async fn post(gateway: &Gateway, session: &str, key: &str) -> Answer {
    let path = format!("/v1/sessions/{session}/prompts");
    let body = json!({ "prompt": "echo later" });
    gateway.posted(&path, &[("Idempotency-Key", key), ("Prefer", "wait=30")], &body).await
}

fn is_chunk(event: &Value) -> bool {
    event["type"] == "session.update"
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_what_is_new_and_keeps_what_it_has() {
    let journals = tempfile::tempdir().expect("a temporary folder");
    let flags = ["--journal", journals.path().to_str().expect("UTF-8")];
    let (mut gateway, disk) = on_disk(Setup::fake(&flags).limits(LIMITS));
    let (busy, idle) = (gateway.session("fake").await, gateway.session("fake").await);
    gateway.turn(&idle, "echo before").await;
    let transcript = format!("/v1/sessions/{idle}/transcript");
    let told = gateway.get(&transcript).await["turns"].clone();
    let mut followers = [Follower::start(&gateway, &busy), Follower::start(&gateway, &idle)];
    gateway.prompt(&busy, TURN).await;
    followers[0].until("the turn has begun", is_chunk).await;

    disk.fail("w", ENOSPC, 1..=u64::MAX);
    let refused = eventually("a prompt is refused", Duration::from_secs(30), || async {
        let answer = if disk.has_failed() { Some(post(&gateway, &idle, "again").await) } else { None };
        answer.filter(|answer| answer.status == 507)
    })
    .await;
    refused.problem(507, "storage_full");
    let body = json!({ "agent": "fake" });
    gateway.posted("/v1/sessions", &[], &body).await.problem(507, "storage_full");
    // Commits that were under way have ended by now. What the agent goes on to say is not seen.
    let page = gateway.all_events(&busy).await;
    let seen = eventually("what is durable has come", Duration::from_secs(10), || async {
        Some(followers[0].seen().len()).filter(|seen| *seen >= page.len())
    })
    .await;
    assert_eq!(page, followers[0].seen(), "what is durable can be read, and nothing else");
    assert_eq!(gateway.get("/v1/sessions").await["sessions"].as_array().map(Vec::len), Some(2));
    assert_eq!(gateway.get(&transcript).await["turns"], told);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(followers[0].seen().len(), seen, "nothing is visible before it is durable");
    assert!(!followers[0].seen().iter().any(|event| event["type"] == "prompt.completed"));

    disk.heal();
    followers[0].until("the end of the turn", |event| event["type"] == "prompt.completed").await;
    let text = said(&followers[0].seen());
    assert!((0..150).all(|n| text.contains(&format!("chunk {n} "))), "{text}");
    let again = eventually("the prompt is taken", Duration::from_secs(30), || async {
        Some(post(&gateway, &idle, "again").await).filter(|answer| answer.status != 507)
    })
    .await;
    assert_eq!((again.status.as_u16(), &again.body["text"]), (200, &json!("later")), "{again:?}");
    let mut history = History::of(&gateway, followers.into()).await.with_agents(journals.path());
    history.prompts.push(PromptAnswer {
        session: idle.clone(),
        key: Some("again".to_owned()),
        status: 200,
        prompt: again.body["promptId"].as_str().map(str::to_owned),
    });
    history.assert_holds();
    let path = format!("/v1/sessions/{busy}/events?limit=1000");
    let before = Answer::of(gateway.request(Method::GET, &path)).await.body["events"].clone();
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    gateway.start();
    let after = gateway.all_events(&busy).await;
    assert_eq!(before.as_array().expect("events")[..], after[..before.as_array().map_or(0, Vec::len)]);
}
