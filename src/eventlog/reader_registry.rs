//! The registry of active readers and the sessions that they read.

use crate::types::{KeyedCounts, KeyedGuard, SessionId, Tenant};

/// The sessions that a reader reads: one session, or all sessions of the tenant.
type ReaderScope = (Tenant, Option<SessionId>);

/// All active readers.
#[derive(Debug, Default)]
pub(super) struct ReaderRegistry(KeyedCounts<ReaderScope>);

/// Registers a reader until it is dropped.
pub(super) type ReaderRegistration = KeyedGuard<ReaderScope>;

impl ReaderRegistry {
    /// Registers a reader of one session; `None` for all sessions of the tenant.
    pub(super) fn register(&self, tenant: &Tenant, session: Option<SessionId>) -> ReaderRegistration {
        self.0.acquire((tenant.clone(), session), usize::MAX).expect("the number of readers has no limit")
    }

    pub(super) fn has_reader(&self, tenant: &Tenant, session: SessionId) -> bool {
        [Some(session), None].into_iter().any(|session| self.0.count(&(tenant.clone(), session)) > 0)
    }
}
