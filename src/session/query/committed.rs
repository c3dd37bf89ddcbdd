//! The snapshot of a session as of its last commit. Clients receive it while the disk is full.

use super::SessionQuery;
use crate::api::{PendingRequest, Session};
use crate::session::record::{self, FoldRecord, RequestRecord, SessionRecord};
use crate::session::refusal::Refusal;
use crate::session::snapshot::build_snapshot;
use crate::session::stored::read_record;
use crate::store::{Run, Table};
use crate::transcript::SessionFold;
use crate::types::RequestId;

impl SessionQuery<'_> {
    /// The last committed snapshot of the session.
    pub(in crate::session) async fn snapshot(self) -> Result<Session, Refusal> {
        let record = self.record().await?;
        let folded =
            read_record::<FoldRecord>(self.context, Table::Fold, record::session_key(self.id())).await?;
        // Up to the position in the session's record, no event has changed the fold.
        let (mut fold, mut seq) = match folded {
            Some(FoldRecord { seq, fold }) => (fold, seq.max(record.seq)),
            None => (SessionFold::default(), 0),
        };
        loop {
            let runs = self.read(seq).await?;
            let Some(last) = runs.last() else { break };
            seq = last.last_seq;
            for event in runs.iter().flat_map(Run::events) {
                fold.event(&event);
            }
        }
        let requests = self.open_requests(&record).await?;
        Ok(build_snapshot(&record, &fold, requests, self.log.id(seq)))
    }

    /// The requests of the agent that were open at the last commit.
    async fn open_requests(self, record: &SessionRecord) -> Result<Vec<PendingRequest>, Refusal> {
        let mut open = Vec::new();
        for request in &record.open_requests {
            let stored = self.request(*request).await?;
            let pending =
                stored.filter(|stored| stored.resolution.is_none()).and_then(|stored| stored.pending);
            open.extend(pending.map(PendingRequest::from));
        }
        Ok(open)
    }

    /// The record of a request of the agent.
    pub(in crate::session) async fn request(
        self,
        request: RequestId,
    ) -> Result<Option<RequestRecord>, Refusal> {
        read_record(self.context, Table::Request, record::request_key(self.id(), request)).await
    }
}
