//! The rate of the broadcasts of a principal.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::shutdown::lock_or_abort;
use crate::types::PrincipalKey;

/// The number of broadcasts of a principal in any minute.
pub(super) const PER_MINUTE: usize = 6;
const WINDOW: Duration = Duration::from_mins(1);

/// The times of the latest broadcasts of each principal. A principal without one in the last minute has no entry.
#[derive(Debug, Default)]
pub(super) struct Rate(Mutex<HashMap<PrincipalKey, VecDeque<Instant>>>);

impl Rate {
    /// Counts a broadcast. An error is the time until the next one is permitted.
    pub(super) fn count(&self, principal: PrincipalKey) -> Result<(), Duration> {
        let now = Instant::now();
        let mut latest = lock_or_abort(self.0.lock());
        latest.retain(|_, times| {
            while times.pop_front_if(|time| now - *time >= WINDOW).is_some() {}
            !times.is_empty()
        });
        let times = latest.entry(principal).or_default();
        if times.len() >= PER_MINUTE {
            return Err(WINDOW.saturating_sub(now - times[0]));
        }
        times.push_back(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Tenant;

    #[tokio::test(start_paused = true)]
    async fn each_principal_has_six_in_any_minute() {
        let rate = Rate::default();
        let of = |id: &str| (Tenant::default(), id.into());
        for _ in 0..PER_MINUTE {
            assert_eq!(rate.count(of("alice")), Ok(()));
            tokio::time::advance(Duration::from_secs(5)).await;
        }
        assert_eq!(rate.count(of("alice")), Err(Duration::from_secs(30)));
        assert_eq!(rate.count(of("bob")), Ok(()));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(rate.count(of("alice")), Ok(()));
        assert_eq!(rate.count(of("alice")), Err(Duration::from_secs(5)));
    }
}
