//! The record of a request. The model only needs a record that is committed with its event.

use crate::api::{PendingRequest, Resolution};
use crate::eventlog::Records;
use crate::store::{Put, Table};
use crate::types::{RequestId, SessionId};

pub(super) struct RequestRecord {
    pub(super) pending: Option<PendingRequest>,
    pub(super) resolution: Option<Resolution>,
    pub(super) by: Option<String>,
}

impl RequestRecord {
    pub(super) fn put(&self, id: SessionId, request: RequestId, records: &mut Records) {
        let key = [id.as_bytes().as_slice(), &request.number().to_be_bytes()].concat();
        let value = format!("{} {:?} {:?}", self.pending.is_some(), self.resolution, self.by);
        records.puts.push(Put { table: Table::Request, key, value: value.into() });
    }
}
