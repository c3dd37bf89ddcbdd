//! How far something is committed, and who waits for more.
//!
//! A thread that wakes a thousand tasks of another thread asks the kernel a thousand times. So a thread that runs many
//! readers has a herald: the writer wakes that one task, and the task wakes its neighbours.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

use tokio::sync::{Notify, watch};
use tokio::task::yield_now;

use crate::shutdown::sound;

/// Readers that are woken before they are let run: what was just touched is still near the processor then, and the first
/// of many need not wait for all to be woken.
const AT_ONCE: usize = 64;

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
    seats: Vec<Seat>,
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct Seat {
    /// It stays from one wait to the next.
    waker: Option<Waker>,
    waits: bool,
}

impl Bell {
    fn seats(&self) -> MutexGuard<'_, Seats> {
        sound(self.0.lock())
    }

    fn sit_down(&self) -> usize {
        let mut seats = self.seats();
        if let Some(free) = seats.free.pop() {
            return free;
        }
        seats.seats.push(Seat::default());
        seats.seats.len() - 1
    }

    fn get_up(&self, place: usize) {
        let mut seats = self.seats();
        // A waker goes without the lock: it may be the last that holds a task.
        let seat = std::mem::take(&mut seats.seats[place]);
        seats.free.push(place);
        drop(seats);
        drop(seat);
    }

    fn wait(&self, place: usize, waker: &Waker) {
        let mut seats = self.seats();
        let seat = &mut seats.seats[place];
        seat.waits = true;
        if seat.waker.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            return;
        }
        let other = seat.waker.replace(waker.clone());
        drop(seats);
        drop(other);
    }

    /// Wakes some of those who wait; false when there are no more.
    fn ring_from(&self, place: usize) -> bool {
        let mut seats = self.seats();
        let rest = seats.seats.get_mut(place..).unwrap_or_default();
        let more = rest.len() > AT_ONCE;
        for seat in rest.iter_mut().take(AT_ONCE) {
            if std::mem::take(&mut seat.waits)
                && let Some(waker) = &seat.waker
            {
                waker.wake_by_ref();
            }
        }
        more
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
    sent: Mutex<Vec<Arc<Bell>>>,
    wake: Notify,
}

impl Herald {
    fn send(&self, bell: &Arc<Bell>) {
        sound(self.sent.lock()).push(Arc::clone(bell));
        self.wake.notify_one();
    }

    /// Runs for as long as it is polled, which is to be by the thread whose readers heed it.
    pub async fn run(&self) {
        let mut bells = Vec::new();
        loop {
            self.wake.notified().await;
            std::mem::swap(&mut bells, &mut *sound(self.sent.lock()));
            for bell in bells.drain(..) {
                let mut place = 0;
                while bell.ring_from(place) {
                    place += AT_ONCE;
                    yield_now().await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(bell.seats().seats.len(), 5 * AT_ONCE);
        ears.clear();
        assert_eq!(bell.seats().free.len(), 5 * AT_ONCE);
    }
}
