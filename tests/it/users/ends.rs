//! Keys that end: the streams of their user end too, those of others continue.

use std::time::{Duration, Instant};

use reqwest::{Method, Response};
use serde_json::json;

use super::acp::{Connection, Socket};
use super::{LIMITS, User};
use crate::key_life::key_command;
use crate::support::wait::LONGEST;
use crate::support::{Answer, Events, Gateway, Setup, figure};

/// The time within which the streams of an ended key end. The gateway reads its keys more often in tests.
pub(super) const SOON: Duration = Duration::from_secs(2);
/// The close code of a WebSocket whose key has ended.
const POLICY: u16 = 1008;

/// One open stream of each kind for a session.
struct Streams {
    events: Vec<Events>,
    /// The stream of an `/acp` connection over HTTP.
    http: Response,
    socket: Socket,
}

impl Streams {
    async fn open(user: &User<'_>, session: &str) -> Self {
        let mut events = Vec::new();
        for path in [
            format!("/v1/sessions/{session}/events/stream"),
            "/v1/events/stream".to_owned(),
            format!("/v1/events/stream?session={session}"),
            "/v1/events/stream?summaries=true".to_owned(),
        ] {
            let mut stream = user.stream(&path).await;
            stream.until("ready").await;
            events.push(stream);
        }
        Self {
            events,
            http: Connection::open(user).await.stream(None).await,
            socket: Socket::open(user.gateway, &user.key).await,
        }
    }

    /// Waits until each stream has ended because of its key.
    async fn ended(self) {
        for stream in self.events {
            let frames = stream.rest().await;
            let last = frames.last().expect("a stream says why it ends");
            assert!(
                last.of("problem") && last.data["problem"]["code"] == "unauthorized",
                "{last:?}"
            );
        }
        let Self {
            mut http,
            mut socket,
            ..
        } = self;
        let end = async { while http.chunk().await.expect("an orderly end").is_some() {} };
        let end = tokio::time::timeout(LONGEST, end).await;
        end.expect("the stream of the connection ends");
        assert_eq!(socket.closed().await, Some(POLICY));
    }
}

/// Checks that no surface accepts the key of the user.
async fn assert_rejected(user: &User<'_>, session: &str) {
    let path = format!("/v1/sessions/{session}");
    for path in [&*path, "/v1", "/v1/sessions", "/v1/events/stream"] {
        let answer = user.call(Method::GET, path).await;
        assert_eq!(
            answer.header("www-authenticate"),
            Some("Bearer realm=\"acp-gateway\", error=\"invalid_token\"")
        );
        answer.problem(401, "unauthorized");
    }
    for path in ["/acp", "/openai/v1/models", "/ag-ui/fake"] {
        let answer = user.request(Method::GET, path).send().await;
        assert_eq!(answer.expect("an answer").status(), 401, "{path}");
    }
    let prompt = user.request(Method::POST, &format!("{path}/prompts"));
    let prompt = Answer::of(prompt.json(&json!({ "prompt": "echo late" }))).await;
    prompt.problem(401, "unauthorized");
}

/// Checks that a stream of each kind still delivers events.
async fn assert_continues(user: &User<'_>, session: &str, mut streams: Streams) {
    user.turn(session, "echo still").await;
    let [of_session, all, merged, summaries] = &mut streams.events[..] else {
        panic!("four streams");
    };
    for stream in [of_session, all, merged] {
        stream.until("prompt.completed").await;
    }
    summaries.until("session.summary").await;
    let listed = streams.socket.call("session/list", json!({})).await;
    let listed = listed.last().expect("the response");
    let sessions = &listed["result"]["sessions"];
    assert_eq!(sessions[0]["sessionId"], *session, "{listed}");
}

/// Checks that a new key of the user has the session.
async fn assert_returns(gateway: &Gateway, name: &str, session: &str) {
    let again = User::new(gateway, name).await;
    assert_eq!(again.sessions("").await, [session]);
    again.turn(session, "echo again").await;
}

#[tokio::test]
async fn streams_of_an_expired_key_end_and_its_requests_are_rejected() {
    /// The test opens the streams in this time.
    const LIFE: Duration = Duration::from_secs(8);
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let own = alice.session().await;
    let kept = Streams::open(&alice, &own).await;
    let before = Instant::now();
    let bob = User::with(&gateway, &["bob", "--expires-in", "8s"]).await;
    let after = Instant::now();
    let theirs = bob.session().await;
    let streams = Streams::open(&bob, &theirs).await;
    streams.ended().await;
    assert!(before.elapsed() >= LIFE, "{:?}", before.elapsed());
    let late = after.elapsed().saturating_sub(LIFE);
    figure(&format!("the streams ended {late:?} after their key"));
    assert!(late < SOON, "{late:?}");
    assert_rejected(&bob, &theirs).await;
    assert_continues(&alice, &own, kept).await;
    assert_returns(&gateway, "bob", &theirs).await;
}

#[tokio::test]
async fn streams_of_a_user_end_with_the_only_key_and_those_of_others_continue() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let alice = User::new(&gateway, "alice").await;
    let bob = User::new(&gateway, "bob").await;
    let own = alice.session().await;
    let theirs = bob.session().await;
    let kept = Streams::open(&alice, &own).await;
    let streams = Streams::open(&bob, &theirs).await;
    key_command(&gateway, &["revoke", "bob"]);
    let began = Instant::now();
    streams.ended().await;
    let took = began.elapsed();
    figure(&format!(
        "the streams of a revoked key ended after {took:?}"
    ));
    assert!(took < SOON, "{took:?}");
    assert_rejected(&bob, &theirs).await;
    assert_continues(&alice, &own, kept).await;
    assert_returns(&gateway, "bob", &theirs).await;
}

#[tokio::test]
async fn streams_of_the_other_key_of_a_user_continue() {
    let gateway = Setup::fake(&[]).settings(LIMITS).start();
    let laptop = User::with(&gateway, &["laptop", "--user", "bob"]).await;
    let phone = User::with(&gateway, &["phone", "--user", "bob"]).await;
    let session = laptop.session().await;
    let kept = Streams::open(&laptop, &session).await;
    let streams = Streams::open(&phone, &session).await;
    key_command(&gateway, &["revoke", "phone"]);
    streams.ended().await;
    assert_rejected(&phone, &session).await;
    assert_continues(&laptop, &session, kept).await;
}
