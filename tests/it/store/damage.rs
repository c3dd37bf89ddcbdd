//! Flipped bits. Runs and the write-ahead log have checksums, and SQLite checks the structure of the rest of the
//! file. For every bit, the gateway serves no wrong bytes: it exits with a message or works.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use base::types::{Ids, SessionId};
use log::store::{EventStore as _, OpenError, ReadError, Run, SqliteStore};
use memchr::memmem;
use reqwest::Method;
use serde_json::{Value, json};

use super::crash::folder;
use super::script::{Script, forms, limits, open, session};
use super::{LIMITS, LOG, beginning};
use crate::support::{Gateway, Random, Setup, figure};

const PAGE: usize = 8192;
const FLIPS: usize = 400;

/// Events by session and seq, as bytes without their ids: a flip in the epoch changes the ids of all.
type Events = BTreeMap<(SessionId, u64), Vec<u8>>;

fn events(runs: &[Run]) -> Events {
    runs.iter()
        .flat_map(|run| {
            run.events()
                .map(|event| ((run.session, event.seq()), without_id(event.raw_json())))
        })
        .collect()
}

fn without_id(data: &[u8]) -> Vec<u8> {
    let at = memmem::find(data, b"\"seq\"").expect("an event has a seq");
    data[at..].to_vec()
}

/// The readable content: every event equals a written event, or is reported as damaged.
fn read(store: &SqliteStore, whole: &Events) -> usize {
    let mut reported = 0;
    for number in 1..=5 {
        let mut after = 0;
        while let Some(last) = store
            .usage(session(number))
            .map(|log| log.last_seq)
            .filter(|last| *last > after)
        {
            match store.read(session(number), after, 1) {
                Ok(runs) => {
                    for (id, bytes) in events(&runs) {
                        assert_eq!(
                            whole.get(&id),
                            Some(&bytes),
                            "other bytes than were written: {id:?}"
                        );
                    }
                    after = runs.last().map_or(last, |run| run.last_seq);
                }
                Err(ReadError::Corrupt { .. } | ReadError::Failed(_)) => {
                    reported += 1;
                    after += 1;
                }
            }
        }
    }
    reported
}

#[test]
fn a_flipped_bit_never_becomes_an_event() {
    let (seed, mut random) = Random::seeded();
    figure(&format!("SEED={seed}"));
    let copy = folder();
    let folder = folder();
    let path = folder.path().join("log.sqlite");
    let damaged = copy.path().join("log.sqlite");
    let store = open(&path);
    let mut script = Script::new(seed);
    let of_events = || -> u64 {
        (1..=5)
            .filter_map(|n| store.usage(session(n)))
            .map(|log| log.bytes)
            .sum()
    };
    // It drops and erases too, and there is to be something to hit.
    for step in 0..1000 {
        if step >= 40 && of_events() > 40_000 {
            break;
        }
        script.next().take(&store).expect("the disk works");
    }
    let whole = events(
        &store
            .read_all(0, usize::MAX, &|_, _| true)
            .expect("readable")
            .runs,
    );
    let of_events = of_events();
    let [packed, plain] = forms(&store);
    assert!(
        packed > 0 && plain > 0,
        "{packed} runs were packed, and {plain} were not"
    );
    drop(store);
    let bytes = fs::read(&path).expect("it is there");
    let mut refused = 0;
    let mut reported = 0;
    for _ in 0..FLIPS {
        let mut bytes = bytes.clone();
        let at = usize::try_from(random.below(bytes.len() as u64)).expect("it is an index");
        bytes[at] ^= 1 << random.below(8);
        for entry in fs::read_dir(copy.path()).expect("the folder is ours") {
            fs::remove_file(entry.expect("it is there").path()).expect("the folder is ours");
        }
        fs::write(&damaged, bytes).expect("the folder is ours");
        match SqliteStore::open(&damaged, Ids::system(), &limits()) {
            Ok(store) => reported += usize::from(read(&store, &whole) > 0),
            Err(OpenError::Io(error)) => panic!("the disk works: {error}"),
            Err(_) => refused += 1,
        }
    }
    figure(&format!(
        "{FLIPS} flips of {} bytes, {of_events} of events: {refused} files did not open, {reported} reported damage",
        bytes.len()
    ));
    let hit = FLIPS * usize::try_from(of_events).expect("a small file") / bytes.len();
    assert!(
        hit > FLIPS / 10 && reported > hit / 2,
        "about {hit} hit events, {reported} were reported"
    );
}

/// An offset in the file at which the test flips a bit.
fn offset_of(bytes: &[u8], what: &str, run: &[u8]) -> usize {
    let page = |kind: u8, holds: &[u8]| {
        let pages = bytes.chunks(PAGE).enumerate().skip(1);
        let mut pages = pages.filter_map(|(n, page)| {
            let at = memmem::find(page, holds).filter(|_| page[0] == kind);
            Some(n * PAGE + at?)
        });
        pages.next().expect("there is one")
    };
    match what {
        "a run" => page(0x0d, run) + 40,
        // A leaf of an index, in its list of cells: nothing is where it should be.
        "an index" => page(0x0a, b"") + 9,
        "the schema" => 150,
        "the header" => 17,
        _ => panic!("no such place: {what}"),
    }
}

/// The gateway's response for a session, after the part that it does not serve.
async fn readable(gateway: &Gateway, session: &str) -> Vec<Value> {
    let path = format!("/v1/sessions/{session}/events?limit=1000");
    let response = gateway
        .request(Method::GET, &path)
        .send()
        .await
        .expect("an answer");
    let status = response.status().as_u16();
    let body: Value = response.json().await.expect("JSON, whatever it is");
    assert!([200, 404, 410, 500].contains(&status), "{status} {body}");
    body["events"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn gateway_on_a_damaged_file_serves_intact_data_or_reports_the_error() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let sessions = [gateway.session("fake").await, gateway.session("fake").await];
    let mut whole: BTreeMap<(String, u64), Value> = BTreeMap::new();
    for session in &sessions {
        for _ in 0..5 {
            gateway.turn(session, "stream n=40; tool; usage").await;
        }
    }
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    let path = gateway.path(LOG);
    gateway.start();
    for session in &sessions {
        for event in gateway.all_events(session).await {
            whole.insert(
                (session.clone(), event["seq"].as_u64().expect("a seq")),
                event,
            );
        }
    }
    assert_eq!(gateway.stop(), Some(0), "{}", gateway.log());
    let run = beginning(&path, &sessions[0], 9);
    let bytes = fs::read(&path).expect("a clean end leaves one file");
    for what in ["a run", "an index", "the schema", "the header"] {
        flip(&path, &bytes, offset_of(&bytes, what, &run));
        if let Err(code) = gateway.try_start() {
            let log = gateway.log();
            let why = log.lines().last().unwrap_or_default();
            assert!(
                code == Some(1) && why.contains("could not open the log"),
                "{what}: {code:?} {log}"
            );
            figure(&format!("{what}: {why}"));
            assert_ne!(what, "a run", "one session's damage is not the others' end");
        } else {
            let mut given = 0;
            for session in &sessions {
                for event in readable(&gateway, session).await {
                    let Some(seq) = event["seq"].as_u64() else {
                        assert_eq!(
                            (&event["type"], &event["reason"]),
                            (&json!("reset"), &json!("damaged"))
                        );
                        continue;
                    };
                    let id = (session.clone(), seq);
                    if let Some(written) = whole.get(&id) {
                        assert_eq!(&event, written, "{what}: other bytes than were written");
                        given += 1;
                    }
                }
            }
            figure(&format!(
                "{what}: {given} of {} events are given",
                whole.len()
            ));
            assert!(
                what != "a run" || given >= whole.len() / 2 - 20,
                "the other session's are"
            );
            gateway.kill();
        }
        assert!(
            !gateway.log().contains("panicked"),
            "{what}: {}",
            gateway.log()
        );
    }
    fs::write(&path, &bytes).expect("the folder is ours");
    gateway.start();
    assert_eq!(
        gateway.all_events(&sessions[1]).await.len(),
        whole.keys().filter(|(of, _)| *of == sessions[1]).count()
    );
}

/// The file with one other bit, and nothing beside it.
fn flip(path: &Path, bytes: &[u8], at: usize) {
    for suffix in ["-wal", "-shm"] {
        let beside = format!("{}{suffix}", path.display());
        assert!(
            fs::remove_file(&beside).is_ok() || !Path::new(&beside).exists(),
            "{beside}"
        );
    }
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 4;
    fs::write(path, bytes).expect("the folder is ours");
}

/// A flipped bit in durable data loses the events after it in the log, and invents none.
#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_the_write_ahead_log_ends_it_there() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    let other = gateway.session("fake").await;
    // During writes, no checkpoint runs.
    gateway.prompt(&other, "slow chunks=4000 ms=20").await;
    for _ in 0..4 {
        gateway.turn(&session, "stream n=40").await;
    }
    let before = gateway.log_texts(&session, 0).await;
    gateway.kill();
    let wal = gateway.path(&format!("{LOG}-wal"));
    let mut bytes = fs::read(&wal).expect("a killed gateway leaves its log");
    let event: Value = serde_json::from_str(&before[before.len() - 20]).expect("JSON");
    // To open it is to move the log, so that is done with a copy.
    let copy = folder();
    for suffix in ["", "-wal"] {
        let to = copy.path().join(format!("log.sqlite{suffix}"));
        fs::copy(gateway.path(&format!("{LOG}{suffix}")), to).expect("the folders are ours");
    }
    let run = beginning(
        &copy.path().join("log.sqlite"),
        &session,
        event["seq"].as_u64().expect("a seq"),
    );
    let at = memmem::find(&bytes, &run).expect("it is in the log that was not moved yet");
    bytes[at + 30] ^= 4;
    fs::write(&wal, bytes).expect("the folder is ours");
    gateway.start();
    gateway.lawful(&session).await;
    let after = gateway.log_texts(&session, 0).await;
    let same = after
        .iter()
        .zip(&before)
        .take_while(|(after, before)| after == before)
        .count();
    figure(&format!("{same} of {} events are left", before.len()));
    assert!(same > 0 && same < before.len());
    assert!(
        !after[same..]
            .iter()
            .any(|text| text.contains("\"type\":\"session.update\"")),
        "nothing is made up"
    );
}
