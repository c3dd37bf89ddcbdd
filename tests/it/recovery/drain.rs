//! A stop that was asked for: everything ends properly, and in time.

use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::Signal;
use serde_json::Value;

use super::{LIMITS, ends, turn_with_strays};
use crate::support::lean::{Lean, connect_small};
use crate::support::{Setup, eventually, figure, is_alive, procfs};

#[tokio::test]
async fn a_drain_ends_turns_streams_and_agents_in_time() {
    let limits =
        format!("{LIMITS}timeouts.drain_timeout = \"1s\"\ntesting.drain_cancel_timeout = \"10s\"");
    let mut gateway = Setup::fake(&[]).settings(&limits).start();
    let session = gateway.session("fake").await;
    let events = format!("/v1/sessions/{session}/events");
    let mut stream = gateway.events(&events).await;
    gateway.prompt(&session, "slow chunks=10000 ms=20").await;
    stream.until("session.update").await;
    let started = procfs::descendants(gateway.pid());
    assert!(started.len() >= 2, "a supervisor and an agent: {started:?}");
    let ready = || async { gateway.request(Method::GET, "/readyz").send().await };
    assert_eq!(ready().await.expect("an answer").status(), 200);

    let began = Instant::now();
    gateway.signal(Signal::TERM);
    eventually(
        "the gateway is not ready any more",
        Duration::from_secs(20),
        || async {
            match ready().await {
                Ok(answer) => (answer.status() == 503).then_some(()),
                Err(_) => Some(()),
            }
        },
    )
    .await;
    let frames = stream.until("shutdown").await;
    let shutdown = frames.last().expect("until gives it");
    let retry = shutdown.data["retryMs"].as_u64().expect("a number");
    assert!(
        (500..10_000).contains(&retry) && shutdown.id.is_none(),
        "{shutdown:?}"
    );
    assert!(stream.next().await.is_none(), "the stream ends with it");
    let code = gateway.ended(Duration::from_secs(20));
    let took = began.elapsed();
    assert_eq!(code, Some(0), "{}", gateway.log());
    figure(&format!(
        "drained in {took:?}, streams come back after {retry} ms"
    ));
    assert!(
        took < Duration::from_secs(1 + 2 + 1 + 6),
        "drain and ladder, and a little: {took:?}"
    );
    assert!(
        !started.iter().any(|pid| is_alive(*pid)),
        "agents end with it"
    );

    gateway.start();
    let log = gateway.all_events(&session).await;
    let ends = ends(&log);
    assert_eq!(ends["p1"].len(), 1, "{ends:?}");
    let end = ends["p1"][0];
    assert_eq!(
        (&end["type"], &end["stopReason"]),
        (&Value::from("prompt.completed"), &Value::from("cancelled"))
    );
    assert_eq!(end["cancelCause"], "drain", "{end}");
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
}

#[tokio::test]
async fn slow_stream_receives_the_stop_notice_last() {
    let mut gateway = Setup::fake(&[])
        .settings(&format!("{LIMITS}timeouts.drain_timeout = \"20s\""))
        .start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "flood n=20000").await;
    gateway.signal(Signal::TERM);
    assert_eq!(
        gateway.ended(Duration::from_secs(20)),
        Some(0),
        "{}",
        gateway.log()
    );
    // Without an agent.
    gateway.start();
    let to = gateway.address();
    let events = format!("/v1/sessions/{session}/events");
    let socket = connect_small(to).await.expect("it is let in");
    let mut streams = vec![
        Lean::over(socket, to, &events, None)
            .await
            .expect("an answer"),
    ];
    for _ in 0..20 {
        streams.push(Lean::open(to, "/v1/events", None).await.expect("an answer"));
    }
    // Its connections wait for requests, and go with it.
    gateway.http = reqwest::Client::new();
    tokio::time::sleep(Duration::from_millis(300)).await;
    gateway.signal(Signal::TERM);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for stream in &mut streams {
        let mut last = None;
        while let Some(frames) = stream.frames().await.expect("it is not cut off") {
            last = frames.into_iter().last();
        }
        assert!(
            last.as_ref().is_some_and(|last| last.of("shutdown")),
            "{last:?}"
        );
    }
    assert_eq!(
        gateway.ended(Duration::from_secs(20)),
        Some(0),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn unresponsive_agent_does_not_delay_a_drain() {
    let agent = ["--ignore-term", "--ignore-eof"];
    let mut gateway = Setup::fake(&agent)
        .settings(&format!("{LIMITS}timeouts.drain_timeout = \"1s\""))
        .start();
    let session = gateway.session("fake").await;
    turn_with_strays(&gateway, &session).await;
    let started = procfs::descendants(gateway.pid());
    let began = Instant::now();
    gateway.signal(Signal::TERM);
    let code = gateway.ended(Duration::from_secs(20));
    let took = began.elapsed();
    figure(&format!(
        "drained an agent that ignores everything in {took:?}"
    ));
    assert_eq!(code, Some(0), "{}", gateway.log());
    assert!(
        took < Duration::from_secs(1 + 1 + 2 + 1 + 6),
        "drain, cancel and ladder, and a little: {took:?}"
    );
    eventually(
        "everything that the agents started is gone",
        Duration::from_secs(20),
        || async { (!started.iter().any(|pid| is_alive(*pid))).then_some(()) },
    )
    .await;

    gateway.start();
    let log = gateway.all_events(&session).await;
    let ends = ends(&log);
    assert_eq!(ends["p1"].len(), 1, "{ends:?}");
    assert_eq!(
        ends["p1"][0]["problem"]["code"], "cancel_timeout",
        "{ends:?}"
    );
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let agent = ["--ignore-term", "--ignore-eof"];
    let mut gateway = Setup::fake(&agent)
        .settings(&format!("{LIMITS}timeouts.drain_timeout = \"60s\""))
        .start();
    let session = gateway.session("fake").await;
    let strays = turn_with_strays(&gateway, &session).await;
    let started = procfs::descendants(gateway.pid());
    assert!(strays.iter().all(|pid| started.contains(pid)));
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events?after=tail"))
        .await;
    stream.until("ready").await;
    gateway.signal(Signal::TERM);
    // It drains, and would do so for a minute.
    stream.until("shutdown").await;
    // The same stop, as a launcher passes it on. The next one is another stop.
    gateway.signal(Signal::TERM);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!gateway.log().contains("second signal: stopping at once"));
    let began = Instant::now();
    gateway.signal(Signal::TERM);
    let code = gateway.ended(Duration::from_secs(30));
    figure(&format!(
        "the second signal ended it after {:?} with {code:?}",
        began.elapsed()
    ));
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    eventually(
        "everything that the agents started is gone",
        Duration::from_secs(10),
        || async { (!started.iter().any(|pid| is_alive(*pid))).then_some(()) },
    )
    .await;

    gateway.start();
    let log = gateway.all_events(&session).await;
    assert_eq!(ends(&log)["p1"].len(), 1, "{log:?}");
}
