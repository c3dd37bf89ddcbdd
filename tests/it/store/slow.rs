//! A slow disk: no client sees an event before its sync has ended, and no unrelated request waits for it.

use std::time::Duration;

use memchr::memmem;
use rustix::time::{ClockId, clock_gettime};

use super::disk::{Call, Kind};
use super::{LIMITS, LOG, beginning, on_disk};
use crate::support::{Follower, History, Setup, figure};

const SYNC: Duration = Duration::from_millis(500);

/// The clock of the disk's journal.
fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    let nanos = now.tv_nsec.try_into().expect("less than a second");
    Duration::new(now.tv_sec.try_into().expect("after the boot"), nanos)
}

/// When the run of this beginning was durable; `None` when that was before these calls.
fn durable(calls: &[Call], run: &[u8]) -> Option<Duration> {
    let of_log = |call: &&Call| call.name.ends_with("-wal");
    let holds = |call: &Call| match &call.kind {
        Kind::Write { bytes, .. } => memmem::find(bytes, run).is_some(),
        _ => false,
    };
    let written = calls.iter().filter(of_log).skip_while(|call| !holds(call));
    let mut synced = written.skip_while(|call| call.kind != Kind::SyncBegins);
    let first = synced
        .next()
        .map(|_| synced.find(|call| call.kind == Kind::Synced));
    first.map(|end| end.expect("every received event was synced").time)
}

/// Whether a call lies completely within one sync of the log.
fn is_within_a_sync(calls: &[Call], (began, ended): (Duration, Duration)) -> bool {
    let mut syncs = calls.iter().filter(|call| call.name.ends_with("-wal"));
    let mut since = None;
    syncs.any(|call| match call.kind {
        Kind::SyncBegins => {
            since = Some(call.time);
            false
        }
        Kind::Synced => since
            .take()
            .is_some_and(|since| since <= began && ended <= call.time),
        _ => false,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_sync_delays_only_visibility() {
    let (gateway, disk) = on_disk(Setup::fake(&[]).settings(LIMITS));
    let session = gateway.session("fake").await;
    let other = gateway.session("fake").await;
    gateway.turn(&other, "echo before").await;
    let follower = Follower::start(&gateway, &session);
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    disk.slow("s", SYNC);
    let slow = now();
    gateway.prompt(&session, "slow chunks=80 ms=20").await;
    let mut seen = Vec::new();
    let mut calls = Vec::new();
    loop {
        tokio::select! {
            biased;
            event = stream.next() => {
                let event = event.expect("the stream goes on");
                if event.data["seq"].is_u64() {
                    seen.push((event.seq(), now()));
                }
                if event.of("prompt.completed") {
                    break;
                }
            }
            () = tokio::time::sleep(Duration::from_millis(20)) => {
                for path in ["/v1/sessions", &format!("/v1/sessions/{other}/transcript")] {
                    let began = now();
                    gateway.get(path).await;
                    calls.push((began, now()));
                }
            }
        }
    }
    disk.heal();
    // Earlier records do not count from here on.
    let journal: Vec<Call> = disk
        .journal()
        .into_iter()
        .filter(|call| call.time >= slow)
        .collect();
    let meanwhile = calls
        .iter()
        .filter(|call| is_within_a_sync(&journal, **call))
        .count();
    let log = gateway.path(LOG);
    let durable = |seq| durable(&journal, &beginning(&log, &session, seq));
    let mut compared = 0;
    for (seq, received) in &seen {
        let Some(durable) = durable(*seq) else {
            continue;
        };
        assert!(
            durable <= *received,
            "{seq} was seen {:?} before it was durable",
            durable.saturating_sub(*received)
        );
        compared += 1;
    }
    let late = seen
        .iter()
        .filter_map(|(seq, received)| Some(received.saturating_sub(durable(*seq)?)))
        .max();
    figure(&format!(
        "{compared} of {} events, the last seen {late:?} after its sync; {meanwhile} of {} other calls",
        seen.len(),
        calls.len()
    ));
    assert!(
        compared > seen.len() / 2 && seen.len() > 80,
        "{compared} of {}",
        seen.len()
    );
    assert!(
        meanwhile > 0,
        "other calls begin and end while the disk syncs"
    );
    History::of(&gateway, vec![follower]).await.assert_holds();
}
