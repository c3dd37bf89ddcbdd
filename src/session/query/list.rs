//! The list of a tenant's sessions, newest first.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::metadata::{self, MetadataFilter};
use crate::api::{SessionList, SessionState};
use crate::session::context::Context;
use crate::session::error::{InputError, ListError, SessionError};
use crate::session::record::{self, SessionRecord, SessionRecordView, index_prefix, session_key};
use crate::store::Table;
use crate::types::{AgentName, Principal, SessionId};

/// The filter, the position and the size of a page.
#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    pub agent: Option<AgentName>,
    pub state: Option<SessionState>,
    /// A substring of the title or the id, ignoring case.
    pub q: Option<String>,
    /// The exact working folder.
    pub cwd: Option<String>,
    pub metadata: MetadataFilter,
    /// Whether the list contains the sessions of tasks.
    pub tasks: bool,
    pub cursor: Option<String>,
    pub limit: usize,
}

/// The maximum number of records that one page scans. The page then ends early and has a cursor.
const MAX_SCANNED: usize = 5000;
const PAGE: usize = 256;

pub(in crate::session) async fn list(
    context: &Context,
    by: &Principal,
    query: &ListQuery,
) -> Result<SessionList, ListError> {
    let last_event_id = context.log.position();
    let prefix = index_prefix(&by.tenant);
    let after = query
        .cursor
        .as_deref()
        .map(|cursor| decode_cursor(cursor, &prefix))
        .transpose()?;
    let found = match metadata::candidates(context, &by.tenant, &query.metadata).await? {
        Some(candidates) => list_candidates(context, query, &candidates, after).await?,
        None => scan_index(context, query, prefix, after).await?,
    };
    let epoch = context.log.epoch();
    let summary = |record: &SessionRecord| record.summary(epoch.clone());
    let sessions = found.records.iter().map(summary).collect();
    Ok(SessionList {
        sessions,
        next_cursor: found.next.map(|key| URL_SAFE_NO_PAD.encode(key)),
        last_event_id,
    })
}

/// A page and the position of the next one.
struct ListPage {
    records: Vec<SessionRecord>,
    next: Option<Vec<u8>>,
}

/// Reads the sessions that the metadata index found, and sorts the matching ones.
async fn list_candidates(
    context: &Context,
    query: &ListQuery,
    candidates: &BTreeSet<SessionId>,
    after: Option<Vec<u8>>,
) -> Result<ListPage, SessionError> {
    let keys = candidates.iter().map(|id| session_key(*id)).collect();
    let stored = context.log.get_all(Table::Session, keys).await?;
    let mut fitting = BTreeMap::new();
    // A session that was deleted meanwhile has no record.
    for value in stored.iter().flatten() {
        if query.matches(&record::decode(value)?) {
            let record: SessionRecord = record::decode(value)?;
            fitting.insert(record.index_key(), record);
        }
    }
    let mut page = fitting
        .into_iter()
        .filter(|(key, _)| after.as_ref().is_none_or(|after| key > after));
    let (keys, records): (Vec<_>, Vec<_>) = page.by_ref().take(query.limit).unzip();
    let next = page.next().and_then(|_| keys.last().cloned());
    Ok(ListPage { records, next })
}

/// Scans the sessions by their last change and keeps the matching ones.
async fn scan_index(
    context: &Context,
    query: &ListQuery,
    prefix: Vec<u8>,
    mut after: Option<Vec<u8>>,
) -> Result<ListPage, SessionError> {
    let (mut records, mut looked_at) = (Vec::new(), 0);
    // One record more than requested shows whether there is another page.
    let size = if query.has_filter() {
        PAGE
    } else {
        PAGE.min(query.limit + 1)
    };
    loop {
        let page = context
            .log
            .scan(Table::SessionIndex, prefix.clone(), after.clone(), size)
            .await?;
        let last = page.len() < size;
        looked_at += page.len();
        for (key, value) in page {
            if records.len() == query.limit {
                return Ok(ListPage {
                    records,
                    next: after,
                });
            }
            if query.matches(&record::decode(&value)?) {
                records.push(record::decode(&value)?);
            }
            after = Some(key);
        }
        if last || looked_at >= MAX_SCANNED {
            return Ok(ListPage {
                records,
                next: after.filter(|_| !last),
            });
        }
    }
}

fn decode_cursor(cursor: &str, prefix: &[u8]) -> Result<Vec<u8>, InputError> {
    let key = URL_SAFE_NO_PAD
        .decode(cursor)
        .ok()
        .filter(|key| key.starts_with(prefix));
    key.ok_or_else(|| InputError::invalid("cursor", "not a cursor of this list"))
}

impl ListQuery {
    /// Whether the query can reject a record.
    fn has_filter(&self) -> bool {
        self.agent.is_some()
            || self.state.is_some()
            || self.q.is_some()
            || self.cwd.is_some()
            || !self.metadata.is_empty()
    }

    fn matches(&self, record: &SessionRecordView<'_>) -> bool {
        let contains = |text: &str, part: &str| text.to_lowercase().contains(part);
        !record.unfinished
            && (self.tasks || record.task.is_none())
            && self
                .agent
                .as_ref()
                .is_none_or(|agent| *agent == record.agent)
            && self.state.is_none_or(|state| state == record.state)
            && self
                .cwd
                .as_ref()
                .is_none_or(|cwd| record.cwd == cwd.as_str())
            && (self.metadata.is_empty()
                || serde_json::from_str(record.metadata.get())
                    .is_ok_and(|metadata| metadata::matches(&self.metadata, &metadata)))
            && self.q.as_ref().map(|q| q.to_lowercase()).is_none_or(|q| {
                record
                    .title
                    .as_deref()
                    .is_some_and(|title| contains(title, &q))
                    || contains(&record.session_id.to_string(), &q)
            })
    }
}
