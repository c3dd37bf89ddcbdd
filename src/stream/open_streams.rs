//! The number of open streams of each principal, and its limit.

use std::time::Duration;

use crate::types::{
    KeyedCounts, KeyedGuard, LimitExceeded, Principal, PrincipalKey, PrincipalLimit,
    PrincipalLimits,
};

/// The suggested delay before a retry when too many streams are open.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The open streams of each principal.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    limits: PrincipalLimits,
    open: KeyedCounts<PrincipalKey>,
}

/// One open stream. Dropping it releases the count.
pub(crate) type StreamGuard = KeyedGuard<PrincipalKey>;

impl Streams {
    pub(crate) fn new(limits: PrincipalLimits) -> Self {
        Self {
            limits,
            open: KeyedCounts::default(),
        }
    }

    pub(crate) fn acquire(&self, principal: &Principal) -> Result<StreamGuard, LimitExceeded> {
        let limits = self.limits.effective(principal);
        let guard = self
            .open
            .acquire(principal.key(), limits.max(PrincipalLimit::Streams));
        guard.ok_or_else(|| limits.exceeded(PrincipalLimit::Streams, RETRY_AFTER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Limits, Scopes, Tenant};

    fn principal(id: &str) -> Principal {
        Principal {
            id: id.into(),
            tenant: Tenant::default(),
            scopes: Scopes::default(),
            folders: crate::types::GrantedFolders::default(),
        }
    }

    #[test]
    fn streams_are_limited_per_principal_until_they_end() {
        let streams = Streams::new(PrincipalLimits::new(&Limits {
            max_streams: 2,
            ..Limits::default()
        }));
        let first = streams.acquire(&principal("a")).unwrap();
        let _second = streams.acquire(&principal("a")).unwrap();
        assert!(streams.acquire(&principal("a")).is_err());
        assert!(streams.acquire(&principal("b")).is_ok());
        drop(first);
        assert!(streams.acquire(&principal("a")).is_ok());
        assert_eq!(streams.open.count(&principal("a").key()), 1);
    }
}
