//! The record of a request. The model only needs a record that is committed with its event.

use crate::api::{PendingRequest, Resolution};
use crate::eventlog::Records;
use crate::store::{Put, Table};
use crate::types::{RequestId, SessionId};

pub(super) struct RequestRecord {
    resolution: Option<Resolution>,
    by: Option<String>,
}

impl RequestRecord {
    pub(super) fn open(_request: &PendingRequest) -> Self {
        Self { resolution: None, by: None }
    }

    pub(super) fn resolved(resolution: Resolution, by: Option<String>) -> Self {
        Self { resolution: Some(resolution), by }
    }

    pub(super) fn put(&self, id: SessionId, request: RequestId, records: &mut Records) {
        let key = [id.as_bytes().as_slice(), &request.number().to_be_bytes()].concat();
        let value = format!("{} {:?} {:?}", self.resolution.is_none(), self.resolution, self.by);
        records.puts.push(Put { table: Table::Request, key, value: value.into() });
    }
}
