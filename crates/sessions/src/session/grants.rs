//! The grants of sessions: the access of users that do not own a session. A change is durable before it has an effect.

use log::audit::pending_entry;
use log::eventlog::{EventLog, RecordPages, Records, SharedSession, Summary, from_json, to_json};
use log::store::{ReadError, RecordState, Table};
use serde_json::value::to_raw_value;

use super::actor::Actor;
use super::error::{GrantError, InputError, NotFound, OwnerGrant, SessionError};
use super::handle::SessionHandle;
use super::record::{SessionRecord, session_key};
use base::types::{Access, Author, Epoch, Grant, Grantee, SessionId};
use events::api::SessionGrants;
use events::event::{AuditEvent, GrantRemoved, GrantSet};

/// The maximum number of grants of a session.
const MAX_GRANTS: usize = 64;

/// Loads the grants of all sessions.
pub(super) async fn load(log: &EventLog) -> Result<(), ReadError> {
    let mut pages = RecordPages::of(log, Table::Grant);
    while let Some(page) = pages.next_raw().await? {
        for (key, value) in &page {
            let session = uuid::Uuid::from_slice(key).map(SessionId::from_uuid);
            let stored = from_json::<SharedSession>(value);
            let (Ok(session), Some(stored)) = (session, stored) else {
                tracing::error!(
                    "the grants of a session are damaged: nobody but its owner has access"
                );
                continue;
            };
            log.set_grants(session, stored, None);
        }
    }
    Ok(())
}

/// The summary of a session that lists show.
pub(super) fn listed(record: &SessionRecord, epoch: Epoch) -> Option<Summary> {
    let summary = to_raw_value(&record.summary(epoch));
    let summary = summary.expect("a summary has string keys");
    record.is_listed().then(|| Summary::Listed(summary.into()))
}

impl SessionHandle {
    /// Cancels the queued prompts of users that may no longer prompt the session.
    pub(super) async fn cancel_without_access(&self) -> Result<(), SessionError> {
        let cancel = |actor: &mut Actor| {
            actor.cancel_without_access();
            Ok(())
        };
        // The user of this handle may have taken back its own access.
        self.of_owner().run_durable(cancel).await
    }

    /// The access of the user of this handle. `None` once the user has lost it.
    pub fn access(&self) -> Option<Access> {
        let log = &self.context().log;
        log.access(self.log().owner(), self.id(), self.user())
    }

    /// Fails if the access of the user is lower.
    pub fn require(&self, needed: Access) -> Result<(), SessionError> {
        let owner = self.log().owner();
        self.context()
            .require_access(owner, self.id(), self.user(), needed)
    }

    /// Waits until the user has no access any more.
    pub async fn wait_access_ended(&self) {
        Self::wait_any_access_ended(std::slice::from_ref(self)).await;
    }

    /// Waits until the user has lost the access to one of the sessions. Without sessions, it waits for ever.
    pub async fn wait_any_access_ended(sessions: &[Self]) {
        let Some(first) = sessions.first() else {
            return std::future::pending().await;
        };
        let mut changes = first.context().log.watch_grants();
        while sessions.iter().all(|session| session.access().is_some()) {
            // The log owns the sender, and the handle has the log.
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    pub fn grants(&self) -> SessionGrants {
        let shared = self.context().log.shared_session(self.id());
        SessionGrants {
            owner: self.log().owner().name().to_owned(),
            grants: shared.map(|shared| shared.grants).unwrap_or_default(),
        }
    }

    /// Gives users access to the session, in place of the access that an earlier grant gave them. `author` is for the audit
    /// log.
    pub async fn grant(
        &self,
        author: &Author,
        grantee: Grantee,
        access: Access,
    ) -> Result<Grant, GrantError> {
        let known = self.grants().grants.into_iter();
        let mut same = known.filter(|known| known.grantee == grantee && known.access == access);
        if let Some(grant) = same.next() {
            self.require(Access::Own)?;
            return Ok(grant);
        }
        let event = GrantSet {
            session_id: self.id(),
            grantee: grantee.clone(),
            access,
        };
        let grant = Grant {
            grantee: grantee.clone(),
            access,
            granted_by: self.user().name().to_owned(),
            granted_at: self.context().ids.now(),
        };
        let new = grant.clone();
        let change = move |grants: &mut Vec<Grant>| {
            grants.retain(|known| known.grantee != new.grantee);
            grants.push(new);
            Ok(())
        };
        self.change_grants(author, event, grantee, change).await?;
        Ok(grant)
    }

    /// Takes a grant back. All streams and requests of users without another grant end.
    pub async fn revoke_grant(&self, author: &Author, grantee: Grantee) -> Result<(), GrantError> {
        let event = GrantRemoved {
            session_id: self.id(),
            grantee: grantee.clone(),
        };
        let revoked = grantee.clone();
        let change = move |grants: &mut Vec<Grant>| {
            let before = grants.len();
            grants.retain(|known| known.grantee != revoked);
            if grants.len() == before {
                return Err(NotFound("grant").into());
            }
            Ok(())
        };
        self.change_grants(author, event, grantee, change).await
    }

    /// Changes the grants in the store and in memory. Continues if the caller is dropped, because both must agree.
    async fn change_grants(
        &self,
        author: &Author,
        event: impl Into<AuditEvent>,
        grantee: Grantee,
        change: impl FnOnce(&mut Vec<Grant>) -> Result<(), GrantError> + Send + 'static,
    ) -> Result<(), GrantError> {
        let handle = self.clone();
        let audited = pending_entry(&self.context().ids, author, event);
        let changed = async move { handle.store_grants(audited, &grantee, change).await };
        self.context().shutdown.spawn_isolated(changed).await?
    }

    /// `audited`: the record of the change for the audit log, which is part of the commit.
    async fn store_grants(
        &self,
        audited: RecordState,
        grantee: &Grantee,
        change: impl FnOnce(&mut Vec<Grant>) -> Result<(), GrantError> + Send,
    ) -> Result<(), GrantError> {
        let context = self.context();
        let alone = context.grant_changes.lock().await;
        self.require(Access::Own)?;
        let owner = self.log().owner();
        if matches!(grantee, Grantee::User(name) if **name == *owner.name()) {
            return Err(OwnerGrant.into());
        }
        if context.log.storage_full() {
            return Err(SessionError::StorageFull.into());
        }
        let mut grants = self.grants().grants;
        change(&mut grants)?;
        if grants.len() > MAX_GRANTS {
            let detail = format!("a session has at most {MAX_GRANTS} grants");
            return Err(InputError::invalid("grantee", detail).into());
        }
        let record = self.query().record().await?;
        let key = session_key(self.id());
        let shared = SharedSession {
            owner: owner.clone(),
            grants,
        };
        let mut records = if shared.grants.is_empty() {
            Records::default().delete(Table::Grant, key)
        } else {
            Records::default().put(Table::Grant, key, to_json(&shared))
        };
        records.changed.push(audited);
        context.log.write(records).await?;
        let epoch = context.log.epoch();
        let summary = listed(&record, epoch.of_session(self.id()));
        context.log.set_grants(self.id(), shared, summary);
        if self.log().is_erased() {
            // The session was deleted meanwhile, so nothing else removes its grants.
            let records = Records::default().delete(Table::Grant, session_key(self.id()));
            context.log.write(records).await?;
            let none = SharedSession {
                owner: self.log().owner().clone(),
                grants: Vec::new(),
            };
            context.log.set_grants(self.id(), none, None);
            return Err(SessionError::NoSuchSession.into());
        }
        // The other sessions do not wait for this actor.
        drop(alone);
        Ok(self.cancel_without_access().await?)
    }
}
