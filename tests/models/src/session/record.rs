//! The record of a request. The model only needs a record that is committed with its event.

use crate::acp::Outcome;
use crate::api::{PendingRequest, Resolution};
use crate::eventlog::Records;
use crate::store::{Put, Table};
use crate::types::{RequestId, SessionId};

pub(super) struct RequestRecord(String);

/// The model has no process that outlives the gateway.
pub(super) enum PeerRequest {}

impl PeerRequest {
    pub(super) fn answered(self, _outcome: Outcome) -> Self {
        self
    }
}

impl RequestRecord {
    pub(super) fn open(request: &PendingRequest, _peer: Option<PeerRequest>) -> Self {
        Self(format!("open {}", request.request_id))
    }

    pub(super) fn resolved(
        resolution: Resolution,
        by: Option<String>,
        _peer: Option<PeerRequest>,
    ) -> Self {
        Self(format!("{resolution:?} {by:?}"))
    }

    pub(super) fn put(&self, id: SessionId, request: RequestId, records: &mut Records) {
        let key = [id.as_bytes().as_slice(), &request.number().to_be_bytes()].concat();
        records.puts.push(Put { table: Table::Request, key, value: self.0.clone().into() });
    }
}
