//! A shared clock for all streams. It wakes a stream after a silent interval, and all streams when the
//! gateway stops, a key ends or a grant changes.
//!
//! Separate timers and waits would be most of the cost of ten thousand idle streams. Here, each stream has an
//! entry with a due tick and a waker. One task checks all entries at each tick, and it runs while streams
//! exist.
//!
//! An entry also has the tick since which its stream is behind, for the metrics. Only the task of a stream writes it: direct
//! delivery serves streams at the tail, and wakes the task when a socket is full. A difference of positions would
//! cost the same memory, but says nothing for a stream over all sessions or with a filter.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::stream::limits::Limits;
use base::shutdown::{Shutdown, lock_or_abort};
use base::telemetry::metrics;

#[derive(Clone)]
pub(crate) struct KeepAliveTicker(Arc<Inner>);

struct Inner {
    shutdown: Shutdown,
    key_endings: watch::Receiver<u64>,
    grant_changes: watch::Receiver<u64>,
    started: Instant,
    tick: Duration,
    /// In ticks, as `write_stall`.
    keep_alive: u64,
    write_stall: u64,
    now: AtomicU64,
    /// Incremented when all streams must check whether they continue.
    signals: AtomicU32,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    is_running: bool,
    registered: u64,
    entries: Vec<Arc<Entry>>,
}

struct Entry {
    /// The tick at which the stream is woken. [`NEVER`] disarms the timer, and [`REMOVED`] removes the entry.
    due: AtomicU64,
    /// The tick since which the stream is behind. [`NEVER`] if it is at the tail and its client has accepted everything.
    behind_since: AtomicU64,
    seen_signals: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Lag {
    streams: u64,
    longest: Duration,
}

const SHORTEST_TICK: Duration = Duration::from_millis(10);
const LONGEST_TICK: Duration = Duration::from_secs(1);
/// Every stream is behind for a moment after an event.
const NOTICEABLE_LAG: Duration = Duration::from_secs(1);
const NEVER: u64 = u64::MAX - 1;
const REMOVED: u64 = u64::MAX;

impl Entry {
    fn wake(&self) {
        // The waker is called without the lock, because the woken task may drop the entry, which acquires the
        // lock.
        let waker = lock_or_abort(self.waker.lock()).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl KeepAliveTicker {
    pub(crate) fn new(
        limits: &Limits,
        shutdown: Shutdown,
        key_endings: watch::Receiver<u64>,
        grant_changes: watch::Receiver<u64>,
    ) -> Self {
        const TICKS_PER_KEEP_ALIVE: u32 = 16;
        let tick = (limits.keep_alive_interval.min(limits.write_stall_timeout)
            / TICKS_PER_KEEP_ALIVE)
            .clamp(SHORTEST_TICK, LONGEST_TICK);
        let ticks =
            |span: Duration| u64::try_from(span.as_nanos() / tick.as_nanos()).unwrap_or(NEVER / 2);
        let ticker = Self(Arc::new(Inner {
            shutdown,
            key_endings,
            grant_changes,
            started: Instant::now(),
            tick,
            keep_alive: ticks(limits.keep_alive_interval).max(1),
            // The current tick is incomplete and does not count, so no stream times out early.
            write_stall: ticks(limits.write_stall_timeout) + 1,
            now: AtomicU64::new(0),
            signals: AtomicU32::new(0),
            sleepers: Mutex::default(),
        }));
        let inner = Arc::downgrade(&ticker.0);
        metrics().streams_behind(move |observe| {
            if let Some(inner) = inner.upgrade() {
                observe(inner.lag().streams);
            }
        });
        let inner = Arc::downgrade(&ticker.0);
        metrics().stream_lag(move |observe| {
            if let Some(inner) = inner.upgrade() {
                observe(inner.lag().longest.as_secs_f64());
            }
        });
        ticker
    }

    /// Registers a stream. The stream must check for signals at once, because earlier signals do not wake it.
    pub(crate) fn register(&self) -> KeepAlive {
        let seen_signals = self.0.signals.load(Ordering::Acquire).wrapping_sub(1);
        let entry = Arc::new(Entry {
            due: AtomicU64::new(NEVER),
            behind_since: AtomicU64::new(NEVER),
            seen_signals: AtomicU32::new(seen_signals),
            waker: Mutex::default(),
        });
        let mut sleepers = self.lock();
        sleepers.entries.push(Arc::clone(&entry));
        sleepers.registered += 1;
        // The stagger spreads streams that an event woke together over several ticks. It also allows for a
        // late tick.
        let stagger = 1 + sleepers.registered % (self.0.keep_alive / 4).max(1);
        if !std::mem::replace(&mut sleepers.is_running, true) {
            self.0.update_now();
            drop(self.0.shutdown.spawn_critical(self.clone().run()));
        }
        drop(sleepers);
        KeepAlive(Timer {
            ticker: self.clone(),
            entry,
            stagger,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        lock_or_abort(self.0.sleepers.lock())
    }

    async fn run(self) {
        /// The tick during a drain. It bounds the delay between the last stream and the end of the task.
        const DRAIN_TICK: Duration = Duration::from_millis(10);
        let Inner { shutdown, tick, .. } = &*self.0;
        let mut drains = false;
        let mut ends = false;
        let mut key_endings = self.0.key_endings.clone();
        let mut grant_changes = self.0.grant_changes.clone();
        let mut next = Instant::now() + *tick;
        loop {
            tokio::select! {
                () = shutdown.drain_started(), if !drains => {
                    drains = true;
                    next = Instant::now() + DRAIN_TICK;
                    self.signal_all();
                }
                () = shutdown.abort_started(), if !ends => {
                    ends = true;
                    self.signal_all();
                }
                Ok(()) = key_endings.changed() => self.signal_all(),
                Ok(()) = grant_changes.changed() => self.signal_all(),
                () = tokio::time::sleep_until(next) => {
                    next = Instant::now() + if drains { DRAIN_TICK } else { *tick };
                    if !self.tick() {
                        return;
                    }
                }
            }
        }
    }

    fn signal_all(&self) {
        self.0.signals.fetch_add(1, Ordering::Release);
        self.lock().entries.iter().for_each(|entry| entry.wake());
    }

    /// Wakes the due streams. Returns false if no stream is registered.
    fn tick(&self) -> bool {
        let now = self.0.update_now();
        let mut sleepers = self.lock();
        sleepers.entries.retain(|entry| {
            let due = entry.due.load(Ordering::Acquire);
            if due <= now {
                entry.wake();
            }
            due != REMOVED
        });
        let used = sleepers.entries.len();
        let capacity = sleepers.entries.capacity();
        if capacity > 64 && used < capacity / 4 {
            sleepers.entries.shrink_to_fit();
        }
        sleepers.is_running = used > 0;
        sleepers.is_running
    }
}

impl Inner {
    fn elapsed_ticks(&self) -> u64 {
        let ticks = self.started.elapsed().as_nanos() / self.tick.as_nanos();
        u64::try_from(ticks).unwrap_or(NEVER / 2)
    }

    fn update_now(&self) -> u64 {
        let now = self.elapsed_ticks();
        self.now.store(now, Ordering::Release);
        now
    }

    /// The streams that have been behind for longer than [`NOTICEABLE_LAG`].
    fn lag(&self) -> Lag {
        // The time of the timers belongs to the ticks: a metrics read does not store it.
        let now = self.elapsed_ticks();
        let mut lag = Lag::default();
        for entry in &lock_or_abort(self.sleepers.lock()).entries {
            let ticks = now.saturating_sub(entry.behind_since.load(Ordering::Relaxed));
            let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
            let behind = self.tick.saturating_mul(ticks);
            if behind > NOTICEABLE_LAG {
                lag.streams += 1;
                lag.longest = lag.longest.max(behind);
            }
        }
        lag
    }
}

/// The keep-alive timer of one stream. Dropping it removes the timer.
#[derive(derive_more::Deref)]
pub(crate) struct KeepAlive(Timer);

/// A handle to the timer of a stream. Direct delivery has one while the task of the stream waits.
#[derive(Clone)]
pub(crate) struct Timer {
    ticker: KeepAliveTicker,
    entry: Arc<Entry>,
    stagger: u64,
}

impl Timer {
    /// Records that data was sent. The next keep-alive is due after `keep_alive` at the latest.
    pub(super) fn data_sent(&self) {
        self.due_in(self.ticker.0.keep_alive.saturating_sub(self.stagger).max(1));
    }

    /// Records that the peer accepted bytes of a pending write. Without further progress, the timer is due
    /// after `write_stall`.
    pub(super) fn write_progressed(&self) {
        self.due_in(self.ticker.0.write_stall);
    }

    fn due_in(&self, ticks: u64) {
        let now = self.ticker.0.now.load(Ordering::Relaxed);
        self.entry.due.store(now + ticks, Ordering::Release);
    }

    /// Disarms the timer, for a stream whose HTTP connection detects stalls.
    pub(super) fn disarm(&self) {
        self.entry.due.store(NEVER, Ordering::Release);
    }

    /// Records that the stream waits for its client or for the store. An earlier time stays until the stream has caught up.
    pub(super) fn fell_behind(&self) {
        let behind_since = &self.entry.behind_since;
        if behind_since.load(Ordering::Relaxed) == NEVER {
            let now = self.ticker.0.now.load(Ordering::Relaxed);
            behind_since.store(now, Ordering::Relaxed);
        }
    }

    /// Records that the stream is at the tail and that its client has accepted everything.
    pub(super) fn caught_up(&self) {
        self.entry.behind_since.store(NEVER, Ordering::Relaxed);
    }

    pub(super) fn is_due(&self) -> bool {
        self.ticker.0.now.load(Ordering::Relaxed) >= self.entry.due.load(Ordering::Relaxed)
    }

    /// Whether a signal arrived since the last [`take_signal`](Self::take_signal).
    pub(super) fn is_signalled(&self) -> bool {
        self.ticker.0.signals.load(Ordering::Acquire)
            != self.entry.seen_signals.load(Ordering::Relaxed)
    }

    /// Returns whether a signal arrived since the last call, and clears it.
    pub(super) fn take_signal(&self) -> bool {
        let signals = self.ticker.0.signals.load(Ordering::Acquire);
        self.entry.seen_signals.swap(signals, Ordering::Relaxed) != signals
    }

    pub(super) fn shutdown(&self) -> &Shutdown {
        &self.ticker.0.shutdown
    }

    /// Registers the waker of the task for the due tick and for signals. The caller must then check for both
    /// again.
    pub(super) fn register_waker(&self, context: &Context<'_>) {
        let mut waker = lock_or_abort(self.entry.waker.lock());
        match &mut *waker {
            Some(waker) => waker.clone_from(context.waker()),
            None => *waker = Some(context.waker().clone()),
        }
    }

    #[cfg(test)]
    pub(super) fn is_armed(&self) -> bool {
        self.entry.due.load(Ordering::Acquire) < NEVER
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.entry.due.store(REMOVED, Ordering::Release);
        self.caught_up();
        drop(lock_or_abort(self.entry.waker.lock()).take());
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    fn ticker(shutdown: &Shutdown, key_endings: watch::Receiver<u64>) -> KeepAliveTicker {
        let limits = Limits {
            keep_alive_interval: Duration::from_secs(15),
            ..Limits::default()
        };
        let (_, grants) = watch::channel(0);
        KeepAliveTicker::new(&limits, shutdown.clone(), key_endings, grants)
    }

    /// Completes when the timer is due or a signal arrived.
    async fn due_or_signalled(keep_alive: &KeepAlive) {
        poll_fn(|context| {
            keep_alive.register_waker(context);
            if keep_alive.is_due() || keep_alive.is_signalled() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn silent_streams_wake_before_keep_alive_and_at_different_ticks() {
        let shutdown = Shutdown::new();
        let (_keys, endings) = watch::channel(0);
        let clock = ticker(&shutdown, endings);
        let began = Instant::now();
        let wait = |keep_alive: KeepAlive| async move {
            assert!(keep_alive.take_signal(), "a new stream has a signal");
            keep_alive.data_sent();
            due_or_signalled(&keep_alive).await;
            began.elapsed()
        };
        let keep_alives: Vec<_> = (0..20).map(|_| wait(clock.register())).collect();
        let mut times = futures_util::future::join_all(keep_alives).await;
        times.sort();
        let first = times[0];
        let last = times[19];
        assert!(last <= Duration::from_secs(15), "{last:?}");
        assert!(first >= Duration::from_secs(10), "{first:?}");
        times.dedup();
        assert!(times.len() >= 4, "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_ends_after_its_timeout_and_progress_postpones_it() {
        let shutdown = Shutdown::new();
        let (_keys, endings) = watch::channel(0);
        let clock = ticker(&shutdown, endings);
        let keep_alive = clock.register();
        keep_alive.take_signal();
        keep_alive.write_progressed();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!keep_alive.is_due());
        let progress = Instant::now();
        keep_alive.write_progressed();
        due_or_signalled(&keep_alive).await;
        let stalled = progress.elapsed();
        assert!(
            (Duration::from_secs(30)..Duration::from_secs(33)).contains(&stalled),
            "{stalled:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn data_sent_while_parked_postpones_the_keep_alive() {
        let shutdown = Shutdown::new();
        let (keys, endings) = watch::channel(0);
        let ticker = ticker(&shutdown, endings);
        let keep_alive = ticker.register();
        keep_alive.take_signal();
        keep_alive.data_sent();
        let timer = Timer::clone(&keep_alive);
        tokio::time::sleep(Duration::from_secs(8)).await;
        timer.data_sent();
        let sent = Instant::now();
        due_or_signalled(&keep_alive).await;
        assert!((Duration::from_secs(10)..=Duration::from_secs(15)).contains(&sent.elapsed()));
        assert!(!timer.is_signalled());
        assert_eq!(keys.send_replace(1), 0);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert!(timer.is_signalled());
    }

    #[tokio::test(start_paused = true)]
    async fn lag_lasts_until_a_stream_has_caught_up_or_ends() {
        let (_keys, endings) = watch::channel(0);
        let clock = ticker(&Shutdown::new(), endings);
        let first = clock.register();
        let second = clock.register();
        let lag = || clock.0.lag();
        first.fell_behind();
        assert_eq!(lag(), Lag::default(), "every stream is behind for a moment");
        tokio::time::sleep(Duration::from_secs(20)).await;
        first.fell_behind();
        second.fell_behind();
        let one = lag();
        assert_eq!(one.streams, 1);
        assert!((18..=20).contains(&one.longest.as_secs()), "{one:?}");
        first.caught_up();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(lag().streams, 1, "the second stream is behind");
        drop(second);
        assert_eq!(lag(), Lag::default());
    }

    #[tokio::test(start_paused = true)]
    async fn all_streams_are_signalled_and_the_task_ends_with_the_last() {
        let shutdown = Shutdown::new();
        let (keys, endings) = watch::channel(0);
        let clock = ticker(&shutdown, endings);
        let keep_alives = [clock.register(), clock.register()];
        let key_ends = || assert_eq!(keys.send_replace(1), 0);
        for cause in [&key_ends as &dyn Fn(), &|| shutdown.start_drain(), &|| {
            shutdown.abort();
        }] {
            for keep_alive in &keep_alives {
                assert!(keep_alive.take_signal());
            }
            assert!(
                keep_alives
                    .iter()
                    .all(|keep_alive| !keep_alive.is_signalled())
            );
            cause();
            for keep_alive in &keep_alives {
                due_or_signalled(keep_alive).await;
            }
        }
        let left = tokio::time::timeout(
            Duration::from_secs(10),
            shutdown.wait_for_tasks(Duration::from_secs(5)),
        );
        assert!(
            !left.await.expect("the wait is bounded"),
            "the task runs while streams exist"
        );
        drop(keep_alives);
        assert!(shutdown.wait_for_tasks(Duration::from_secs(5)).await);
        assert_eq!(clock.lock().entries.len(), 0);
    }
}
