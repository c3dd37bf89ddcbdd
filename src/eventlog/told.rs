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

use crate::shutdown::sound;
use crate::types::limits::{TOLD_AT_ONCE as AT_ONCE, TOLD_BY_THE_WRITER as FEW};

/// The last number that was told. It only grows.
#[derive(Debug)]
pub(super) struct Told {
    last: watch::Sender<u64>,
    bells: Mutex<Vec<Hung>>,
}

/// A bell, and who rings it.
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

    /// The number, as it moves.
    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    pub(super) fn ear(&self) -> Ear {
        Ear { last: self.last.subscribe(), seat: None }
    }

    /// Tells who waits, unless they have been told of a later number. Where they are few, `here` spares them the wait for
    /// their thread.
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
                // Nobody else has it: who listened is gone.
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

/// What takes the place of a reader's task while that waits.
pub trait Outlet: fmt::Debug + Send + Sync {
    /// Something was told.
    fn take(&self) -> Took;
}

/// What an outlet took of what there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Took {
    All,
    /// It comes to the rest in the next round.
    Part,
    /// The task has to see to it.
    Nothing,
}

/// The readers of one thread that wait for the same. Each has a seat for as long as it is there.
#[derive(Debug, Default)]
struct Bell {
    round: Mutex<Round>,
    /// How many have a seat, for who must not wait for those who hold the seats.
    heeding: AtomicUsize,
    /// Who tells them holds them, perhaps for long.
    seats: Mutex<Seats>,
}

#[derive(Debug, Default)]
struct Seats {
    all: Vec<Seat>,
    /// The last one is taken.
    free: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct Seat {
    outlet: Option<Arc<dyn Outlet>>,
    /// It stays from one wait to the next.
    waker: Option<Waker>,
    waits: bool,
}

/// What is told while a round is due is in that round, however often it is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Round {
    #[default]
    None,
    Due,
    Runs,
    /// It runs, and another one is due.
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
        // A waker goes without the lock: it may be the last that holds a task.
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

    /// Whether a round has to be begun for what was told.
    fn is_told(&self) -> bool {
        let mut round = self.round();
        let begins = *round == Round::None;
        *round = match *round {
            Round::None | Round::Due => Round::Due,
            Round::Runs | Round::Again => Round::Again,
        };
        begins
    }

    /// Tells some of those who wait, from this place on, and no more than are `left`; gives the place to go on from, none
    /// when the round is over.
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

/// One reader's part.
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
    /// The number. [`moved`](Self::moved) waits for a later one.
    pub(super) fn look(&mut self) -> u64 {
        *self.last.borrow_and_update()
    }

    /// From now on its reader is one of those that this herald tells. `told` is what it listens to.
    pub(super) fn heeds(&mut self, told: &Told, herald: &Arc<Herald>, outlet: Option<Arc<dyn Outlet>>) {
        let bell = told.bell(herald);
        let place = bell.sit_down(outlet);
        self.seat = Some(Seated { bell, place });
    }

    /// Resolves when something was told since it looked. Whoever has an ear holds what tells.
    pub(super) async fn moved(&mut self) {
        const HELD: &str = "who listens holds what tells";
        let Some(Seated { bell, place }) = &self.seat else { return self.last.changed().await.expect(HELD) };
        poll_fn(|context| {
            // What is told after the look finds it waiting.
            bell.wait(*place, context.waker());
            if self.last.has_changed().expect(HELD) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// Tells the readers of one thread: on that thread, or where they are few on who has news for them.
#[derive(Debug, Default)]
pub struct Herald {
    /// Each bell is here once, or in the rounds that run, unless the writer rings it.
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

    /// Runs for as long as it is polled, which is to be by the thread whose readers heed it.
    pub async fn run(&self) {
        // In turn, so that the few readers of one log do not wait for all of another's.
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
            // Who was woken runs, and what else is to do on this thread, however much is told.
            if left == 0 {
                yield_now().await;
                left = AT_ONCE;
            }
        }
    }
}
