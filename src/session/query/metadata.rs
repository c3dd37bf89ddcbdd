//! Finds the sessions of a tenant by the values of their metadata.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::session::context::Context;
use crate::session::error::SessionError;
use crate::session::metadata_index::{prefix, text};
use crate::store::Table;
use crate::types::{SessionId, Tenant};

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
    tenant: &Tenant,
    filter: &MetadataFilter,
) -> Result<Option<BTreeSet<SessionId>>, SessionError> {
    let mut found: Option<BTreeSet<SessionId>> = None;
    for (key, value) in filter {
        let prefix = prefix(tenant, key, value);
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
            Some(former) => ids.filter(|id| former.contains(id)).collect(),
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
