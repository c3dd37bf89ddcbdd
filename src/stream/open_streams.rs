//! The number of open streams of each principal, and its limit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::shutdown::lock_or_abort;
use crate::types::{LimitExceeded, Principal, PrincipalKey, PrincipalLimit, PrincipalLimits};

/// The suggested delay before a retry when too many streams are open.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The number of open streams of each principal.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    limits: PrincipalLimits,
    open: Arc<Mutex<HashMap<PrincipalKey, usize>>>,
}

/// One open stream. Dropping it releases the count.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    streams: Streams,
    key: PrincipalKey,
}

impl Streams {
    pub(crate) fn new(limits: PrincipalLimits) -> Self {
        Self { limits, open: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<PrincipalKey, usize>> {
        lock_or_abort(self.open.lock())
    }

    pub(crate) fn acquire(&self, principal: &Principal) -> Result<StreamGuard, LimitExceeded> {
        let (key, limits) = (principal.key(), self.limits.effective(principal));
        let mut open = self.open();
        let count = open.get(&key).copied().unwrap_or_default();
        if !limits.allows(PrincipalLimit::Streams, count) {
            return Err(limits.exceeded(PrincipalLimit::Streams, RETRY_AFTER));
        }
        open.insert(key.clone(), count + 1);
        drop(open);
        Ok(StreamGuard { streams: self.clone(), key })
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Limits, Scopes, Tenant};

    fn principal(id: &str) -> Principal {
        Principal { id: id.into(), tenant: Tenant::default(), scopes: Scopes::default() }
    }

    #[test]
    fn streams_are_limited_per_principal_until_they_end() {
        let streams = Streams::new(PrincipalLimits::new(&Limits { max_streams: 2, ..Limits::default() }));
        let first = streams.acquire(&principal("a")).unwrap();
        let _second = streams.acquire(&principal("a")).unwrap();
        assert!(streams.acquire(&principal("a")).is_err());
        assert!(streams.acquire(&principal("b")).is_ok());
        drop(first);
        assert!(streams.acquire(&principal("a")).is_ok());
        assert_eq!(streams.open().len(), 1, "principals without a stream are removed");
    }
}
