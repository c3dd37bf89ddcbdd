//! A filter by metadata reads the sessions that it finds, however many others there are.

use std::time::{Duration, Instant};

use base::types::{Ids, SessionId, UserId};
use log::limits::Limits;
use log::store::{
    Batch, EventStore as _, Record, RecordState, RecordStore as _, Run, SqliteStore, Table,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::{ALONE, LIMITS};
use crate::support::replaced::replaced;
use crate::support::{Gateway, Setup, figure};

const SESSIONS: usize = 10_000;
/// Sessions of the user that is looked for.
const FOUND: usize = 10;

fn user(number: usize) -> String {
    format!("user-{number:05}")
}

fn user_of(number: usize) -> String {
    user(1 + number % (SESSIONS / FOUND))
}

/// The entry of a session in the metadata index.
fn indexed(owner: &UserId, id: SessionId, key: &str, value: &str) -> RecordState {
    let hash = Sha256::new()
        .chain_update((key.len() as u64).to_be_bytes())
        .chain_update(key)
        .chain_update(value);
    let key = [
        owner.as_str().as_bytes(),
        b"\0",
        &hash.finalize()[..16],
        id.as_bytes(),
    ]
    .concat();
    RecordState::present(Table::SessionMetadata, key, "")
}

/// The record of another session of another user, changed earlier.
fn copied(
    table: Table,
    (key, value): &Record,
    ids: (SessionId, SessionId),
    number: usize,
) -> RecordState {
    let with = |bytes: &[u8]| {
        let text = replaced(
            bytes,
            ids.0.to_string().as_bytes(),
            ids.1.to_string().as_bytes(),
        );
        let text = replaced(&text, ids.0.as_bytes(), ids.1.as_bytes());
        replaced(&text, user(0).as_bytes(), user_of(number).as_bytes())
    };
    let mut key = with(key);
    if table == Table::SessionIndex {
        let at = key.len() - 24;
        let time = u64::from_be_bytes(key[at..at + 8].try_into().expect("eight bytes"));
        key[at..at + 8].copy_from_slice(&(time + number as u64).to_be_bytes());
    }
    RecordState::present(table, key, with(value))
}

/// Adds ten thousand copies of this session to the log, ten for each user.
fn multiply(gateway: &Gateway, session: &str) {
    let ids = Ids::system();
    let path = gateway.path("data/private/log.sqlite");
    let store = SqliteStore::open(&path, ids.clone(), &Limits::default()).expect("the log");
    let first: SessionId = session.parse().expect("an id");
    let mut records = Vec::new();
    for table in [Table::Session, Table::SessionIndex, Table::Fold] {
        let found = store.scan(table, b"", None, 100).expect("readable");
        records.extend(found.into_iter().map(|record| (table, record)));
    }
    let epoch = store.epoch();
    let mut batch = Batch::default();
    for number in 1..=SESSIONS {
        let id = ids.session();
        batch.records.extend(
            records
                .iter()
                .map(|(table, record)| copied(*table, record, (first, id), number)),
        );
        let frames = format!(
            "id: {epoch}-1\nevent: test\ndata: {{\"id\":\"{epoch}-1\",\"seq\":1,\"type\":\"test\"}}\n\n"
        );
        let owner = UserId::owner();
        batch
            .records
            .push(indexed(&owner, id, "user", &user_of(number)));
        batch.records.push(indexed(&owner, id, "app", "chat"));
        batch.runs.push(Run {
            owner,
            session: id,
            first_seq: 1,
            last_seq: 1,
            last_pos: 0,
            frames: frames.into(),
        });
        if number % 1000 == 0 {
            store
                .commit(&std::mem::take(&mut batch))
                .expect("the store takes it");
        }
    }
}

/// The median time of some calls, and the result of the last one.
async fn median(gateway: &Gateway, path: &str) -> (Duration, usize) {
    let mut took = Vec::new();
    let mut found = 0;
    for _ in 0..15 {
        let began = Instant::now();
        let list = gateway.get(path).await;
        took.push(began.elapsed());
        found = list["sessions"].as_array().expect("a list").len();
    }
    took.sort();
    (took[took.len() / 2], found)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_of_ten_thousand_sessions_are_found_by_metadata() {
    let _alone = ALONE.lock().await;
    let mut gateway = Setup::fake(&[]).settings(LIMITS).start();
    let body = json!({ "agent": "fake", "metadata": { "user": user(0), "app": "chat" } });
    let answer = gateway.posted("/v1/sessions", &[], &body).await;
    let session = answer.body["sessionId"].as_str().expect("an id").to_owned();
    assert_eq!(gateway.stop(), Some(0));
    multiply(&gateway, &session);
    let began = Instant::now();
    gateway.start();
    let start = began.elapsed();

    let (whole, shown) = median(&gateway, "/v1/sessions?limit=10").await;
    assert_eq!(shown, 10);
    let path = format!(
        "/v1/sessions?metadata.user={}&metadata.app=chat&limit=50",
        user(500)
    );
    let (filtered, found) = median(&gateway, &path).await;
    assert_eq!(found, FOUND);
    let (common, shown) = median(&gateway, "/v1/sessions?metadata.app=chat&limit=10").await;
    assert_eq!(shown, 10);
    let (walked, _) = median(&gateway, "/v1/sessions?q=no-such-title&limit=10").await;
    figure(&format!(
        "{SESSIONS} sessions, start in {start:?}: {FOUND} found by metadata in {filtered:?}, 10 by a value that all \
         have in {common:?}, the first 10 of all in {whole:?}, a search that looks at half of them {walked:?}"
    ));
    assert!(
        filtered < walked,
        "the index is no better than a walk: {filtered:?} and {walked:?}"
    );
}
