//! Copies the template, many copies per transaction. The runs of the copies alternate, as for concurrent sessions.

use std::path::Path;
use std::time::Instant;

use base::types::{Epoch, Ids, PromptId, SessionId, Timestamp, UserId};
use events::event::{Event, Framer, Members};
use log::limits::Limits;
use log::store::{Batch, EventStore as _, RecordState, RecordStore as _, Run, SqliteStore, Table};
use serde_json::{Value, json};

use super::replaced::replaced;
use super::template::{TITLE, Template, log};
use super::{Outcome, Plan};

/// The number of concurrent sessions.
const AT_ONCE: u64 = 64;
/// The number of runs in a transaction.
const RUNS: usize = 128;

/// A session that is being written.
struct Copy {
    number: u64,
    id: SessionId,
    last_activity_at: Timestamp,
    framer: Framer,
    events: u64,
    last_seq: u64,
}

pub(crate) fn fill(folder: &Path, template: &Template, plan: &Plan) -> Outcome<Value> {
    let began = Instant::now();
    let ids = Ids::system();
    let store = SqliteStore::open(&log(folder), ids.clone(), &Limits::default())?;
    let epoch = store.epoch();
    let mut written = 0;
    let mut number = 0;
    while number <= plan.sessions {
        let count = AT_ONCE.min(plan.sessions + 1 - number);
        let mut copies: Vec<Copy> = (number..number + count)
            .map(|number| Copy::new(number, &ids, &epoch, plan))
            .collect();
        number += count;
        let mut batch = Batch::default();
        while copies.iter().any(|copy| copy.last_seq < copy.events) {
            for copy in copies.iter_mut().filter(|copy| copy.last_seq < copy.events) {
                batch.runs.push(copy.run(template, &epoch, plan));
                if copy.last_seq == copy.events {
                    batch.records.extend(copy.records(template));
                }
                if batch.runs.len() >= RUNS {
                    written += commit(&store, &mut batch)?;
                }
            }
        }
        written += commit(&store, &mut batch)?;
    }
    drop(store);
    let seconds = began.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(log(folder))?.len();
    Ok(json!({
        "figure": "fill", "sessions": plan.sessions, "events": written, "bytes": bytes, "seconds": seconds,
        "eventsPerSecond": per_second(written, seconds),
    }))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a figure to read"
)]
fn per_second(count: u64, seconds: f64) -> u64 {
    (count as f64 / seconds) as u64
}

fn commit(store: &SqliteStore, batch: &mut Batch) -> Outcome<u64> {
    let batch = std::mem::take(batch);
    store.commit(&batch)?;
    Ok(batch.runs.iter().map(Run::count).sum())
}

impl Copy {
    fn new(number: u64, ids: &Ids, epoch: &Epoch, plan: &Plan) -> Self {
        let id = ids.session();
        let events = if number == 0 { plan.long } else { plan.events };
        let ago =
            i64::try_from(plan.sessions - number.min(plan.sessions)).unwrap_or_default() * 100;
        let last_activity_at = Timestamp::from_millis(ids.now().as_millis() - ago);
        Self {
            number,
            id,
            last_activity_at,
            framer: Framer::new(epoch, id),
            events,
            last_seq: 0,
        }
    }

    /// The next run of this copy: first the template's events, then updates.
    fn run(&mut self, template: &Template, epoch: &Epoch, plan: &Plan) -> Run {
        let first_seq = self.last_seq + 1;
        let mut frames = Vec::new();
        if first_seq == 1 {
            frames = self.replace(template, &template.frames);
            self.last_seq = template.events;
        }
        let end = (first_seq + plan.run - 1).min(self.events);
        debug_assert!(epoch.as_str().len() < 64, "an epoch is short");
        while self.last_seq < end {
            self.last_seq += 1;
            let text = r#""update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"The quick brown fox jumps over the lazy dog, and once more so."}}"#;
            let event = Event {
                kind: "session.update",
                prompt: Some(PromptId::new(1)),
                members: Members::whole(text.as_bytes()),
            };
            self.framer
                .frame(&mut frames, self.last_seq, &event, self.last_activity_at);
        }
        Run {
            owner: UserId::owner(),
            session: self.id,
            first_seq,
            last_seq: self.last_seq,
            last_pos: 0,
            frames: frames.into(),
        }
    }

    fn records(&self, template: &Template) -> Vec<RecordState> {
        let newest_first =
            (!u64::try_from(self.last_activity_at.as_millis()).unwrap_or_default()).to_be_bytes();
        let copied = |(table, (key, value)): &(Table, (Vec<u8>, bytes::Bytes))| {
            let mut key = self.replace(template, key);
            if *table == Table::SessionIndex {
                let at = key.len() - 24;
                key[at..at + 8].copy_from_slice(&newest_first);
            }
            let mut value = self.replace(template, value);
            let exact = format!("\"seq\":{}", template.events);
            value = replaced(
                &value,
                exact.as_bytes(),
                format!("\"seq\":{}", self.last_seq).as_bytes(),
            );
            value = replaced(
                &value,
                template.last_activity_at.as_bytes(),
                self.last_activity_at.to_string().as_bytes(),
            );
            RecordState::present(*table, key, value)
        };
        template.records.iter().map(copied).collect()
    }

    /// The same bytes with the id and title of this copy.
    fn replace(&self, template: &Template, bytes: &[u8]) -> Vec<u8> {
        let text = replaced(
            bytes,
            template.id.to_string().as_bytes(),
            self.id.to_string().as_bytes(),
        );
        let raw = replaced(&text, template.id.as_bytes(), self.id.as_bytes());
        replaced(&raw, TITLE.as_bytes(), title(self.number).as_bytes())
    }
}

/// The title of the session with this number. The long session has 0.
pub(crate) fn title(number: u64) -> String {
    format!("Growth {number:07}")
}
