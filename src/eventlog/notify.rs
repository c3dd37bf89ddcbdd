//! How far something is committed, and who waits for more.
//!
//! A thread that wakes a thousand tasks of another thread asks the kernel a thousand times. So a thread that runs many
//! readers has a herald: the writer wakes that one task, and the task tells its neighbours. Who has an outlet is not even
//! woken: the herald has it take what there is, and goes on to the next. Where few listen the writer does the same itself.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use tokio::sync::{Notify, watch};
use tokio::task::yield_now;

use crate::shutdown::lock_or_abort;
use crate::types::limits::{MAX_WRITER_NOTIFICATIONS as FEW, NOTIFY_BATCH as AT_ONCE};

/// The last number that was told. It only grows.
#[derive(Debug)]
pub(super) struct Watermark {
    last: watch::Sender<u64>,
    registrations: Mutex<Vec<Registration>>,
}

/// A bell, and who rings it.
#[derive(Debug)]
struct Registration {
    wait_list: Arc<WaitList>,
    notifier: Arc<Notifier>,
}

impl Watermark {
    pub(super) fn new(last: u64) -> Self {
        Self { last: watch::Sender::new(last), registrations: Mutex::default() }
    }

    fn registrations(&self) -> MutexGuard<'_, Vec<Registration>> {
        lock_or_abort(self.registrations.lock())
    }

    pub(super) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// The number, as it moves.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    pub(super) fn subscribe(&self) -> Subscription {
        Subscription { last: self.last.subscribe(), guard: None }
    }

    /// Tells who waits, unless they have been told of a later number. Where they are few, `here` spares them the wait for
    /// their thread.
    pub(super) fn advance(&self, position: u64, inline: bool) {
        let grows = self.last.send_if_modified(|last| {
            let grows = position > *last;
            *last = position.max(*last);
            grows
        });
        if grows {
            let mut bells = self.registrations();
            let here = inline && bells.iter().map(|hung| hung.wait_list.registered()).sum::<usize>() <= FEW;
            bells.retain(|Registration { wait_list: bell, notifier: herald }| {
                // Nobody else has it: who listened is gone.
                let heard = Arc::strong_count(bell) > 1;
                if heard {
                    herald.enqueue(bell, here);
                }
                heard
            });
        }
    }

    fn wait_list(&self, herald: &Arc<Notifier>) -> Arc<WaitList> {
        let mut bells = self.registrations();
        if let Some(hung) = bells.iter().find(|hung| Arc::ptr_eq(&hung.notifier, herald)) {
            return Arc::clone(&hung.wait_list);
        }
        let bell = Arc::<WaitList>::default();
        bells.push(Registration { wait_list: Arc::clone(&bell), notifier: Arc::clone(herald) });
        bell
    }
}

/// What takes the place of a reader's task while that waits.
pub trait DirectSink: fmt::Debug + Send + Sync {
    /// Something was told.
    fn try_deliver(&self) -> Delivery;
}

/// What an outlet took of what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    CaughtUp,
    /// It comes to the rest in the next round.
    More,
    /// The task has to see to it.
    WakeTask,
}

/// The readers of one thread that wait for the same. Each has a seat for as long as it is there.
#[derive(Debug, Default)]
struct WaitList {
    pass: Mutex<PassState>,
    /// How many have a seat, for who must not wait for those who hold the seats.
    registered: AtomicUsize,
    /// Who tells them holds them, perhaps for long.
    waiters: Mutex<TailWaiters>,
}

#[derive(Debug, Default)]
struct TailWaiters {
    all: Vec<TailWaiter>,
    /// The last one is taken.
    free: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct TailWaiter {
    sink: Option<Arc<dyn DirectSink>>,
    /// It stays from one wait to the next.
    waker: Option<Waker>,
    waiting: bool,
}

/// What is told while a round is due is in that round, however often it is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PassState {
    #[default]
    Idle,
    Queued,
    Running,
    /// It runs, and another one is due.
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
        self.registered.fetch_add(1, Ordering::Relaxed);
        let mut seats = self.waiters();
        let place = seats.free.pop_first().unwrap_or_else(|| {
            seats.all.push(TailWaiter::default());
            seats.all.len() - 1
        });
        seats.all[place].sink = sink;
        place
    }

    fn deregister(&self, slot: usize) {
        let mut seats = self.waiters();
        // A waker goes without the lock: it may be the last that holds a task.
        let seat = std::mem::take(&mut seats.all[slot]);
        seats.free.insert(slot);
        while let Some(last) = seats.all.len().checked_sub(1)
            && seats.free.remove(&last)
        {
            seats.all.pop();
        }
        drop(seats);
        self.registered.fetch_sub(1, Ordering::Relaxed);
        drop(seat);
    }

    fn registered(&self) -> usize {
        self.registered.load(Ordering::Relaxed)
    }

    fn wait(&self, slot: usize, waker: &Waker) {
        let mut seats = self.waiters();
        let seat = &mut seats.all[slot];
        seat.waiting = true;
        if seat.waker.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            return;
        }
        let other = seat.waker.replace(waker.clone());
        drop(seats);
        drop(other);
    }

    /// Whether a round has to be begun for what was told.
    fn request_pass(&self) -> bool {
        let mut round = self.pass();
        let begins = *round == PassState::Idle;
        *round = match *round {
            PassState::Idle | PassState::Queued => PassState::Queued,
            PassState::Running | PassState::RunningAgain => PassState::RunningAgain,
        };
        begins
    }

    /// Tells some of those who wait, from this place on, and no more than are `left`; gives the place to go on from, none
    /// when the round is over.
    fn notify_batch(&self, from: usize, budget: &mut usize) -> Option<usize> {
        if from == 0 {
            *self.pass() = PassState::Running;
        }
        let mut seats = self.waiters();
        for (place, seat) in seats.all.iter_mut().enumerate().skip(from).filter(|(_, seat)| seat.waiting) {
            if *budget == 0 {
                return Some(place);
            }
            *budget -= 1;
            match seat.sink.as_ref().map_or(Delivery::WakeTask, |outlet| outlet.try_deliver()) {
                Delivery::CaughtUp => {}
                Delivery::More => *self.pass() = PassState::RunningAgain,
                Delivery::WakeTask => {
                    seat.waiting = false;
                    seat.waker.iter().for_each(Waker::wake_by_ref);
                }
            }
        }
        let mut round = self.pass();
        let again = *round == PassState::RunningAgain;
        *round = if again { PassState::Queued } else { PassState::Idle };
        again.then_some(0)
    }
}

/// One reader's part.
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
    /// The number. [`moved`](Self::moved) waits for a later one.
    pub(super) fn observe(&mut self) -> u64 {
        *self.last.borrow_and_update()
    }

    /// From now on its reader is one of those that this herald tells. `told` is what it listens to.
    pub(super) fn subscribe_via(
        &mut self,
        watermark: &Watermark,
        notifier: &Arc<Notifier>,
        sink: Option<Arc<dyn DirectSink>>,
    ) {
        let bell = watermark.wait_list(notifier);
        let place = bell.register(sink);
        self.guard = Some(TailWaiterGuard { wait_list: bell, slot: place });
    }

    /// Resolves when something was told since it looked. Whoever has an ear holds what tells.
    pub(super) async fn changed(&mut self) {
        const SENDER_ALIVE: &str = "who listens holds what tells";
        let Some(TailWaiterGuard { wait_list: bell, slot: place }) = &self.guard else {
            return self.last.changed().await.expect(SENDER_ALIVE);
        };
        poll_fn(|context| {
            // What is told after the look finds it waiting.
            bell.wait(*place, context.waker());
            if self.last.has_changed().expect(SENDER_ALIVE) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Tells the readers of one thread: on that thread, or where they are few on who has news for them.
#[derive(Debug, Default)]
pub struct Notifier {
    /// Each bell is here once, or in the rounds that run, unless the writer rings it.
    queued: Mutex<Vec<Arc<WaitList>>>,
    wake: Notify,
}

impl Notifier {
    fn enqueue(&self, bell: &Arc<WaitList>, inline: bool) {
        if bell.request_pass() && !(inline && bell.notify_batch(0, &mut { FEW }).is_none()) {
            lock_or_abort(self.queued.lock()).push(Arc::clone(bell));
            self.wake.notify_one();
        }
    }

    /// Runs for as long as it is polled, which is to be by the thread whose readers heed it.
    pub async fn run(&self) {
        // In turn, so that the few readers of one log do not wait for all of another's.
        let mut rounds = VecDeque::new();
        let mut left = AT_ONCE;
        loop {
            rounds.extend(
                std::mem::take(&mut *lock_or_abort(self.queued.lock())).into_iter().map(|bell| (bell, 0)),
            );
            let Some((bell, from)) = rounds.pop_front() else {
                self.wake.notified().await;
                continue;
            };
            if let Some(from) = bell.notify_batch(from, &mut left) {
                rounds.push_back((bell, from));
            } else {
                left = left.saturating_sub(1);
            }
            // Who was woken runs, and what else is to do on this thread, however much is told.
            if left == 0 {
                yield_now().await;
                left = AT_ONCE;
            }
        }
    }
}
