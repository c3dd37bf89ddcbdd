//! Kills at random points of the turns of one session, also before anyone knows whether its prompt was admitted.
//!
//! `scale::cycles` has many sessions and many kills; here one life is looked at after the other.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::LIMITS;
use crate::support::history::PromptAnswer;
use crate::support::{Follower, Gateway, History, Random, Setup, eventually, figure};

const KILLS: usize = 6;

/// Turns that are worth a kill. Each has a mark of its own.
const TURNS: [&str; 6] = [
    "flood n=4000",
    "flood n=4000 batch=1",
    "slow chunks=400 ms=2",
    "permission; slow chunks=100 ms=2",
    "fork; flood n=2000; hang cancel=no",
    "tool; usage; plan; title text=Again; stream n=50; slow",
];

struct Sender {
    session: String,
    answers: Vec<PromptAnswer>,
}

impl Sender {
    /// Sends this prompt with this key. Returns the turn, if the gateway admitted it.
    async fn send(&mut self, gateway: &Gateway, key: &str, text: &str) -> Option<String> {
        let path = format!("/v1/sessions/{}/prompts", self.session);
        let request = gateway
            .request(Method::POST, &path)
            .header("Idempotency-Key", key);
        let response = request.json(&json!({ "prompt": text })).send().await.ok()?;
        let status = response.status().as_u16();
        let body: Value = response.json().await.ok()?;
        assert!((200..300).contains(&status), "{body}");
        let prompt = body["promptId"].as_str().map(str::to_owned);
        let session = self.session.clone();
        let key = Some(key.to_owned());
        self.answers.push(PromptAnswer {
            session,
            key,
            status,
            prompt: prompt.clone(),
        });
        prompt
    }

    /// A turn, and the end of the gateway somewhere in it. Clients without a response send the prompt again.
    async fn turn_with_kill(&mut self, gateway: &mut Gateway, number: usize, random: &mut Random) {
        let commands = if number == 0 {
            "slow chunks=400 ms=2"
        } else {
            *random.one_of(&TURNS)
        };
        let key = format!("kill {number}");
        let (first, rest) = commands.split_once(';').unwrap_or((commands, ""));
        let text = format!("{first} mark={number};{rest}");
        let text = text.trim_end_matches(';');
        if number == 0 {
            // At least this kill meets a turn that the agent runs.
            self.send(gateway, &key, text).await.expect("an answer");
            gateway
                .log_until(&self.session, |event| event["type"] == "session.update")
                .await;
        } else if random.below(3) == 0 {
            let until = Duration::from_micros(random.below(20_000));
            drop(tokio::time::timeout(until, self.send(gateway, &key, text)).await);
        } else {
            self.send(gateway, &key, text).await.expect("an answer");
            if commands.starts_with("permission") && random.below(2) == 0 {
                answer_permission(gateway, &self.session).await;
            }
            // Only the time of the kill is random. No condition depends on this sleep.
            tokio::time::sleep(Duration::from_micros(random.below(400_000))).await;
        }
        gateway.kill();
        gateway.start();
        let turn = self.send(gateway, &key, text).await.expect("an answer");
        let path = format!("/v1/sessions/{}", self.session);
        assert_eq!(
            gateway
                .post(&format!("{path}/cancel"), &json!({}))
                .await
                .0
                .as_u16()
                / 100,
            2
        );
        let ended = gateway
            .request(Method::GET, &format!("{path}/prompts/{turn}"))
            .header("Prefer", "wait=60");
        let ended: Value = ended
            .send()
            .await
            .expect("an answer")
            .json()
            .await
            .expect("JSON");
        assert!(ended["endedAt"].is_string(), "{ended}");
    }
}

async fn answer_permission(gateway: &Gateway, session: &str) {
    let path = format!("/v1/sessions/{session}/requests");
    let open = eventually(
        "a permission is asked for",
        Duration::from_secs(20),
        || async {
            let requests = gateway.get(&path).await;
            requests["requests"][0]["requestId"]
                .as_str()
                .map(str::to_owned)
        },
    )
    .await;
    let answer = json!({ "optionId": "allow" });
    let (status, body) = gateway
        .post(
            &format!("/v1/sessions/{session}/permissions/{open}"),
            &answer,
        )
        .await;
    assert_eq!(status, 204, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_receives_every_event_across_kills() {
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [state, journals] = ["state", "journals"].map(|name| folder.path().join(name));
    let args = [
        "--resume",
        "--state",
        state.to_str().expect("UTF-8"),
        "--journal",
        journals.to_str().expect("UTF-8"),
    ];
    let mut gateway = Setup::fake(&args)
        .settings(&format!("{LIMITS}testing.cancel_timeout = \"200ms\""))
        .start();
    let session = gateway.session("fake").await;
    let mut follower = Follower::start(&gateway, &session);
    let mut sender = Sender {
        session,
        answers: Vec::new(),
    };
    for number in 0..KILLS {
        sender
            .turn_with_kill(&mut gateway, number, &mut random)
            .await;
    }
    let last = sender
        .send(&gateway, "the last", "echo the last")
        .await
        .expect("an answer");
    let is_end = |event: &Value| event["type"] == "prompt.completed" && event["promptId"] == last;
    follower.until("the end of the last turn", is_end).await;
    let events = follower.seen();
    let connections = follower.connections();

    let mut history = History::of(&gateway, vec![follower])
        .await
        .with_agents(&journals);
    history.prompts = sender.answers;
    gateway.kill();
    history
        .with_left(&gateway, "the gateway")
        .await
        .assert_holds();

    // The cancel after a kill ends a prompt that still waits for a process, so that it does not start.
    let turns = events
        .iter()
        .filter(|event| event["type"] == "prompt.completed" || event["type"] == "prompt.failed")
        .count();
    let interrupted = events
        .iter()
        .filter(|event| event["problem"]["code"] == "interrupted")
        .count();
    figure(&format!(
        "{turns} turns, {interrupted} interrupted, {} events",
        events.len()
    ));
    assert_eq!(turns, KILLS + 1, "each request got its one turn");
    assert!(interrupted > 0, "kills hit turns");
    assert!(
        connections > KILLS / 2,
        "the follower was cut off: {connections}"
    );
}
