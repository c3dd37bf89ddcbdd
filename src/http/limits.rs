//! Limits of one principal: requests and prompts a minute, streams at a time.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::error::ApiError;
use crate::shutdown::sound;
use crate::types::{Limits, Principal, Tenant};

/// Who is counted: the holder of a key, in its tenant.
type Who = (Tenant, Arc<str>);

fn who(principal: &Principal) -> Who {
    (principal.tenant.clone(), Arc::clone(&principal.id))
}

/// Buckets that fill evenly over a minute. One exists for each key that was used lately.
#[derive(Debug)]
pub(crate) struct Rates {
    requests: Rate,
    prompts: Rate,
}

#[derive(Debug)]
struct Rate {
    bucket: DefaultKeyedRateLimiter<Who>,
    clock: DefaultClock,
}

impl Rate {
    fn new(per_minute: u32) -> Self {
        let quota = Quota::per_minute(NonZeroU32::new(per_minute).unwrap_or(NonZeroU32::MIN));
        let clock = DefaultClock::default();
        Self { bucket: RateLimiter::keyed(quota), clock }
    }

    fn take(&self, principal: &Principal) -> Result<(), Duration> {
        self.bucket.check_key(&who(principal)).map_err(|full| full.wait_time_from(self.clock.now()))
    }
}

impl Rates {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            requests: Rate::new(limits.requests_per_minute),
            prompts: Rate::new(limits.prompts_per_minute),
        }
    }

    pub(crate) fn request(&self, principal: &Principal) -> Result<(), ApiError> {
        self.requests
            .take(principal)
            .map_err(|wait| ApiError::rate_limited("too many requests with this key", wait))
    }

    pub(crate) fn prompt(&self, principal: &Principal) -> Result<(), ApiError> {
        self.prompts
            .take(principal)
            .map_err(|wait| ApiError::rate_limited("too many prompts with this key", wait))
    }
}

/// How many streams each principal has open.
#[derive(Debug, Clone)]
pub(crate) struct Streams {
    max: usize,
    open: Arc<Mutex<HashMap<Who, usize>>>,
}

/// One open stream; it is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    streams: Streams,
    who: Who,
}

impl Streams {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, open: Arc::default() }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Who, usize>> {
        sound(self.open.lock())
    }

    pub(crate) fn take(&self, principal: &Principal) -> Result<StreamGuard, ApiError> {
        let who = who(principal);
        let mut open = self.open();
        let count = open.entry(who.clone()).or_default();
        if *count >= self.max {
            let detail = format!("this key has {} streams open already", self.max);
            return Err(ApiError::rate_limited(detail, Duration::from_secs(5)));
        }
        *count += 1;
        drop(open);
        Ok(StreamGuard { streams: self.clone(), who })
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        if let Some(count) = open.get_mut(&self.who) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Scopes;

    fn principal(id: &str) -> Principal {
        Principal { id: id.into(), tenant: Tenant::default(), scopes: Scopes::default() }
    }

    #[test]
    fn streams_are_counted_for_each_principal_until_they_end() {
        let streams = Streams::new(2);
        let first = streams.take(&principal("a")).unwrap();
        let _second = streams.take(&principal("a")).unwrap();
        assert!(streams.take(&principal("a")).is_err());
        assert!(streams.take(&principal("b")).is_ok());
        drop(first);
        assert!(streams.take(&principal("a")).is_ok());
        assert_eq!(streams.open().len(), 1, "who has no stream is forgotten");
    }

    #[test]
    fn a_bucket_is_one_principals_own() {
        let rates = Rates::new(&Limits { prompts_per_minute: 2, ..Limits::default() });
        assert!(rates.prompt(&principal("a")).is_ok());
        assert!(rates.prompt(&principal("a")).is_ok());
        let refused = rates.prompt(&principal("a")).unwrap_err();
        assert!(refused.problem().retry_after_seconds.is_some_and(|seconds| (1..=30).contains(&seconds)));
        assert!(rates.prompt(&principal("b")).is_ok());
        assert!(rates.request(&principal("a")).is_ok());
    }
}
