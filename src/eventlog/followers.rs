//! The registry of active readers and the sessions that they read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::shutdown::sound;
use crate::types::{SessionId, Tenant};

use super::Shared;
use super::all_reader::Scope;

/// The sessions that one reader reads.
#[derive(Debug)]
pub(super) enum Follows {
    One(SessionId),
    Many(Arc<Scope>),
}

/// All active readers.
#[derive(Debug, Default)]
pub(super) struct Followers(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    next: u64,
    readers: BTreeMap<u64, Follows>,
}

impl Followers {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        sound(self.0.lock())
    }

    pub(super) fn any(&self, tenant: &Tenant, session: SessionId) -> bool {
        self.entries().readers.values().any(|follows| match follows {
            Follows::One(one) => *one == session,
            Follows::Many(scope) => scope.wants(tenant.as_str(), session),
        })
    }
}

/// Registers a reader and removes it on drop.
#[derive(Debug)]
pub(super) struct Following {
    shared: Arc<Shared>,
    key: u64,
}

impl Following {
    pub(super) fn enter(shared: &Arc<Shared>, follows: Follows) -> Self {
        let mut entries = shared.followers.entries();
        entries.next += 1;
        let key = entries.next;
        entries.readers.insert(key, follows);
        drop(entries);
        Self { shared: Arc::clone(shared), key }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.shared.followers.entries().readers.remove(&self.key);
    }
}
