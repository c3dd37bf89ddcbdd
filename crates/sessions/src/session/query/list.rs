//! The list of a user's sessions, by their last change or by their creation, and the filter by metadata.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use crate::session::context::Context;
use crate::session::error::{InputError, ListError, SessionError};
use crate::session::metadata_index::{prefix, text};
use crate::session::record::{
    self, SessionRecord, SessionRecordView, created_key, index_key, session_key,
};
use base::types::{AgentName, Principal, SessionId, UserId};
use events::api::{SessionList, SessionState};
use log::eventlog::{MAX_SCANNED, RecordPages, Selected, user_prefix};
use log::store::Table;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ListOrder {
    /// The latest change first. A session that changes moves to the beginning.
    #[default]
    Updated,
    /// The oldest session first. No session moves.
    Created,
}

impl ListOrder {
    fn table(self) -> Table {
        match self {
            Self::Updated => Table::SessionIndex,
            Self::Created => Table::CreatedSession,
        }
    }

    /// The sort key of a session in the list of a user. The user owns the session or has a grant.
    fn key(self, user: &UserId, record: &SessionRecord) -> Vec<u8> {
        match self {
            Self::Updated => index_key(user, record.last_activity_at, record.session_id),
            // An id begins with the time of the creation.
            Self::Created => created_key(user, record.session_id),
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct ListQuery {
    pub agent: Option<AgentName>,
    pub state: Option<SessionState>,
    /// A substring of the title or the id, ignoring case.
    pub q: Option<String>,
    pub cwd: Option<String>,
    pub metadata: MetadataFilter,
    /// Whether the list contains the sessions of tasks.
    pub tasks: bool,
    /// Whether the list has the sessions of others that are shared with the user, in place of the user's own sessions.
    pub shared: bool,
    pub order: ListOrder,
    pub cursor: Option<String>,
    pub limit: usize,
}

pub(crate) async fn list(
    context: &Context,
    by: &Principal,
    query: &ListQuery,
) -> Result<SessionList, ListError> {
    let last_event_id = context.log.position();
    let after = query
        .cursor
        .as_deref()
        .map(|cursor| decode_cursor(cursor, &by.user))
        .transpose()?;
    let candidates = if query.shared {
        let shared = context.log.shared_with(&by.user).into_iter();
        Some(shared.map(|(id, _)| id).collect())
    } else {
        candidates(context, &by.user, &query.metadata).await?
    };
    let found = match candidates {
        Some(candidates) => list_candidates(context, query, &by.user, &candidates, after).await?,
        None if query.order == ListOrder::Created => {
            scan_created(context, query, &by.user, after).await?
        }
        None => scan(context, query, &by.user, after).await?,
    };
    let epoch = context.log.epoch();
    let summary = |record: &SessionRecord| record.summary(epoch.of_session(record.session_id));
    let sessions = found.entries.iter().map(summary).collect();
    Ok(SessionList {
        sessions,
        next_cursor: found.next.map(|key| URL_SAFE_NO_PAD.encode(key)),
        last_event_id,
    })
}

async fn list_candidates(
    context: &Context,
    query: &ListQuery,
    user: &UserId,
    candidates: &BTreeSet<SessionId>,
    after: Option<Vec<u8>>,
) -> Result<Selected<SessionRecord>, SessionError> {
    let keys = candidates.iter().map(|id| session_key(*id)).collect();
    let stored = context.log.get_all(Table::Session, keys).await?;
    let mut fitting = BTreeMap::new();
    // A session that was deleted meanwhile has no record.
    for value in stored.iter().flatten() {
        if query.matches(&record::decode(value)?) {
            let record: SessionRecord = record::decode(value)?;
            fitting.insert(query.order.key(user, &record), record);
        }
    }
    let mut page = fitting
        .into_iter()
        .filter(|(key, _)| after.as_ref().is_none_or(|after| key > after));
    let (keys, entries): (Vec<_>, Vec<_>) = page.by_ref().take(query.limit).unzip();
    let next = page.next().and_then(|_| keys.last().cloned());
    Ok(Selected { entries, next })
}

async fn scan(
    context: &Context,
    query: &ListQuery,
    user: &UserId,
    after: Option<Vec<u8>>,
) -> Result<Selected<SessionRecord>, SessionError> {
    // One record more than requested shows whether there is another page.
    let size = if query.has_filter() {
        usize::MAX
    } else {
        query.limit + 1
    };
    RecordPages::below(&context.log, query.order.table(), user_prefix(user))
        .after(after)
        .sized(size)
        .select(query.limit, |value| -> Result<_, SessionError> {
            let matches = query.matches(&record::decode(value)?);
            Ok(matches.then(|| record::decode(value)).transpose()?)
        })
        .await
}

/// Reads the sessions of an index that has no records.
async fn scan_created(
    context: &Context,
    query: &ListQuery,
    user: &UserId,
    after: Option<Vec<u8>>,
) -> Result<Selected<SessionRecord>, SessionError> {
    let prefix = user_prefix(user);
    let mut pages = RecordPages::below(&context.log, query.order.table(), prefix.clone())
        .after(after)
        .sized(query.limit + 1);
    let mut entries: Vec<SessionRecord> = Vec::new();
    let mut scanned = 0;
    while let Some(page) = pages.next_raw().await? {
        let ids = page.iter().map(|(key, _)| key[prefix.len()..].to_vec());
        let stored = context.log.get_all(Table::Session, ids.collect()).await?;
        // A session that was deleted meanwhile has no record.
        for value in stored.iter().flatten() {
            if !query.matches(&record::decode(value)?) {
                continue;
            }
            if entries.len() == query.limit {
                let next = entries.last().map(|last| query.order.key(user, last));
                return Ok(Selected { entries, next });
            }
            entries.push(record::decode(value)?);
        }
        scanned += page.len();
        if scanned >= MAX_SCANNED {
            let next = page.last().map(|(key, _)| key.clone());
            return Ok(Selected { entries, next });
        }
    }
    Ok(Selected {
        entries,
        next: None,
    })
}

fn decode_cursor(cursor: &str, user: &UserId) -> Result<Vec<u8>, InputError> {
    let key = URL_SAFE_NO_PAD.decode(cursor).ok();
    key.filter(|key| key.starts_with(&user_prefix(user)))
        .ok_or_else(|| InputError::invalid("cursor", "not a cursor of this list"))
}

impl ListQuery {
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
                    .is_ok_and(|metadata| matches(&self.metadata, &metadata)))
            && self.q.as_ref().map(|q| q.to_lowercase()).is_none_or(|q| {
                record
                    .title
                    .as_deref()
                    .is_some_and(|title| contains(title, &q))
                    || contains(&record.session_id.to_string(), &q)
            })
    }
}

/// The maximum number of entries that a list reads for one value. Above it, the list scans the sessions.
const MAX_SELECTIVE_ENTRIES: usize = 1000;

/// The members that a session's metadata must have. All of them must match.
pub type MetadataFilter = Vec<(String, String)>;

pub(super) fn matches(filter: &MetadataFilter, metadata: &Map<String, Value>) -> bool {
    filter.iter().all(|(key, expected)| {
        metadata
            .get(key)
            .and_then(text)
            .is_some_and(|text| text == *expected)
    })
}

/// The sessions that match the selective values of a filter. `None` if no value is selective.
pub(super) async fn candidates(
    context: &Context,
    user: &UserId,
    filter: &MetadataFilter,
) -> Result<Option<BTreeSet<SessionId>>, SessionError> {
    let mut found: Option<BTreeSet<SessionId>> = None;
    for (key, value) in filter {
        let prefix = prefix(user, key, value);
        let length = prefix.len();
        let rows = context
            .log
            .scan(
                Table::SessionMetadata,
                prefix,
                None,
                MAX_SELECTIVE_ENTRIES + 1,
            )
            .await?;
        if rows.len() > MAX_SELECTIVE_ENTRIES {
            continue;
        }
        let id = |key: &[u8]| {
            uuid::Uuid::from_slice(key.get(length..)?)
                .ok()
                .map(SessionId::from_uuid)
        };
        let ids = rows.iter().filter_map(|(key, _)| id(key));
        found = Some(match found {
            Some(found) => ids.filter(|id| found.contains(id)).collect(),
            None => ids.collect(),
        });
        if found.as_ref().is_some_and(BTreeSet::is_empty) {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn filters_compare_scalars_by_their_text() {
        let metadata =
            json!({ "a": "1", "b": 1, "c": 1.0, "d": true, "e": null, "f": [1], "g": { "a": 1 } });
        let Value::Object(metadata) = metadata else {
            unreachable!()
        };
        let fits =
            |key: &str, value: &str| matches(&vec![(key.to_owned(), value.to_owned())], &metadata);
        assert!(fits("a", "1") && fits("b", "1") && fits("c", "1.0") && fits("d", "true"));
        for key in ["e", "f", "g", "h"] {
            assert!(!fits(key, "1") && !fits(key, "null"), "{key}");
        }
    }
}
