//! The registry of active readers and the sessions that they read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::shutdown::lock_or_abort;
use crate::types::{SessionId, Tenant};

use super::scope::Scope;

/// The sessions that one reader reads.
#[derive(Debug)]
pub(super) enum ReaderScope {
    One(SessionId),
    Many(Arc<Scope>),
}

/// All active readers.
#[derive(Debug, Default)]
pub(super) struct ReaderRegistry(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    readers: BTreeMap<u64, ReaderScope>,
}

impl ReaderRegistry {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        lock_or_abort(self.0.lock())
    }

    pub(super) fn has_reader(&self, tenant: &Tenant, session: SessionId) -> bool {
        self.entries().readers.values().any(|follows| match follows {
            ReaderScope::One(one) => *one == session,
            ReaderScope::Many(scope) => scope.contains(tenant.as_str(), session),
        })
    }
}

/// Registers a reader and removes it on drop.
#[derive(Debug)]
pub(super) struct ReaderRegistration {
    registry: Arc<ReaderRegistry>,
    key: u64,
}

impl ReaderRegistration {
    pub(super) fn register(registry: &Arc<ReaderRegistry>, scope: ReaderScope) -> Self {
        let mut entries = registry.entries();
        entries.next += 1;
        let key = entries.next;
        entries.readers.insert(key, scope);
        drop(entries);
        Self { registry: Arc::clone(registry), key }
    }
}

impl Drop for ReaderRegistration {
    fn drop(&mut self) {
        self.registry.entries().readers.remove(&self.key);
    }
}
