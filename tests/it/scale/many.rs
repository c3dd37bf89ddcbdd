//! Many sessions of one person on few processes: each keeps its own context.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use tokio::task::JoinSet;

use super::{ALONE, Peak};
use crate::support::{Gateway, Setup, figure, procfs};

const SESSIONS: usize = 300;
const PROCESSES: u64 = 8;

/// The defaults do not allow this number of sessions for one key, and the wait queue is shorter.
const LIMITS: &str = "limits.per_key.max_requests_per_minute = 1000000\nlimits.per_key.max_prompts_per_minute = 1000000\nlimits.per_key.max_live_sessions = 300\n\
                      testing.max_queue_places = 300\ntesting.settings_queue_timeout = \"5m\"\nlimits.per_key.max_streams = 300\nserver.max_connections_per_address = 1000\n";

/// A word that no other session has, and that is no part of another's.
fn word(of: usize) -> String {
    format!("w{of:03}x")
}

/// Runs a turn in each session at the same time. Returns the responses.
async fn all_at_once(
    gateway: &Arc<Gateway>,
    sessions: &[String],
    text: impl Fn(usize) -> String,
) -> Vec<String> {
    let mut turns = JoinSet::new();
    for (at, session) in sessions.iter().cloned().enumerate() {
        let gateway = Arc::clone(gateway);
        let text = text(at);
        turns.spawn(async move {
            let prompt = gateway.turn(&session, &text).await;
            assert_eq!(
                (&prompt["status"], &prompt["stopReason"]),
                (&json!("completed"), &json!("end_turn")),
                "{prompt}"
            );
            (
                at,
                prompt["text"].as_str().expect("a turn's text").to_owned(),
            )
        });
    }
    let mut answers = turns.join_all().await;
    answers.sort();
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_hundred_sessions_of_the_demo_agent_live_on_eight_processes() {
    let _alone = ALONE.lock().await;
    let pool = format!("pool = {{ max_size = {PROCESSES}, min_idle = 0 }}");
    let setup = Setup::default()
        .table(&format!("[agents.demo]\nbuiltin = \"demo\"\n{pool}"))
        .settings(LIMITS);
    let gateway = Arc::new(setup.start());
    let pid = gateway.pid();
    let alive = Peak::of(move || {
        u64::try_from(procfs::called(&procfs::descendants(pid), "demo-agent")).expect("few")
    });

    let began = Instant::now();
    let mut making = JoinSet::new();
    for _ in 0..SESSIONS {
        let gateway = Arc::clone(&gateway);
        making.spawn(async move { gateway.session("demo").await });
    }
    let sessions: Vec<String> = making.join_all().await;
    let made = began.elapsed();
    let answers = all_at_once(&gateway, &sessions, |at| format!("/remember {}", word(at))).await;
    let remembered = began.elapsed();
    let recalled = all_at_once(&gateway, &sessions, |_| "/recall".to_owned()).await;
    let most = alive.end();
    figure(&format!(
        "{SESSIONS} sessions made in {made:?}, words stored after {remembered:?} and recalled after {:?}; {most} processes at most",
        began.elapsed()
    ));

    for (at, answer) in answers.iter().enumerate() {
        assert!(answer.contains(&word(at)), "session {at}: {answer}");
    }
    for (at, answer) in recalled.iter().enumerate() {
        assert_eq!(
            *answer,
            format!("The word is “{}”.", word(at)),
            "session {at}"
        );
    }
    assert!((2..=PROCESSES).contains(&most), "{most} processes");
    let figures = gateway.get("/v1/agents/demo").await["pool"].clone();
    assert!(
        figures["processes"].as_u64().expect("a figure") <= PROCESSES,
        "{figures}"
    );
    for session in sessions.iter().step_by(37) {
        let log = gateway.all_events(session).await;
        let contexts: Vec<_> = log
            .iter()
            .filter(|event| event["type"] == "session.attached")
            .map(|event| &event["context"])
            .collect();
        assert!(contexts.len() >= 2, "it gave its process up in between");
        assert!(
            contexts.iter().all(|context| **context == "kept"),
            "{contexts:?}"
        );
    }
}
