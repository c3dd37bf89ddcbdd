//! Many events and many sessions: a fast or slow client does not affect others.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::{JoinHandle, JoinSet};

use super::support::{Gateway, Setup, eventually, figure, procfs};
use crate::support::places::fake_agent;

mod bodies;
pub(crate) mod cycles;
mod floods;
mod growth;
mod loud;
mod many;
mod metadata;
mod readers;
mod start_time;
mod storm;
mod surfaces;
mod users;

/// The tests ask more often than a person may.
const LIMITS: &str = "limits.per_key.max_requests_per_minute = 1000000\nlimits.per_key.max_prompts_per_minute = 1000000\nlimits.per_key.max_live_sessions = 200\n";
const FLOOD: u64 = 100_000;
/// These tests measure, so only one of them runs at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A task of the test, and its result.
#[expect(
    clippy::disallowed_methods,
    reason = "the test's own task, which the test waits for"
)]
fn task<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(work)
}

/// Looks at something again and again beside the test, and keeps the largest that it saw.
struct Peak {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Peak {
    fn of(look: impl Fn() -> u64 + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let most = Arc::new(AtomicU64::new(0));
        let stopped = Arc::clone(&stop);
        let seen = Arc::clone(&most);
        let thread = std::thread::Builder::new().spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                seen.fetch_max(look(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self {
            stop,
            most,
            thread: Some(thread.expect("a thread")),
        }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .expect("it ends once")
            .join()
            .expect("it saw nothing odd");
        self.most.load(Ordering::Relaxed)
    }
}

/// A whole flood; the gateway's memory at its highest, in KiB.
///
/// The turn's end is seen on the session, because a finished turn is shown with all of its text.
async fn flood(gateway: &Gateway, session: &str) -> u64 {
    let pid = gateway.pid();
    let peak = Peak::of(move || procfs::resident(pid));
    gateway.prompt(session, &format!("flood n={FLOOD}")).await;
    eventually("the flood ends", Duration::from_mins(2), || async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        (gateway.get_session(session).await["state"] == "idle").then_some(())
    })
    .await;
    peak.end()
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_reader_costs_nothing_and_receives_every_event() {
    let _alone = ALONE.lock().await;
    // The stall must not be cut off for its length: that is another test's matter.
    let limits = format!("{LIMITS}testing.write_stall_timeout = \"10m\"");
    let gateway = Setup::fake(&[]).settings(&limits).start();
    let session = gateway.session("fake").await;
    let events = format!("/v1/sessions/{session}/events?after=tail");
    let idle = procfs::resident(gateway.pid());

    // With a reader that keeps up: until memory has its shape, and then for comparison.
    let mut keeping_up = Vec::new();
    for _ in 0..4 {
        let mut stream = gateway.events(&events).await;
        let reader = task(async move {
            let mut bytes = 0;
            while bytes < FLOOD * 64 {
                bytes += u64::try_from(stream.bytes().await).expect("it fits");
            }
        });
        keeping_up.push(flood(&gateway, &session).await);
        reader.await.expect("it has read all");
    }

    // One client has opened its stream and does not read.
    let mut seq = gateway.last_seq(&session).await;
    let mut stalled = gateway.events(&events).await;
    let began = Instant::now();
    let most = flood(&gateway, &session).await;
    let took = began.elapsed();
    let usual = *keeping_up[1..].iter().max().expect("there are some");
    figure(&format!(
        "{FLOOD} events in {took:?}; at its highest: idle {idle} KiB, with a reader that keeps up {keeping_up:?} KiB, with one that stalls {most} KiB"
    ));

    let mut next = 0;
    loop {
        let event = stalled.next().await.expect("the stream goes on");
        if event.of("ready") {
            continue;
        }
        seq += 1;
        assert_eq!(event.seq(), seq, "once, and in order");
        if let Some(text) = event.data["update"]["content"]["text"].as_str() {
            assert_eq!(text[..8].parse::<u64>().expect("a number"), next);
            next += 1;
        }
        if event.of("prompt.completed") {
            break;
        }
    }
    assert_eq!(next, FLOOD);
    assert!(
        most <= usual + 2048,
        "a stalled reader costs {} KiB",
        most - usual
    );
}

/// Sixty sessions on four processes, each prompted twice, all at once.
async fn sixty_on_four(name: &str, args: &[&str]) {
    const SESSIONS: usize = 60;
    const PROCESSES: u64 = 4;
    let _alone = ALONE.lock().await;
    let fake = fake_agent();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let state = folder.path().join("state");
    let args = [args, &["--state", state.to_str().expect("UTF-8")]].concat();
    let pool = format!("pool = {{ max_size = {PROCESSES}, min_idle = 0 }}");
    let gateway = Setup::default()
        .agent("fake", fake, &args, &pool)
        .settings(LIMITS)
        .start();
    let gateway = Arc::new(gateway);
    let pid = gateway.pid();
    let program = Path::new(fake).canonicalize().expect("it is there");
    let alive = Peak::of(move || {
        u64::try_from(procfs::running(&procfs::descendants(pid), &program)).expect("few")
    });
    let began = Instant::now();
    let mut making = JoinSet::new();
    for _ in 0..SESSIONS {
        let gateway = Arc::clone(&gateway);
        making.spawn(async move { gateway.session("fake").await });
    }
    let sessions: BTreeSet<String> = making.join_all().await.into_iter().collect();
    assert_eq!(sessions.len(), SESSIONS);
    let made = began.elapsed();
    let answered = Arc::new(AtomicUsize::new(0));
    for round in 0..2 {
        let mut turns = JoinSet::new();
        for session in &sessions {
            let session = session.clone();
            let gateway = Arc::clone(&gateway);
            let answered = Arc::clone(&answered);
            turns.spawn(async move {
                let words = format!("round {round} of {session}");
                let prompt = gateway.turn(&session, &format!("echo {words}")).await;
                assert_eq!(
                    (&prompt["status"], &prompt["text"]),
                    (&json!("completed"), &json!(words)),
                    "{prompt}"
                );
                answered.fetch_add(1, Ordering::Relaxed);
            });
        }
        turns.join_all().await;
    }
    let most = alive.end();
    figure(&format!(
        "{name}: {SESSIONS} sessions made in {made:?}, all done in {:?}, {most} processes at most",
        began.elapsed()
    ));
    assert_eq!(answered.load(Ordering::Relaxed), 2 * SESSIONS);
    assert!((2..=PROCESSES).contains(&most), "{most} processes");
    for session in sessions.iter().take(5) {
        let log = gateway.all_events(session).await;
        let contexts: Vec<&Value> = log
            .iter()
            .filter(|event| event["type"] == "session.attached")
            .map(|event| &event["context"])
            .collect();
        assert!(
            contexts.len() >= 2 && contexts.iter().all(|context| **context == "kept"),
            "{contexts:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_sessions_live_on_four_processes() {
    sixty_on_four("close and resume", &["--close", "--resume"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_sessions_live_on_four_processes_of_an_agent_that_cannot_close() {
    sixty_on_four("load alone", &[]).await;
}
