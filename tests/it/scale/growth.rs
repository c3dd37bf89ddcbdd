//! The cost of many stored sessions and long logs. A start, a page of the list, and a session read only the data that
//! they need, independent of the size of the store. The test counts bytes that the gateway reads, because other
//! processes do not change this number.

use std::time::Duration;

use base::types::{Ids, SessionId, UserId};
use log::limits::Limits;
use log::store::{
    Batch, EventStore as _, Record, RecordState, RecordStore as _, Run, SqliteStore, Table,
};
use rusqlite::Connection;
use serde_json::Value;

use super::LIMITS;
use crate::support::replaced::replaced;
use crate::support::{Gateway, Random, Setup, eventually, figure, procfs};

const SESSIONS: usize = 2000;
/// Runs of each, of an event that fills most of a page and cannot be packed.
const RUNS: u64 = 3;
const EVENT: usize = 6000;
const PAGE: u64 = 8192;

fn log(gateway: &Gateway) -> std::path::PathBuf {
    gateway.path("data/private/log.sqlite")
}

/// The same record of another session, changed earlier.
fn copied(
    table: Table,
    (key, value): &Record,
    ids: (SessionId, SessionId),
    ago: i64,
) -> RecordState {
    let with = |bytes: &[u8]| {
        let text = replaced(
            bytes,
            ids.0.to_string().as_bytes(),
            ids.1.to_string().as_bytes(),
        );
        replaced(&text, ids.0.as_bytes(), ids.1.as_bytes())
    };
    let mut key = with(key);
    if table == Table::SessionIndex {
        // The newest sorts first.
        let at = key.len() - 24;
        let time = u64::from_be_bytes(key[at..at + 8].try_into().expect("eight bytes"));
        let time = time + u64::try_from(ago).expect("earlier");
        key[at..at + 8].copy_from_slice(&time.to_be_bytes());
    }
    RecordState::present(table, key, with(value))
}

/// Gives the log as many sessions as this one, each with a log of its own.
fn multiply(gateway: &Gateway, session: &str) {
    let ids = Ids::system();
    let store = SqliteStore::open(&log(gateway), ids.clone(), &Limits::default()).expect("the log");
    let first: SessionId = session.parse().expect("an id");
    let mut records = Vec::new();
    for table in [
        Table::Session,
        Table::SessionIndex,
        Table::Prompt,
        Table::Fold,
    ] {
        let found = store.scan(table, b"", None, 100).expect("readable");
        records.extend(found.into_iter().map(|record| (table, record)));
    }
    let epoch = store.epoch();
    let mut batch = Batch::default();
    let mut random = Random::new(1);
    for number in 1..=SESSIONS {
        let id = ids.session();
        let ago = i64::try_from(number).expect("few");
        batch.records.extend(
            records
                .iter()
                .map(|(table, record)| copied(*table, record, (first, id), ago)),
        );
        batch.runs.extend((1..=RUNS).map(|seq| {
            let data = format!(
                r#"{{"id":"{epoch}-{seq}","seq":{seq},"type":"test","x":"{}"}}"#,
                random.noise(EVENT)
            );
            let frames = format!("id: {epoch}-{seq}\nevent: test\ndata: {data}\n\n").into();
            Run {
                owner: UserId::owner(),
                session: id,
                first_seq: seq,
                last_seq: seq,
                last_pos: 0,
                frames,
            }
        }));
        if number % 200 == 0 {
            store
                .commit(&std::mem::take(&mut batch))
                .expect("the store takes it");
        }
    }
}

/// Bytes that the gateway reads from its start until it is ready.
fn read_at_start(gateway: &mut Gateway) -> u64 {
    gateway.start();
    procfs::read(gateway.pid())
}

/// Bytes that it reads meanwhile.
async fn read_for<T>(gateway: &Gateway, work: impl Future<Output = T>) -> (u64, T) {
    let before = procfs::read(gateway.pid());
    let done = work.await;
    (procfs::read(gateway.pid()) - before, done)
}

#[tokio::test]
async fn two_thousand_stored_sessions_are_loaded_on_demand() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    gateway.turn(&session, "hello").await;
    assert_eq!(gateway.stop(), Some(0));
    let small = read_at_start(&mut gateway);
    assert_eq!(gateway.stop(), Some(0));
    multiply(&gateway, &session);

    let many = read_at_start(&mut gateway);
    let stored = std::fs::metadata(log(&gateway)).expect("the log").len();
    assert!(stored > 2000 * RUNS * PAGE, "{stored}");
    // A row of the sums is about a hundred bytes; the runs that are not in them yet are about a thousand at most.
    let more = many - small;
    assert!(more < stored / 3, "a start read {more} bytes of {stored}");

    let (first, page) = read_for(&gateway, gateway.get("/v1/sessions?limit=20")).await;
    let cursor = page["nextCursor"]
        .as_str()
        .expect("there is more")
        .to_owned();
    let mut deep = cursor;
    for _ in 0..8 {
        let page = gateway
            .get(&format!("/v1/sessions?limit=200&cursor={deep}"))
            .await;
        deep = page["nextCursor"]
            .as_str()
            .expect("there is more")
            .to_owned();
    }
    let path = format!("/v1/sessions?limit=20&cursor={deep}");
    let (later, page) = read_for(&gateway, gateway.get(&path)).await;
    let ids: Vec<&Value> = page["sessions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| &one["sessionId"])
        .collect();
    assert_eq!(ids.len(), 20);
    let one = ids[7].as_str().expect("an id");
    let path = format!("/v1/sessions/{one}");
    let (opened, _) = read_for(&gateway, gateway.get(&path)).await;
    figure(&format!(
        "{many} bytes read at a start beside {small}, {first} and {later} for a page, {opened} for a session"
    ));
    for (what, read) in [
        ("the first page", first),
        ("a later page", later),
        ("a session", opened),
    ] {
        assert!(read < 20 * PAGE, "{what} read {read} bytes");
    }
}

#[tokio::test]
async fn a_turn_without_end_is_saved_on_its_way() {
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let session = gateway.session("fake").await;
    gateway
        .prompt(&session, "flood n=25000; hang cancel=no")
        .await;
    eventually(
        "the flood is in the log",
        Duration::from_mins(1),
        || async { (gateway.last_seq(&session).await > 25_000).then_some(()) },
    )
    .await;
    gateway.kill();
    let file = Connection::open(log(&gateway)).expect("the log");
    let select = "SELECT CAST(value AS TEXT) FROM record WHERE tbl = 1";
    let record: String = file
        .query_row(select, [], |row| row.get(0))
        .expect("one session");
    let record: Value = serde_json::from_str(&record).expect("JSON");
    drop(file);
    let exact = record["seq"].as_u64().expect("a seq");
    assert!(exact > 15_000, "a reload folds all events after {exact}");
    gateway.start();
    let events = gateway.lawful(&session).await;
    assert_eq!(
        events.last().expect("events")["seq"],
        events.len(),
        "nothing is missing"
    );
}
