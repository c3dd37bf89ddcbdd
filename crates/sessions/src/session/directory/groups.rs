//! Changes of groups, which give users access to shared sessions or take it back.

use std::error::Error;

use super::super::error::SessionError;
use super::super::grants::listed;
use super::SessionDirectory;
use base::types::Groups;
use log::eventlog::ChangedAccess;

impl SessionDirectory {
    /// Replaces the groups of all users. Lists show the sessions that users gain, and queued prompts of users that lose a session
    /// are cancelled.
    pub async fn set_groups(&self, groups: Groups) {
        for change in self.context().log.set_groups(groups) {
            let session = change.session;
            if let Err(error) = self.follow(change).await {
                let error = &error as &dyn Error;
                tracing::warn!(%session, error, "a change of groups was not completed for a session");
            }
        }
    }

    async fn follow(&self, change: ChangedAccess) -> Result<(), SessionError> {
        let ChangedAccess {
            user,
            session,
            access,
        } = change;
        let context = self.context();
        let Some(record) = context.read_session(session).await? else {
            return Ok(());
        };
        if access.is_none() {
            return self.of_owner(&record).await?.cancel_without_access().await;
        }
        let epoch = context.log.epoch().of_session(session);
        if let Some(summary) = listed(&record, epoch) {
            context.log.publish_summary(&user, session, summary);
        }
        Ok(())
    }
}
