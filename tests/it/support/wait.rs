//! Waiting for a condition with a deadline, instead of sleeping for a time.

use std::future::Future;
use std::time::{Duration, Instant};

/// How long a test waits for any one thing, were it the last of many on a busy machine.
pub(crate) const LONGEST: Duration = Duration::from_mins(2);

/// Polls every few milliseconds for a result. Panics with `what` after `limit`.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    limit: Duration,
    mut ask: impl FnMut() -> F,
) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process of this pid runs; a zombie does not.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
