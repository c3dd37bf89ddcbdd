//! Snapshots are exact at their `lastEventId`, also while a turn streams.

use serde_json::{Value, json};

use crate::support::log::{agent_text, all};
use crate::support::{Gateway, Setup};

/// Changes of everything that a snapshot folds, between words.
const TURN: &str = "usage used=1; stream n=300 rate=150 size=8; title text=A; usage used=2; \
                    stream n=300 rate=150 size=8; modes; usage used=3; title text=B; stream n=300 rate=150 size=8";

async fn streaming() -> (Gateway, String) {
    let gateway = Setup::fake(&[])
        .settings("limits.per_key.max_requests_per_minute = 100000")
        .start();
    let session = gateway.session("fake").await;
    gateway.prompt(&session, TURN).await;
    (gateway, session)
}

fn seq(snapshot: &Value) -> usize {
    let id = snapshot["lastEventId"].as_str().expect("a cursor");
    id.rsplit_once('-')
        .expect("an id")
        .1
        .parse()
        .expect("a seq")
}

/// Snapshots until the turn has ended, the last one after it.
async fn snapshots(
    gateway: &Gateway,
    session: &str,
    path: &str,
    ended: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    let mut received = Vec::new();
    loop {
        let snapshot = gateway.get(&format!("/v1/sessions/{session}{path}")).await;
        let last = ended(&snapshot);
        received.push(snapshot);
        if last {
            break;
        }
        // Often enough to see many moments, and not so often that the agent gets no time.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let during = received
        .iter()
        .map(seq)
        .collect::<std::collections::BTreeSet<_>>()
        .len();
    assert!(during >= 5, "only {during} different moments were seen");
    received
}

/// The last value of a member in the log up to a position.
fn latest(log: &[Value], kind: &str, member: &str) -> Value {
    let mut updates = all(log, "session.update")
        .into_iter()
        .map(|event| &event["update"]);
    let of_kind = updates.rfind(|update| update["sessionUpdate"] == kind);
    of_kind.map_or(Value::Null, |update| update[member].clone())
}

/// Checks that the events after a snapshot are exactly the rest of the log.
async fn assert_continues(gateway: &Gateway, session: &str, snapshot: &Value, whole: &[Value]) {
    let after = snapshot["lastEventId"].as_str().expect("a cursor");
    let page = gateway
        .get(&format!(
            "/v1/sessions/{session}/events?limit=1000&after={after}"
        ))
        .await;
    let rest = page["events"].as_array().expect("a list");
    let expected = &whole[seq(snapshot)..];
    assert_eq!(rest[..], expected[..expected.len().min(1000)]);
}

#[tokio::test]
async fn a_session_is_exact_while_its_turn_streams() {
    let (gateway, session) = streaming().await;
    let received = snapshots(&gateway, &session, "", |shown| shown["state"] == "idle").await;
    let whole = gateway.lawful(&session).await;
    for shown in &received {
        let log = &whole[..seq(shown)];
        assert_eq!(shown["usage"]["used"], latest(log, "usage_update", "used"));
        let title = latest(log, "session_info_update", "title");
        let of_prompt = || {
            shown["title"]
                .as_str()
                .is_some_and(|title| TURN.starts_with(title.trim_end_matches('\u{2026}')))
        };
        assert!(
            shown["title"] == title || (title.is_null() && of_prompt()),
            "{shown}"
        );
        let mode = latest(log, "current_mode_update", "currentModeId");
        assert_eq!(
            shown["modes"]["currentModeId"],
            if mode.is_null() { json!("ask") } else { mode }
        );
        let running = all(log, "prompt.started").len() > all(log, "prompt.completed").len();
        assert_eq!(
            shown["promptId"],
            if running { json!("p1") } else { Value::Null }
        );
        assert_continues(&gateway, &session, shown, &whole).await;
    }
    let last = received.last().expect("a snapshot");
    assert_eq!(
        (&last["title"], &last["usage"]["used"]),
        (&json!("B"), &json!(3))
    );
}

#[tokio::test]
async fn a_transcript_is_exact_while_its_turn_streams() {
    let (gateway, session) = streaming().await;
    let ended = |shown: &Value| shown["turns"][0]["status"] == "completed";
    let received = snapshots(&gateway, &session, "/transcript", ended).await;
    let whole = gateway.lawful(&session).await;
    for shown in &received {
        assert_eq!(shown["session"]["lastEventId"], shown["lastEventId"]);
        let items = shown["turns"][0]["items"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let texts = items
            .iter()
            .flat_map(|item| item["content"].as_array().cloned().unwrap_or_default());
        let text: String = texts
            .filter_map(|block| block["text"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(text, agent_text(&whole[..seq(shown)]));
        assert_continues(&gateway, &session, shown, &whole).await;
    }
    assert_eq!(
        received.last().expect("a snapshot")["session"]["state"],
        "idle"
    );
}

#[tokio::test]
async fn a_prompt_is_exact_while_it_streams() {
    let (gateway, session) = streaming().await;
    let ended = |shown: &Value| shown["status"] == "completed";
    let received = snapshots(&gateway, &session, "/prompts/p1", ended).await;
    let whole = gateway.lawful(&session).await;
    for shown in &received {
        assert_eq!(shown["text"], agent_text(&whole[..seq(shown)]));
        let over = !all(&whole[..seq(shown)], "prompt.completed").is_empty();
        assert_eq!(shown["status"] == "completed", over);
        assert_continues(&gateway, &session, shown, &whole).await;
    }
    assert_eq!(agent_text(&whole).len(), 7200);
}

#[tokio::test]
async fn the_list_of_sessions_continues_in_the_stream_of_all() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    let list = gateway.get("/v1/sessions").await;
    let after = list["lastEventId"].as_str().expect("a cursor");
    let second = gateway.session("fake").await;
    let frames = gateway
        .events(&format!("/v1/events?after={after}"))
        .await
        .until("session.attached")
        .await;
    let events: Vec<&Value> = frames
        .iter()
        .map(|frame| &frame.data)
        .filter(|e| e["seq"].is_u64())
        .collect();
    assert_eq!(
        events.len(),
        2,
        "the stream repeats events of the list: {events:?}"
    );
    assert!(events.iter().all(|event| event["sessionId"] == *second));
}

#[tokio::test]
async fn text_of_a_very_long_answer_is_truncated_and_never_empty() {
    const BOUND: usize = 8 << 20;
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let long = "x".repeat(9 << 20);
    let turn = gateway.turn(&session, &format!("echo {long}")).await;
    assert_eq!(
        (&turn["status"], &turn["truncated"]),
        (&json!("completed"), &json!(true))
    );
    let text = turn["text"].as_str().expect("a text");
    // An item of the fold has a price of its own.
    assert!(
        (BOUND - 1024..=BOUND).contains(&text.len()),
        "{}",
        text.len()
    );
    assert!(long.starts_with(text));
    let transcript = gateway
        .get(&format!("/v1/sessions/{session}/transcript"))
        .await;
    let turn = &transcript["turns"][0];
    assert_eq!(turn["truncated"], true);
    assert_eq!(turn["items"][0]["content"][0]["text"], text);
    let short = gateway.turn(&session, "echo done").await;
    assert_eq!(
        (&short["text"], &short["truncated"]),
        (&json!("done"), &json!(false))
    );
}
