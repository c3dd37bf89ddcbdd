//! The snapshot of a session as of its last commit. Clients receive it while the disk is full.

use super::SessionQuery;
use crate::acp::ModePolicy;
use crate::api::{PendingRequest, Session};
use crate::session::error::SessionError;
use crate::session::record::{self, FoldRecord, RequestRecord, SessionRecord};
use crate::session::snapshot::build_snapshot;
use crate::session::stored::{agent_spec, read_record};
use crate::store::Table;
use crate::transcript::SessionFold;
use crate::types::RequestId;

impl SessionQuery<'_> {
    /// The last committed snapshot of the session.
    pub(in crate::session) async fn snapshot(self) -> Result<Session, SessionError> {
        let record = self.record().await?;
        let folded =
            read_record::<FoldRecord>(self.context, Table::Fold, record::session_key(self.id()))
                .await?;
        // Up to the position in the session's record, no event has changed the fold.
        let (mut fold, seq) = match folded {
            Some(FoldRecord { seq, fold }) => (fold, seq.max(record.seq)),
            None => (SessionFold::default(), 0),
        };
        let (seq, _) = self
            .fold_events(seq, u64::MAX, |event| _ = fold.event(event))
            .await?;
        let requests = self.open_requests(&record).await?;
        let spec = agent_spec(self.context, &record);
        let modes = ModePolicy {
            denied: &spec.settings.denied_modes,
            modes: fold.modes.as_deref(),
            config_options: fold.config_options.as_deref(),
        };
        let denied_modes = modes.offered();
        Ok(Session {
            denied_modes,
            ..build_snapshot(&record, &fold, requests, self.log.id(seq))
        })
    }

    /// The requests of the agent that were open at the last commit.
    async fn open_requests(
        self,
        record: &SessionRecord,
    ) -> Result<Vec<PendingRequest>, SessionError> {
        let mut open = Vec::new();
        for request in &record.open_requests {
            let stored = self
                .request(*request)
                .await?
                .filter(|stored| stored.resolution.is_none());
            open.extend(
                stored
                    .and_then(|stored| stored.pending)
                    .map(PendingRequest::from),
            );
        }
        Ok(open)
    }

    /// The record of a request of the agent.
    pub(in crate::session) async fn request(
        self,
        request: RequestId,
    ) -> Result<Option<RequestRecord>, SessionError> {
        read_record(
            self.context,
            Table::Request,
            record::numbered_key(self.id(), request.number()),
        )
        .await
    }
}
