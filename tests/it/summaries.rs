//! Summaries of changed sessions on the stream of many sessions.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::key_life::{key, key_command};
use crate::support::{Answer, Event, Events, Gateway, Setup};

const STREAM: &str = "/v1/events/stream?summaries=true";
/// At most one summary of a session is sent in this time.
const ROUND: Duration = Duration::from_millis(250);

async fn live(gateway: &Gateway, path: &str) -> Events {
    let mut stream = gateway.events(path).await;
    stream.until("ready").await;
    stream
}

fn is_summary_of(event: &Event, session: &str) -> bool {
    event.of("session.summary") && event.data["sessionId"] == session
}

/// Reads to the summary that shows this member of the session.
async fn until_shown(stream: &mut Events, session: &str, member: &str, value: Value) -> Event {
    let what = format!("the summary of {session} with {member} {value}");
    let fits =
        |event: &Event| is_summary_of(event, session) && event.data["session"][member] == value;
    stream.up_to(&what, fits).await.pop().expect("the last one")
}

/// All events until the stream is silent.
async fn settled(stream: &mut Events) -> Vec<Event> {
    let mut events = Vec::new();
    while let Ok(event) = timeout(20 * ROUND, stream.next()).await {
        events.push(event.expect("the stream is open"));
    }
    events
}

/// The session as the list shows it.
async fn listed(gateway: &Gateway, session: &str) -> Value {
    let list = gateway.get("/v1/sessions").await;
    let sessions = list["sessions"].as_array().expect("a list");
    sessions
        .iter()
        .find(|one| one["sessionId"] == session)
        .cloned()
        .unwrap_or(Value::Null)
}

#[tokio::test]
async fn a_new_session_can_be_read_as_soon_as_its_summary_arrives() {
    let gateway = Setup::fake(&[]).start();
    let mut stream = live(&gateway, STREAM).await;
    for _ in 0..4 {
        let read = async {
            let event = stream
                .until("session.summary")
                .await
                .pop()
                .expect("the last one");
            let session = event.data["sessionId"].as_str().expect("an id").to_owned();
            gateway
                .call(Method::GET, &format!("/v1/sessions/{session}"))
                .await
                .status
        };
        let (created, status) = tokio::join!(gateway.session("fake"), read);
        assert_eq!(status, 200, "{created}");
        // The next summary is sent at once again.
        while let Ok(Some(_)) = timeout(3 * ROUND, stream.next()).await {}
    }
}

#[tokio::test]
async fn a_stream_tells_every_change_of_the_list() {
    let gateway = Setup::fake(&[]).start();
    let mut stream = live(&gateway, STREAM).await;
    let session = gateway.session("fake").await;
    let path = format!("/v1/sessions/{session}");
    let created = until_shown(&mut stream, &session, "state", json!("idle")).await;
    assert_eq!(
        (created.id.as_deref(), created.kind.as_deref()),
        (None, Some("session.summary"))
    );
    let members: Vec<&str> = created
        .data
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(members, ["type", "sessionId", "time", "session"]);

    gateway.prompt(&session, "permission").await;
    until_shown(&mut stream, &session, "state", json!("waiting")).await;
    let queued = json!({ "prompt": "hello", "queue": true });
    let (status, queued) = gateway.post(&format!("{path}/prompts"), &queued).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{queued}");
    until_shown(&mut stream, &session, "queued", json!(["p2"])).await;
    let cancelled = gateway.call(Method::POST, &format!("{path}/cancel")).await;
    assert!(cancelled.status.is_success(), "{cancelled:?}");
    until_shown(&mut stream, &session, "state", json!("idle")).await;

    let renamed = gateway
        .request(Method::PATCH, &path)
        .json(&json!({ "title": "Roof" }));
    assert_eq!(Answer::of(renamed).await.status, 200);
    until_shown(&mut stream, &session, "title", json!("Roof")).await;
    assert_eq!(
        gateway
            .call(Method::POST, &format!("{path}/close"))
            .await
            .status,
        200
    );
    let closed = until_shown(&mut stream, &session, "state", json!("closed")).await;
    let last = settled(&mut stream).await.pop().unwrap_or(closed);
    assert_eq!(
        last.data["session"],
        listed(&gateway, &session).await,
        "a summary is that of the list"
    );

    assert_eq!(gateway.call(Method::DELETE, &path).await.status, 204);
    let gone = stream
        .up_to("the deletion", |event| is_summary_of(event, &session))
        .await
        .pop();
    assert_eq!(gone.expect("the last one").data["session"], Value::Null);
}

#[tokio::test]
async fn only_named_sessions_have_other_events() {
    let gateway = Setup::fake(&[]).start();
    let named = gateway.session("fake").await;
    let other = gateway.session("fake").await;
    let mut stream = gateway
        .events(&format!("{STREAM}&session={named}&types=prompt."))
        .await;
    let replayed = stream.until("ready").await;
    assert_eq!(replayed.len(), 1, "no summary before `ready`: {replayed:?}");
    let mut summaries = live(&gateway, STREAM).await;
    gateway.turn(&other, "stream n=5").await;
    gateway.turn(&named, "stream n=5").await;
    let events = settled(&mut stream).await;
    for event in &events {
        let fits = event.of("session.summary") && event.id.is_none() && event.data["seq"].is_null();
        let of_named = event.data["sessionId"] == *named
            && event.data["type"]
                .as_str()
                .is_some_and(|kind| kind.starts_with("prompt."));
        assert!(fits || of_named, "{event:?}");
    }
    assert!(events.iter().any(|event| event.of("prompt.completed")));
    for session in [&named, &other] {
        let last = events
            .iter()
            .rfind(|event| is_summary_of(event, session))
            .expect("a summary");
        assert_eq!(last.data["session"], listed(&gateway, session).await);
    }
    let alone = settled(&mut summaries).await;
    assert!(
        alone.iter().all(|event| event.of("session.summary")),
        "{alone:?}"
    );
    // The summaries are outside of the numbers of the stream: its ids are those of the log.
    let id = events
        .iter()
        .rev()
        .find_map(|event| event.id.clone())
        .expect("an id");
    let mut again = gateway
        .events_after(
            &format!("{STREAM}&session={named}&types=prompt."),
            Some(&id),
        )
        .await;
    assert_eq!(again.until("ready").await.len(), 1);
}

#[tokio::test]
async fn a_flood_of_chunks_makes_no_summaries() {
    const CHUNKS: usize = 5000;
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let mut whole = live(&gateway, &format!("/v1/sessions/{session}/events")).await;
    let mut stream = live(&gateway, STREAM).await;
    gateway
        .turn(&session, &format!("flood n={CHUNKS} batch=4096"))
        .await;
    let chunks = whole.until("prompt.completed").await;
    assert!(
        chunks
            .iter()
            .filter(|event| event.of("session.update"))
            .count()
            >= CHUNKS
    );
    let summaries = settled(&mut stream).await;
    // The start of the process, the start of the turn, and its end.
    assert!((1..=4).contains(&summaries.len()), "{}", summaries.len());
    assert_eq!(
        summaries.last().expect("one").data["session"]["lastOutcome"],
        "completed"
    );
}

#[tokio::test]
async fn a_session_that_changes_often_has_one_summary_in_each_round() {
    const CHANGES: usize = 60;
    let gateway = Setup::fake(&[]).start();
    let busy = gateway.session("fake").await;
    let quiet = gateway.session("fake").await;
    let mut stream = live(&gateway, STREAM).await;
    let rename = async |session: &str, title: String| {
        let path = format!("/v1/sessions/{session}");
        let renamed = gateway
            .request(Method::PATCH, &path)
            .json(&json!({ "title": title }));
        assert_eq!(Answer::of(renamed).await.status, 200);
    };
    let began = Instant::now();
    let changes = async {
        for number in 1..=CHANGES {
            rename(&busy, number.to_string()).await;
        }
        rename(&quiet, "quiet".to_owned()).await;
        began.elapsed()
    };
    let read = async {
        let last = |event: &Event| is_summary_of(event, &quiet);
        let mut events = stream.up_to("the last change", last).await;
        events.extend(settled(&mut stream).await);
        events
    };
    let (took, events) = tokio::join!(changes, read);
    let of_busy: Vec<_> = events
        .iter()
        .filter(|event| is_summary_of(event, &busy))
        .collect();
    let rounds = usize::try_from(took.as_millis() / ROUND.as_millis()).expect("a number") + 2;
    assert!(
        of_busy.len() <= rounds,
        "{} summaries in {rounds} rounds",
        of_busy.len()
    );
    assert_eq!(
        of_busy.last().expect("a summary").data["session"]["title"],
        CHANGES.to_string()
    );
}

#[tokio::test]
async fn a_change_of_another_session_arrives_at_once() {
    let gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let mut stream = live(&gateway, STREAM).await;
    gateway.prompt(&session, "permission").await;
    let began = Instant::now();
    until_shown(&mut stream, &session, "state", json!("waiting")).await;
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn ndjson_has_the_same_summaries_and_pages_have_none() {
    let mut gateway = Setup::fake(&[]).start();
    let lines = gateway.request(Method::GET, "/v1/events?summaries=true");
    let lines = lines
        .header("accept", "application/x-ndjson")
        .send()
        .await
        .expect("an answer");
    let mut stream = live(&gateway, &format!("{STREAM}&named=false")).await;
    let session = gateway.session("fake").await;
    let summary = until_shown(&mut stream, &session, "state", json!("idle")).await;
    assert_eq!(summary.kind, None);
    gateway
        .call(Method::GET, "/v1/events?summaries=true")
        .await
        .problem(422, "invalid");
    gateway
        .call(Method::GET, "/v1/events?summaries=maybe")
        .await
        .problem(422, "invalid");
    let of_one = format!("/v1/sessions/{session}/events?summaries=true");
    gateway
        .call(Method::GET, &of_one)
        .await
        .problem(422, "invalid");
    let ended = gateway
        .events(&format!("{STREAM}&follow=false"))
        .await
        .rest()
        .await;
    assert!(
        ended.last().is_some_and(|event| event.of("end")),
        "{ended:?}"
    );
    settled(&mut stream).await;
    assert_eq!(gateway.stop(), Some(0));
    assert!(
        stream
            .rest()
            .await
            .last()
            .is_some_and(|event| event.of("shutdown"))
    );
    let text = lines.text().await.expect("a body");
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines[0]["type"], "ready");
    let of_session =
        |line: &&Value| line["type"] == "session.summary" && line["sessionId"] == *session;
    assert!(
        lines
            .iter()
            .find(of_session)
            .is_some_and(|line| line["session"]["sessionId"] == *session)
    );
    assert_eq!(lines.last().expect("a line")["type"], "shutdown");
}

#[tokio::test]
async fn summaries_need_the_scope_and_end_with_the_key() {
    let gateway = Setup::fake(&[]).start();
    let reader = key(&gateway, "bob", "read").await;
    let writer = key(&gateway, "eve", "prompt").await;
    let open = async |key: &str| {
        let request = gateway
            .http
            .get(format!("{}{STREAM}", gateway.url))
            .bearer_auth(key);
        request.send().await.expect("an answer")
    };
    assert_eq!(open(&writer).await.status(), StatusCode::FORBIDDEN);
    let mut stream = Events::new(open(&reader).await);
    stream.until("ready").await;
    gateway.session("fake").await;
    stream.until("session.summary").await;
    settled(&mut stream).await;
    key_command(&gateway, &["revoke", "bob"]);
    let last = stream.rest().await.pop().expect("a last frame");
    assert!(
        last.of("problem") && last.data["problem"]["code"] == "unauthorized",
        "{last:?}"
    );
}

#[tokio::test]
async fn sessions_of_tasks_are_not_told() {
    let gateway = Setup::fake(&[]).start();
    let mut stream = live(&gateway, STREAM).await;
    let task = json!({ "agent": "fake", "description": "hello" });
    let (status, task) = gateway.post("/v1/tasks", &task).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{task}");
    let id = task["taskId"].as_str().expect("an id");
    gateway.call(Method::GET, &format!("/v1/tasks/{id}")).await;
    crate::support::eventually("the task has ended", Duration::from_secs(20), || async {
        let task = gateway.get(&format!("/v1/tasks/{id}")).await;
        (task["status"] == "completed").then_some(())
    })
    .await;
    let session = gateway.session("fake").await;
    let events = settled(&mut stream).await;
    assert!(
        !events.is_empty() && events.iter().all(|event| is_summary_of(event, &session)),
        "{events:?}"
    );
}

#[tokio::test]
async fn a_restart_loses_no_change() {
    let mut gateway = Setup::fake(&[]).start();
    let session = gateway.session("fake").await;
    let mut stream = live(&gateway, STREAM).await;
    gateway.prompt(&session, "hang").await;
    let running = until_shown(&mut stream, &session, "state", json!("running")).await;
    gateway.kill();
    drop(stream);
    gateway.start();
    let mut stream = live(&gateway, STREAM).await;
    // The client reads the list after `ready`. Later changes follow as summaries.
    let listed = listed(&gateway, &session).await;
    assert_ne!(
        listed["lastEventId"],
        running.data["session"]["lastEventId"]
    );
    assert_eq!(listed["lastOutcome"], "failed");
    gateway.turn(&session, "hello").await;
    until_shown(&mut stream, &session, "lastOutcome", json!("completed")).await;
}
