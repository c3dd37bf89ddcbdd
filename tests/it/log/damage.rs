//! Damaged bytes on disk: the gateway reports them, never serves them, and no reader is blocked.

use base::types::SessionId;
use reqwest::Method;
use serde_json::{Value, json};

use super::{LIMITS, leave_open, open};
use crate::support::log::{logged, one};
use crate::support::replaced::replaced;
use crate::support::stored::{stored_like, unpacked};
use crate::support::{Event, Gateway, Random, Setup};

/// Changes each letter of the word in the stored run to upper case. The frames stay readable, but differ from the
/// original.
fn spoil(gateway: &Gateway, word: &str) {
    let file = open(gateway);
    let mut select = file.prepare("SELECT pos, frames FROM run").expect("SQL");
    let runs = select
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("SQL");
    let runs: Vec<(i64, Vec<u8>)> = runs.collect::<Result<_, _>>().expect("SQL");
    let mut spoilt = 0;
    for (pos, stored) in runs {
        let frames = unpacked(&stored);
        let other = replaced(&frames, word.as_bytes(), word.to_uppercase().as_bytes());
        if other != frames {
            let run = rusqlite::params![stored_like(&stored, &other), pos];
            spoilt += file
                .execute("UPDATE run SET frames = ?1 WHERE pos = ?2", run)
                .expect("SQL");
        }
    }
    assert!(spoilt > 0, "nothing has {word}");
}

/// A session as the file names it.
fn key_of(session: &str) -> [u8; 16] {
    *session.parse::<SessionId>().expect("an id").as_bytes()
}

/// Two sessions with three turns each; in the first the second turn is damaged. Gives both.
async fn spoilt(gateway: &mut Gateway) -> (String, String) {
    let damaged = gateway.session("fake").await;
    let whole = gateway.session("fake").await;
    for word in ["alpha", "beta", "gamma"] {
        gateway.turn(&damaged, &format!("echo {word}")).await;
        gateway
            .turn(&whole, &format!("echo whole {}", word.len()))
            .await;
    }
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    spoil(gateway, "beta");
    gateway.start();
    (damaged, whole)
}

fn resets(frames: &[Event]) -> Vec<&Event> {
    frames.iter().filter(|frame| frame.of("reset")).collect()
}

fn is_end_of(event: &Value, turn: &str) -> bool {
    event["type"] == "prompt.completed" && event["promptId"] == turn
}

/// The seq that an id names.
fn seq_of(id: &str) -> u64 {
    id.rsplit_once('-')
        .and_then(|(_, seq)| seq.parse().ok())
        .expect("<epoch>-<seq>")
}

#[tokio::test]
async fn damaged_run_is_reported_once_and_readers_are_reset_past_it() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let (damaged, _) = spoilt(&mut gateway).await;
    let path = format!("/v1/sessions/{damaged}/events");

    let frames = gateway
        .events(&format!("{path}?follow=false"))
        .await
        .rest()
        .await;
    let reset_frames = resets(&frames);
    assert!(!reset_frames.is_empty());
    for frame in &reset_frames {
        assert_eq!(frame.data["reason"], "damaged", "{}", frame.data);
        assert_eq!(frame.data["session"]["sessionId"], damaged.as_str());
    }
    // There is no gap between two resets, and each contains the position to resume from.
    let mut before = 0;
    for frame in &frames {
        match (frame.of("reset"), frame.data["seq"].as_u64()) {
            (true, _) => {
                let next = seq_of(frame.id.as_deref().expect("a reset moves the cursor"));
                assert!(next > before);
                before = next;
            }
            (false, Some(seq)) => {
                assert_eq!(seq, before + 1, "{}", frame.data);
                before = seq;
            }
            (false, None) => {}
        }
    }
    assert_eq!(before, gateway.last_seq(&damaged).await);
    let events = logged(frames.clone());
    assert!(
        events.iter().any(|event| is_end_of(event, "p1")),
        "the stream has the events before the damage"
    );
    assert!(
        events.iter().any(|event| is_end_of(event, "p3")),
        "and the events after it"
    );
    assert!(
        !format!("{events:?}").to_lowercase().contains("beta"),
        "no damaged event is shown"
    );

    // A client that has the id of the last reset resumes without another reset.
    let last = reset_frames.last().and_then(|frame| frame.id.clone());
    let rest = gateway
        .events_after(&format!("{path}?follow=false"), last.as_deref())
        .await
        .rest()
        .await;
    assert!(resets(&rest).is_empty() && rest.iter().any(|frame| is_end_of(&frame.data, "p3")));

    let lines = gateway.request(Method::GET, &format!("{path}?follow=false"));
    let lines = lines
        .header("Accept", "application/x-ndjson")
        .send()
        .await
        .expect("an answer");
    let lines = lines.text().await.expect("a body");
    let lines: Vec<Value> = lines
        .lines()
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let page = gateway.get(&format!("{path}?limit=1000")).await;
    for (form, all) in [
        ("NDJSON", &lines),
        ("a page", page["events"].as_array().expect("events")),
    ] {
        let same = all
            .iter()
            .filter(|event| event["seq"].is_u64())
            .cloned()
            .collect::<Vec<_>>();
        assert_eq!(same, events, "{form}");
        assert_eq!(
            all.iter().filter(|event| event["type"] == "reset").count(),
            reset_frames.len(),
            "{form}"
        );
    }

    let transcript = gateway
        .get(&format!("/v1/sessions/{damaged}/transcript"))
        .await;
    let turns = format!("{}", transcript["turns"]).to_lowercase();
    assert!(
        turns.contains("alpha") && turns.contains("gamma") && !turns.contains("beta"),
        "{turns}"
    );
    assert_eq!(
        gateway
            .get(&format!("/v1/sessions/{damaged}/prompts/p2"))
            .await["status"],
        "completed"
    );
    let turn = gateway
        .events(&format!("/v1/sessions/{damaged}/prompts/p2/events"))
        .await
        .rest()
        .await;
    assert!(
        !resets(&turn).is_empty(),
        "a stream of the turn ends too: {turn:?}"
    );

    assert_eq!(gateway.turn(&damaged, "echo delta").await["text"], "delta");
    let parts = gateway.log().matches("events are damaged on disk").count();
    assert!(
        (1..=reset_frames.len()).contains(&parts),
        "each damaged part is logged once: {}",
        gateway.log()
    );
}

#[tokio::test]
async fn damage_of_one_session_is_no_matter_of_another_on_the_stream_of_many() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let (damaged, whole) = spoilt(&mut gateway).await;
    let both = format!("/v1/events?session={damaged}&session={whole}&follow=false");
    let frames = gateway.events(&both).await.rest().await;
    let reset_frames = resets(&frames);
    assert!(!reset_frames.is_empty());
    for frame in &reset_frames {
        assert_eq!(
            (&frame.data["reason"], &frame.data["sessionId"]),
            (&json!("damaged"), &json!(damaged))
        );
        assert!(
            frame.id.as_deref().is_some_and(|id| id.contains("-g")),
            "{frame:?}"
        );
    }
    let other = logged(frames.clone())
        .into_iter()
        .filter(|event| event["sessionId"] == whole.as_str());
    let whole_seqs: Vec<u64> = other
        .map(|event| event["seq"].as_u64().expect("a seq"))
        .collect();
    assert_eq!(
        whole_seqs,
        (1..=gateway.last_seq(&whole).await).collect::<Vec<_>>()
    );
    let last = reset_frames.last().and_then(|frame| frame.id.clone());
    let rest = gateway
        .events_after(&both, last.as_deref())
        .await
        .rest()
        .await;
    assert!(resets(&rest).is_empty() && rest.iter().any(|frame| is_end_of(&frame.data, "p3")));

    let epoch = last
        .as_deref()
        .and_then(|id| id.split_once("-g"))
        .expect("a place")
        .0
        .to_owned();
    let all = gateway
        .events_after("/v1/events?follow=false", Some(&format!("{epoch}-g0")))
        .await
        .rest()
        .await;
    let reset_frames = resets(&all);
    assert!(
        !reset_frames.is_empty(),
        "a reader of all sessions receives the resets too"
    );
    for frame in reset_frames {
        assert_eq!(
            (&frame.data["reason"], &frame.data["sessionId"]),
            (&json!("damaged"), &json!(damaged))
        );
        assert_eq!(frame.data.get("session"), None, "{}", frame.data);
    }
}

#[tokio::test]
async fn session_with_damaged_last_events_opens_and_its_turn_is_closed() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "title text=Known").await;
    let mut stream = gateway
        .events(&format!("/v1/sessions/{session}/events"))
        .await;
    gateway
        .prompt(&session, "title text=epsilon; hang cancel=no")
        .await;
    loop {
        let event = stream.next().await.expect("it goes on");
        if event.data["update"]["title"] == "epsilon" {
            break;
        }
    }
    gateway.kill();
    // The output of the running turn, which followed its last record.
    spoil(&gateway, "epsilon");
    leave_open(&gateway);
    gateway.start();
    let now = gateway.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!(
        (&now["title"], &now["state"]),
        (&json!("Known"), &json!("idle")),
        "{now}"
    );
    let frames = gateway
        .events(&format!("/v1/sessions/{session}/events?follow=false"))
        .await
        .rest()
        .await;
    assert!(!resets(&frames).is_empty());
    let failed = one(&logged(frames), "prompt.failed").clone();
    assert_eq!(
        (&failed["promptId"], &failed["problem"]["code"]),
        (&json!("p2"), &json!("interrupted"))
    );
    assert_eq!(gateway.turn(&session, "echo zeta").await["text"], "zeta");
}

/// Damages the overflow pages of the session's longest runs: their links and their content.
fn spoil_chains(gateway: &Gateway, session: &str) {
    const PAGE: usize = 8192;
    let file = super::file(gateway);
    let log = open(gateway);
    let mut select = log
        .prepare("SELECT frames FROM run WHERE session = ?1")
        .expect("SQL");
    let runs = select
        .query_map([key_of(session)], |row| row.get(0))
        .expect("SQL");
    let runs: Vec<Vec<u8>> = runs.collect::<Result<_, _>>().expect("SQL");
    drop(select);
    drop(log);
    let mut bytes = std::fs::read(&file).expect("the log");
    let mut spoilt = 0;
    for page in bytes
        .chunks_mut(PAGE)
        .filter(|page| ![2, 5, 10, 13].contains(&page[0]))
    {
        if runs
            .iter()
            .any(|stored| memchr::memmem::find(stored, &page[5000..5064]).is_some())
        {
            page[..4].fill(0xff);
            page[5000] ^= 1;
            spoilt += 1;
        }
    }
    assert!(spoilt > 0, "no run goes on in another page");
    std::fs::write(&file, bytes).expect("the file is ours");
}

#[tokio::test]
async fn session_with_damaged_pages_can_be_deleted_without_a_stop() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let damaged = gateway.session("fake").await;
    let whole = gateway.session("fake").await;
    // Nothing of it can be packed.
    let long = Random::new(1).noise(160_000);
    gateway.turn(&damaged, &format!("echo {long}")).await;
    gateway.turn(&whole, "echo alpha").await;
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    spoil_chains(&gateway, &damaged);
    // A check that finds it refuses nothing.
    leave_open(&gateway);
    gateway.start();
    assert!(
        gateway
            .log()
            .contains("pages of events are damaged on disk"),
        "{}",
        gateway.log()
    );
    let path = format!("/v1/sessions/{damaged}");
    let frames = gateway
        .events(&format!("{path}/events?follow=false"))
        .await
        .rest()
        .await;
    assert!(!resets(&frames).is_empty());
    assert_eq!(
        gateway.call(Method::DELETE, &path).await.status,
        204,
        "{}",
        gateway.log()
    );
    assert!([404, 410].contains(&gateway.call(Method::GET, &path).await.status.as_u16()));
    assert!(
        gateway
            .log()
            .contains("they stay in the file, and readers skip them"),
        "{}",
        gateway.log()
    );
    assert_eq!(gateway.turn(&whole, "echo beta").await["text"], "beta");
    gateway.kill();
    gateway.start();
    assert!([404, 410].contains(&gateway.call(Method::GET, &path).await.status.as_u16()));
    assert_eq!(gateway.turn(&whole, "echo gamma").await["text"], "gamma");
}

#[tokio::test]
async fn session_whose_last_run_has_wrong_seqs_continues_without_duplicate_seqs() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let damaged = gateway.session("fake").await;
    let whole = gateway.session("fake").await;
    for session in [&damaged, &whole] {
        gateway.turn(session, "stream n=40").await;
    }
    let events = gateway.all_events(&damaged).await;
    let last = events
        .last()
        .and_then(|event| event["seq"].as_u64())
        .expect("a seq");
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    // One less than before: the run's events would be delivered again from this position.
    let sql = "UPDATE run SET last_seq = last_seq - 1 WHERE last_seq = ?1 AND session = ?2";
    let run = rusqlite::params![i64::try_from(last).expect("it is small"), key_of(&damaged)];
    assert_eq!(open(&gateway).execute(sql, run).expect("SQL"), 1);
    gateway.start();
    assert_eq!(gateway.turn(&damaged, "echo one").await["text"], "one");
    let after = gateway.all_events(&damaged).await;
    let again = after
        .iter()
        .filter(|event| event["seq"].as_u64().is_some_and(|seq| seq > last));
    let first = again
        .map(|event| event["seq"].as_u64().expect("a seq"))
        .min();
    assert_eq!(first, Some(last + 1), "{after:?}");
    let known = |event: &Value| {
        events
            .iter()
            .find(|known| known["seq"] == event["seq"])
            .cloned()
    };
    for event in after
        .iter()
        .filter(|event| event["seq"].as_u64().is_some_and(|seq| seq <= last))
    {
        assert_eq!(
            known(event).as_ref(),
            Some(event),
            "a seq has one event for ever"
        );
    }
    assert_eq!(gateway.turn(&whole, "echo two").await["text"], "two");
}
