//! Notification of readers that wait at the tail.
//!
//! To wake a task of another thread costs a system call. Therefore each stream thread has one [`Notifier`].
//! The writer wakes the notifier's task, which then wakes the readers of its thread.
//!
//! A reader can register a [`DirectSink`]. The notifier delivers to the sink and does not wake the reader's
//! task.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use tokio::sync::{Notify, watch};
use tokio::task::yield_now;

use crate::limits::NOTIFY_BATCH as AT_ONCE;
use base::shutdown::lock_or_abort;

/// The last published position (a seq or a global position). It only grows. Subscribers are notified when it
/// advances.
#[derive(Debug)]
pub(super) struct Watermark {
    last: watch::Sender<u64>,
    registrations: Mutex<Vec<Registration>>,
}

#[derive(Debug)]
struct Registration {
    wait_list: Arc<WaitList>,
    notifier: Arc<Notifier>,
}

impl Watermark {
    pub(super) fn new(last: u64) -> Self {
        Self {
            last: watch::Sender::new(last),
            registrations: Mutex::default(),
        }
    }

    fn registrations(&self) -> MutexGuard<'_, Vec<Registration>> {
        lock_or_abort(self.registrations.lock())
    }

    pub(super) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// A receiver that is notified of each change of the position.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    pub(super) fn subscribe(&self) -> Subscription {
        Subscription {
            last: self.last.subscribe(),
            guard: None,
        }
    }

    /// Advances the position and notifies the subscribers. A lower position has no effect.
    pub(super) fn advance(&self, position: u64) {
        let grows = self.last.send_if_modified(|last| {
            let grows = position > *last;
            *last = position.max(*last);
            grows
        });
        if !grows {
            return;
        }
        self.registrations().retain(|of| {
            // Only this list holds the wait list: all its subscribers were dropped.
            let subscribed = Arc::strong_count(&of.wait_list) > 1;
            if subscribed {
                of.notifier.enqueue(&of.wait_list);
            }
            subscribed
        });
    }

    fn wait_list(&self, notifier: &Arc<Notifier>) -> Arc<WaitList> {
        let mut registrations = self.registrations();
        let known = registrations
            .iter()
            .find(|of| Arc::ptr_eq(&of.notifier, notifier));
        if let Some(known) = known {
            return Arc::clone(&known.wait_list);
        }
        let wait_list = Arc::default();
        registrations.push(Registration {
            wait_list: Arc::clone(&wait_list),
            notifier: Arc::clone(notifier),
        });
        wait_list
    }
}

/// Receives events for a reader whose task waits at the tail.
pub trait DirectSink: fmt::Debug + Send + Sync {
    /// Delivers the new events. The notifier calls it in each pass while the reader waits. A pass can cover
    /// several advances. Must not block.
    fn try_deliver(&self) -> Delivery;
}

/// The result of [`DirectSink::try_deliver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The sink delivered all events. The task stays parked.
    CaughtUp,
    /// The sink delivered a part. The notifier calls it again in the next pass.
    More,
    /// The sink cannot continue. The notifier wakes the reader's task.
    WakeTask,
}

/// The waiting readers of one thread on one watermark. A reader keeps its slot until it deregisters.
#[derive(Debug, Default)]
struct WaitList {
    pass: Mutex<PassState>,
    /// Locked while a batch is notified.
    waiters: Mutex<TailWaiters>,
}

#[derive(Debug, Default)]
struct TailWaiters {
    all: Vec<TailWaiter>,
    /// Free slots, except at the end of `all`: trailing free slots are removed.
    free: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct TailWaiter {
    sink: Option<Arc<dyn DirectSink>>,
    /// Kept between waits to avoid clones.
    waker: Option<Waker>,
    waiting: bool,
}

/// The state of the notification pass. Advances that arrive while a pass is queued are coalesced into it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PassState {
    #[default]
    Idle,
    Queued,
    Running,
    /// A pass is running, and another pass must follow.
    RunningAgain,
}

impl WaitList {
    fn pass(&self) -> MutexGuard<'_, PassState> {
        lock_or_abort(self.pass.lock())
    }

    fn waiters(&self) -> MutexGuard<'_, TailWaiters> {
        lock_or_abort(self.waiters.lock())
    }

    fn register(&self, sink: Option<Arc<dyn DirectSink>>) -> usize {
        let mut waiters = self.waiters();
        let slot = waiters.free.pop_first().unwrap_or_else(|| {
            waiters.all.push(TailWaiter::default());
            waiters.all.len() - 1
        });
        waiters.all[slot].sink = sink;
        slot
    }

    fn deregister(&self, slot: usize) {
        let mut waiters = self.waiters();
        // Drop the waker after the lock is released: it may hold the last reference to a task.
        let waiter = std::mem::take(&mut waiters.all[slot]);
        waiters.free.insert(slot);
        while let Some(last) = waiters.all.len().checked_sub(1)
            && waiters.free.remove(&last)
        {
            waiters.all.pop();
        }
        drop(waiters);
        drop(waiter);
    }

    fn wait(&self, slot: usize, waker: &Waker) {
        let mut waiters = self.waiters();
        let waiter = &mut waiters.all[slot];
        waiter.waiting = true;
        let kept = waiter.waker.as_ref();
        if kept.is_some_and(|kept| kept.will_wake(waker)) {
            return;
        }
        let other = waiter.waker.replace(waker.clone());
        drop(waiters);
        drop(other);
    }

    /// Requests a pass. Returns true if the caller must start it.
    fn request_pass(&self) -> bool {
        let mut pass = self.pass();
        let begins = *pass == PassState::Idle;
        *pass = match *pass {
            PassState::Idle | PassState::Queued => PassState::Queued,
            PassState::Running | PassState::RunningAgain => PassState::RunningAgain,
        };
        begins
    }

    /// Notifies up to `budget` waiters from slot `from` on. Returns the slot to continue from, or `None` when
    /// the pass is complete.
    fn notify_batch(&self, from: usize, budget: &mut usize) -> Option<usize> {
        if from == 0 {
            *self.pass() = PassState::Running;
        }
        let mut waiters = self.waiters();
        for (slot, waiter) in waiters.all.iter_mut().enumerate().skip(from) {
            if !waiter.waiting {
                continue;
            }
            if *budget == 0 {
                return Some(slot);
            }
            *budget -= 1;
            let sink = waiter.sink.as_ref();
            match sink.map_or(Delivery::WakeTask, |sink| sink.try_deliver()) {
                Delivery::CaughtUp => {}
                Delivery::More => *self.pass() = PassState::RunningAgain,
                Delivery::WakeTask => {
                    waiter.waiting = false;
                    if let Some(waker) = &waiter.waker {
                        waker.wake_by_ref();
                    }
                }
            }
        }
        let mut pass = self.pass();
        let again = *pass == PassState::RunningAgain;
        *pass = PassState::Idle;
        again.then(|| {
            *pass = PassState::Queued;
            0
        })
    }
}

/// A reader's subscription to a watermark.
#[derive(Debug)]
pub(super) struct Subscription {
    last: watch::Receiver<u64>,
    guard: Option<TailWaiterGuard>,
}

#[derive(Debug)]
struct TailWaiterGuard {
    wait_list: Arc<WaitList>,
    slot: usize,
}

impl Drop for TailWaiterGuard {
    fn drop(&mut self) {
        self.wait_list.deregister(self.slot);
    }
}

impl Subscription {
    /// Returns the position and marks it as seen. [`changed`](Self::changed) waits for a later position.
    pub(super) fn observe(&mut self) -> u64 {
        *self.last.borrow_and_update()
    }

    /// Registers with the wait list of `notifier`. `watermark` must be the one that this subscription
    /// observes.
    pub(super) fn subscribe_via(
        &mut self,
        watermark: &Watermark,
        notifier: &Arc<Notifier>,
        sink: Option<Arc<dyn DirectSink>>,
    ) {
        let wait_list = watermark.wait_list(notifier);
        let slot = wait_list.register(sink);
        self.guard = Some(TailWaiterGuard { wait_list, slot });
    }

    /// Waits until the position advances beyond the last observed one. Cancel-safe. The caller must keep the
    /// watermark alive.
    pub(super) async fn changed(&mut self) {
        const SENDER_ALIVE: &str = "the caller keeps the watermark alive";
        let Some(TailWaiterGuard { wait_list, slot }) = &self.guard else {
            return self.last.changed().await.expect(SENDER_ALIVE);
        };
        poll_fn(|context| {
            // Register the waker before the check, so that an advance after the check is not missed.
            wait_list.wait(*slot, context.waker());
            if self.last.has_changed().expect(SENDER_ALIVE) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Notifies the readers of one thread from a task on that thread.
#[derive(Debug, Default)]
pub struct Notifier {
    /// Wait lists with a queued pass. A wait list is here at most once, unless a pass of it is running.
    queued: Mutex<Vec<Arc<WaitList>>>,
    wake: Notify,
}

impl Notifier {
    fn enqueue(&self, wait_list: &Arc<WaitList>) {
        if wait_list.request_pass() {
            lock_or_abort(self.queued.lock()).push(Arc::clone(wait_list));
            self.wake.notify_one();
        }
    }

    /// Runs the notifier. Must be polled on the thread that runs the subscribed readers. Never returns.
    pub async fn run(&self) {
        // Round-robin between wait lists, so that a log with few readers does not wait for one with many.
        let mut rounds = VecDeque::new();
        let mut left = AT_ONCE;
        loop {
            let queued = std::mem::take(&mut *lock_or_abort(self.queued.lock()));
            rounds.extend(queued.into_iter().map(|wait_list| (wait_list, 0)));
            let Some((wait_list, from)) = rounds.pop_front() else {
                self.wake.notified().await;
                continue;
            };
            if let Some(from) = wait_list.notify_batch(from, &mut left) {
                rounds.push_back((wait_list, from));
            } else {
                left = left.saturating_sub(1);
            }
            // Yield so that the woken tasks and other tasks of this thread run.
            if left == 0 {
                yield_now().await;
                left = AT_ONCE;
            }
        }
    }
}
