//! The limits of a principal: requests and prompts per minute, and concurrent streams.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use super::error::ApiError;
use crate::shutdown::lock_or_abort;
use crate::types::{KeyedCounts, KeyedGuard, Principal, PrincipalLimit, PrincipalLimits, Tenant};

/// The suggested delay before a retry when too many streams are open.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// The unit of counting: a principal in its tenant.
pub(crate) type PrincipalKey = (Tenant, Arc<str>);

fn principal_key(principal: &Principal) -> PrincipalKey {
    (principal.tenant.clone(), Arc::clone(&principal.id))
}

/// Token buckets that refill evenly over a minute. A principal gets a bucket with its first request.
#[derive(Debug)]
pub(crate) struct RateLimits {
    limits: PrincipalLimits,
    requests: RateLimit,
    prompts: RateLimit,
}

#[derive(Debug)]
struct RateLimit {
    limit: PrincipalLimit,
    buckets: Mutex<HashMap<PrincipalKey, Bucket>>,
    clock: DefaultClock,
}

#[derive(Debug)]
struct Bucket {
    per_minute: u32,
    limiter: DefaultDirectRateLimiter,
}

impl Bucket {
    fn new(per_minute: u32) -> Self {
        let quota = Quota::per_minute(NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN));
        Self { per_minute, limiter: RateLimiter::direct(quota) }
    }
}

impl RateLimit {
    fn new(limit: PrincipalLimit) -> Self {
        Self { limit, buckets: Mutex::default(), clock: DefaultClock::default() }
    }

    /// Acquires a token of the principal. A changed limit starts with a full bucket.
    fn acquire(&self, limits: &PrincipalLimits, principal: &Principal) -> Result<(), ApiError> {
        let limits = limits.effective(principal);
        let per_minute = limits.get(self.limit);
        let mut buckets = lock_or_abort(self.buckets.lock());
        let bucket = buckets.entry(principal_key(principal)).or_insert_with(|| Bucket::new(per_minute));
        if bucket.per_minute != per_minute {
            *bucket = Bucket::new(per_minute);
        }
        let full = bucket.limiter.check().err();
        drop(buckets);
        match full {
            None => Ok(()),
            Some(full) => Err(limits.exceeded(self.limit, full.wait_time_from(self.clock.now())).into()),
        }
    }
}

impl RateLimits {
    pub(crate) fn new(limits: PrincipalLimits) -> Self {
        let (requests, prompts) =
            (RateLimit::new(PrincipalLimit::Requests), RateLimit::new(PrincipalLimit::Prompts));
        Self { limits, requests, prompts }
    }

    pub(crate) fn check_request(&self, principal: &Principal) -> Result<(), ApiError> {
        self.requests.acquire(&self.limits, principal)
    }

    pub(crate) fn check_prompt(&self, principal: &Principal) -> Result<(), ApiError> {
        self.prompts.acquire(&self.limits, principal)
    }
}

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
        Self { limits, open: KeyedCounts::default() }
    }

    pub(crate) fn acquire(&self, principal: &Principal) -> Result<StreamGuard, ApiError> {
        let limits = self.limits.effective(principal);
        let guard = self.open.acquire(principal_key(principal), limits.max(PrincipalLimit::Streams));
        guard.ok_or_else(|| limits.exceeded(PrincipalLimit::Streams, RETRY_AFTER).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Limits, Scopes};

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
        assert_eq!(streams.open.count(&principal_key(&principal("a"))), 1);
    }

    #[test]
    fn each_principal_has_its_own_bucket_with_its_limit() {
        let limits = PrincipalLimits::new(&Limits { max_prompts_per_minute: 2, ..Limits::default() });
        let rates = RateLimits::new(limits.clone());
        assert!(rates.check_prompt(&principal("a")).is_ok());
        assert!(rates.check_prompt(&principal("a")).is_ok());
        let refused = rates.check_prompt(&principal("a")).unwrap_err();
        assert!(refused.problem().retry_after_seconds.is_some_and(|seconds| (1..=30).contains(&seconds)));
        assert!(rates.check_prompt(&principal("b")).is_ok());
        assert!(rates.check_request(&principal("a")).is_ok());
        limits.set_defaults(&Limits { max_prompts_per_minute: 3, ..Limits::default() });
        assert!(rates.check_prompt(&principal("a")).is_ok());
    }
}
