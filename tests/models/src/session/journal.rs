//! The journal, reduced to requests.

use super::record::RequestRecord;
use base::types::{PromptId, RequestId, SessionId, Timestamp};
use events::event::EncodedEvent;
use log::eventlog::{Records, SessionLog};

/// The log and the last number of a request.
pub(super) struct Journal {
    log: SessionLog,
    record: Record,
}

pub(super) struct Record {
    last_request: u32,
}

/// The records of one commit.
pub(super) struct Change<'a> {
    session: SessionId,
    record: &'a mut Record,
    records: Records,
}

impl Journal {
    pub(super) fn new(log: SessionLog) -> Self {
        Self {
            log,
            record: Record { last_request: 0 },
        }
    }

    pub(super) fn log(&self) -> &SessionLog {
        &self.log
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_millis(0)
    }

    pub(super) fn next_request(&self) -> RequestId {
        RequestId::new(self.record.last_request + 1)
    }

    pub(super) fn append_with(
        &mut self,
        prompt: Option<PromptId>,
        event: impl Into<EncodedEvent>,
        change: impl FnOnce(u64, &mut Change<'_>),
    ) -> u64 {
        let session = self.log.session();
        let seq = self.log.appended() + 1;
        let mut changed = Change {
            session,
            record: &mut self.record,
            records: Records::default(),
        };
        change(seq, &mut changed);
        self.log
            .append(&event.into().in_turn(prompt), changed.records)
    }
}

impl Change<'_> {
    pub(super) fn open_request(&mut self, id: RequestId, request: &RequestRecord) {
        self.record.last_request = id.number();
        request.put(self.session, id, &mut self.records);
    }

    pub(super) fn resolve_request(&mut self, id: RequestId, request: &RequestRecord) {
        request.put(self.session, id, &mut self.records);
    }
}
