//! The registry of active readers and the sessions that they read.

use crate::types::{KeyedCounts, KeyedGuard, SessionId, Tenant};

/// The sessions that a reader reads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum ReaderScope {
    Session(SessionId),
    /// All sessions of a tenant.
    Tenant(Tenant),
}

/// All active readers.
#[derive(Debug, Default)]
pub(super) struct ReaderRegistry(KeyedCounts<ReaderScope>);

/// Registers a reader until it is dropped.
pub(super) type ReaderRegistration = KeyedGuard<ReaderScope>;

impl ReaderRegistry {
    pub(super) fn register(&self, scope: ReaderScope) -> ReaderRegistration {
        self.0
            .acquire(scope, usize::MAX)
            .expect("the number of readers has no limit")
    }

    pub(super) fn has_reader(&self, tenant: &Tenant, session: SessionId) -> bool {
        [
            ReaderScope::Session(session),
            ReaderScope::Tenant(tenant.clone()),
        ]
        .iter()
        .any(|scope| self.0.count(scope) > 0)
    }
}
