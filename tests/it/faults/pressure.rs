//! End-to-end backpressure: an agent that writes faster than the log blocks in its write, and no other session waits.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::Case;
use super::ids::PERMISSION;
use crate::support::log::{all, one};
use crate::support::{Gateway, Setup, eventually, figure, procfs};

/// Bytes of the text of one update, and of its line.
const TEXT: u64 = 65_000;
/// How many make 1 GB.
const UPDATES: u64 = 15_385;
/// How many are enough to look at, about 16 MB.
const SOME: u64 = 250;
/// Turns of another session, beside and before.
const TURNS: usize = 20;
/// The maximum number of bytes between an agent and the log: a pipe, a line, eight batches, the uncommitted bytes,
/// and one more batch.
const ON_ITS_WAY: u64 = 12 << 20;
/// How much more memory a gateway may hold for all that, and for the tails of the log, in KiB.
const GROWS: u64 = 48 << 10;
/// The maximum time until an answer or a cancel reaches an agent that floods.
const PROMPT: Duration = Duration::from_secs(10);

/// Another writer has the log's file until this is dropped: nothing is committed, and the gateway waits for its turn.
pub(super) struct Standstill(
    #[expect(dead_code, reason = "only its end is checked")] rusqlite::Connection,
);

impl Standstill {
    pub(super) fn of(gateway: &Gateway) -> Self {
        let log = rusqlite::Connection::open(gateway.path("data/private/log.sqlite"))
            .expect("the log is there");
        log.busy_timeout(Duration::from_secs(10))
            .expect("it can wait");
        log.execute_batch("BEGIN IMMEDIATE")
            .expect("the gateway lets go of it between two commits");
        Self(log)
    }
}

/// A gateway with a session that will flood, and the pid of its agent.
async fn loud() -> (Gateway, String, u32) {
    let gateway = Setup::fake(&["--log", "received"])
        .settings(Case::LIMITS)
        .start();
    let session = gateway.session("fake").await;
    let turn = gateway.turn(&session, "pid").await;
    let pid = turn["text"]
        .as_str()
        .and_then(|text| text.strip_prefix("pid="))
        .expect("a pid");
    let pid = pid.parse().expect("a number");
    (gateway, session, pid)
}

/// Waits until the agent has received this, and returns the duration.
async fn until_received(gateway: &Gateway, words: &str) -> Duration {
    let began = Instant::now();
    let received = gateway.path("data/homes/default/fake/received");
    eventually(words, Duration::from_secs(20), async || {
        let received = std::fs::read_to_string(&received).expect("the agent's own record");
        received.contains(words).then_some(())
    })
    .await;
    began.elapsed()
}

/// The durations of complete turns of a session, in ascending order.
async fn turns(gateway: &Gateway, session: &str, count: usize) -> Vec<Duration> {
    let mut took = Vec::new();
    for _ in 0..count {
        let began = Instant::now();
        assert_eq!(gateway.turn(session, "echo quick").await["text"], "quick");
        took.push(began.elapsed());
    }
    took.sort();
    took
}

/// Where the log of a session is, once it is there.
async fn reaches(gateway: &Gateway, session: &str, seq: u64) {
    eventually("the flood goes on", Duration::from_mins(1), async || {
        (gateway.last_seq(session).await >= seq).then_some(())
    })
    .await;
}

/// The most that an agent had written and the log did not have, looked at until the turn is over.
async fn most_ahead(gateway: &Gateway, session: &str, agent: u32) -> u64 {
    let begun = procfs::written(agent);
    let seq = gateway.last_seq(session).await;
    let mut most = 0;
    loop {
        let written = procfs::written(agent) - begun;
        let shown = gateway.get_session(session).await;
        if shown["state"] == "idle" {
            return most;
        }
        // Every state that the gateway reports is durable.
        let committed = (gateway.last_seq(session).await - seq) * TEXT;
        most = most.max(written.saturating_sub(committed));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// From the POST until the agent has it, and until the client knows that it is durable.
struct ResponseTimes {
    received: Duration,
    durable: Duration,
}

impl ResponseTimes {
    async fn of(gateway: &Gateway, path: &str, body: &Value, words: &str) -> Self {
        let began = Instant::now();
        let (answer, received) = tokio::join!(
            async {
                let answer = gateway.posted(path, &[], body).await;
                (answer, began.elapsed())
            },
            until_received(gateway, words),
        );
        assert!(answer.0.status.is_success(), "{:?}", answer.0);
        Self {
            received,
            durable: answer.1,
        }
    }
}

/// The agent begins to write 1 GB. The bounds on memory and on other sessions hold from the first megabyte.
#[tokio::test(flavor = "multi_thread")]
async fn flood_blocks_its_agent_and_every_client_is_served() {
    let (gateway, session, agent) = loud().await;
    let quiet = gateway.session("fake").await;
    let alone = turns(&gateway, &quiet, TURNS).await;
    let idle = procfs::resident(gateway.pid());
    let began = Instant::now();
    let seq = gateway.last_seq(&session).await;
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events?after=tail"))
        .await;
    stream.until("ready").await;
    gateway
        .prompt(
            &session,
            &format!("ask {PERMISSION} report=no; flood n={UPDATES} size={TEXT}"),
        )
        .await;
    let beside = async {
        reaches(&gateway, &session, seq + SOME).await;
        let path = format!("/v1/sessions/{session}/permissions/r1");
        let allow = json!({ "optionId": "allow" });
        let answer = ResponseTimes::of(&gateway, &path, &allow, r#""optionId":"allow""#).await;
        let beside = turns(&gateway, &quiet, TURNS).await;
        reaches(&gateway, &session, seq + 2 * SOME).await;
        let path = format!("/v1/sessions/{session}/cancel");
        (
            answer,
            beside,
            ResponseTimes::of(&gateway, &path, &json!({}), r#""method":"session/cancel""#).await,
        )
    };
    let (ahead, (answer, beside, cancel)) =
        tokio::join!(most_ahead(&gateway, &session, agent), beside);
    let took = began.elapsed();
    let events = gateway.last_seq(&session).await - seq;
    let grown = procfs::highest(gateway.pid()).saturating_sub(idle);
    figure(&format!(
        "{} of {} bytes in {took:?}: {ahead} bytes ahead of the log at most, {grown} KiB more memory",
        events * TEXT,
        UPDATES * TEXT
    ));
    for (what, ResponseTimes { received, durable }) in
        [("an answer", &answer), ("a cancel", &cancel)]
    {
        figure(&format!(
            "{what} was with the flooding agent after {received:?}, and durable after {durable:?}"
        ));
        assert!(
            *received <= PROMPT && *durable <= 2 * PROMPT,
            "{what}: {received:?} {durable:?}"
        );
    }
    figure(&format!(
        "turns of another session, median and worst: {:?} {:?}; alone {:?} {:?}",
        beside[TURNS / 2],
        beside[TURNS - 1],
        alone[TURNS / 2],
        alone[TURNS - 1]
    ));
    assert!(ahead <= ON_ITS_WAY, "{ahead} bytes ahead");
    assert!(grown <= GROWS, "{grown} KiB");
    assert!(
        beside[TURNS - 1] <= alone[TURNS - 1] + PROMPT,
        "{beside:?}, alone {alone:?}"
    );
    let ended = stream
        .until("prompt.completed")
        .await
        .pop()
        .expect("until gives it");
    assert_eq!(ended.data["stopReason"], "cancelled");
    assert!((2 * SOME..UPDATES).contains(&events), "{events}");
}

/// While no commit is possible, the agent blocks, memory stays constant, and the session serves its cancel.
#[tokio::test(flavor = "multi_thread")]
async fn agent_blocks_with_the_log_and_receives_its_cancel() {
    let (gateway, session, agent) = loud().await;
    let other = gateway.session("fake").await;
    let before = gateway.all_events(&other).await;
    let idle = procfs::resident(gateway.pid());
    gateway.prompt(&session, "flood n=3000000").await;
    reaches(&gateway, &session, 1000).await;
    let still = Standstill::of(&gateway);
    let begun = procfs::written(agent);
    let stopped = eventually("the agent waits", Duration::from_secs(8), async || {
        let written = procfs::written(agent);
        tokio::time::sleep(Duration::from_secs(1)).await;
        (written == procfs::written(agent)).then_some(written)
    })
    .await;
    // Reads go on meanwhile.
    let asked = Instant::now();
    assert_eq!(gateway.all_events(&other).await, before);
    let read = asked.elapsed();
    let path = format!("/v1/sessions/{session}/cancel");
    let (cancelled, received) = tokio::join!(gateway.call(Method::POST, &path), async {
        let received = until_received(&gateway, r#""method":"session/cancel""#).await;
        // The agent recorded the cancel and wrote nothing.
        assert!(
            procfs::written(agent) - stopped < 1000,
            "the agent still waits when it receives the cancel"
        );
        drop(still);
        received
    });
    assert_eq!(cancelled.status, 202);
    let log = gateway.log_until(&session, |event| {
        event["type"] == "prompt.completed" && event["promptId"] == "p2"
    });
    let end = log.await.pop().expect("its end");
    assert_eq!(end["stopReason"], "cancelled");
    let ahead = stopped - begun;
    let grown = procfs::highest(gateway.pid()).saturating_sub(idle);
    figure(&format!(
        "the agent stood after {ahead} bytes, {grown} KiB more memory; cancel there after {received:?}, a read took {read:?}"
    ));
    assert!(ahead <= ON_ITS_WAY, "{ahead}");
    assert!(grown <= GROWS, "{grown}");
    assert!(
        received <= Duration::from_secs(8) && read <= Duration::from_secs(8),
        "{received:?} {read:?}"
    );
    gateway.lawful(&session).await;
    one(&gateway.all_events(&other).await, "session.created");
}

/// The agent has much output, and no client reads for longer than the silence timeout.
#[tokio::test(flavor = "multi_thread")]
async fn agent_blocked_by_the_log_is_not_silent() {
    const SILENCE: Duration = Duration::from_secs(2);
    let (case, session) = Case::fake_with(&[], "turn_idle_timeout = \"2s\"", "").await;
    case.prompt(&session, "flood n=30000").await;
    reaches(&case, &session, 100).await;
    let still = Standstill::of(&case);
    tokio::time::sleep(2 * SILENCE).await;
    drop(still);
    case.log_until(&session, |event| event["type"] == "prompt.completed")
        .await;
    let log = case.holds().await;
    assert_eq!(one(&log, "prompt.completed")["stopReason"], "end_turn");
    assert_eq!(all(&log, "session.update").len(), 30_000);
}
