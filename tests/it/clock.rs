//! A wall clock that is set back and forth while the gateway works: timers, seqs and keys do not mind.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::support::gateway::command;
use super::support::log::{all, one};
use super::support::{Follower, Gateway, History, Setup, eventually};
use crate::support::places::project;

const HOUR: i64 = 3600;
const YEARS: i64 = 10 * 365 * 24 * HOUR;

/// The clock of a gateway, in a folder of its own.
struct Clock {
    folder: tempfile::TempDir,
}

impl Clock {
    /// Compiles the library that changes the clock.
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = project().join("tests/it/clock/clock.c");
        let mut cc = command("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(folder.path().join("clock.so"));
        assert!(
            cc.arg(source)
                .status()
                .expect("there is a C compiler")
                .success()
        );
        let clock = Self { folder };
        std::fs::write(clock.path("offset"), 0_i64.to_ne_bytes()).expect("the folder is ours");
        clock
    }

    fn path(&self, name: &str) -> String {
        self.folder
            .path()
            .join(name)
            .to_str()
            .expect("UTF-8")
            .to_owned()
    }

    /// A gateway with this clock.
    fn start(&self, setup: Setup) -> Gateway {
        let library = format!("LD_PRELOAD={}", self.path("clock.so"));
        let file = format!("CLOCK_FILE={}", self.path("offset"));
        setup.run_by(&["env", &library, &file]).start()
    }

    /// Sets it this far from the machine's.
    fn set(&self, seconds: i64) {
        let file = std::fs::File::options()
            .write(true)
            .open(self.path("offset"))
            .expect("the file is ours");
        file.write_all_at(&seconds.to_ne_bytes(), 0)
            .expect("the file is ours");
    }
}

async fn keyed(gateway: &Gateway, session: &str, key: &str, text: &str) -> (StatusCode, Value) {
    let request = gateway.request(Method::POST, &format!("/v1/sessions/{session}/prompts"));
    let answer = request
        .header("Idempotency-Key", key)
        .json(&json!({ "prompt": text }))
        .send()
        .await;
    let answer = answer.expect("an answer");
    (answer.status(), answer.json().await.expect("JSON"))
}

#[tokio::test]
async fn turns_keys_tickets_and_streams_survive_clock_jumps() {
    let clock = Clock::new();
    let gateway = clock.start(Setup::fake(&[]).settings(
        "timeouts.keep_alive_interval = \"200ms\"\nlimits.per_key.max_prompts_per_minute = 1000",
    ));
    let session = gateway.session("fake").await;
    let follower = Follower::start(&gateway, &session);
    let events = format!("/v1/sessions/{session}/events");
    let (status, first) = keyed(&gateway, &session, "once", "slow chunks=40 ms=50").await;
    assert_eq!(status, 202, "{first}");
    let ticket = gateway
        .post("/v1/tickets", &json!({ "paths": [events] }))
        .await
        .1;
    let ticketed = format!(
        "{events}?after=tail&ticket={}",
        ticket["ticket"].as_str().expect("a ticket")
    );

    for offset in [5 * HOUR, -5 * HOUR, YEARS, -YEARS, 25 * HOUR] {
        clock.set(offset);
        let (status, again) = keyed(&gateway, &session, "once", "slow chunks=40 ms=50").await;
        assert!(status.is_success(), "{again}");
        assert_eq!(
            again["promptId"], first["promptId"],
            "a key is known whatever the clock says ({offset} s)"
        );
        let stream = gateway
            .http
            .get(format!("{}{ticketed}", gateway.url))
            .send()
            .await
            .expect("an answer");
        assert_eq!(stream.status(), 200, "a ticket holds ({offset} s)");
    }
    let path = format!(
        "/v1/sessions/{session}/prompts/{}",
        first["promptId"].as_str().expect("an id")
    );
    let ended = gateway
        .request(Method::GET, &path)
        .header("Prefer", "wait=30")
        .send()
        .await;
    let ended: Value = ended.expect("an answer").json().await.expect("JSON");
    assert_eq!(ended["stopReason"], "end_turn", "{ended}");

    // A stream that is still has its comments at the time that they are due.
    let mut still = gateway.events(&format!("{events}?after=tail")).await;
    still.until("ready").await;
    let comments = async {
        while still.comments < 3 {
            drop(tokio::time::timeout(Duration::from_millis(50), still.next()).await);
        }
    };
    clock.set(-YEARS);
    tokio::time::timeout(Duration::from_secs(20), comments)
        .await
        .expect("comments go on");

    clock.set(YEARS);
    assert_eq!(gateway.turn(&session, "echo later").await["text"], "later");
    let log = gateway.lawful(&session).await;
    let years: Vec<&str> = log
        .iter()
        .map(|event| &event["time"].as_str().expect("a time")[..4])
        .collect();
    assert!(
        years.iter().any(|year| year > &years[0]),
        "the clock has jumped: {years:?}"
    );
    assert_eq!(all(&log, "prompt.started").len(), 2);
    History::of(&gateway, vec![follower]).await.assert_holds();
}

#[tokio::test]
async fn drain_timeout_ignores_the_wall_clock() {
    let clock = Clock::new();
    let setup = Setup::fake(&[]).settings("timeouts.drain_timeout = \"1s\"\ntesting.drain_cancel_timeout = \"10s\"\ntesting.clock_jump_threshold = \"1m\"");
    let mut gateway = clock.start(setup);
    let session = gateway.session("fake").await;
    gateway.prompt(&session, "slow chunks=10000 ms=20").await;
    // A drain does not wait for a turn that has no process yet.
    gateway
        .log_until(&session, |event| event["type"] == "session.update")
        .await;
    let began = Instant::now();
    gateway.signal(Signal::TERM);
    for offset in [YEARS, -5 * HOUR, 0] {
        clock.set(offset);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        gateway.ended(Duration::from_secs(20)),
        Some(0),
        "{}",
        gateway.log()
    );
    assert!(
        began.elapsed() >= Duration::from_secs(1),
        "the turn got its second: {:?}",
        began.elapsed()
    );

    // A life that begins years later finds all that was there.
    clock.set(YEARS);
    gateway.start();
    let log = gateway.lawful(&session).await;
    assert_eq!(one(&log, "prompt.completed")["stopReason"], "cancelled");
    clock.set(0);
    assert_eq!(gateway.turn(&session, "echo back").await["text"], "back");
    eventually("the jump is logged", Duration::from_secs(10), || async {
        drop(keyed(&gateway, &session, "any", "echo any").await);
        gateway
            .log()
            .contains("the wall clock jumped")
            .then_some(())
    })
    .await;
}
