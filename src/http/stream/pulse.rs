//! A shared clock for all streams. It wakes a stream after a silent interval, and all streams when the
//! gateway stops or a key ends.
//!
//! Direct writes do not reset the timer until the task of the stream runs. The clock wakes that task at most
//! once per `keep_alive` interval for this.
//!
//! Separate timers and waits would be most of the cost of ten thousand idle streams. Here, each stream has an
//! entry with a due tick and a waker. One task checks all entries at each tick, and it runs while streams
//! exist.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Waker};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::shutdown::{Shutdown, sound};
use crate::types::Limits;

/// A number of ticks of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticks(u64);

/// A cheap handle to the clock.
#[derive(Debug, Clone)]
pub(crate) struct Pulse(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    shutdown: Shutdown,
    key_endings: watch::Receiver<u64>,
    began: Instant,
    tick: Duration,
    keep_alive: Ticks,
    stall: Ticks,
    /// The number of ticks since `started`, as counted by the task.
    now: AtomicU64,
    /// Incremented when all streams must check whether they continue.
    signals: AtomicU32,
    hearts: Mutex<Hearts>,
}

#[derive(Debug, Default)]
struct Hearts {
    /// The task of the clock runs.
    beats: bool,
    entered: u64,
    slots: Vec<Arc<Slot>>,
}

#[derive(Debug)]
struct Slot {
    /// The tick at which the stream is woken. [`NEVER`] disarms the timer, and [`REMOVED`] removes the entry.
    due: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

const NEVER: u64 = u64::MAX - 1;
const GONE: u64 = u64::MAX;

impl Slot {
    fn wake(&self) {
        // The waker is called without the lock, because the woken task may drop the entry, which acquires the
        // lock.
        let waker = sound(self.waker.lock()).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Pulse {
    pub(crate) fn new(limits: &Limits, shutdown: Shutdown, key_endings: watch::Receiver<u64>) -> Self {
        /// The number of ticks per keep-alive interval.
        const BEATS: u32 = 16;
        let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(1));
        let tick = (limits.keep_alive.min(limits.write_stall) / BEATS).clamp(shortest, longest);
        let ticks = |span: Duration| u64::try_from(span.as_nanos() / tick.as_nanos()).unwrap_or(NEVER / 2);
        Self(Arc::new(Inner {
            shutdown,
            key_endings,
            began: Instant::now(),
            tick,
            keep_alive: Ticks(ticks(limits.keep_alive).max(1)),
            // The current tick is incomplete and does not count, so no stream times out early.
            stall: Ticks(ticks(limits.write_stall) + 1),
            now: AtomicU64::new(0),
            signals: AtomicU32::new(0),
            hearts: Mutex::default(),
        }))
    }

    /// Registers a stream. The stream must check for signals at once, because earlier signals do not wake it.
    pub(crate) fn enter(&self) -> Heart {
        let slot = Arc::new(Slot { due: AtomicU64::new(NEVER), waker: Mutex::default() });
        let mut hearts = self.hearts();
        hearts.slots.push(Arc::clone(&slot));
        hearts.entered += 1;
        // The stagger spreads streams that an event woke together over several ticks. It also allows for a
        // late tick.
        let early = Ticks(1 + hearts.entered % (self.0.keep_alive.0 / 4).max(1));
        if !std::mem::replace(&mut hearts.beats, true) {
            self.0.look_at_clock();
            let pulse = self.clone();
            drop(self.0.shutdown.spawn_door(async move { pulse.run().await }));
        }
        drop(hearts);
        let seen = self.0.signals.load(Ordering::Acquire).wrapping_sub(1);
        Heart { pulse: self.clone(), slot, seen, early }
    }

    fn hearts(&self) -> MutexGuard<'_, Hearts> {
        sound(self.0.hearts.lock())
    }

    async fn run(self) {
        /// The tick during a drain. It bounds the delay between the last stream and the end of the task.
        const LAST: Duration = Duration::from_millis(10);
        let Inner { shutdown, tick, .. } = &*self.0;
        let (mut drains, mut ends) = (false, false);
        let mut key_endings = self.0.key_endings.clone();
        let mut next = Instant::now() + *tick;
        loop {
            tokio::select! {
                () = shutdown.soft(), if !drains => {
                    drains = true;
                    next = Instant::now() + LAST;
                    self.signal();
                }
                () = shutdown.hard(), if !ends => {
                    ends = true;
                    self.signal();
                }
                Ok(()) = key_endings.changed() => self.signal(),
                () = tokio::time::sleep_until(next) => {
                    next = Instant::now() + if drains { LAST } else { *tick };
                    if !self.beat() {
                        return;
                    }
                }
            }
        }
    }

    fn signal(&self) {
        self.0.signals.fetch_add(1, Ordering::Release);
        self.hearts().slots.iter().for_each(|slot| slot.wake());
    }

    /// Wakes the due streams. Returns false if no stream is registered.
    fn beat(&self) -> bool {
        let now = self.0.look_at_clock();
        let mut hearts = self.hearts();
        hearts.slots.retain(|slot| {
            let due = slot.due.load(Ordering::Acquire);
            if due <= now {
                slot.wake();
            }
            due != GONE
        });
        if hearts.slots.capacity() > 64 && hearts.slots.len() < hearts.slots.capacity() / 4 {
            hearts.slots.shrink_to_fit();
        }
        hearts.beats = !hearts.slots.is_empty();
        hearts.beats
    }
}

impl Inner {
    fn look_at_clock(&self) -> u64 {
        let ticks = self.began.elapsed().as_nanos() / self.tick.as_nanos();
        let now = u64::try_from(ticks).unwrap_or(NEVER / 2);
        self.now.store(now, Ordering::Release);
        now
    }
}

/// The keep-alive timer of one stream.
#[derive(Debug)]
pub(crate) struct Heart {
    pulse: Pulse,
    slot: Arc<Slot>,
    seen: u32,
    early: Ticks,
}

impl Heart {
    /// Records that data was sent. The next keep-alive is due after `keep_alive` at the latest.
    pub(crate) fn told(&self) {
        self.due_in(self.to_comment());
    }

    fn to_comment(&self) -> u64 {
        self.pulse.0.keep_alive.0.saturating_sub(self.early.0).max(1)
    }

    /// Records that the peer accepted bytes of a pending write. Without further progress, the timer is due
    /// after `write_stall`.
    pub(crate) fn took(&self) {
        self.due_in(self.pulse.0.stall.0);
    }

    /// Disarms the timer, for a stream whose HTTP connection detects stalls.
    pub(crate) fn never_due(&self) {
        self.slot.due.store(NEVER, Ordering::Release);
    }

    fn due_in(&self, ticks: u64) {
        self.due_after(self.pulse.0.now.load(Ordering::Relaxed), ticks);
    }

    fn due_after(&self, now: u64, ticks: u64) {
        self.slot.due.store(now + ticks, Ordering::Release);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.pulse.0.now.load(Ordering::Relaxed) >= self.slot.due.load(Ordering::Relaxed)
    }

    /// Whether a signal arrived since the last [`take_signal`](Self::take_signal).
    pub(crate) fn is_signalled(&self) -> bool {
        self.pulse.0.signals.load(Ordering::Acquire) != self.seen
    }

    /// Returns the part of the timer that direct delivery uses while the task of the stream waits.
    pub(super) fn deputy(&self) -> Deputy {
        Deputy { pulse: self.pulse.clone(), seen: self.seen, told: None }
    }

    /// Restarts the timer from the last direct write.
    pub(super) fn go_on(&self, from: &Deputy) {
        if let Some(Ticks(told)) = from.told {
            self.due_after(told, self.to_comment());
        }
    }

    /// Returns whether a signal arrived since the last call, and clears it.
    pub(crate) fn look(&mut self) -> bool {
        let signals = self.pulse.0.signals.load(Ordering::Acquire);
        std::mem::replace(&mut self.seen, signals) != signals
    }

    /// Registers the waker of the task for the due tick and for signals. The caller must then check for both
    /// again.
    pub(crate) fn wakes(&self, context: &Context<'_>) {
        let mut waker = sound(self.slot.waker.lock());
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
    }
}

/// Replaces the timer of a stream during direct delivery, and records the last direct write.
#[derive(Debug)]
pub(super) struct Deputy {
    pulse: Pulse,
    seen: u32,
    told: Option<Ticks>,
}

impl Deputy {
    /// See [`KeepAlive::is_signalled`].
    pub(super) fn is_signalled(&self) -> bool {
        self.pulse.0.signals.load(Ordering::Acquire) != self.seen
    }

    /// See [`KeepAlive::data_sent`].
    pub(super) fn told(&mut self) {
        self.told = Some(Ticks(self.pulse.0.now.load(Ordering::Relaxed)));
    }

    #[cfg(test)]
    pub(super) fn has_told(&self) -> bool {
        self.told.is_some()
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.slot.due.store(GONE, Ordering::Release);
        drop(sound(self.slot.waker.lock()).take());
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    fn pulse(shutdown: &Shutdown, key_endings: watch::Receiver<u64>) -> Pulse {
        let limits = Limits { keep_alive: Duration::from_secs(15), ..Limits::default() };
        Pulse::new(&limits, shutdown.clone(), key_endings)
    }

    /// Completes when the timer is due or a signal arrived.
    async fn woken(heart: &Heart) {
        poll_fn(|context| {
            heart.wakes(context);
            if heart.is_due() || heart.is_signalled() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_told_nothing_is_woken_before_the_keep_alive_is_over_and_not_all_at_once() {
        let (shutdown, (_keys, endings)) = (Shutdown::new(), watch::channel(0));
        let pulse = pulse(&shutdown, endings);
        let began = Instant::now();
        let wait = |mut heart: Heart| async move {
            assert!(heart.look(), "a new stream has a signal");
            heart.told();
            woken(&heart).await;
            began.elapsed()
        };
        let hearts: Vec<_> = (0..20).map(|_| wait(pulse.enter())).collect();
        let mut times = futures_util::future::join_all(hearts).await;
        times.sort();
        let (first, last) = (times[0], times[19]);
        assert!(last <= Duration::from_secs(15), "{last:?}");
        assert!(first >= Duration::from_secs(10), "{first:?}");
        times.dedup();
        assert!(times.len() >= 4, "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stall_is_not_over_early_and_progress_puts_it_off() {
        let (shutdown, (_keys, endings)) = (Shutdown::new(), watch::channel(0));
        let pulse = pulse(&shutdown, endings);
        let mut heart = pulse.enter();
        heart.look();
        heart.took();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!heart.is_due());
        let progress = Instant::now();
        heart.took();
        woken(&heart).await;
        let stalled = progress.elapsed();
        assert!((Duration::from_secs(30)..Duration::from_secs(33)).contains(&stalled), "{stalled:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_while_a_stream_waited_puts_its_comment_off() {
        let (shutdown, (keys, endings)) = (Shutdown::new(), watch::channel(0));
        let pulse = pulse(&shutdown, endings);
        let mut heart = pulse.enter();
        heart.look();
        heart.told();
        let silent = heart.deputy();
        let mut deputy = heart.deputy();
        tokio::time::sleep(Duration::from_secs(8)).await;
        deputy.told();
        let said = Instant::now();
        woken(&heart).await;
        heart.go_on(&silent);
        assert!(heart.is_due(), "no data was sent");
        heart.go_on(&deputy);
        assert!(!heart.is_due());
        woken(&heart).await;
        assert!((Duration::from_secs(10)..=Duration::from_secs(15)).contains(&said.elapsed()));
        assert!(!deputy.is_signalled());
        assert_eq!(keys.send_replace(1), 0);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        assert!(deputy.is_signalled());
    }

    #[tokio::test(start_paused = true)]
    async fn everybody_hears_of_a_stop_and_of_a_key_that_ended_and_the_task_ends_with_the_last() {
        let (shutdown, (keys, endings)) = (Shutdown::new(), watch::channel(0));
        let pulse = pulse(&shutdown, endings);
        let mut hearts = [pulse.enter(), pulse.enter()];
        let key_ends = || assert_eq!(keys.send_replace(1), 0);
        for cause in [&key_ends as &dyn Fn(), &|| shutdown.begin(), &|| shutdown.abort()] {
            for heart in &mut hearts {
                assert!(heart.look());
            }
            assert!(hearts.iter().all(|heart| !heart.is_signalled()));
            cause();
            for heart in &hearts {
                woken(heart).await;
            }
        }
        let left = tokio::time::timeout(Duration::from_secs(10), shutdown.finished(Duration::from_secs(5)));
        assert!(!left.await.expect("the wait is bounded"), "the task runs while streams exist");
        drop(hearts);
        assert!(shutdown.finished(Duration::from_secs(5)).await);
        assert_eq!(pulse.hearts().slots.len(), 0);
    }
}
