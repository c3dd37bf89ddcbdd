//! Who reads which sessions at this moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::shutdown::sound;
use crate::types::{SessionId, Tenant};

use super::Shared;
use super::all_reader::Scope;

/// What one reader reads.
#[derive(Debug)]
pub(super) enum Follows {
    One(SessionId),
    Many(Arc<Scope>),
}

/// The readers that are there.
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

/// Counts a reader for as long as it exists.
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
