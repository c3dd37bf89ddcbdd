//! Twenty kills at random points of turns, seen by a client that follows.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::{LIMITS, ends};
use crate::support::{Follower, Gateway, History, Random, Setup, figure};

const KILLS: usize = 20;

/// Turns that are worth a kill.
const TURNS: [&str; 6] = [
    "flood n=4000",
    "flood n=4000 batch=1",
    "slow chunks=400 ms=2",
    "permission; slow chunks=100 ms=2",
    "fork; flood n=2000; hang cancel=no",
    "tool; usage; plan; title text=Again; stream n=50; echo done",
];

/// A turn, and the end of the gateway somewhere in it.
async fn kill_in_a_turn(gateway: &mut Gateway, session: &str, key: &str, random: &mut Random) {
    let turn = TURNS[usize::try_from(random.below(TURNS.len() as u64)).expect("it is small")];
    let post = async |gateway: &Gateway| {
        let request = gateway.request(Method::POST, &format!("/v1/sessions/{session}/prompts"));
        request.header("Idempotency-Key", key).json(&json!({ "prompt": turn })).send().await
    };
    // Before anyone knows whether the turn was admitted.
    let early = random.below(4) == 0;
    if early {
        let until = Duration::from_micros(random.below(20_000));
        drop(tokio::time::timeout(until, post(gateway)).await);
    } else {
        let answer = post(gateway).await.expect("an answer");
        assert_eq!(answer.status(), 202, "{}", answer.text().await.expect("a body"));
        if turn.starts_with("permission") && random.below(2) == 0 {
            answer_permission(gateway, session).await;
        }
        // The point of the kill is what is random here; nothing waits for a condition by it.
        tokio::time::sleep(Duration::from_micros(random.below(400_000))).await;
    }
    gateway.kill();
    gateway.start();
    // Who has had no answer asks again, and gets the same turn if there is one.
    if early {
        let again = post(gateway).await.expect("an answer");
        assert!(again.status().is_success(), "{}", again.text().await.expect("a body"));
        assert_eq!(
            gateway.post(&format!("/v1/sessions/{session}/cancel"), &json!({})).await.0.as_u16() / 100,
            2
        );
        let turn = |events: &[Value]| {
            events.iter().find(|e| e["idempotencyKey"] == key).map(|e| e["promptId"].clone())
        };
        let log = gateway.all_events(session).await;
        let turn = turn(&log).expect("it is in the log");
        let path = format!("/v1/sessions/{session}/prompts/{}", turn.as_str().expect("an id"));
        let ended = gateway.request(Method::GET, &path).header("Prefer", "wait=20").send().await;
        let ended: Value = ended.expect("an answer").json().await.expect("JSON");
        assert!(ended["endedAt"].is_string(), "{ended}");
    }
}

async fn answer_permission(gateway: &Gateway, session: &str) {
    let path = format!("/v1/sessions/{session}/requests");
    let open = crate::support::eventually("a permission is asked for", Duration::from_secs(20), || async {
        let requests = gateway.get(&path).await;
        requests["requests"][0]["requestId"].as_str().map(str::to_owned)
    })
    .await;
    let answer = json!({ "optionId": "allow" });
    let (status, body) = gateway.post(&format!("/v1/sessions/{session}/permissions/{open}"), &answer).await;
    assert_eq!(status, 204, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_misses_nothing_through_twenty_kills() {
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state");
    let state = state.to_str().expect("UTF-8");
    let mut gateway =
        Setup::fake(&["--resume", "--state", state]).limits(&format!("{LIMITS}cancel = \"200ms\"")).start();
    let session = gateway.session("fake").await;
    let mut follower = Follower::start(&gateway, &session);
    let began = Instant::now();
    let mut grew = 0;
    for kill in 0..KILLS {
        let before = follower.seen().len();
        kill_in_a_turn(&mut gateway, &session, &format!("kill {kill}"), &mut random).await;
        grew += usize::from(follower.seen().len() > before);
    }
    let took = began.elapsed();
    let last = gateway.turn(&session, "echo the last").await;
    let is_end = |event: &Value| event["type"] == "prompt.completed" && event["promptId"] == last["promptId"];
    follower.until("the end of the last turn", is_end).await;
    let connections = follower.connections();
    History::of(&gateway, vec![follower]).await.assert_holds();

    let log = gateway.all_events(&session).await;
    let mut keys: Vec<&str> = log.iter().filter_map(|event| event["idempotencyKey"].as_str()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), KILLS, "each request got its one turn: {keys:?}");
    let ends = ends(&log);
    assert_eq!(ends.len(), KILLS + 1, "and no other");
    let mut interrupted = 0;
    for (turn, ends) in &ends {
        assert_eq!(ends.len(), 1, "{turn} has one end: {ends:?}");
        if ends[0]["type"] == "prompt.failed" {
            let code = ends[0]["problem"]["code"].as_str().expect("a code");
            assert!(["interrupted", "cancel_timeout"].contains(&code), "{}", ends[0]);
            interrupted += usize::from(code == "interrupted");
        }
    }
    figure(&format!(
        "{KILLS} kills in {took:?}: {} turns, {interrupted} interrupted, {} events, {} connections, {grew} kills after events had come",
        ends.len(),
        log.len(),
        connections,
    ));
    assert!(interrupted >= KILLS / 4, "kills hit turns: {interrupted}");
    assert!(connections > KILLS / 2, "the follower was cut off: {connections}");
}
