//! A stop while clients are at work: each of them gets an answer, a whole one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use reqwest::{Client, Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::{LIMITS, ends};
use crate::support::gateway::KEY;
use crate::support::history::PromptAnswer;
use crate::support::{
    Answer, Events, Follower, Gateway, History, Setup, eventually, figure, procfs,
};

fn new_client() -> Client {
    Client::builder().no_proxy().build().expect("a client")
}

fn address(gateway: &Gateway) -> String {
    gateway.url.trim_start_matches("http://").to_owned()
}

/// A request of HTTP/1.1, and its answer as bytes.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let host = stream.peer_addr().expect("it is open");
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {KEY}\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("it is open");
    let mut answer = String::new();
    let mut chunk = [0; 4096];
    while !answer.ends_with("ok") && !answer.ends_with('}') {
        let read = tokio::time::timeout(Duration::from_secs(20), stream.read(&mut chunk)).await;
        let read = read.expect("an answer in time").expect("an answer");
        assert!(read > 0, "a whole answer: {answer}");
        answer.push_str(std::str::from_utf8(&chunk[..read]).expect("text"));
    }
    answer
}

/// A connection of HTTP/2 that was used once, and the task that serves it.
async fn over_http_2(
    gateway: &Gateway,
) -> (
    h2::client::SendRequest<bytes::Bytes>,
    JoinSet<Result<(), h2::Error>>,
) {
    let stream = TcpStream::connect(address(gateway))
        .await
        .expect("it listens");
    let (h2, connection) = h2::client::handshake(stream).await.expect("h2c");
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let mut h2 = h2.ready().await.expect("it is open");
    let request = http::Request::get(format!("{}/readyz", gateway.url))
        .body(())
        .expect("a request");
    let answer = h2
        .send_request(request, true)
        .expect("a stream")
        .0
        .await
        .expect("an answer");
    assert_eq!(answer.status(), 200);
    (h2, tasks)
}

/// Streams receive a reconnect delay, different for each stream, and end.
async fn come_back_apart(streams: &mut [Events]) {
    let mut retries = BTreeMap::new();
    for stream in streams {
        let frames = stream.until("shutdown").await;
        let retry = frames.last().expect("until gives it").data["retryMs"]
            .as_u64()
            .expect("a number");
        assert_eq!(stream.retry, Some(retry));
        assert!((1000..4000).contains(&retry), "{retry}");
        *retries.entry(retry).or_insert(0) += 1;
        assert!(stream.next().await.is_none(), "the stream ends with it");
    }
    assert!(retries.len() > 2, "{retries:?}");
}

#[tokio::test]
async fn drain_notifies_every_client_and_cuts_no_response() {
    let mut gateway = Setup::fake(&[])
        .settings(&format!(
            "{LIMITS}timeouts.drain_timeout = \"10s\"\ntesting.drain_cancel_timeout = \"10s\""
        ))
        .start();
    let busy = gateway.session("fake").await;
    let idle = gateway.session("fake").await;
    let events = format!("/v1/sessions/{busy}/events");
    let mut streams = Vec::new();
    for _ in 0..8 {
        streams.push(gateway.events(&events).await);
    }
    let prompts = |session: &str| format!("/v1/sessions/{session}/prompts");
    let held = gateway
        .request(Method::POST, &prompts(&busy))
        .header("Prefer", "wait=60");
    let held = held.json(&json!({ "prompt": "permission" })).send();
    let mut kept = TcpStream::connect(address(&gateway))
        .await
        .expect("it listens");
    assert!(
        !ask(&mut kept, "/readyz")
            .await
            .contains("connection: close")
    );
    let (_h2, mut tasks) = over_http_2(&gateway).await;

    let drain = async {
        streams[0].until("request.created").await;
        gateway.signal(Signal::TERM);
        come_back_apart(&mut streams).await;

        // A client that arrives now receives the notice, also on a new connection.
        gateway.http = new_client();
        let probe = Answer::of(gateway.request(Method::GET, "/readyz")).await;
        assert_eq!(probe.header("connection"), Some("close"));
        probe.problem(503, "draining");
        for (path, body) in [
            (prompts(&idle), json!({ "prompt": "echo no" })),
            ("/v1/sessions".to_owned(), json!({ "agent": "fake" })),
        ] {
            let refused = gateway.posted(&path, &[], &body).await;
            let after: u64 = refused
                .header("retry-after")
                .expect("when to come")
                .parse()
                .expect("seconds");
            assert!((1..=10).contains(&after), "{after}");
            refused.problem(503, "draining");
        }
        assert_eq!(
            gateway.get(&format!("/v1/sessions/{busy}")).await["state"],
            "waiting",
            "reads go on"
        );
        let mut late = Events::new(
            gateway
                .request(Method::GET, &events)
                .header("Accept", "text/event-stream")
                .send()
                .await
                .expect("an answer"),
        );
        let only = late.next().await.expect("one event");
        assert!(
            only.of("shutdown") && late.retry.is_some(),
            "an EventSource comes back from a 200: {only:?}"
        );
        assert!(late.next().await.is_none());
        // An existing connection serves one more request and announces its close.
        let last = ask(&mut kept, "/readyz").await;
        assert!(
            last.starts_with("HTTP/1.1 503 ") && last.contains("connection: close"),
            "{last}"
        );
        assert_eq!(
            kept.read(&mut [0; 16])
                .await
                .expect("it is closed in peace"),
            0
        );
        // HTTP/2 uses GOAWAY, which is not an error.
        let ended = tokio::time::timeout(Duration::from_secs(20), tasks.join_next()).await;
        ended
            .expect("in time")
            .expect("a connection")
            .expect("no panic")
            .expect("no error");
    };
    let (held, ()) = tokio::join!(held, drain);
    let held = held.expect("an answer");
    assert_eq!(
        held.status(),
        200,
        "a waiting request receives the end of its turn"
    );
    let held: Value = held.json().await.expect("a whole answer");
    assert_eq!(held["stopReason"], "cancelled", "{held}");
    assert_eq!(
        gateway.ended(Duration::from_secs(30)),
        Some(0),
        "{}",
        gateway.log()
    );

    gateway.start();
    let log = gateway.lawful(&busy).await;
    let resolved = crate::support::log::one(&log, "request.resolved");
    assert_eq!(resolved["resolution"], "cancelled", "{resolved}");
}

#[tokio::test]
async fn session_whose_prompt_waits_for_a_process_rejects_others_as_draining() {
    let settings =
        format!("{LIMITS}timeouts.drain_timeout = \"10s\"\ntesting.drain_cancel_timeout = \"10s\"");
    let mut gateway = Setup::fake_with(&[], "pool = { max_size = 1, min_idle = 0 }")
        .settings(&settings)
        .start();
    let waits = gateway.session("fake").await;
    let busy = gateway.session("fake").await;
    gateway.prompt(&busy, "permission").await;
    gateway
        .log_until(&busy, |event| event["type"] == "request.created")
        .await;
    assert_eq!(
        gateway.prompt(&waits, "echo later").await["status"],
        "queued"
    );
    gateway.signal(Signal::TERM);
    gateway.http = new_client();
    eventually("the drain", Duration::from_secs(10), || async {
        let request = gateway.request(Method::GET, "/readyz");
        let answer = request.send().await.expect("an answer");
        (answer.status() == StatusCode::SERVICE_UNAVAILABLE).then_some(())
    })
    .await;
    // The actor of the session has stopped, and each request loads it again.
    let path = format!("/v1/sessions/{waits}/prompts");
    for body in [
        json!({ "prompt": "echo no" }),
        json!({ "prompt": "echo no", "queue": true }),
    ] {
        for _ in 0..5 {
            let answer = gateway.posted(&path, &[], &body).await;
            answer.problem(503, "draining");
        }
    }
    assert_eq!(
        gateway.ended(Duration::from_secs(30)),
        Some(0),
        "{}",
        gateway.log()
    );
    gateway.start();
    let log = gateway
        .log_until(&waits, |event| event["type"] == "prompt.completed")
        .await;
    assert_eq!(crate::support::log::agent_text(&log), "later");
}

/// The responses to a client that prompts continuously.
#[derive(Default)]
struct Worked {
    prompts: Vec<PromptAnswer>,
    answers: usize,
}

/// Prompts one session repeatedly, until the gateway rejects it.
async fn works(client: Client, url: String, session: String, number: usize) -> Worked {
    let mut worked = Worked::default();
    let turns = [
        "echo x",
        "slow chunks=5 ms=20",
        "stream n=100",
        "slow chunks=200 ms=20",
    ];
    for round in 0.. {
        let key = format!("{number} {round}");
        let request = client
            .post(format!("{url}/v1/sessions/{session}/prompts"))
            .bearer_auth(KEY);
        let request = request
            .header("Idempotency-Key", &key)
            .header("Prefer", "wait=60");
        let text = turns[(number + round) % turns.len()];
        let answer = match request.json(&json!({ "prompt": text })).send().await {
            Ok(answer) => answer,
            Err(error) if error.is_connect() => return worked,
            Err(error) => panic!("a request was cut off: {error:?}"),
        };
        let status = answer.status();
        let body: Value = answer.json().await.expect("a whole answer");
        worked.answers += 1;
        let admitted = status.is_success();
        assert!(
            admitted || (status == StatusCode::SERVICE_UNAVAILABLE && body["code"] == "draining"),
            "{body}"
        );
        let prompt = admitted.then(|| body["promptId"].as_str().expect("an id").to_owned());
        worked.prompts.push(PromptAnswer {
            session: session.clone(),
            key: Some(key),
            status: status.as_u16(),
            prompt,
        });
        if !admitted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    worked
}

/// Reads one session again and again, likewise.
async fn reads(client: Client, url: String, session: String) -> Worked {
    let mut worked = Worked::default();
    loop {
        let request = client
            .get(format!("{url}/v1/sessions/{session}"))
            .bearer_auth(KEY);
        match request.send().await {
            Ok(answer) => {
                assert_eq!(answer.status(), 200, "reads go on");
                drop(answer.json::<Value>().await.expect("a whole answer"));
                worked.answers += 1;
            }
            Err(error) if error.is_connect() => return worked,
            Err(error) => panic!("a request was cut off: {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_under_load_fails_no_request_that_it_took() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let journal = folder.path().to_str().expect("UTF-8");
    let setup = Setup::fake(&["--journal", journal])
        .settings(&format!("{LIMITS}timeouts.drain_timeout = \"1s\""));
    let mut gateway = setup.start();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        sessions.push(gateway.session("fake").await);
    }
    let follower = Follower::all(&gateway, &sessions);
    let mut clients = JoinSet::new();
    for (number, session) in sessions.iter().enumerate() {
        clients.spawn(works(
            new_client(),
            gateway.url.clone(),
            session.clone(),
            number,
        ));
        clients.spawn(reads(new_client(), gateway.url.clone(), session.clone()));
    }
    // The point of the stop is anywhere in their work.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for session in &sessions {
        gateway
            .log_until(session, |event| event["type"] == "prompt.started")
            .await;
    }
    let started = procfs::descendants(gateway.pid());
    let began = Instant::now();
    gateway.signal(Signal::TERM);
    let mut prompts = Vec::new();
    let mut answers = 0;
    while let Some(worked) = clients.join_next().await {
        let worked = worked.expect("no client was cut off");
        prompts.extend(worked.prompts);
        answers += worked.answers;
    }
    assert_eq!(
        gateway.ended(Duration::from_secs(20)),
        Some(0),
        "{}",
        gateway.log()
    );
    let took = began.elapsed();
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());
    eventually(
        "everything that the agents started is gone",
        Duration::from_secs(10),
        || async { (!started.iter().any(|pid| crate::support::is_alive(*pid))).then_some(()) },
    )
    .await;
    let admitted: Vec<_> = prompts
        .iter()
        .filter(|answer| answer.prompt.is_some())
        .collect();
    figure(&format!(
        "drained in {took:?} under load: {} prompts taken, {} refused, {answers} answers, none cut off",
        admitted.len(),
        prompts.len() - admitted.len()
    ));
    assert!(admitted.len() >= 6, "each worked: {}", admitted.len());

    gateway.start();
    for session in &sessions {
        eventually(
            "the prompts that the drain left in the queue have ended",
            Duration::from_secs(30),
            || async { (gateway.get_session(session).await["state"] == "idle").then_some(()) },
        )
        .await;
        let log = gateway.lawful(session).await;
        let ends = ends(&log);
        for answer in admitted.iter().filter(|answer| answer.session == *session) {
            let prompt = answer.prompt.as_deref().expect("it was admitted");
            assert_eq!(ends[prompt].len(), 1, "{prompt} has its end");
            assert_ne!(
                ends[prompt][0]["problem"]["code"], "interrupted",
                "it was ended before the exit"
            );
        }
    }
    let mut history = History::of(&gateway, vec![follower])
        .await
        .with_agents(folder.path());
    history.prompts = prompts;
    history.assert_holds();
}
