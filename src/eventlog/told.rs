//! How far something is committed, and who waits for more.
//!
//! A thread that wakes a thousand tasks of another thread asks the kernel a thousand times. So a thread that runs many
//! readers has a herald: the writer wakes that one task, and the task wakes its neighbours.

use std::collections::{BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use tokio::sync::{Notify, watch};
use tokio::task::yield_now;

use crate::shutdown::sound;
use crate::types::limits::WOKEN_AT_ONCE as AT_ONCE;

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

    /// Wakes who waits, unless they have been told of a later number.
    pub(super) fn tell(&self, number: u64) {
        let grows = self.last.send_if_modified(|last| {
            let grows = number > *last;
            *last = number.max(*last);
            grows
        });
        if grows {
            self.bells().retain(|Hung { bell, herald }| {
                // Nobody else has it: who listened is gone.
                let heard = Arc::strong_count(bell) > 1;
                if heard {
                    herald.send(bell);
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

/// The readers of one thread that wait for the same. Each has a seat for as long as it is there.
#[derive(Debug, Default)]
struct Bell(Mutex<Seats>);

#[derive(Debug, Default)]
struct Seats {
    round: Round,
    all: Vec<Seat>,
    /// The last one is taken.
    free: BTreeSet<usize>,
}

#[derive(Debug, Default)]
struct Seat {
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
    fn seats(&self) -> MutexGuard<'_, Seats> {
        sound(self.0.lock())
    }

    fn sit_down(&self) -> usize {
        let mut seats = self.seats();
        if let Some(free) = seats.free.pop_first() {
            return free;
        }
        seats.all.push(Seat::default());
        seats.all.len() - 1
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
        drop(seat);
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
        let round = &mut self.seats().round;
        let begins = *round == Round::None;
        *round = match round {
            Round::None | Round::Due => Round::Due,
            Round::Runs | Round::Again => Round::Again,
        };
        begins
    }

    /// Wakes some of those who wait, from this place on; gives the place to go on from, none when the round is over.
    fn ring(&self, from: usize) -> Option<usize> {
        let mut seats = self.seats();
        if from == 0 {
            seats.round = Round::Runs;
        }
        let mut woken = 0;
        for (place, seat) in seats.all.iter_mut().enumerate().skip(from) {
            if woken == AT_ONCE {
                return Some(place);
            }
            if std::mem::take(&mut seat.waits)
                && let Some(waker) = &seat.waker
            {
                waker.wake_by_ref();
                woken += 1;
            }
        }
        let again = seats.round == Round::Again;
        seats.round = if again { Round::Due } else { Round::None };
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

    /// From now on its reader is one of those that this herald wakes. `told` is what it listens to.
    pub(super) fn heeds(&mut self, told: &Told, herald: &Arc<Herald>) {
        let bell = told.bell(herald);
        let place = bell.sit_down();
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

/// Wakes the readers of one thread, on that thread.
#[derive(Debug, Default)]
pub struct Herald {
    /// Each bell is here once, or in the rounds that run.
    sent: Mutex<Vec<Arc<Bell>>>,
    wake: Notify,
}

impl Herald {
    fn send(&self, bell: &Arc<Bell>) {
        if bell.is_told() {
            sound(self.sent.lock()).push(Arc::clone(bell));
            self.wake.notify_one();
        }
    }

    /// Runs for as long as it is polled, which is to be by the thread whose readers heed it.
    pub async fn run(&self) {
        // In turn, so that the few readers of one log do not wait for all of another's.
        let mut rounds = VecDeque::new();
        loop {
            rounds.extend(std::mem::take(&mut *sound(self.sent.lock())).into_iter().map(|bell| (bell, 0)));
            let Some((bell, from)) = rounds.pop_front() else {
                self.wake.notified().await;
                continue;
            };
            if let Some(from) = bell.ring(from) {
                rounds.push_back((bell, from));
                yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::shutdown::Shutdown;

    fn run(herald: &Arc<Herald>) {
        let herald = Arc::clone(herald);
        drop(Shutdown::new().spawn(async move { herald.run().await }));
    }

    async fn in_time(wait: impl Future<Output = ()>) {
        timeout(Duration::from_secs(20), wait).await.expect("it is woken");
    }

    #[tokio::test]
    async fn who_heeds_a_herald_misses_nothing() {
        let (told, herald) = (Told::new(1), Arc::new(Herald::default()));
        run(&herald);
        let (mut plain, mut heeding) = (told.ear(), told.ear());
        heeding.heeds(&told, &herald);
        for number in 2..100 {
            if number % 2 == 0 {
                // What is told before it waits is there at once.
                told.tell(number);
                in_time(heeding.moved()).await;
            } else {
                let late = async {
                    tokio::task::yield_now().await;
                    told.tell(number);
                };
                tokio::join!(in_time(heeding.moved()), late);
            }
            in_time(plain.moved()).await;
            assert_eq!((heeding.look(), plain.look()), (number, number));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_number_wakes_nobody() {
        let (told, herald) = (Told::new(5), Arc::new(Herald::default()));
        let mut ear = told.ear();
        ear.heeds(&told, &herald);
        told.tell(4);
        told.tell(5);
        let woken = async {
            tokio::select! {
                () = herald.run() => {}
                () = ear.moved() => {}
            }
        };
        timeout(Duration::from_secs(1), woken).await.unwrap_err();
        assert_eq!(told.last(), 5);
    }

    #[tokio::test]
    async fn a_bell_goes_with_the_last_who_hears_it() {
        let (told, herald) = (Told::new(0), Arc::new(Herald::default()));
        run(&herald);
        let (mut one, mut other) = (told.ear(), told.ear());
        one.heeds(&told, &herald);
        other.heeds(&told, &herald);
        drop(one);
        told.tell(1);
        in_time(other.moved()).await;
        assert_eq!((other.look(), told.bells().len()), (1, 1));
        drop(other);
        // What is sent holds the bell until the herald has rung.
        while Arc::strong_count(&told.bells()[0].bell) > 1 {
            tokio::task::yield_now().await;
        }
        told.tell(2);
        assert_eq!(told.bells().len(), 0);
    }

    #[tokio::test]
    async fn everybody_is_woken_however_many_there_are_and_whoever_left() {
        let (told, herald) = (Told::new(0), Arc::new(Herald::default()));
        run(&herald);
        let mut ears: Vec<_> = (0..5 * AT_ONCE).map(|_| told.ear()).collect();
        for ear in &mut ears {
            ear.heeds(&told, &herald);
        }
        let bell = Arc::clone(&told.bells()[0].bell);
        for number in 1..4 {
            let waits = ears.iter_mut().map(Ear::moved);
            let all = async { drop(futures_util::future::join_all(waits).await) };
            let late = async {
                tokio::task::yield_now().await;
                told.tell(number);
            };
            tokio::join!(in_time(all), late);
            for ear in &mut ears {
                assert_eq!(ear.look(), number);
            }
            // Whose seats are free have them taken by others.
            ears.truncate(4 * AT_ONCE);
            ears.drain(..AT_ONCE / 2);
            let new = (0..AT_ONCE).map(|_| {
                let mut ear = told.ear();
                ear.heeds(&told, &herald);
                ear
            });
            ears.extend(new);
        }
        // Looked at without the lock: who fails while holding it ends the process before the test is told of.
        let seats = || {
            let seats = bell.seats();
            (seats.all.len(), seats.free.len())
        };
        let taken = seats();
        assert_eq!(taken, (ears.len(), 0), "seats are taken again");
        ears.clear();
        let taken = seats();
        assert_eq!(taken, (0, 0), "nothing is kept for who left");
    }

    #[tokio::test]
    async fn what_is_told_often_is_one_round_and_others_do_not_wait_for_it() {
        let herald = Arc::new(Herald::default());
        let (much, little) = (Told::new(0), Told::new(0));
        let mut many: Vec<_> = (0..10 * AT_ONCE).map(|_| much.ear()).collect();
        for ear in &mut many {
            ear.heeds(&much, &herald);
        }
        let mut one = little.ear();
        one.heeds(&little, &herald);
        let woken = Cell::new(0);
        let all = futures_util::future::join_all(many.iter_mut().map(async |ear| {
            ear.moved().await;
            woken.set(woken.get() + 1);
        }));
        let told = async {
            tokio::task::yield_now().await;
            for number in 1..1000 {
                much.tell(number);
            }
            little.tell(1);
            assert_eq!(sound(herald.sent.lock()).len(), 2);
            run(&herald);
        };
        let first = async {
            one.moved().await;
            woken.get()
        };
        let (_, (), before) = tokio::join!(all, told, first);
        assert!(before <= 2 * AT_ONCE, "{before} were woken before");
        // The herald has nothing left to ring for.
        while Arc::strong_count(&much.bells()[0].bell) > 1 + many.len() {
            tokio::task::yield_now().await;
        }
        assert_eq!(much.bells()[0].bell.seats().round, Round::None);
    }
}
