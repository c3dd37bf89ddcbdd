//! Notification of readers that wait at the tail.
//!
//! To wake a task of another thread costs a system call. Therefore each stream thread has one [`Notifier`].
//! The writer wakes the notifier's task, which then wakes the readers of its thread.
//!
//! A reader can register a [`DirectSink`]. The notifier delivers to the sink and does not wake the reader's
//! task. If a session has few readers, the writer notifies them itself.

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

use crate::shutdown::sound;
use crate::types::limits::{TOLD_AT_ONCE as AT_ONCE, TOLD_BY_THE_WRITER as FEW};

/// The last published position (a seq or a global position). It only grows. Subscribers are notified when it
/// advances.
#[derive(Debug)]
pub(super) struct Told {
    last: watch::Sender<u64>,
    bells: Mutex<Vec<Hung>>,
}

/// A wait list and the notifier that serves it.
#[derive(Debug)]
struct Hung {
    bell: Arc<Bell>,
    herald: Arc<Herald>,
}

impl Told {
    pub(super) fn new(last: u64) -> Self {
        Self { last: watch::Sender::new(last), bells: Mutex::default() }
    }

    fn bells(&self) -> MutexGuard<'_, Vec<Hung>> {
        sound(self.bells.lock())
    }

    pub(super) fn last(&self) -> u64 {
        *self.last.borrow()
    }

    /// A receiver that is notified of each change of the position.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    pub(super) fn ear(&self) -> Ear {
        Ear { last: self.last.subscribe(), seat: None }
    }

    /// Advances the position and notifies the subscribers. A lower position has no effect. With `inline`,
    /// this thread notifies the waiters itself if they are few, which saves a thread switch.
    pub(super) fn tell(&self, number: u64, here: bool) {
        let grows = self.last.send_if_modified(|last| {
            let grows = number > *last;
            *last = number.max(*last);
            grows
        });
        if grows {
            let mut bells = self.bells();
            let here = here && bells.iter().map(|hung| hung.bell.heeding()).sum::<usize>() <= FEW;
            bells.retain(|Hung { bell, herald }| {
                // Only this list holds the wait list: all its subscribers were dropped.
                let heard = Arc::strong_count(bell) > 1;
                if heard {
                    herald.send(bell, here);
                }
                heard
            });
        }
    }

    fn bell(&self, herald: &Arc<Herald>) -> Arc<Bell> {
        let mut bells = self.bells();
        if let Some(hung) = bells.iter().find(|hung| Arc::ptr_eq(&hung.herald, herald)) {
            return Arc::clone(&hung.bell);
        }
        let bell = Arc::<Bell>::default();
        bells.push(Hung { bell: Arc::clone(&bell), herald: Arc::clone(herald) });
        bell
    }
}

/// Receives events for a reader whose task waits at the tail.
pub trait Outlet: fmt::Debug + Send + Sync {
    /// Called on each advance while the reader waits. Must not block.
    fn take(&self) -> Took;
}

/// The result of [`DirectSink::try_deliver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    /// The sink delivered all events. The task stays parked.
    All,
    /// The sink delivered a part. The notifier calls it again in the next pass.
    Part,
    /// The sink cannot continue. The notifier wakes the reader's task.
    Nothing,
}

/// The waiting readers of one thread on one watermark. A reader keeps its slot until it deregisters.
#[derive(Debug, Default)]
struct Bell {
    round: Mutex<Round>,
    /// The number of registered readers. It is atomic because a notification can hold the lock of `waiters`
    /// for long.
    heeding: AtomicUsize,
    /// Locked while a batch is notified.
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    all: Vec<Seat>,
    /// Free slots, except at the end of `all`: trailing free slots are removed.
    free: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct Seat {
    outlet: Option<Arc<dyn Outlet>>,
    /// Kept between waits to avoid clones.
    waker: Option<Waker>,
    waits: bool,
}

/// The state of the notification pass. Advances that arrive while a pass is queued are coalesced into it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Round {
    #[default]
    None,
    Due,
    Runs,
    /// A pass is running, and another pass must follow.
    Again,
}

impl Bell {
    fn round(&self) -> MutexGuard<'_, Round> {
        sound(self.round.lock())
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        sound(self.seats.lock())
    }

    fn sit_down(&self, outlet: Option<Arc<dyn Outlet>>) -> usize {
        self.heeding.fetch_add(1, Ordering::Relaxed);
        let mut seats = self.seats();
        let place = seats.free.pop_first().unwrap_or_else(|| {
            seats.all.push(Seat::default());
            seats.all.len() - 1
        });
        seats.all[place].outlet = outlet;
        place
    }

    fn get_up(&self, place: usize) {
        let mut seats = self.seats();
        // Drop the waker after the lock is released: it may hold the last reference to a task.
        let seat = std::mem::take(&mut seats.all[place]);
        seats.free.insert(place);
        while let Some(last) = seats.all.len().checked_sub(1)
            && seats.free.remove(&last)
        {
            seats.all.pop();
        }
        drop(seats);
        self.heeding.fetch_sub(1, Ordering::Relaxed);
        drop(seat);
    }

    fn heeding(&self) -> usize {
        self.heeding.load(Ordering::Relaxed)
    }

    fn wait(&self, place: usize, waker: &Waker) {
        let mut seats = self.seats();
        let seat = &mut seats.all[place];
        seat.waits = true;
        if seat.waker.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            return;
        }
        let other = seat.waker.replace(waker.clone());
        drop(seats);
        drop(other);
    }

    /// Requests a pass. Returns true if the caller must start it.
    fn is_told(&self) -> bool {
        let mut round = self.round();
        let begins = *round == Round::None;
        *round = match *round {
            Round::None | Round::Due => Round::Due,
            Round::Runs | Round::Again => Round::Again,
        };
        begins
    }

    /// Notifies up to `budget` waiters from slot `from` on. Returns the slot to continue from, or `None` when
    /// the pass is complete.
    fn ring(&self, from: usize, left: &mut usize) -> Option<usize> {
        if from == 0 {
            *self.round() = Round::Runs;
        }
        let mut seats = self.seats();
        for (place, seat) in seats.all.iter_mut().enumerate().skip(from).filter(|(_, seat)| seat.waits) {
            if *left == 0 {
                return Some(place);
            }
            *left -= 1;
            match seat.outlet.as_ref().map_or(Took::Nothing, |outlet| outlet.take()) {
                Took::All => {}
                Took::Part => *self.round() = Round::Again,
                Took::Nothing => {
                    seat.waits = false;
                    seat.waker.iter().for_each(Waker::wake_by_ref);
                }
            }
        }
        let mut round = self.round();
        let again = *round == Round::Again;
        *round = if again { Round::Due } else { Round::None };
        again.then_some(0)
    }
}

/// A reader's subscription to a watermark.
#[derive(Debug)]
pub(super) struct Ear {
    last: watch::Receiver<u64>,
    seat: Option<Seated>,
}

#[derive(Debug)]
struct Seated {
    bell: Arc<Bell>,
    place: usize,
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.bell.get_up(self.place);
    }
}

impl Ear {
    /// Returns the position and marks it as seen. [`changed`](Self::changed) waits for a later position.
    pub(super) fn look(&mut self) -> u64 {
        *self.last.borrow_and_update()
    }

    /// Registers with the wait list of `notifier`. `watermark` must be the one that this subscription
    /// observes.
    pub(super) fn heeds(&mut self, told: &Told, herald: &Arc<Herald>, outlet: Option<Arc<dyn Outlet>>) {
        let bell = told.bell(herald);
        let place = bell.sit_down(outlet);
        self.seat = Some(Seated { bell, place });
    }

    /// Waits until the position advances beyond the last observed one. Cancel-safe. The caller must keep the
    /// watermark alive.
    pub(super) async fn moved(&mut self) {
        const HELD: &str = "a subscriber keeps its watermark alive";
        let Some(Seated { bell, place }) = &self.seat else { return self.last.changed().await.expect(HELD) };
        poll_fn(|context| {
            // Register the waker before the check, so that an advance after the check is not missed.
            bell.wait(*place, context.waker());
            if self.last.has_changed().expect(HELD) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Notifies the readers of one thread from a task on that thread. If the readers are few, the writer calls
/// the wait list directly.
#[derive(Debug, Default)]
pub struct Herald {
    /// Wait lists with a queued pass. A wait list is here at most once, unless a pass of it is running.
    sent: Mutex<Vec<Arc<Bell>>>,
    wake: Notify,
}

impl Herald {
    fn send(&self, bell: &Arc<Bell>, here: bool) {
        if bell.is_told() && !(here && bell.ring(0, &mut { FEW }).is_none()) {
            sound(self.sent.lock()).push(Arc::clone(bell));
            self.wake.notify_one();
        }
    }

    /// Runs the notifier. Must be polled on the thread that runs the subscribed readers. Never returns.
    pub async fn run(&self) {
        // Round-robin between wait lists, so that a log with few readers does not wait for one with many.
        let mut rounds = VecDeque::new();
        let mut left = AT_ONCE;
        loop {
            rounds.extend(std::mem::take(&mut *sound(self.sent.lock())).into_iter().map(|bell| (bell, 0)));
            let Some((bell, from)) = rounds.pop_front() else {
                self.wake.notified().await;
                continue;
            };
            if let Some(from) = bell.ring(from, &mut left) {
                rounds.push_back((bell, from));
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
