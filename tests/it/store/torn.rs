//! A write-ahead log that ends oddly between two lives.

use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{LIMITS, LOG};
use crate::support::{Follower, Gateway, History, Random, Setup, eventually, figure};

fn wal(gateway: &Gateway) -> PathBuf {
    gateway.path(&format!("{LOG}-wal"))
}

/// Where the frames of a write-ahead log end; behind them is room for more.
fn written(log: &mut File) -> u64 {
    const FRAME: usize = 24 + 8192;
    let mut bytes = Vec::new();
    log.read_to_end(&mut bytes)
        .expect("a killed gateway leaves its log");
    let last = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .expect("it holds a frame");
    (32 + (last - 32).div_ceil(FRAME) * FRAME) as u64
}

/// A gateway whose agent stores its sessions.
fn start(folder: &tempfile::TempDir) -> Gateway {
    let state = folder.path().join("state");
    Setup::fake(&["--resume", "--state", state.to_str().expect("UTF-8")])
        .settings(LIMITS)
        .start()
}

/// Has been killed when something was in its write-ahead log.
async fn kill_while_it_writes(gateway: &mut Gateway, session: &str, follower: &mut Follower) {
    let prompt = gateway
        .prompt(session, "stream n=30; slow chunks=2000 ms=2")
        .await;
    let is_update = |event: &Value| {
        event["promptId"] == prompt["promptId"] && event["type"] == "session.update"
    };
    follower.until("the turn is under way", is_update).await;
    gateway.kill();
}

#[tokio::test(flavor = "multi_thread")]
async fn torn_write_after_the_log_is_ignored() {
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut gateway = start(&folder);
    let session = gateway.session("fake").await;
    let mut follower = Follower::start(&gateway, &session);
    for size in [1, 24, 24 + 4096, 2 * 8216] {
        kill_while_it_writes(&mut gateway, &session, &mut follower).await;
        // The beginning contains valid frames of this log, as after an incomplete write.
        let mut tail = vec![0; size];
        let mut log = OpenOptions::new()
            .read(true)
            .write(true)
            .open(wal(&gateway));
        let log = log.as_mut().expect("a killed gateway leaves its log");
        let end = written(log);
        log.read_exact_at(&mut tail, 32).expect("it holds a frame");
        let half = size / 2;
        tail[half..].fill_with(|| u8::try_from(random.below(256)).expect("a byte"));
        log.write_all_at(&tail, end).expect("it is ours");
        gateway.start();
    }
    assert_eq!(gateway.turn(&session, "echo after").await["text"], "after");
    gateway.lawful(&session).await;
    History::of(&gateway, vec![follower]).await.assert_holds();
}

/// A disk that lost acknowledged writes: a prefix of the log is left.
#[tokio::test(flavor = "multi_thread")]
async fn truncated_log_restores_a_prefix() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut gateway = start(&folder);
    let session = gateway.session("fake").await;
    for lost in [1, 4000, 40_001, 200_001] {
        let mut follower = Follower::start(&gateway, &session);
        kill_while_it_writes(&mut gateway, &session, &mut follower).await;
        let before = follower.end();
        let before: Vec<&str> = before.events().collect();
        let mut log = OpenOptions::new()
            .read(true)
            .write(true)
            .open(wal(&gateway));
        let log = log.as_mut().expect("a killed gateway leaves its log");
        let size = written(log);
        log.set_len(size.saturating_sub(lost)).expect("it is ours");
        gateway.start();
        let found = gateway
            .request(reqwest::Method::GET, &format!("/v1/sessions/{session}"))
            .send()
            .await;
        assert_eq!(
            found.expect("an answer").status(),
            StatusCode::OK,
            "{lost} bytes less, of {size}"
        );
        // A prompt that the prefix still queues runs.
        eventually("the session is idle", Duration::from_mins(1), || async {
            let shown = gateway.get_session(&session).await;
            (shown["state"] == "idle" && shown["queued"] == json!([])).then_some(())
        })
        .await;
        gateway.lawful(&session).await;
        let after = gateway.log_texts(&session, 0).await;
        let same = after
            .iter()
            .zip(&before)
            .take_while(|(after, before)| ***after == ***before)
            .count();
        figure(&format!(
            "{lost} of {size} bytes gone: {same} of {} events are the same",
            before.len()
        ));
        if same < before.len() {
            // The events after them are those of a restart for the interrupted turn. A prompt that still waits for a process in
            // the prefix has not run by this log, so it runs.
            let added: Vec<Value> = after[same..]
                .iter()
                .map(|text| serde_json::from_str(text).expect("JSON"))
                .collect();
            let has_started = |prompt: &Value| {
                added
                    .iter()
                    .any(|event| event["type"] == "prompt.started" && event["promptId"] == *prompt)
            };
            let chunks = added
                .iter()
                .filter(|event| {
                    event["type"] == "session.update" && !has_started(&event["promptId"])
                })
                .count();
            assert_eq!(
                chunks, 0,
                "nothing that the agent said is made up, or moved"
            );
        }
        let gone: Value = serde_json::from_str(before.last().expect("events")).expect("JSON");
        if gone["seq"].as_u64() > Some(after.len() as u64) {
            let path = format!("/v1/sessions/{session}/events");
            let mut stream = gateway.events_after(&path, gone["id"].as_str()).await;
            let first = stream.next().await.expect("the stream goes on");
            assert!(
                first.of("reset") && first.data["reason"] == "unknown_cursor",
                "{first:?}"
            );
        }
        assert_eq!(gateway.turn(&session, "echo after").await["text"], "after");
    }
}
