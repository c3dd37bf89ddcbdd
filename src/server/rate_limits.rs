//! The rate limits of a principal: requests and prompts per minute.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Mutex;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

use crate::shutdown::lock_or_abort;
use crate::types::{LimitExceeded, Principal, PrincipalKey, PrincipalLimit, PrincipalLimits};

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
        Self {
            per_minute,
            limiter: RateLimiter::direct(quota),
        }
    }
}

impl RateLimit {
    fn new(limit: PrincipalLimit) -> Self {
        Self {
            limit,
            buckets: Mutex::default(),
            clock: DefaultClock::default(),
        }
    }

    /// Acquires a token of the principal. A changed limit starts with a full bucket.
    fn acquire(
        &self,
        limits: &PrincipalLimits,
        principal: &Principal,
    ) -> Result<(), LimitExceeded> {
        let limits = limits.effective(principal);
        let per_minute = limits.get(self.limit);
        let mut buckets = lock_or_abort(self.buckets.lock());
        let bucket = buckets
            .entry(principal.key())
            .or_insert_with(|| Bucket::new(per_minute));
        if bucket.per_minute != per_minute {
            *bucket = Bucket::new(per_minute);
        }
        let full = bucket.limiter.check().err();
        drop(buckets);
        match full {
            None => Ok(()),
            Some(full) => Err(limits.exceeded(self.limit, full.wait_time_from(self.clock.now()))),
        }
    }
}

impl RateLimits {
    pub(crate) fn new(limits: PrincipalLimits) -> Self {
        let (requests, prompts) = (
            RateLimit::new(PrincipalLimit::Requests),
            RateLimit::new(PrincipalLimit::Prompts),
        );
        Self {
            limits,
            requests,
            prompts,
        }
    }

    pub(crate) fn check_request(&self, principal: &Principal) -> Result<(), LimitExceeded> {
        self.requests.acquire(&self.limits, principal)
    }

    pub(crate) fn check_prompt(&self, principal: &Principal) -> Result<(), LimitExceeded> {
        self.prompts.acquire(&self.limits, principal)
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
    fn each_principal_has_its_own_bucket_with_its_limit() {
        let limits = PrincipalLimits::new(&Limits {
            max_prompts_per_minute: 2,
            ..Limits::default()
        });
        let rates = RateLimits::new(limits.clone());
        assert!(rates.check_prompt(&principal("a")).is_ok());
        assert!(rates.check_prompt(&principal("a")).is_ok());
        let exceeded = rates.check_prompt(&principal("a")).unwrap_err();
        assert!(
            (1..=30).contains(&exceeded.retry_after_seconds()),
            "{exceeded:?}"
        );
        assert!(rates.check_prompt(&principal("b")).is_ok());
        assert!(rates.check_request(&principal("a")).is_ok());
        limits.set_defaults(&Limits {
            max_prompts_per_minute: 3,
            ..Limits::default()
        });
        assert!(rates.check_prompt(&principal("a")).is_ok());
    }
}
