//! Records in JSON whose keys begin with their tenant.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{EventLog, ReadError};
use crate::store::Table;
use crate::types::Tenant;

/// The number of records on a page.
const PAGE: usize = 64;

/// All records of a table, page by page.
#[derive(Debug)]
pub struct TenantRecords<'a> {
    log: &'a EventLog,
    table: Table,
    after: Option<Vec<u8>>,
}

impl<'a> TenantRecords<'a> {
    pub fn of(log: &'a EventLog, table: Table) -> Self {
        Self {
            log,
            table,
            after: None,
        }
    }

    /// The records of the next page with their tenants, or `None` after the last page.
    pub async fn next<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<Vec<(Tenant, T)>>, ReadError> {
        let page = self
            .log
            .scan(self.table, Vec::new(), self.after.take(), PAGE)
            .await?;
        let Some((last, _)) = page.last() else {
            return Ok(None);
        };
        self.after = Some(last.clone());
        Ok(Some(
            page.iter()
                .filter_map(|(key, value)| Some((tenant_of(key)?, from_json(value)?)))
                .collect(),
        ))
    }
}

/// The prefix of the keys of a tenant.
pub fn tenant_prefix(tenant: &Tenant) -> Vec<u8> {
    [tenant.as_str().as_bytes(), &[0]].concat()
}

/// The key of a record of a tenant.
pub fn tenant_key(tenant: &Tenant, id: u128) -> Vec<u8> {
    [&tenant_prefix(tenant)[..], &id.to_be_bytes()].concat()
}

fn tenant_of(key: &[u8]) -> Option<Tenant> {
    let end = key.iter().position(|byte| *byte == 0)?;
    Some(Tenant::new(std::str::from_utf8(&key[..end]).ok()?))
}

pub fn to_json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record has string keys and serializes")
}

/// A record that cannot be read is skipped: it cannot be repaired.
pub fn from_json<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}
