//! The record of a request. The model only needs a record that is committed with its event.

use base::types::{RequestId, SessionId};
use events::api::{PendingRequest, Resolution};
use log::eventlog::Records;
use log::store::Table;
use wire::acp::Outcome;

pub(super) struct RequestRecord(String);

/// Terminals are not part of the model.
pub(super) enum TerminalRecord {}

/// The model has no process that outlives the gateway.
#[derive(Clone)]
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
        *records = std::mem::take(records).put(Table::Request, key, self.0.clone());
    }
}
